"""Plans for gangs against the exact solver: `python -m differential.gangs --cases 10000`.

What is counted: plans that break a rule, refusals where there is a plan, prices that differ, and plans that
are equal in all higher terms and have over a tenth more victims.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

from differential.gang_cases import Case, loaded, random_case
from differential.gang_exact import Terms, broken_rule, cheapest
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.result import GangPlan
from unit.planner.building import NOW


@dataclass
class Counts:
    """What came of some cases. `missed`: seed, the planner's price (None: refused) and the exact one."""

    cases: int = 0
    planned: int = 0
    missed: list[tuple[int, Terms | None, Terms]] = field(default_factory=list)
    broken: list[tuple[int, str]] = field(default_factory=list)
    dearer: list[int] = field(default_factory=list)

    def share(self) -> float:
        """Return the part of the cases with a plan whose price is the exact one."""
        return 1 - len(self.missed) / max(self.planned, 1)


def planned_terms(case: Case) -> tuple[Terms | None, str]:
    """Return the price of the planner's plan, None where it refuses, and which rule it breaks."""
    snapshot, question = loaded(case)
    found = plan_gang(snapshot, question, NOW)
    if not isinstance(found, GangPlan):
        return None, ""
    placed = [(one.member_class, int(one.node[1:]), one.count) for one in found.placements]
    price = found.price
    terms = (
        price.violations,
        price.highest,
        price.broken,
        price.highest_victims,
        price.priority_sum,
        price.victims,
    )
    return terms, broken_rule(case, placed, {one.pod.uid for one in found.victims})


def compare(counts: Counts, seed: int) -> None:
    """Plan one case both ways."""
    case = random_case(seed)
    exact = cheapest(case)
    ours, rule = planned_terms(case)
    counts.cases += 1
    counts.planned += exact is not None
    if rule:
        counts.broken.append((seed, rule))
    if exact is None:
        if ours is not None:
            counts.broken.append((seed, "a plan where there is none"))
        return
    if ours is not None and ours < exact:
        counts.broken.append((seed, f"a price below the least: {ours} < {exact}"))
    elif ours != exact:
        counts.missed.append((seed, ours, exact))
        if ours is not None and ours[:4] == exact[:4] and ours[5] > exact[5] * 1.1:
            counts.dearer.append(seed)


def main() -> None:
    """Compare, and end with 1 where a bound is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    counts, began = Counts(), time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.cases):
        compare(counts, seed)
    print(
        f"{counts.cases} cases, {counts.planned} with a plan, {len(counts.missed)} missed "
        f"({counts.share():.2%} equal), {len(counts.dearer)} with over a tenth more victims, "
        f"{len(counts.broken)} broken, {time.monotonic() - began:.0f} s"
    )
    for one in (*counts.missed[:40], *counts.broken[:40]):
        print(*one)
    sys.exit(bool(counts.broken or counts.dearer or counts.share() < 0.97))


if __name__ == "__main__":
    main()
