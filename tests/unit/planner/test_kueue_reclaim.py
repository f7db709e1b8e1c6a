"""Reclaim judged by Kueue's own tables of preemption: what both evict, and why they differ where they do.

`kueue_reclaim.json` has 26 of the 51 cases of its tests of preemption without fair sharing (Apache-2.0,
commit ff69552e). Nominal quotas are guarantees, those of a cohort with what is below it; what may be borrowed
above them is a max; all quota of a tree is one node. A target that reclaims from `LowerPriority` preempts by
priority alone, with reclaim off; from `Any` with it on. The file counts the other 25 by what they have that
queues do not: preemption while borrowing, limits of lending, several flavors or pod sets.
"""

from collections import Counter
from typing import Final

import pytest

from unit.planner.reclaim_cases import Case, below_guarantee, cases_of, play, priorities

CASES: Final = cases_of("kueue_reclaim.json")

SAME: Final = "as there"
HIGHER: Final = "there a pod of higher priority goes: here never"
GUARANTEED: Final = "there a queue falls below its guarantee: here never"
LOWEST: Final = "there a pod of another queue goes before a less important one: here by priority alone"
_NONE: Final = -(2**31)


def judged(case: Case, found: list[str]) -> str:
    """Return what of our rules makes another answer; empty where that is none of them."""
    theirs = case["victims"]
    if found == theirs:
        return SAME
    if max(priorities(case, theirs), default=_NONE) > case["asks"]["priority"]:
        return HIGHER
    if below_guarantee(case, theirs):
        return GUARANTEED
    return LOWEST if found and priorities(case, found) < priorities(case, theirs) else ""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_no_higher_pod_goes_and_no_queue_falls_below_its_guarantee(case: Case) -> None:
    found = play(case)

    assert below_guarantee(case, found) == []
    assert max(priorities(case, found), default=_NONE) <= case["asks"]["priority"]
    assert judged(case, found)


def test_so_many_cases_end_as_there_and_others_for_these_reasons() -> None:
    table = Counter(judged(case, play(case)) for case in CASES)

    assert table == {SAME: 16, HIGHER: 5, LOWEST: 3, GUARANTEED: 2}
    assert sum(play(case) == case["victims"] != [] for case in CASES) == 12
