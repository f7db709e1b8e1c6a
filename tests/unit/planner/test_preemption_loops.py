"""Which preemptions are a loop, and which are a workload that grows."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from makeway.core.k8s.importance import microseconds
from makeway.core.policy.facts import PodFacts
from makeway.planner.observe import loops as module
from makeway.planner.observe.loops import LOOP_AT_LEAST, WINDOW, PreemptionLoops
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import HIGH, LOW, NOW, make_pod

STEP = timedelta(seconds=20)


def pod(uid: str, owner: str, created: datetime = NOW - WINDOW, priority: int = LOW) -> PodRecord:
    owners = (owner,) if owner else ()
    facts = PodFacts(owners=owners, created_micros=microseconds(created))
    return make_pod(uid, "n1", priority, facts=facts)


P = pod("P", "urgent", priority=HIGH)


def loop(loops: PreemptionLoops, rounds: int, step: timedelta = STEP, owner: str = "web") -> list[bool]:
    """Preempt one pod of web, and then its replacements, each made just after."""
    found = []
    for turn in range(rounds):
        at = NOW + turn * step
        found.append(loops.preempted(P, pod(f"w{turn}", owner, at - step / 2), at))
    return found


def test_replacements_preempted_again_and_again_for_one_owner_are_a_loop_and_told_once() -> None:
    loops = PreemptionLoops()

    found = loop(loops, LOOP_AT_LEAST + 4)

    assert found.index(True) == LOOP_AT_LEAST, "the first victim is no replacement"
    assert found.count(True) == 1
    assert loops.count(NOW + STEP * LOOP_AT_LEAST) == 1


def test_a_workload_that_grows_over_pods_that_were_there_before_is_none() -> None:
    loops = PreemptionLoops()

    found = [loops.preempted(P, pod(f"w{number}", "web"), NOW + STEP * number) for number in range(20)]

    assert not any(found)
    assert loops.count(NOW + STEP * 20) == 0


def test_preemptions_far_apart_and_of_different_owners_are_none() -> None:
    assert not any(loop(PreemptionLoops(), 20, WINDOW))
    loops = PreemptionLoops()
    assert not any(
        loops.preempted(P, pod(f"w{n}", f"owner-{n}", NOW + STEP), NOW + STEP * n) for n in range(9)
    )


def test_a_loop_is_over_once_it_has_been_quiet() -> None:
    loops = PreemptionLoops()
    loop(loops, 10)

    assert loops.count(NOW + STEP * 10 + WINDOW) == 0


def test_pods_without_an_owner_are_told_apart_by_name() -> None:
    loops = PreemptionLoops()
    pods = [pod("bare", "", NOW + STEP * turn) for turn in range(10)]

    assert any(loops.preempted(P, one, NOW + STEP * turn + STEP / 2) for turn, one in enumerate(pods))


def test_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PAIRS", 3)
    loops = PreemptionLoops()

    for number in range(10):
        loop(loops, 10, owner=f"owner-{number}")

    assert loops.count(NOW + STEP * 10) == 3
