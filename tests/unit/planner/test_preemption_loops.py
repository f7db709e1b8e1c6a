"""Which preemptions are a loop, and which are a workload that grows."""

from dataclasses import replace as replace_field
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from makeway.bus.plan import MemberPlacement
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.times import api_time
from makeway.core.policy.facts import PodFacts
from makeway.planner.observe import loops as module
from makeway.planner.observe.loops import (
    FIRST_WAIT,
    LONGEST_WAIT,
    LOOP_AT_LEAST,
    WINDOW,
    PreemptionLoops,
    hold_back,
)
from makeway.planner.observe.reasons import PREEMPTION_LOOP
from makeway.planner.plan.price import Price
from makeway.planner.plan.result import GangPlan, Plan, PlanCandidate, PlanRefusal, RemovablePod, Scope
from makeway.planner.snapshot.records import PodRecord
from narrowing import as_a, there
from unit.planner.building import HIGH, LOW, NOW, make_pod

STEP = timedelta(seconds=20)


def pod(uid: str, owner: str, created: datetime = NOW - WINDOW, priority: int = LOW) -> PodRecord:
    owners = (owner,) if owner else ()
    facts = PodFacts(owners=owners, created_micros=microseconds(created))
    return make_pod(uid, "n1", priority, facts=facts)


P = pod("P", "urgent", priority=HIGH)


def loop(
    loops: PreemptionLoops,
    rounds: int,
    step: timedelta = STEP,
    owner: str = "web",
    *,
    preemptor: PodRecord = P,
    namespace: str = "default",
) -> list[bool]:
    """Preempt one pod of web, and then its replacements, each made just after."""
    found = []
    for turn in range(rounds):
        at = NOW + turn * step
        victim = replace(pod(f"w{turn}", owner, at - step / 2), namespace=namespace)
        found.append(loops.preempted(preemptor, victim, at))
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


def test_a_loop_is_described_by_its_last_pods() -> None:
    loops = PreemptionLoops()
    assert loops.describe(NOW) == ""

    loop(loops, 8)

    assert loops.describe(NOW + 8 * STEP) == (
        f"pods like {P.namespace}/w7 are preempted again and again for pods like {P.namespace}/P, "
        f"last {api_time(NOW + 7 * STEP)}"
    )


def until_after(loops: PreemptionLoops, now: datetime) -> timedelta:
    until = there(loops.held_until(P, pod("next", "web"), now))
    return until - now


def test_the_back_off_begins_with_the_loop_and_doubles_up_to_a_bound() -> None:
    loops = PreemptionLoops()
    loop(loops, LOOP_AT_LEAST)
    now = NOW + LOOP_AT_LEAST * STEP
    assert loops.held_until(P, pod("next", "web"), now) is None

    waits = []
    for turn in range(9):
        loops.preempted(P, pod(f"r{turn}", "web", now), now)
        waits.append(until_after(loops, now))
        loops.preempted(P, pod(f"s{turn}", "web", now), now + waits[-1] / 2)  # of the same preemption
        assert until_after(loops, now) == waits[-1]
        now += waits[-1]

    assert waits == [min(FIRST_WAIT * 2**turn, LONGEST_WAIT) for turn in range(9)]
    assert loops.held_until(P, pod("next", "web"), now) is None, "it is over"
    assert loops.held_until(P, pod("other", "another"), now - STEP / 2) is None, "another owner"


def test_a_loop_that_was_quiet_for_long_begins_anew() -> None:
    loops = PreemptionLoops()
    loop(loops, 12)
    later = NOW + 12 * STEP + WINDOW + timedelta(seconds=1)

    loops.preempted(P, pod("late", "web", later), later)

    assert loops.held_until(P, pod("next", "web"), later) is None


def test_of_two_owners_that_preempt_each_other_both_are_held_back() -> None:
    loops = PreemptionLoops()
    for turn in range(LOOP_AT_LEAST + 1):
        at = NOW + turn * STEP
        web, urgent = pod(f"w{turn}", "web", at - STEP / 2), pod(f"u{turn}", "urgent", at - STEP / 2)
        loops.preempted(urgent, web, at)
        loops.preempted(web, urgent, at)

    now = NOW + LOOP_AT_LEAST * STEP + FIRST_WAIT / 2
    web, urgent = pod("w", "web"), pod("u", "urgent")
    assert loops.count(now) == 2
    assert loops.held_until(urgent, web, now) == loops.held_until(web, urgent, now) == now + FIRST_WAIT / 2
    assert loops.held_until(urgent, pod("u2", "urgent"), now) is None


