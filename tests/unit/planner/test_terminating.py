"""Terminating pods in plans: no victims, room on its way within the policy's time, none once overdue."""

import random
from datetime import timedelta

import msgspec
import pytest

from makeway.core.policy.document import Policy
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import plan as plan_once
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import GangPlan, Plan, PlanCandidate, PlanRefusal
from makeway.planner.plan.terminating import AwaitedRooms
from makeway.planner.snapshot.changes import Adopt, PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    XL,
    M,
    S,
    ask,
    choices,
    make_node,
    make_pod,
    make_snapshot,
    replied,
)
from unit.planner.building import planned as plan_of
from unit.planner.building import refused as refusal_of
from unit.planner.caching import plan
from unit.planner.grouping import pod_group, put_group

PREEMPTOR = make_pod("p", priority=HIGH, size=XL)


def awaited(candidate: PlanCandidate) -> list[tuple[str, str]]:
    return [(one.pod.uid, one.order_id) for one in candidate.awaited]


def two_nodes(ends: float, priority: int = MID, policy: Policy | None = None) -> Snapshot:
    """Node n1 full with a terminating pod, node n2 with a running one of lower priority."""
    pods = [make_pod("leaving", "n1", priority, XL, ends=ends), make_pod("runs", "n2", LOW, XL)]
    return make_snapshot(["n1", "n2"], pods, policy=policy)


def test_no_running_pod_goes_where_a_terminating_one_makes_the_room() -> None:
    plan = plan_of(two_nodes(ends=20), ask(PREEMPTOR))

    assert choices(plan) == [("n1", set()), ("n2", {"runs"})]
    assert awaited(plan.candidates[0]) == [("leaving", "")]
    assert (plan.candidates[0].highest_priority, plan.candidates[0].priority_sum) == (0, 0)


def test_only_what_terminating_pods_leave_missing_is_taken_from_running_ones() -> None:
    pods = [
        make_pod("leaving", "n1", LOW, 300, ends=20),
        make_pod("a", "n1", MID, 100, start=2),
        make_pod("b", "n1", MID, 100, start=1),
    ]

    [candidate] = plan_of(make_snapshot(["n1"], pods), ask(make_pod("p", priority=HIGH, size=400))).candidates

    assert [(one.pod.uid, one.victim) for one in candidate.removable] == [("b", False), ("a", True)]
    assert awaited(candidate) == [("leaving", "")]


def test_with_more_of_its_grace_period_left_it_counts_only_where_nothing_else_helps() -> None:
    snapshot = two_nodes(ends=61)

    assert choices(plan_of(snapshot, ask(PREEMPTOR))) == [("n2", {"runs"})]

    snapshot.apply(PutPod(make_pod("runs", "n2", HIGH, XL)))
    plan = plan_of(snapshot, ask(PREEMPTOR))

    assert choices(plan) == [("n1", set())]
    assert awaited(plan.candidates[0]) == [("leaving", "")]


@pytest.mark.parametrize(("seconds", "best"), [(0, "n2"), (19, "n2"), (20, "n1"), (600, "n1")])
def test_the_policy_says_how_much_of_the_grace_period_may_be_left(seconds: int, best: str) -> None:
    policy = Policy(await_terminating=timedelta(seconds=seconds))

    assert plan_of(two_nodes(ends=20, policy=policy), ask(PREEMPTOR)).candidates[0].node == best


def test_an_overdue_pod_makes_no_room_and_is_no_victim() -> None:
    assert choices(plan_of(two_nodes(ends=-60), ask(PREEMPTOR))) == [("n2", {"runs"})]
    assert choices(plan_of(two_nodes(ends=-59), ask(PREEMPTOR)))[0] == ("n1", set())


def test_a_refusal_names_the_overdue_pods_in_the_way() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("stuck", "n1", LOW, XL, ends=-3600)])

    refusal = refusal_of(snapshot, ask(PREEMPTOR))

    assert "default/stuck on n1 (its grace period ended at 2026-01-01T11:00:00Z)" in refusal.message
    assert refusal.exempt == {"terminating": 1}
    [spared] = refusal.nearest[0].exempt.pods
    assert (spared.verdict.rule, spared.verdict.detail) == (
        "terminating",
        "its grace period ended at 2026-01-01T11:00:00Z, and it has not left",
    )


def test_a_refusal_counts_the_overdue_pods_of_other_namespaces_since_tenants_read_it() -> None:
    pods = [
        make_pod(f"{namespace}-{number}", "n1", LOW, S, ends=-3600 + number, namespace=namespace)
        for namespace, many in (("default", 4), ("secret", 1))
        for number in range(many)
    ]

    refusal = refusal_of(make_snapshot(["n1"], pods), ask(PREEMPTOR))

    assert "default/default-0 on n1" in refusal.message
    assert "and 1 other pod of its namespace and 1 pod of other namespaces" in refusal.message
    assert "secret" not in refusal.message


