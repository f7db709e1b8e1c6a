"""Room in a full queue that terminating pods make, on whichever nodes: no running pod is evicted for it."""

from datetime import timedelta

import msgspec
import pytest

from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.planner import plan as plan_once
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import Adopt, KnowPodGroups, PutPod, PutPodGroup, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, LOW, NOW, XL, M, S, ask, make_node, make_pod, make_snapshot, replied
from unit.planner.building import planned as plan_of
from unit.planner.building import refused as refusal_of
from unit.planner.caching import plan
from unit.planner.test_plan_groups import group

REASON = "QueueRoomOnItsWay"


def pod(
    uid: str,
    node: str = "",
    *,
    path: str = "root.p",
    priority: int = LOW,
    size: int = S,
    ends: float | None = None,
) -> PodRecord:
    labels, facts = {"queue": path}, PodFacts(queue=path)
    return make_pod(uid, node, priority, size, labels=labels, facts=facts, ends=ends)


def full(*pods: PodRecord, most: int = 2 * S) -> Snapshot:
    """Nodes n1 and n2 of 500 each, queues root.p and root.t with a maximum, root.b without one."""
    snapshot = make_snapshot([make_node(name, XL) for name in ("n1", "n2")], pods)
    team = queue("t", queue("p"), queue("q"), maximum={"cpu": most})
    built = tree(queue("p", maximum={"cpu": most}), queue("b"), team)
    snapshot.apply(Adopt(built, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))
    return snapshot


def apart(ends: float, priority: int = LOW) -> Snapshot:
    """A pod of the queue leaves n1, and one runs on n2; both nodes have room."""
    return full(pod("leaving", "n1", ends=ends), pod("runs", "n2", priority=priority))


def on_n2(size: int = S, **more: list[tuple[str, str]]) -> Question:
    """Ask for a pod of the queue that only n2 may take."""
    return ask(pod("new", priority=HIGH, size=size), nodes=["n2"], **more)  # type: ignore[arg-type]


def victims(found: Plan) -> list[tuple[str, list[str]]]:
    return [(one.node, sorted(victim.pod.uid for victim in one.victims)) for one in found.candidates]


def test_no_running_pod_of_a_full_queue_goes_where_a_terminating_one_elsewhere_makes_the_room() -> None:
    refusal = refusal_of(apart(ends=20), on_n2())

    assert refusal.reason == REASON
    assert refusal.message == (
        "pod default/new waits: Queue root.p at max: cpu 200m of 200m; terminating pods make the room, and "
        "are awaited until 2026-01-01T12:01:20Z: default/leaving on n1; no running pod is evicted for it"
    )
    assert refusal.retry_at == NOW + timedelta(seconds=80)
    assert ("Queue", "", "root.p") in refusal.depends_on
    reply = replied(refusal, on_n2())
    assert (reply.status, reply.sample) == ("refused", None)


def test_who_waits_for_room_in_its_queue_reads_no_name_of_another_namespace() -> None:
    leaving = msgspec.structs.replace(pod("leaving", "n1", ends=20), namespace="secret")

    refusal = refusal_of(full(leaving, pod("runs", "n2")), on_n2())

    assert refusal.reason == REASON
    assert "2026-01-01T12:01:20Z: 1 pod of other namespaces; no running pod" in refusal.message


def test_once_it_has_left_no_maximum_is_in_the_way() -> None:
    snapshot = apart(ends=20)
    assert refusal_of(snapshot, on_n2()).reason == REASON

    snapshot.apply(RemovePod("leaving"))

    [candidate] = plan_of(snapshot, on_n2(size=S)).unmodelled
    assert (candidate.node, candidate.victims) == ("n2", ())


def test_a_node_of_the_terminating_pod_is_nominated_as_before() -> None:
    found = plan_of(apart(ends=20), ask(pod("new", priority=HIGH)))

    assert victims(found) == [("n1", [])]
    assert [one.pod.uid for one in found.candidates[0].awaited] == ["leaving"]


def test_an_overdue_pod_makes_no_room_in_the_queue() -> None:
    assert victims(plan_of(apart(ends=-60), on_n2())) == [("n2", ["runs"])]
    assert refusal_of(apart(ends=-59), on_n2()).retry_at == NOW + timedelta(seconds=1)


def test_what_was_planned_before_does_not_outlive_the_pods_time() -> None:
    snapshot, cache = apart(ends=70), PlanCache()

    def at(seconds: float) -> Plan | PlanRefusal:
        return plan_once(snapshot, on_n2(), NOW + timedelta(seconds=seconds), cache)

    assert [isinstance(at(seconds), Plan) for seconds in (0, 9, 10, 129, 130)] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_with_much_of_its_grace_period_left_it_is_awaited_only_where_nothing_else_helps() -> None:
    assert victims(plan_of(apart(ends=3600), on_n2())) == [("n2", ["runs"])]

    refusal = refusal_of(apart(ends=3600, priority=HIGH), on_n2())

    assert (refusal.reason, refusal.retry_at) == (REASON, NOW + timedelta(seconds=3660))


