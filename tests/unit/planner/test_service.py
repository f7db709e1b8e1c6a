"""What the planner answers to a plan request, and what it writes down."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from builders_bus import plan_request
from makeway.bus import codec
from makeway.bus.ids import request_id
from makeway.bus.messages import VictimOutcome
from makeway.bus.plan import NodeSelection, PlanReply, PlanRequest, Profile
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.selector import Selector
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import DaemonSets, Policy, PolicyLimits, Protection
from makeway.planner.observe.reasons import PREEMPTION_LOOP
from makeway.planner.plan.node_scores import CHUNK_NODES
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.service.pending_updates import apply_forever
from makeway.planner.service.searches import HeldBack, pod_search
from makeway.planner.snapshot.changes import Adopt, Enforce, PutDaemonSet, PutNode
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.core.queue_building import queue, tree
from unit.planner.answering import Answering
from unit.planner.building import (
    LOW,
    XL,
    L,
    live_order,
    make_budget,
    make_node,
    make_outcome,
    make_pod,
    make_snapshot,
    settle,
)
from unit.planner.test_pauses import room_made

POD: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "urgent", "uid": "P", "managedFields": []},
    "spec": {
        "priority": 1000,
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "300m", "memory": "300"}}}],
    },
}


class Bench(Answering):
    """One that is asked for a pod."""

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        hold_back: HeldBack[Plan] = lambda _, plan, now: plan,
        **more: Any,
    ) -> None:
        super().__init__(snapshot or make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)]), **more)
        search = pod_search(self.snapshot, self.ledger, self.metrics, hold_back)
        self.handle = partial(self.planner.handle, search)

    async def ask(self, **changes: Any) -> PlanReply:
        return codec.decode(PlanReply, await self.handle(codec.encode(request(**changes))))


def request(**changes: Any) -> PlanRequest:
    asked = {"request_id": request_id(datetime.now(UTC)), **changes}
    return plan_request(asked.pop("pod", POD), **asked)


def pod_with(**spec: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({**POD, "spec": {**POD["spec"], **spec}}))


async def test_a_plan_names_node_victim_and_rule_and_is_written_down() -> None:
    bench = Bench()

    reply = await bench.ask()

    assert reply.status == "candidates"
    (candidate,) = reply.candidates
    assert candidate.node == "n1"
    assert [(one.uid, one.victim, one.rule) for one in candidate.removable] == [("a", True, "lower-priority")]
    (record,) = await bench.written()
    assert record.decision_id == reply.decision_id
    assert record.nominated_node == "n1"
    assert [victim.uid for victim in record.victims] == ["a"]
    assert record.preemptor is not None
    assert (record.preemptor.uid, record.preemptor.priority) == ("P", 1000)
    assert record.candidates[0].decided_by == "only-candidate"
    assert bench.count("makeway_planner_plan_requests_total", result="candidates") == 1
    assert bench.count("makeway_planner_decision_records_total", result="written") == 1


async def test_a_record_says_whether_the_plan_was_asked_for_ahead() -> None:
    bench = Bench()

    await bench.ask()
    await bench.ask(ahead=True)

    assert [record.ahead for record in await bench.written()] == [False, True]


async def test_a_refusal_is_answered_and_written_down_with_its_diagnosis() -> None:
    bench = Bench(make_snapshot(["n1"], [make_pod("a", "n1", 2000, XL)]))

    reply = await bench.ask()

    assert reply.status == "refused"
    assert reply.refusal is not None
    assert reply.refusal.reason == "NoLowerPriorityPods"
    (record,) = await bench.written()
    assert record.diagnosis == reply.refusal


async def test_a_pod_that_was_not_bound_though_room_was_made_three_times_is_refused_for_a_while() -> None:
    bench = Bench(behind=True)
    for number in range(3):
        room_made(bench.ledger, number, datetime.now(UTC))

    reply = await bench.ask()

    assert (reply.status, reply.candidates) == ("refused", ())
    assert reply.refusal is not None
    assert reply.refusal.reason == "PreemptionPaused"
    assert timedelta(seconds=50) < there(reply.refusal.retry_at) - datetime.now(UTC) < timedelta(seconds=61)
    assert "room was made for this pod 3 times" in reply.refusal.message
    (record,) = await bench.written()
    assert record.diagnosis == reply.refusal
    assert (await bench.ask(mode="observe")).status == "candidates"


async def test_a_pod_whose_order_would_be_one_too_many_is_refused_for_now() -> None:
    pods = [make_pod("a", "n1", LOW, XL), make_pod("Q", "", 1000, XL)]
    policy = Policy(limits=PolicyLimits(orders_in_flight=1))
    bench = Bench(make_snapshot(["n1"], pods, policy=policy), behind=True)
    bench.ledger.ordered(live_order("ord-1", "Q", node="another"))

    reply = await bench.ask()

    assert reply.refusal is not None
    assert reply.refusal.reason == "OrdersInFlight"
    assert "1 eviction orders have no outcome yet" in reply.refusal.message
    assert reply.refusal.retry_at is not None
    assert [(one.kind, one.name) for one in reply.refusal.depends_on] == [("orders", "limits.ordersInFlight")]
    assert (await bench.written())[0].diagnosis == reply.refusal
    assert bench.count("makeway_planner_refusals_total", reason="OrdersInFlight") == 1
    assert (await bench.ask(mode="observe")).status == "candidates"
    bench.ledger.ended(make_outcome("ord-1", datetime.now(UTC)))
    assert (await bench.ask()).status == "candidates"


async def test_a_node_where_room_came_to_nothing_is_left_out_while_there_are_others() -> None:
    bench = Bench(make_snapshot(["n1", "n2"], [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)]))
    room_made(bench.ledger, 1, datetime.now(UTC))

    assert [one.node for one in (await bench.ask()).candidates] == ["n2"]


async def test_a_plan_that_goes_on_with_a_loop_is_a_refusal_with_its_moment() -> None:
    until = datetime(2026, 3, 1, tzinfo=UTC)

    def hold_back(asked: Sequence[Question], plan: Plan, now: datetime) -> PlanRefusal:
        return PlanRefusal(plan.scope, PREEMPTION_LOOP, f"{asked[0].preemptor.name} waits", retry_at=until)

    bench = Bench(hold_back=hold_back, behind=True)

    reply = await bench.ask()
    observed = await bench.ask(mode="observe")

    assert (reply.status, observed.status) == ("refused", "candidates")
    assert reply.refusal is not None
    assert (reply.refusal.reason, reply.refusal.retry_at) == (PREEMPTION_LOOP, until)
    assert bench.count("makeway_planner_refusals_total", reason=PREEMPTION_LOOP) == 1


async def test_a_pod_that_never_preempts_is_refused() -> None:
    reply = await Bench().ask(pod=pod_with(preemptionPolicy="Never"))

    assert there(reply.refusal).reason == "PreemptionPolicyNever"


async def test_victims_of_live_orders_are_awaited() -> None:
    bench = Bench()
    bench.ledger.ordered(live_order("ord-1", "Q", "a"))

    reply = await bench.ask()

    assert [one.order_id for one in reply.candidates[0].awaited] == ["ord-1"]
    assert reply.candidates[0].removable == ()


@pytest.mark.parametrize(
    ("changes", "result", "reason"),
    [
        ({"cluster_uid": "cluster-2"}, "otherCluster", "OtherCluster"),
        ({"pod": msgspec.Raw(b"[1]")}, "malformed", "MalformedPod"),
        (
            {"pod": pod_with(containers=[{"resources": {"requests": {"cpu": "1K"}}}])},
            "malformed",
            "MalformedPod",
        ),
        ({"api_version": "makeway.dev/v9"}, "malformed", "MalformedRequest"),
    ],
)
async def test_what_cannot_be_planned_is_answered_without_a_decision(
    changes: dict[str, Any], result: str, reason: str
) -> None:
    bench = Bench()

    reply = await bench.ask(**changes)

    assert reply.status == "notSynced"
    assert there(reply.refusal).reason == reason
    assert bench.count("makeway_planner_plan_requests_total", result=result) == 1
    assert await bench.written() == []


async def test_a_bridge_of_another_version_is_told_both_versions() -> None:
    reply = await Bench().ask(api_version="makeway.dev/v9")

    assert "apiVersion 'makeway.dev/v9', this side speaks makeway.dev/v1" in there(reply.refusal).message


async def test_bytes_that_are_no_request_are_answered_too() -> None:
    bench = Bench()

    reply = codec.decode(PlanReply, await bench.handle(b"\xff\x00 not json"))

    assert reply.status == "notSynced"
    assert bench.count("makeway_planner_decode_errors_total", source="plan") == 1


async def test_before_the_snapshot_is_complete_nothing_is_planned() -> None:
    bench = Bench(unsynced=lambda: "no list of pods yet")

    reply = await bench.ask()

    assert reply.status == "notSynced"
    assert there(reply.refusal).message == "no list of pods yet"


async def test_a_plan_ends_where_there_is_nothing_to_plan_on_any_more() -> None:
    pods = [make_pod(f"p{number}", "n1", LOW, 1) for number in range(5)]
    snapshot = make_snapshot(["n1", *(f"m{number}" for number in range(CHUNK_NODES))], pods, chunk=3)
    bench = Bench(snapshot, unsynced=lambda: snapshot.pending_updates.pending)

    asked = asyncio.create_task(bench.ask())
    asyncio.get_running_loop().call_soon(
        snapshot.apply, Enforce(Policy(protection=Protection(minimum_priority=LOW)), "rev-2")
    )
    reply = await asked

    assert reply.status == "notSynced"
    assert there(reply.refusal).message == "the policy is being applied"
    settle(snapshot)
    assert (await bench.ask()).policy_revision == "rev-2"


async def test_a_request_waits_for_a_policy_that_is_just_being_applied() -> None:
    pods = [make_pod(f"p{number}", "n1", LOW, L) for number in range(5)]
    snapshot = make_snapshot(["n1"], pods, chunk=1)
    bench = Bench(snapshot, unsynced=lambda: snapshot.pending_updates.pending)
    snapshot.apply(Enforce(Policy(protection=Protection(minimum_priority=LOW)), "rev-2"))

    settling = asyncio.create_task(apply_forever(snapshot.pending_updates))
    reply = await bench.ask()
    settling.cancel()

    assert (reply.status, reply.policy_revision) == ("refused", "rev-2")


async def test_a_request_that_waited_past_its_time_out_is_not_planned() -> None:
    bench = Bench()
    await bench.ask()

    late = request_id(datetime.now(UTC) - timedelta(seconds=1))
    reply = await bench.ask(request_id=late)

    assert there(reply.refusal).reason == "TooLate"
    assert bench.count("makeway_planner_plan_requests_total", result="tooLate") == 1


async def test_a_scheduler_whose_clock_is_behind_anothers_is_not_late() -> None:
    bench = Bench()
    await bench.ask()
    earlier = request(request_id=request_id(datetime.now(UTC) - timedelta(seconds=1)))

    reply = codec.decode(PlanReply, await bench.handle(codec.encode(earlier), "another"))

    assert reply.status == "candidates"


async def test_what_has_just_been_removed_counts_for_queues_too() -> None:
    pods = [make_pod(uid, node, LOW, L, namespace="shop") for uid, node in (("a", "n1"), ("b", "n2"))]
    snapshot = make_snapshot(["n1", "n2"], pods)
    snapshot.apply(Adopt(tree(queue("shop", guaranteed={"cpu": L}), queue("own")), "queues-1"))
    bench = Bench(snapshot)
    urgent = msgspec.Raw(msgspec.json.encode({**POD, "metadata": {**POD["metadata"], "namespace": "own"}}))
    nodes = NodeSelection(names=("n1",))
    assert (await bench.ask(pod=urgent, nodes=nodes)).status == "candidates"

    gone = VictimOutcome(namespace="shop", name="b", uid="b", result="deleted")
    bench.ledger.ended(make_outcome("ord-1", datetime.now(UTC), victims=(gone,)))

    assert (await bench.ask(pod=urgent, nodes=nodes)).status == "refused"


async def test_a_full_queue_drops_the_record_and_not_the_reply() -> None:
    bench = Bench(limit=1)

    assert [(await bench.ask()).status for _ in range(3)] == ["candidates"] * 3

    assert bench.count("makeway_planner_decision_records_total", result="dropped") == 2
    assert len(await bench.written()) == 1


async def test_a_record_that_the_bus_does_not_take_is_counted_and_the_next_one_is_written() -> None:
    bench = Bench()
    bench.failures = 1
    await bench.ask()
    second = await bench.ask()

    (record,) = await bench.written()

    assert record.decision_id == second.decision_id
    assert bench.count("makeway_planner_decision_records_total", result="failed") == 1


@pytest.mark.parametrize(
    ("profile", "unmodelled"),
    [
        (Profile(name="p", filters=("NodeAffinity", "NodeResourcesFit")), 0),
        (Profile(name="p", filters=("NodeAffinity",)), 1),
    ],
)
async def test_a_profile_that_does_not_filter_by_resources_has_no_resource_columns(
    profile: Profile, unmodelled: int
) -> None:
    reply = await Bench().ask(profile=profile)

    assert reply.unmodelled_total == unmodelled


@pytest.mark.parametrize(
    "arguments", [b'{"ignoredResources":["x.io/gpu"]}', b'{"IgnoredResourceGroups":["x.io"]}']
)
async def test_resources_that_the_profile_ignores_are_no_columns(arguments: bytes) -> None:
    pods = [make_pod("a", "n1", LOW, L)]
    snapshot = make_snapshot(["n1"], pods)
    snapshot.apply(PutNode(make_node("n1", **{"x.io/gpu": 1})))
    containers = [{"resources": {"requests": {"cpu": "300m", "memory": "300", "x.io/gpu": "2"}}}]
    ignoring = Profile(
        name="p", filters=("NodeResourcesFit",), filter_args={"NodeResourcesFit": msgspec.Raw(arguments)}
    )

    strict = await Bench(snapshot).ask(pod=pod_with(containers=containers))
    loose = await Bench(snapshot).ask(pod=pod_with(containers=containers), profile=ignoring)

    assert strict.status == "refused"
    assert loose.candidates[0].node == "n1"


def bound(**condition: Any) -> msgspec.Raw:
    """The pod as a DaemonSet's for n1, with what the scheduler has said of it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "logs", "controller": True}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    conditions = [{"type": "PodScheduled", "status": "False", **condition}] if condition else []
    return msgspec.Raw(
        msgspec.json.encode(
            {
                "metadata": {**POD["metadata"], "ownerReferences": [owner]},
                "spec": {**POD["spec"], "affinity": {"nodeAffinity": required}},
                "status": {"conditions": conditions},
            }
        )
    )