def test_a_victim_of_a_live_order_that_is_terminating_costs_nothing_and_needs_no_order() -> None:
    plan = plan_of(two_nodes(ends=20), ask(PREEMPTOR, in_flight={"leaving": "ord-1"}))

    assert awaited(plan.candidates[0]) == [("leaving", "")]


def test_a_reply_says_until_when_a_terminating_pod_is_waited_for() -> None:
    reply = replied(plan_of(two_nodes(ends=20), ask(PREEMPTOR)), ask(PREEMPTOR))

    [one] = reply.candidates[0].awaited
    assert (one.order_id, one.namespace, one.name) == ("", "default", "leaving")
    assert one.until == NOW + timedelta(seconds=80)


def gang_plan(snapshot: Snapshot) -> GangPlan | PlanRefusal:
    member = make_pod("m", "", HIGH, XL)
    snapshot.apply(PutPod(member))
    return plan_gang(snapshot, GangQuestion("default/gang", (GangClass(ask(member), 1),), 1), NOW)


@pytest.mark.parametrize(("ends", "goes"), [(20, set()), (61, {"runs"}), (-60, {"runs"})])
def test_plans_for_groups_await_terminating_pods_by_the_same_rule(ends: float, goes: set[str]) -> None:
    found = as_a(GangPlan, gang_plan(two_nodes(ends)))

    assert {one.pod.uid for one in found.victims} == goes
    assert [one.pod.uid for one in found.awaited] == ([] if goes else ["leaving"])


def test_a_group_waits_for_a_long_grace_period_where_nothing_else_helps() -> None:
    found = gang_plan(make_snapshot(["n1"], [make_pod("leaving", "n1", LOW, XL, ends=600)]))
    stuck = gang_plan(make_snapshot(["n1"], [make_pod("stuck", "n1", LOW, XL, ends=-600)]))

    assert [one.pod.uid for one in as_a(GangPlan, found).awaited] == ["leaving"]
    assert "default/stuck on n1" in as_a(PlanRefusal, stuck).message


def test_a_refusal_without_terminating_pods_says_nothing_of_them() -> None:
    refusal = as_a(
        PlanRefusal, refusal_of(make_snapshot(["n1"], [make_pod("h", "n1", HIGH, XL)]), ask(PREEMPTOR))
    )

    assert "grace period" not in refusal.message


@pytest.mark.parametrize("seed", range(30))
def test_what_is_kept_of_plans_changes_no_answer(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [f"n{number}" for number in range(6)]

    def drawn(uid: int) -> PodRecord:
        ends = draw.choice([None, None, -70, -50, 5, 40, 65, 300])
        priority, size = draw.choice([LOW, MID, HIGH]), draw.choice([100, 200])
        return make_pod(f"r{uid}", draw.choice(nodes), priority, size, ends=ends, start=uid)

    snapshot, cache = make_snapshot(nodes, map(drawn, range(20))), PlanCache()
    for step in range(12):
        for uid in draw.sample(range(20), 2):
            if draw.random() < 0.3:
                snapshot.apply(RemovePod(f"r{uid}"))
            else:
                snapshot.apply(PutPod(drawn(uid)))
        in_flight = {f"r{uid}": "ord-1" for uid in draw.sample(range(20), 2)}
        question = ask(make_pod("p", priority=HIGH, size=draw.choice([200, 400])), in_flight=in_flight)
        now = NOW + timedelta(seconds=10 * step)

        assert plan_once(snapshot, question, now, cache) == plan_once(snapshot, question, now)


def test_a_question_that_is_older_than_the_snapshot_counts_no_pod_that_has_left() -> None:
    snapshot = make_snapshot(["n1"], [make_pod(uid, "n1", LOW, 200, ends=20) for uid in "ab"])
    room = AwaitedRooms().at(snapshot, NOW)

    snapshot.apply(RemovePod("a"))

    assert {row: [pod.uid for pod in one.awaited] for row, one in room.seen(snapshot).items()} == {0: ["b"]}


# ------------- room in a full queue that terminating pods make, on whichever nodes


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
    put_group(snapshot, pod_group("g"), pod("runs", "n2"))

    assert refusal_of(snapshot, on_n2()).reason == REASON

    snapshot.apply(RemovePod("leaving"))
    snapshot.apply(PutPod(pod("stays", "n1", priority=HIGH)))
    assert victims(plan_of(snapshot, on_n2())) == [("n2", ["runs"])]


def test_a_pod_that_no_node_could_take_is_told_so() -> None:
    found = plan(apart(ends=20), ask(pod("new", priority=HIGH), nodes=[]), NOW)

    assert isinstance(found, PlanRefusal)
    assert found.reason == "NoPotentialNodes"
