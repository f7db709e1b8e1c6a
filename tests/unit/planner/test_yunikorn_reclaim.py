"""Reclaim judged by YuniKorn's own tests of preemption: what both evict, and why they differ where they do.

`yunikorn_reclaim.json` was written down from its 32 tests (Apache-2.0, commit be3bb487), which are programs:
25 cases of 23 of them; the file counts the other 9 by why not. Where either of two pods would do there, the
one that started last is written down. Which pods fences allow as victims is in unit/core/test_reclaim.py.
"""

from typing import Final

import pytest

from unit.planner.reclaim_cases import Case, below_guarantee, cases_of, play

CASES: Final = cases_of("yunikorn_reclaim.json")

OTHERS: Final = {"TestTryPreemption": ["2"], "VictimsAvailable_InsufficientResource": ["2"]}
"""Who goes here instead: of two alike the one that started last, where the test names the other; and one pod
that has as much as is missing, where victims there have to have as much as is asked for."""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_same_go_as_in_yunikorn(case: Case) -> None:
    found = play(case)

    assert found == OTHERS.get(case["name"], case["victims"])
    assert below_guarantee(case, found) == []


def test_the_others_are_cases_and_differ() -> None:
    differ = {case["name"] for case in CASES if OTHERS.get(case["name"], case["victims"]) != case["victims"]}

    assert (len(CASES), differ) == (25, set(OTHERS))