def with_daemonset(settings: DaemonSets) -> Snapshot:
    """A full node, and the DaemonSet whose pod `bound` makes, in a namespace that the policy lists."""
    policy = Policy(daemon_sets=msgspec.structs.replace(settings, namespaces=("shop",)))
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)], policy=policy)
    owner = DaemonSetOwner(namespace="shop", name="logs", uid="logs", selector=Selector(()))
    snapshot.apply(PutDaemonSet(owner))
    return snapshot


async def test_a_daemonset_pod_waits_for_its_start_delay_and_another_planner_counts_on() -> None:
    bench = Bench(with_daemonset(DaemonSets(enabled=True, preemption_start_delay=timedelta(seconds=10))))
    now = datetime.now(UTC)
    failed = now - timedelta(seconds=8)
    unfit = {"reason": "Unschedulable", "lastTransitionTime": f"{failed:%Y-%m-%dT%H:%M:%SZ}"}

    first, again, told = [(await bench.ask(pod=pod)).refusal for pod in (bound(), bound(), bound(**unfit))]

    assert first is not None
    assert again is not None
    assert told is not None
    assert first.reason == "DaemonSetStartDelay"
    assert first.retry_at is not None
    assert timedelta(seconds=10) <= first.retry_at - now < timedelta(seconds=12)
    assert again.retry_at == first.retry_at
    assert timedelta(seconds=1) < there(told.retry_at) - now <= timedelta(seconds=3)


