"""Builders of bus messages for tests: what a test does not name is filled in."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from makeway.bus import ids
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import (
    API_VERSION,
    EvictionOrder,
    Fence,
    OrderedGroup,
    Outcome,
    Placement,
    Preemptor,
    Victim,
    VictimOutcome,
)
from makeway.bus.plan import MemberClass, NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import Pod

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def make_preemptor(uid: str = "uid-preemptor", **changes: Any) -> Preemptor:
    preemptor = Preemptor(
        namespace="shop", name="urgent", uid=uid, priority=1000, scheduler_name="default-scheduler"
    )
    return msgspec.structs.replace(preemptor, **changes)


def make_victim(name: str = "victim", **changes: Any) -> Victim:
    victim = Victim(
        namespace="batch",
        name=name,
        uid=f"uid-{name}",
        node="node-1",
        priority=0,
        grace_period_seconds=30,
        rule="lower-priority",
    )
    return msgspec.structs.replace(victim, **changes)


def victim_of(pod: Pod, **changes: Any) -> Victim:
    """A pod as a victim, where and as it is."""
    meta = pod.metadata
    return make_victim(
        meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        node=pod.spec.node_name or "",
        priority=pod.spec.priority or 0,
        **changes,
    )


def make_order(preemptor_uid: str = "uid-preemptor", **changes: Any) -> EvictionOrder:
    order = EvictionOrder(
        order_id=ids.order_id(NOW),
        kind="pod",
        cluster_uid="cluster-1",
        fence=Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=3),
        writer="scheduler-1",
        created_at=NOW,
        not_after=NOW + timedelta(seconds=60),
        preemptor=make_preemptor(preemptor_uid),
        node="node-1",
        victims=(make_victim(),),
    )
    return msgspec.structs.replace(order, **changes)


def make_group(uid: str = "uid-train", **changes: Any) -> OrderedGroup:
    group = OrderedGroup(
        namespace="shop",
        name="train",
        uid=uid,
        priority=1000,
        scheduler_name="default-scheduler",
        must_place=2,
        min_count=2,
    )
    return msgspec.structs.replace(group, **changes)


def make_group_order(group_uid: str = "uid-train", **changes: Any) -> EvictionOrder:
    group = make_group(group_uid)
    members = tuple(
        Placement(namespace="shop", name=f"train-{n}", uid=f"uid-train-{n}", node=f"node-{n}") for n in (1, 2)
    )
    order = make_order(kind="group", preemptor=None, node="", group=group, members=members)
    return msgspec.structs.replace(order, **changes)


def make_outcome(order: EvictionOrder, **changes: Any) -> Outcome:
    outcome = Outcome(
        order_id=order.order_id,
        kind=order.kind,
        cluster_uid=order.cluster_uid,
        epoch=order.fence.epoch,
        result="succeeded",
        evictor="evictor-1",
        started_at=NOW,
        finished_at=NOW + timedelta(milliseconds=40),
        preemptor_uid=order.preemptor_uid,
        node=order.node,
        victims=tuple(
            VictimOutcome(namespace=v.namespace, name=v.name, uid=v.uid, result="deleted", attempts=1)
            for v in order.victims
        ),
    )
    return msgspec.structs.replace(outcome, **changes)


ALL_NODES = NodeSelection(all_but=True)


def plan_request(pod: object, nodes: NodeSelection = ALL_NODES, **changes: Any) -> PlanRequest:
    """A question about a pod, by its manifest, on all nodes."""
    request = PlanRequest(
        api_version=API_VERSION,
        request_id="req-1",
        cluster_uid="cluster-1",
        mode="enforce",
        timeout_milliseconds=100,
        max_candidates=16,
        profile=Profile(name="default-scheduler"),
        classes=(MemberClass(pod=msgspec.Raw(msgspec.json.encode(pod)), count=1, nodes=nodes),),
    )
    return msgspec.structs.replace(request, **changes)


def make_decision(**changes: Any) -> DecisionRecord:
    record = DecisionRecord(
        decision_id=ids.decision_id(NOW),
        request_id=ids.request_id(NOW),
        kind="pod",
        cluster_uid="cluster-1",
        planner="planner-1",
        at=NOW,
        mode="enforce",
        status="candidates",
        snapshot_revision=17,
        preemptor=make_preemptor(),
    )
    return msgspec.structs.replace(record, **changes)
