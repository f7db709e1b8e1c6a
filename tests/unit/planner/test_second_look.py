"""A pod that was refused is tried once more, in case the snapshot was behind."""

from dataclasses import replace
from datetime import timedelta

from makeway.planner.answer import Refusal, Scope
from makeway.planner.second_look import SecondLook
from unit.planner.building import NOW

REFUSAL = Refusal(Scope(1, 1, 1), "NoLowerPriorityPods", "none of 1 potential nodes has one")


def test_the_first_refusal_asks_for_one_more_try_and_the_second_stands() -> None:
    look = SecondLook()

    assert look.consider(REFUSAL, "a", NOW).retry_at == NOW + timedelta(seconds=10)
    assert look.consider(REFUSAL, "a", NOW + timedelta(seconds=10)) == REFUSAL
    assert look.consider(REFUSAL, "a", NOW + timedelta(seconds=200)) == REFUSAL


def test_every_pod_has_its_own() -> None:
    look = SecondLook()
    look.consider(REFUSAL, "a", NOW)

    assert look.consider(REFUSAL, "b", NOW).retry_at == NOW + timedelta(seconds=10)


def test_after_five_minutes_it_counts_as_a_first_one_again() -> None:
    look = SecondLook()
    look.consider(REFUSAL, "a", NOW)
    later = NOW + timedelta(minutes=5, seconds=1)

    assert look.consider(REFUSAL, "a", later).retry_at == later + timedelta(seconds=10)


def test_a_refusal_that_names_a_time_keeps_it() -> None:
    timed = replace(REFUSAL, retry_at=NOW + timedelta(seconds=3))

    assert SecondLook().consider(timed, "a", NOW) == timed
