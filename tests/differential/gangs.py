"""Plans for gangs against the exact solver: `python -m differential.gangs`, fresh ones with `--cases 10000`.

What is counted, by theme and by size: plans that break a rule or tell a wrong price, final refusals where
there is a plan, and of the prices that differ which term does. What the exact solver did not prove is counted
and not judged.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from differential.gang_case import Case, changed, loaded, unimportant
from differential.gang_draws import BANDS, BLOCK, GOALS, THEMES, band_of, draw
from differential.gang_exact import UnprovenError, cheapest
from differential.gang_rules import Terms, broken_rule, terms_of
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.refusal.text import NOT_FOUND
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW

FIXED = range(2000)
"""Seeds that are drawn where none are named: in none of them a higher term is worse."""

ENOUGH = 200
"""Feasible draws from which on a theme's goal can be judged."""

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
    came = [unimportant(turn) for turn in range(20)] if case.changes else []
    found, _ = planned(case, came)
    what, text = _compared(case, found, None if exact is None else exact.terms)
    if case.changes and what != BROKEN and (wrong := _wrong_after_change(case)):
        what, text = BROKEN, f"after a change: {wrong}"
    return Verdict(seed, case.theme, band, what, text)


def planned(case: Case, changes: Sequence[Callable[[Snapshot], None]]) -> tuple[GangPlan | PlanRefusal, int]:
    """Return what the planner says, in pieces with a change in each pause, and how many of them came.

    What leaves out a rule, since pods are still being grouped by its labels, is asked again after that.
    """
    snapshot, question = loaded(case)
    left, cache = list(changes), PlanCache()
    for _ in range(2):
        found: GangPlan | PlanRefusal | None = None
        for answer in planning_gang(snapshot, question, NOW, cache):
            found = answer
            if found is None and left:
                left.pop(0)(snapshot)
            snapshot.upkeep.apply_chunk()
        if found is None:
            raise AssertionError("the planner said nothing")
        if not found.left_out:
            return found, len(changes) - len(left)
        while snapshot.upkeep.pending:
            snapshot.upkeep.apply_chunk()
    raise AssertionError("rules are left out for good")


def _wrong_after_change(case: Case) -> str:
    """Return what is wrong with a plan in whose first pause the cluster has changed, as it is then."""
    after, change = changed(case)
    found, came = planned(case, [change])
    return "" if isinstance(found, PlanRefusal) else wrong_with(after if came else case, found)


def _compared(case: Case, found: GangPlan | PlanRefusal, best: Terms | None) -> tuple[str, str]:
    if isinstance(found, PlanRefusal):
        if best is None:
            return INFEASIBLE, ""
        text = f"{found.reason}: {found.message}; exact {_told(best)}"
        return (MISSED if found.reason == NOT_FOUND else FALSE), text
    if wrong := wrong_with(case, found):
        return BROKEN, wrong
    ours = _price(found)
    if best is None or ours < best:
        return BROKEN, f"cheaper than the exact plan: {_told(ours)}, exact {_told(best)}"
    if ours == best:
        return EQUAL, ""
    worse = next(number for number in range(len(ours)) if ours[number] != best[number])
    return (TERMS[worse] if best[-1] else NEEDLESS), f"{_told(ours)}, exact {_told(best)}"


def wrong_with(case: Case, found: GangPlan) -> str:
    """Return which rule a plan breaks, or that it tells a wrong price; empty where it is right."""
    placed = Counter[tuple[int, int]]()
    for one in found.placements:
        placed[one.member_class, int(one.node[1:])] += one.count
    victims = {one.pod.uid for one in found.victims}
    if rule := broken_rule(case, placed, victims):
        return rule
    real = terms_of(case, [pod for pod in case.pods if pod.uid in victims])
    return "" if _price(found) == real else f"told price {_told(_price(found))}, real {_told(real)}"


def _price(found: GangPlan) -> Terms:
    price = found.price
    return (
        price.violations,
        price.highest,
        price.broken,
        price.highest_victims,
        price.priority_sum,
        price.victims,
    )


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


@dataclass(frozen=True)
class Goal:
    """What was wanted, and what was found. `reached`: None where there were too few draws to say."""

    name: str
    wanted: str
    found: str
    reached: bool | None

    def line(self) -> str:
        answer = {True: "reached", False: "MISSED", None: "too few draws"}[self.reached]
        return f"{self.name:30} {self.wanted:14} {self.found:20} {answer}"


def goals(counts: Counts, *, fixed: bool) -> list[Goal]:
    """Return the goals: no broken rule, higher terms worse in 1 of 1,000 (`fixed`: of none), 99 % equal."""
    everything = counts.of()
    total = feasible(everything)
    found = [Goal(what, "none", f"{everything[what]}", not everything[what]) for what in (BROKEN, FALSE)]
    higher = sum(everything[what] for what in HIGHER)
    wanted, reached = ("none", not higher) if fixed else ("1 of 1,000", higher * 1000 <= total)
    found.append(Goal("higher terms worse", wanted, f"{higher} of {total}", reached))
    for theme in ("", *GOALS):
        counted = counts.of(theme)
        enough = feasible(counted) >= ENOUGH or (False if fixed else None)
        told = f"{share(counted):.2%} of {feasible(counted)}"
        found.append(Goal(theme or "all themes", "99 % equal", told, enough and share(counted) >= 0.99))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, help="fresh draws, instead of the fixed ones")
    parser.add_argument("--first", type=int, help="first seed, else chosen at random")
    parser.add_argument("--seeds", help="such as 100-199, instead of --first and --cases")
    parser.add_argument("--theme", choices=THEMES, default="", help="of all draws, instead of the seed's own")
    parser.add_argument("--band", choices=BANDS, default="", help="of all draws, instead of the seed's own")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", type=int, default=40, help="disagreements that are printed")
    given = parser.parse_args(arguments)
    seeds = _seeds(given.seeds, given.cases, given.first)
    print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
    began = time.monotonic()
    counts = judged(seeds, given.theme, given.band, given.processes)
    for one in list(counts.bad())[: given.show]:
        print(f"--seeds {one.seed} --theme {one.theme} --band {one.band}: {one.what}: {one.text}")
    print(*table(counts), sep="\n")
    found = goals(counts, fixed=seeds == FIXED and not given.theme and not given.band)
    print("", *(one.line() for one in found), f"{time.monotonic() - began:.0f} s", sep="\n")
    return int(any(one.reached is False for one in found))


def _seeds(named: str | None, cases: int | None, first: int | None) -> range:
    if named:
        low, high = (int(one) for one in (named.split("-") * 2)[:2])
        return range(low, high + 1)
    if cases is None and first is None:
        return FIXED
    if first is None:
        first = BLOCK * random.SystemRandom().randrange(len(FIXED), 10**6)
    return range(first, first + (cases or len(FIXED)))


if __name__ == "__main__":
    sys.exit(main())
