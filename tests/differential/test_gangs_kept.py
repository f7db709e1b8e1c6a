"""Plans for gangs on 60 to 400 nodes are no dearer than they were: see `gang_kept.py`."""

from __future__ import annotations

import pytest

from differential.gang_kept import RENEW, Kept, kept, told


@pytest.mark.parametrize("question", kept(), ids=str)
def test_the_plan_for_a_large_gang_costs_no_more_than_the_kept_one(question: Kept) -> None:
    today, wrong = question.today()

    assert not wrong, wrong
    assert today == question, f"cheaper now, {told(today.price)}: keep that by {RENEW}"
