"""A refusal from a snapshot that was behind the scheduler's asks for another try."""

from dataclasses import replace
from datetime import timedelta

from makeway.planner.plan.result import PlanRefusal, Scope
from makeway.planner.service.freshness import StaleRefusals
from unit.planner.building import NOW

REFUSAL = PlanRefusal(Scope(1, 1, 1), "NoLowerPriorityPods", "none of 1 potential nodes has one")


def test_a_refusal_from_a_snapshot_that_is_up_to_date_stands() -> None:
    assert StaleRefusals().with_retry(REFUSAL, "a", NOW, behind=False) == REFUSAL


def test_while_the_snapshot_is_behind_the_pauses_double_up_to_a_minute() -> None:
    look, now, pauses = StaleRefusals(), NOW, []
    for _ in range(8):
        retry_at = look.with_retry(REFUSAL, "a", now, behind=True).retry_at
        assert retry_at is not None
        pauses.append((retry_at - now).total_seconds())
        now = retry_at

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_once_it_has_caught_up_the_next_pause_is_short_again() -> None:
    look = StaleRefusals()
    look.with_retry(REFUSAL, "a", NOW, behind=True)
    look.with_retry(REFUSAL, "a", NOW, behind=False)

    assert look.with_retry(REFUSAL, "a", NOW, behind=True).retry_at == NOW + timedelta(seconds=1)


def test_every_pod_has_its_own_pauses() -> None:
    look = StaleRefusals()
    look.with_retry(REFUSAL, "a", NOW, behind=True)

    assert look.with_retry(REFUSAL, "b", NOW, behind=True).retry_at == NOW + timedelta(seconds=1)


def test_after_five_minutes_without_a_question_the_pause_is_short_again() -> None:
    look = StaleRefusals()
    look.with_retry(REFUSAL, "a", NOW, behind=True)
    later = NOW + timedelta(minutes=5, seconds=1)

    assert look.with_retry(REFUSAL, "a", later, behind=True).retry_at == later + timedelta(seconds=1)


def test_a_refusal_that_names_an_earlier_time_keeps_it() -> None:
    soon = replace(REFUSAL, retry_at=NOW + timedelta(milliseconds=300))
    late = replace(REFUSAL, retry_at=NOW + timedelta(minutes=3))

    assert StaleRefusals().with_retry(soon, "a", NOW, behind=True) == soon
    assert StaleRefusals().with_retry(late, "a", NOW, behind=True).retry_at == NOW + timedelta(seconds=1)