def candidate(node: str, *pods: PodRecord) -> PlanCandidate:
    removable = tuple(
        RemovablePod(pod=one, rule="lower-priority", victim=True, pdb_violating=False) for one in pods
    )
    return PlanCandidate(node, removable, (), 0, LOW, 0)


def planned(*candidates: PlanCandidate, unmodelled: tuple[PlanCandidate, ...] = ()) -> Plan:
    return Plan(Scope(1, 9, 9), candidates, 7, unmodelled, len(unmodelled))


def held(*, preemptor: PodRecord = P, namespace: str = "default") -> tuple[PreemptionLoops, datetime]:
    """A loop of web, and a moment in its back-off."""
    loops = PreemptionLoops()
    loop(loops, LOOP_AT_LEAST + 1, preemptor=preemptor, namespace=namespace)
    return loops, NOW + LOOP_AT_LEAST * STEP + FIRST_WAIT / 2


def test_nodes_where_the_loop_would_go_on_are_left_out() -> None:
    loops, now = held()
    free = candidate("n2", pod("calm", "another"))
    unmodelled = (candidate("n3", pod("w9", "web")), candidate("n4"))

    found = hold_back(
        loops, [P], planned(candidate("n1", pod("w8", "web")), free, unmodelled=unmodelled), now
    )

    assert found == Plan(Scope(1, 9, 9), (free,), 6, (unmodelled[1],), 1)


def test_where_every_node_would_go_on_with_it_the_pod_is_refused_until_the_back_off_ends() -> None:
    loops, now = held()

    found = as_a(
        PlanRefusal,
        hold_back(loops, [P], planned(candidate("n1", pod("calm", "another"), pod("w8", "web"))), now),
    )

    assert (found.reason, found.retry_at) == (PREEMPTION_LOOP, now + FIRST_WAIT / 2)
    assert f"of the owner of {P.namespace}/w8 are preempted again and again" in found.message


def test_a_group_is_refused_where_one_of_its_victims_would_go_on_with_a_loop() -> None:
    loops, now = held()
    calm, looping = pod("calm", "another"), pod("w8", "web")
    victims = candidate("n1", calm, looping).removable
    places = (MemberPlacement(member_class=0, node="n1", count=2),)
    plan = GangPlan(Scope(1, 9, 9), places, victims, (), Price())
    calmer = replace_field(plan, victims=victims[:1])

    found = as_a(PlanRefusal, hold_back(loops, [pod("first", "calm"), P], plan, now))

    assert (found.reason, found.retry_at) == (PREEMPTION_LOOP, now + FIRST_WAIT / 2)
    assert hold_back(loops, [P], calmer, now) is calmer


def test_bare_pods_of_a_group_are_told_apart_by_the_group() -> None:
    loops = PreemptionLoops()
    pods = [replace(pod(f"m{turn}", "", NOW + STEP * turn), group="train") for turn in range(10)]

    assert any(loops.preempted(P, one, NOW + STEP * turn + STEP / 2) for turn, one in enumerate(pods))


def test_who_is_refused_for_a_loop_reads_no_name_of_another_namespace() -> None:
    loops, now = held(namespace="secret")
    other = replace(pod("w8", "web"), namespace="secret")

    found = as_a(PlanRefusal, hold_back(loops, [P], planned(candidate("n1", other)), now))

    assert "pods of the owner of 1 pod of other namespaces are preempted again and again" in found.message


def test_pods_of_another_namespace_that_name_an_owner_hold_none_of_its_pods_back() -> None:
    forger = replace(P, namespace="other")
    loops, now = held(preemptor=forger)

    assert loops.held_until(forger, pod("w8", "web"), now) is not None
    assert loops.held_until(P, pod("w8", "web"), now) is None


def test_a_plan_is_as_it_was_without_a_loop_and_after_its_back_off() -> None:
    loops, now = held()
    plan = planned(candidate("n1", pod("w8", "web")))

    assert hold_back(PreemptionLoops(), [P], plan, now) is plan
    assert hold_back(loops, [P], plan, now + FIRST_WAIT) is plan
    assert hold_back(loops, [pod("Q", "calm", priority=HIGH)], plan, now) is plan


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
