"""Builders for planner tests: pods, nodes, budgets, snapshots and questions in one line each."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import builders_bus
from builders_bus import make_preemptor, make_victim, plan_request
from makeway.bus.messages import EvictionOrder, Outcome, Placement
from makeway.bus.plan import NodeSelection, PlanReply
from makeway.core.k8s.budget import READY, Budget, Health, budget_of
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Metadata, PodDisruptionBudget, PriorityClass
from makeway.core.k8s.pod_groups import GroupRecord
from makeway.core.policy.document import Policy
from makeway.core.policy.facts import NOT_SCHEDULED, PodFacts
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.reply import reply_of
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanCandidate, PlanRefusal
from makeway.planner.snapshot.changes import Enforce, PutBudget, PutNode, PutPod, PutPriorityClass
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.signatures.table import PodSignature
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.planner.caching import plan
from unit.planner.grouping import put_group

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
S, M, L, XL = 100, 200, 300, 500
NEG, LOW, MID, HIGH = -100, 0, 100, 1000


def make_order(order_id: str, created_at: datetime = NOW, **fields: Any) -> EvictionOrder:
    """An order of a minute; `fields`: what matters of it."""
    bare = {"preemptor": None, "node": "", "victims": ()}
    times = {"created_at": created_at, "not_after": created_at + timedelta(seconds=60)}
    return builders_bus.make_order(order_id=order_id, **{**bare, **times, **fields})


def live_order(order_id: str, preemptor: str, *victims: str, node: str = "n1") -> EvictionOrder:
    """An order that is made now for a pod, by its UID."""
    about = make_preemptor(preemptor, namespace="default", name=preemptor, priority=HIGH)
    named = tuple(make_victim(uid, namespace="default", uid=uid, node=node, priority=LOW) for uid in victims)
    return make_order(order_id, datetime.now(UTC), preemptor=about, node=node, victims=named)


def make_outcome(order_id: str, finished_at: datetime = NOW, **fields: Any) -> Outcome:
    """An order's end, by default that it succeeded."""
    times = {"started_at": finished_at, "finished_at": finished_at}
    return builders_bus.make_outcome(make_order(order_id), **{**times, **fields})


def at(seconds: float) -> int:
    """Start time t1, t2 ... in microseconds."""
    return microseconds(NOW - timedelta(days=1) + timedelta(seconds=seconds))


def make_pod(
    uid: str,
    node: str = "",
    priority: int = LOW,
    size: int = S,
    *,
    start: float = 0,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    name: str = "",
    requests: Mapping[str, int] | None = None,
    start_micros: int | None = None,
    terminating: bool = False,
    ends: float | None = None,
    facts: PodFacts | None = None,
    health: Health = READY,
    scheduler: str = "default-scheduler",
    controller: str = "",
    group: str = "",
) -> PodRecord:
    amounts = {"cpu": size, "memory": size} if requests is None else dict(requests)
    return PodRecord(
        namespace=namespace,
        name=name or uid,
        uid=uid,
        node=node,
        priority=priority,
        start_micros=at(start) if start_micros is None else start_micros,
        grace_period_seconds=30,
        terminating=terminating or ends is not None,
        ends_micros=0 if ends is None else microseconds(NOW + timedelta(seconds=ends)),
        requests={**{k: v for k, v in amounts.items() if v}, "pods": 1},
        labels=dict(labels or {}),
        signature=PodSignature(
            namespace=namespace,
            labels=tuple(sorted((labels or {}).items())),
            terminating=terminating or ends is not None,
        ),
        facts=msgspec.structs.replace(facts or PodFacts(), namespace=namespace, priority=priority),
        health=health,
        scheduler_name=scheduler,
        controller=controller,
        group=group,
    )


def make_node(name: str, size: int = 500, pods: int = 110, **more: int) -> NodeRecord:
    return NodeRecord(name=name, allocatable={"cpu": size, "memory": size, "pods": pods, **more})


def make_budget(
    name: str,
    match: Mapping[str, str],
    allowed: int,
    disrupted: Iterable[str] = (),
    namespace: str = "default",
    *,
    settled: bool = True,
    unhealthy: str | None = None,
    healthy: tuple[int, int] = (0, 0),
) -> Budget:
    """A budget; `healthy`: how many pods are healthy, and how many have to be."""
    return budget_of(
        msgspec.convert(
            {
                "metadata": {"name": name, "namespace": namespace, "generation": 2},
                "spec": {"selector": {"matchLabels": dict(match)}, "unhealthyPodEvictionPolicy": unhealthy},
                "status": {
                    "disruptionsAllowed": allowed,
                    "observedGeneration": 2 if settled else 1,
                    "currentHealthy": healthy[0],
                    "desiredHealthy": healthy[1],
                    "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
                },
            },
            PodDisruptionBudget,
        )
    )