@pytest.mark.parametrize("reason", ["Unschedulable", "QueueFull"])
async def test_a_daemonset_pod_after_its_delay_is_planned_for_by_the_simple_preemptor(reason: str) -> None:
    bench = Bench(with_daemonset(DaemonSets(enabled=True)))

    reply = await bench.ask(pod=bound(reason=reason, lastTransitionTime="2026-01-01T00:00:00Z"))

    (candidate,) = reply.candidates
    assert candidate.max_victims == 10
    assert [one.rule for one in candidate.removable] == ["daemonset-multiple"]
    (record,) = await bench.written()
    assert record.victims[0].detail.endswith("one of 1, at most 10")


async def test_nothing_is_planned_for_pods_that_the_brake_holds() -> None:
    namespace = json.loads(bytes(request().classes[0].pod))["metadata"]["namespace"]
    held = Bench(brake=Brake(namespaces=frozenset({namespace})))
    assert (await held.ask()).status == "notSynced"
    assert await held.written() == []
    asked = held.registry.get_sample_value("makeway_planner_plan_requests_total", {"result": "braked"})
    assert asked == 1

    assert (await Bench(brake=Brake(namespaces=frozenset({"elsewhere"}))).ask()).status == "candidates"


async def test_only_in_mode_enforce_a_plan_offers_what_may_be_evicted() -> None:
    bench = Bench()

    plain = await bench.ask(mode="observe")
    asked = await bench.ask()

    assert (plain.offer, asked.offer) == ("", "sealed")
    [offer] = bench.offers
    assert (offer.decision_id, offer.preemptor_uid) == (asked.decision_id, "P")
    assert offer.lacks("n1", ["a"]) == ""
    assert offer.lacks("n1", ["b"]) == "b"
    assert offer.keeping_budgets("n1", ["a"]) == ["a"]


async def test_a_plan_offers_by_name_what_violates_a_budget() -> None:
    pods = [make_pod(uid, "n1", LOW, XL, labels={"app": uid}) for uid in ("a", "b")]
    bench = Bench(make_snapshot(["n1"], pods, [make_budget("full", {"app": "a"}, 0)]))

    await bench.ask()

    assert bench.offers[0].keeping_budgets("n1", ["a", "b"]) == ["b"]
