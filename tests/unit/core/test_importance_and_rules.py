"""Who matters more, and who may be removed for whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from makeway.core.importance import NOT_STARTED, importance, microseconds, moment_of
from makeway.core.rules import KUBERNETES_RULES, Pair, Verdict, judge

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_higher_priority_then_earlier_start_then_lower_uid_matters_more() -> None:
    order = [
        importance(10, 5, "z"),
        importance(0, 1, "z"),
        importance(0, 2, "a"),
        importance(0, 2, "b"),
        importance(0, NOT_STARTED, "a"),
        importance(-5, 0, "a"),
    ]

    assert sorted(order) == order


def test_times_keep_their_microseconds() -> None:
    moment = NOW + timedelta(microseconds=1)

    assert moment_of(microseconds(moment)) == moment
    assert microseconds(None) == NOT_STARTED


@pytest.mark.parametrize(("victim", "removable"), [(9, True), (10, False), (11, False)])
def test_only_a_pod_of_lower_priority_may_go(victim: int, removable: bool) -> None:
    verdict = judge(KUBERNETES_RULES, Pair(10, victim, NOW))

    assert verdict.removable is removable
    assert verdict.rule == "lower-priority"
    assert str(victim) in verdict.detail


def test_the_first_rule_that_forbids_speaks() -> None:
    def shield(pair: Pair) -> Verdict:
        return Verdict(pair.victim_priority < 5, "shield", "")

    assert judge((*KUBERNETES_RULES, shield), Pair(10, 9, NOW)).rule == "shield"
    assert not judge((), Pair(10, 0, NOW)).removable