def test_a_pod_that_leaves_later_is_not_awaited_beside_one_that_makes_the_room_soon() -> None:
    snapshot = full(pod("leaving", "n1", ends=20), pod("later", "n2", ends=3600))

    refusal = refusal_of(snapshot, on_n2())

    assert (refusal.reason, refusal.retry_at) == (REASON, NOW + timedelta(seconds=80))


def test_terminating_pods_that_do_not_make_all_the_room_keep_no_running_one() -> None:
    snapshot = full(pod("leaving", "n1", size=S // 2, ends=20), pod("runs", "n2", size=S), most=S + S // 2)

    assert victims(plan_of(snapshot, on_n2())) == [("n2", ["runs"])]


def test_a_maximum_above_the_queue_counts_as_well() -> None:
    snapshot = full(pod("leaving", "n1", path="root.t.q", ends=20), pod("runs", "n2", path="root.t.p"))
    asked = ask(pod("new", path="root.t.p", priority=HIGH), nodes=["n2"])

    assert refusal_of(snapshot, asked).reason == REASON


def test_a_terminating_pod_of_another_queue_makes_no_room_in_the_full_one() -> None:
    snapshot = full(pod("leaving", "n1", path="root.b", ends=20), pod("runs", "n2"), most=S)

    assert victims(plan_of(snapshot, on_n2())) == [("n2", ["runs"])]


@pytest.mark.parametrize("priority", [LOW, HIGH])
def test_room_that_a_nominated_pod_of_the_queue_takes_is_not_awaited(priority: int) -> None:
    snapshot = full(pod("leaving", "n1", ends=20), pod("runs", "n2"), pod("other", priority=priority))

    assert victims(plan_of(snapshot, on_n2(nominations=[("other", "n1")]))) == [("n2", ["runs"])]
    assert refusal_of(snapshot, on_n2(nominations=[("new", "n1")])).reason == REASON


def test_several_are_awaited_until_those_that_are_not_overdue_no_longer_make_the_room() -> None:
    pods = [pod(f"l{ends}", "n1", ends=ends) for ends in (10, 20, 30, 40, 50)]

    refusal = refusal_of(full(*pods, pod("runs", "n2"), most=6 * S), on_n2(size=M))

    assert refusal.retry_at == NOW + timedelta(seconds=100), "from then on l50 is left, which is too little"
    assert "default/l10 on n1 and default/l20 on n1 and default/l30 on n1 and 2 other pods" in refusal.message


def test_no_pod_is_evicted_beside_one_that_leaves_where_another_node_has_the_room() -> None:
    snapshot = full(pod("leaving", "n1", ends=20), pod("runs", "n1", path="root.b", size=400), most=M)
    asked = ask(pod("new", priority=HIGH, size=M))

    assert refusal_of(snapshot, asked).reason == REASON


def test_where_no_node_has_the_room_pods_are_evicted_for_the_node_beside_those_that_leave_it() -> None:
    pods = [
        pod("leaving", "n1", ends=20),
        pod("runs", "n1", path="root.b", size=400),
        pod("there", "n2", path="root.b", size=XL, priority=HIGH),
    ]
    found = plan_of(full(*pods, most=M), ask(pod("new", priority=HIGH, size=M)))

    assert victims(found) == [("n1", ["runs"])]
    assert [one.pod.uid for one in found.candidates[0].awaited] == ["leaving"]


def test_a_unit_with_pods_of_the_full_queue_stays_as_well() -> None:
    snapshot = full(pod("leaving", "n1", ends=20), most=2 * S)
    snapshot.apply(KnowPodGroups(True, True, True))
    snapshot.apply(PutPodGroup(group("g")))
    snapshot.apply(PutPod(msgspec.structs.replace(pod("runs", "n2"), group="g")))

    assert refusal_of(snapshot, on_n2()).reason == REASON

    snapshot.apply(RemovePod("leaving"))
    snapshot.apply(PutPod(pod("stays", "n1", priority=HIGH)))
    assert victims(plan_of(snapshot, on_n2())) == [("n2", ["runs"])]


def test_a_pod_that_no_node_could_take_is_told_so() -> None:
    found = plan(apart(ends=20), ask(pod("new", priority=HIGH), nodes=[]), NOW)

    assert isinstance(found, PlanRefusal)
    assert found.reason == "NoPotentialNodes"
