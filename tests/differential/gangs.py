"""Plans for gangs against the exact solver: `python -m differential.gangs --cases 10000`.

What is counted, by theme and by size: plans that break a rule or tell a wrong price, final refusals where
there is a plan, and of the prices that differ which term does. What the exact solver did not prove is counted
and not judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from differential.gang_case import Case, loaded, unimportant
from differential.gang_draws import BANDS, THEMES, band_of, draw
from differential.gang_exact import UnprovenError, cheapest
from differential.gang_rules import Terms, broken_rule, terms_of
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.gang.result import GangPlan, GangRefusal
from makeway.planner.plan.refusal.text import NOT_FOUND
from unit.planner.building import NOW

CHUNK = 64
"""Pods of a cluster that the snapshot updates between two pauses."""

NOT_JUDGED, INFEASIBLE, EQUAL = "unproven", "infeasible", "equal"
MISSED, FALSE, BROKEN = "missed", "false final refusal", "broken"
NEEDLESS = "evicts without need"
TERMS = (
    "budget violated without need",
    "higher highest priority",
    "more groups broken",
    "more of the highest priority",
    "higher sum",
    "more victims",
)
"""What is worse in a plan whose terms before are equal."""

HIGHER = (NEEDLESS, TERMS[0], TERMS[1])
COLUMNS = (EQUAL, NEEDLESS, *TERMS, MISSED, FALSE, BROKEN, NOT_JUDGED)


@dataclass(frozen=True)
class Verdict:
    """What came of one draw: `what` of the constants above, and what a reader needs to look at it."""

    seed: int
    theme: str
    band: str
    what: str
    text: str = ""


def judge(seed: int, theme: str = "", band: str = "") -> Verdict:
    """Plan one case both ways."""
    case = draw(seed, theme, band)
    band = band or band_of(seed)
    try:
        exact = cheapest(case)
    except UnprovenError:
        return Verdict(seed, case.theme, band, NOT_JUDGED)
    if exact is not None and (rule := broken_rule(case, exact.placed, set(exact.victims))):
        raise AssertionError(f"the exact solver breaks a rule of draw {seed} ({case.theme}, {band}): {rule}")
    what, text = _compared(case, planned(case), None if exact is None else exact.terms)
    return Verdict(seed, case.theme, band, what, text)


def planned(case: Case) -> GangPlan | GangRefusal:
    """Return what the planner says, in pieces, while changes come that do not matter."""
    snapshot, question = loaded(case)
    for turn, found in enumerate(planning_gang(snapshot, question, NOW, PlanCache())):
        if found is not None:
            return found
        if case.changes and turn < 20:
            unimportant(turn)(snapshot)
    raise AssertionError("the planner said nothing")


def _compared(case: Case, found: GangPlan | GangRefusal, best: Terms | None) -> tuple[str, str]:
    if isinstance(found, GangRefusal):
        if best is None:
            return INFEASIBLE, ""
        text = f"{found.reason}: {found.message}; exact {_told(best)}"
        return (MISSED if found.reason == NOT_FOUND else FALSE), text
    placed = Counter[tuple[int, int]]()
    for one in found.placements:
        placed[one.member_class, int(one.node[1:])] += one.count
    victims = {one.pod.uid for one in found.victims}
    if rule := broken_rule(case, placed, victims):
        return BROKEN, rule
    price = found.price
    ours: Terms = (
        price.violations,
        price.highest,
        price.broken,
        price.highest_victims,
        price.priority_sum,
        price.victims,
    )
    if ours != (real := terms_of(case, [pod for pod in case.pods if pod.uid in victims])):
        return BROKEN, f"told price {_told(ours)}, real {_told(real)}"
    if best is None or ours < best:
        return BROKEN, f"cheaper than the exact plan: {_told(ours)}, exact {_told(best)}"
    if ours == best:
        return EQUAL, ""
    worse = next(number for number in range(len(ours)) if ours[number] != best[number])
    return (TERMS[worse] if best[-1] else NEEDLESS), f"{_told(ours)}, exact {_told(best)}"


def _told(terms: Terms | None) -> str:
    if terms is None:
        return "none"
    return (
        "nothing" if not terms[-1] else "/".join(str(one) for one in (*terms[:4], terms[4] % 2**31, terms[5]))
    )


@dataclass
class Counts:
    """Verdicts, counted."""

    verdicts: list[Verdict] = field(default_factory=list)

    def of(self, theme: str = "", band: str = "") -> Counter[str]:
        """Return how often what came; all themes and sizes together where none is named."""
        return Counter(
            one.what for one in self.verdicts if theme in ("", one.theme) and band in ("", one.band)
        )

    def bad(self) -> Iterator[Verdict]:
        """Yield what is not as it should be, the worst first."""
        order = (BROKEN, FALSE, *HIGHER, MISSED, *TERMS[2:])
        for what in order:
            yield from (one for one in self.verdicts if one.what == what)


def feasible(counts: Counter[str]) -> int:
    """Return how many draws have a plan, as far as that is proven."""
    return sum(count for what, count in counts.items() if what not in (NOT_JUDGED, INFEASIBLE))


def share(counts: Counter[str]) -> float:
    """Return the part of the feasible draws in which every term is equal."""
    return counts[EQUAL] / max(feasible(counts), 1)


def judged(seeds: Iterable[int], theme: str = "", band: str = "", processes: int = 1) -> Counts:
    """Judge some seeds."""
    seeds = list(seeds)
    themes, bands = [theme] * len(seeds), [band] * len(seeds)
    if processes == 1:
        return Counts(list(map(judge, seeds, themes, bands)))
    with ProcessPoolExecutor(processes) as pool:
        return Counts(list(pool.map(judge, seeds, themes, bands, chunksize=10)))


def table(counts: Counts) -> list[str]:
    """Return lines: one a size and theme with draws, then all together."""
    lines = [f"{'':30} {'draws':>6} {'feasible':>8} {'equal':>7}  what else"]
    for band in (*BANDS, ""):
        for theme in (*THEMES, ""):
            found = counts.of(theme, band)
            if found:
                rest = ", ".join(f"{what} {found[what]}" for what in COLUMNS[1:] if found[what])
                lines.append(
                    f"{band or 'all sizes':10} {theme or 'all themes':19} {found.total():6} "
                    f"{feasible(found):8} {share(found):7.2%}  {rest}"
                )
    return lines


def failures(counts: Counts) -> list[str]:
    """Return which goals are missed: every term equal in 99 %, higher terms worse in 1 of 1,000."""
    everything = counts.of()
    found = [f"{what}: {everything[what]}" for what in (BROKEN, FALSE) if everything[what]]
    higher = sum(everything[what] for what in HIGHER)
    if higher * 1000 > feasible(everything):
        found.append(f"higher terms worse: {higher} of {feasible(everything)}")
    for theme in ("", *THEMES):
        counted = counts.of(theme)
        if counted and share(counted) < 0.99:
            found.append(f"{theme or 'all themes'}: {share(counted):.2%} equal")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", help="such as 100-199, instead of --first and --cases")
    parser.add_argument("--theme", choices=THEMES, default="", help="of all draws, instead of the seed's own")
    parser.add_argument("--band", choices=BANDS, default="", help="of all draws, instead of the seed's own")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", type=int, default=40, help="disagreements that are printed")
    given = parser.parse_args(arguments)
    first, last = given.first, given.first + given.cases - 1
    if given.seeds:
        first, last = (int(one) for one in (given.seeds.split("-") * 2)[:2])
    began = time.monotonic()
    counts = judged(range(first, last + 1), given.theme, given.band, given.processes)
    for one in list(counts.bad())[: given.show]:
        print(f"--seeds {one.seed} --theme {one.theme} --band {one.band}: {one.what}: {one.text}")
    print(*table(counts), sep="\n")
    print(f"{time.monotonic() - began:.0f} s")
    missed = failures(counts)
    for failure in missed:
        print(f"goal missed: {failure}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
