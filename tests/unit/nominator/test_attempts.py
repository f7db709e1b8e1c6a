"""What is remembered of pods between their plans: whose turn it is, and what costs pods for nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from makeway.nominator import attempts as remembering
from makeway.nominator.attempts import AttemptsByPod
from makeway.nominator.decide import IN_VAIN_PAUSE, LONGEST_IN_VAIN, LONGEST_PAUSE, Attempts
from makeway.nominator.pending import PendingPod

NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def waiting(uid: str, *, priority: int = 0, age: float = 0) -> PendingPod:
    return PendingPod(
        uid=uid,
        namespace="default",
        name=uid,
        priority=priority,
        class_name="urgent",
        policy="Never",
        nominated="",
        unfit_since=NOW,
        created=NOW - seconds(age),
        group="",
        leaving=False,
    )


def turns(remembered: AttemptsByPod, *pods: PendingPod, now: datetime = NOW) -> list[str]:
    return [pod.uid for pod in remembered.in_turn(pods, now)]


def test_the_more_important_go_first_and_among_equals_the_older() -> None:
    remembered = AttemptsByPod()

    order = turns(remembered, waiting("b"), waiting("old", age=9), waiting("a"), waiting("top", priority=1))

    assert order == ["top", "old", "a", "b"]


def test_pods_that_are_refused_again_and_again_keep_no_equal_from_its_turn() -> None:
    remembered = AttemptsByPod()
    flood = [waiting(f"flood-{number}", age=3600) for number in range(50)]
    for pod in flood:
        remembered.of(pod.uid, NOW).pause(NOW)  # due again in one second
    later = NOW + seconds(5)
    newcomer = waiting("newcomer")

    order = turns(remembered, *flood, newcomer, now=later)

    assert order[0] == "newcomer"


def test_pods_beyond_what_is_remembered_wait_for_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MOST_REMEMBERED", 2)
    remembered = AttemptsByPod()
    for uid in ("a", "b"):
        remembered.of(uid, NOW)
    later = NOW + seconds(60)

    assert turns(remembered, waiting("beyond", age=3600), waiting("a"), waiting("b"), now=later) == [
        "a",
        "b",
        "beyond",
    ]


def test_room_made_once_in_vain_is_tried_again_soon_on_another_node() -> None:
    attempts = Attempts(NOW)

    attempts.made_in_vain("n1", NOW)

    assert attempts.next_at <= NOW + seconds(1)
    assert "n1" in attempts.avoided


def test_room_made_in_vain_again_and_again_costs_fewer_and_fewer_pods() -> None:
    attempts, now, orders = Attempts(NOW), NOW, 0

    while now < NOW + timedelta(days=1):
        attempts.made_in_vain(f"n{orders}", now)
        orders, now = orders + 1, attempts.next_at

    assert orders < 32
    assert LONGEST_PAUSE < IN_VAIN_PAUSE < LONGEST_IN_VAIN
    assert attempts.next_at - now <= LONGEST_IN_VAIN


def test_a_change_of_the_policy_lets_all_try_again_but_those() -> None:
    remembered = AttemptsByPod()
    refused, vain = remembered.of("refused", NOW), remembered.of("vain", NOW)
    refused.pause(NOW)
    vain.made_in_vain("n1", NOW)
    vain.made_in_vain("n2", NOW)

    remembered.retry(NOW)

    assert refused.next_at == NOW
    assert vain.next_at > NOW + LONGEST_PAUSE


def test_what_is_remembered_ends_with_the_pod() -> None:
    remembered = AttemptsByPod()
    turns(remembered, waiting("a"))
    remembered.of("a", NOW)

    assert remembered.waited("a", NOW + seconds(3)) == seconds(3)
    remembered.keep({"b"})

    assert "a" not in remembered
    assert remembered.waited("a", NOW) is None
