"""A short run of the comparison with the exact solver; see `gangs.py` for a long one."""

from __future__ import annotations

import pytest

from differential.gang_cases import random_case
from differential.gang_exact import broken_rule, cheapest
from differential.gangs import Counts, compare, planned_terms

CASES = 150
PARTS = 5


@pytest.mark.parametrize("part", range(PARTS))
def test_plans_for_gangs_break_no_rule_and_cost_the_least(part: int) -> None:
    counts = Counts()

    for seed in range(part * CASES // PARTS, (part + 1) * CASES // PARTS):
        compare(counts, seed)

    assert counts.broken == []
    assert counts.dearer == []
    assert counts.share() >= 0.97
    assert counts.planned > counts.cases / 2


def test_the_exact_solver_finds_a_plan_that_breaks_a_rule() -> None:
    case = next(
        case for seed in range(100) if (case := random_case(seed)).pods and cheapest(case) is not None
    )

    assert broken_rule(case, [], set()) == "fewer members than must be placed"
    assert broken_rule(case, [(0, 0, case.must)], {"nothing"}) == "a victim that is not there"
    assert planned_terms(case)[0] == cheapest(case)