def make_class(
    name: str,
    minimum: int | str | None = None,
    seconds: int | str | None = None,
    value: int = LOW,
    annotations: dict[str, str] | None = None,
) -> PriorityClass:
    asked = {MINIMUM_PREEMPTABLE_PRIORITY: minimum, TOLERATION_SECONDS: seconds, **(annotations or {})}
    annotations = {key: str(number) for key, number in asked.items() if number is not None}
    return PriorityClass(metadata=Metadata(name=name, uid=name, annotations=annotations), value=value)


def scheduled(seconds_ago: float | None, priority_class: str) -> PodFacts:
    """The facts of a pod of a class that was scheduled so long before NOW, or does not say when."""
    when = NOT_SCHEDULED if seconds_ago is None else microseconds(NOW - timedelta(seconds=seconds_ago))
    return PodFacts(priority_class=priority_class, scheduled_micros=when)


def make_snapshot(
    nodes: Iterable[NodeRecord | str],
    pods: Iterable[PodRecord] = (),
    budgets: Iterable[Budget] = (),
    *,
    classes: Iterable[PriorityClass] = (),
    policy: Policy | None = None,
    groups: Iterable[GroupRecord] = (),
    chunk: int | None = None,
) -> Snapshot:
    snapshot = Snapshot(chunk=chunk)
    snapshot.apply(Enforce(policy or Policy(), "rev-1" if policy else ""))
    for priority_class in classes:
        snapshot.apply(PutPriorityClass(priority_class))
    for node in nodes:
        snapshot.apply(PutNode(make_node(node) if isinstance(node, str) else node))
    for budget in budgets:
        snapshot.apply(PutBudget(budget))
    for group in groups:
        put_group(snapshot, group)
    for pod in pods:
        snapshot.apply(PutPod(pod))
    return snapshot


def settle(snapshot: Snapshot) -> None:
    """Do what a snapshot that is kept in chunks has left to do."""
    while snapshot.pending_updates.pending or snapshot.upkeep.pending:
        snapshot.pending_updates.apply_chunk()
        snapshot.upkeep.apply_chunk()


def ask(
    preemptor: PodRecord,
    *,
    nodes: Iterable[str] | None = None,
    may_preempt: bool = True,
    max_candidates: int = 16,
    nominations: Iterable[tuple[str, str]] = (),
    assumed: Iterable[tuple[str, str]] = (),
    in_flight: Mapping[str, str] | None = None,
    leaving: Iterable[str] = (),
    daemonset_node: str = "",
    unfit_seconds: float = 3600,
    refused: Iterable[str] = (),
    ignore_columns: bool = False,
    turn: int = 0,
) -> Question:
    return Question(
        preemptor=preemptor,
        needs=preemptor.requests,
        may_preempt=may_preempt,
        scheduler_name="default-scheduler",
        nodes=NodeSelection(all_but=True) if nodes is None else NodeSelection(names=tuple(nodes)),
        max_candidates=max_candidates,
        nominations=tuple(_placement(uid, node) for uid, node in nominations),
        assumed=tuple(_placement(uid, node) for uid, node in assumed),
        in_flight=dict(in_flight or {}),
        leaving=frozenset(leaving),
        daemonset_node=daemonset_node,
        unfit_since=NOW - timedelta(seconds=unfit_seconds) if daemonset_node else None,
        refused=frozenset(refused),
        ignore_columns=ignore_columns,
        turn=turn,
    )


def _placement(uid: str, node: str) -> Placement:
    return Placement(namespace="default", name=uid, uid=uid, node=node)


def planned(snapshot: Snapshot, question: Question) -> Plan:
    return as_a(Plan, plan(snapshot, question, NOW))


def refused(snapshot: Snapshot, question: Question) -> PlanRefusal:
    return as_a(PlanRefusal, plan(snapshot, question, NOW))


def victims(proposal: PlanCandidate) -> set[str]:
    return {pod.pod.uid for pod in proposal.victims}


def choices(result: Plan) -> list[tuple[str, set[str]]]:
    return [(proposal.node, victims(proposal)) for proposal in result.candidates]


def replied(result: Plan | PlanRefusal, question: Question) -> PlanReply:
    """Return what a bridge is answered."""
    request = plan_request({}, nodes=question.nodes)
    return as_a(PlanReply, reply_of(Decision("d", "p", NOW, request, question, result, "", 0.0)))
