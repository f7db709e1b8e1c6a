"""Builders of orders and of the objects they name. Everything fits together unless a test says otherwise."""

from typing import Any

import msgspec

import builders_bus
from makeway.bus.messages import Awaited, EvictionOrder, Outcome, OutcomeResult, Preemptor, Victim
from makeway.core.k8s.objects import Metadata, Node, Pod, PodCondition, PodSpec, PodStatus
from makeway.evictor.act import patches

NOW = builders_bus.NOW
CLUSTER = "cluster-1"
NODE = "node-a"
NODE_UID = "node-a-uid"
EPOCH = 3

QUEUES_YAML = """
partitions:
  - preemption: {quotapreemptionenabled: true}
    queues:
      - {name: default, resources: {max: {pods: 1}, quota.preemption.delay: 60}}
      - {name: nolimit, resources: {quota.preemption.delay: 60}}
      - {name: nodelay, resources: {max: {pods: 1}}}
      - {name: gpu, resources: {max: {nvidia.com/gpu: 1}, quota.preemption.delay: 60}}
      - name: team
        resources: {max: {pods: 5}, quota.preemption.delay: 60}
        queues: [{name: a}, {name: b}]
"""
"""The queues of the tests: quotas of root.default are enforced, where pods are that name no queue."""


def make_preemptor(**changes: Any) -> Preemptor:
    return builders_bus.make_preemptor(**{"uid": "urgent-uid", "namespace": "default", **changes})


def make_victim(name: str, **changes: Any) -> Victim:
    own = {"namespace": "default", "uid": f"{name}-uid", "node": NODE}
    return builders_bus.make_victim(name, **own | changes)


def make_order(*victims: str | Victim, **changes: Any) -> EvictionOrder:
    fields: dict[str, Any] = {
        "order_id": "ord-1",
        "preemptor": make_preemptor(),
        "node": NODE,
        "node_uid": NODE_UID,
        "victims": tuple(make_victim(v) if isinstance(v, str) else v for v in victims),
    }
    return builders_bus.make_order(**fields | changes)


def awaiting(order_id: str) -> tuple[Awaited, ...]:
    return (Awaited(uid="awaited-uid", order_id=order_id),)


def make_outcome(order_id: str, result: OutcomeResult, evictor: str = "another") -> Outcome:
    order = make_order(order_id=order_id)
    return builders_bus.make_outcome(order, result=result, evictor=evictor, finished_at=NOW)


class PodBuilder:
    """A pod that runs on the node; `preemptor_pod` makes the one that waits for it."""

    def __init__(self, name: str) -> None:
        self._metadata: dict[str, Any] = {
            "name": name,
            "namespace": "default",
            "uid": f"{name}-uid",
            "resource_version": "1",
        }
        self._spec: dict[str, Any] = {"node_name": NODE, "priority": 0}
        self._status: dict[str, Any] = {"phase": "Running"}

    def namespace(self, namespace: str) -> "PodBuilder":
        self._metadata["namespace"] = namespace
        return self

    def in_queue(self, path: str) -> "PodBuilder":
        self._metadata["labels"] = {"queue": path}
        return self

    def uid(self, uid: str) -> "PodBuilder":
        self._metadata["uid"] = uid
        return self

    def on(self, node: str | None) -> "PodBuilder":
        self._spec["node_name"] = node
        return self

    def of_class(self, name: str) -> "PodBuilder":
        self._spec["priority_class_name"] = name
        return self

    def priority(self, priority: int | None) -> "PodBuilder":
        self._spec["priority"] = priority
        return self

    def never_preempts(self) -> "PodBuilder":
        self._spec["preemption_policy"] = "Never"
        return self

    def phase(self, phase: str) -> "PodBuilder":
        self._status["phase"] = phase
        return self

    def nominated(self, node: str | None) -> "PodBuilder":
        self._status["nominated_node_name"] = node
        return self

    def terminating(self, grace: int = 30) -> "PodBuilder":
        self._metadata["deletion_timestamp"] = NOW
        self._metadata["deletion_grace_period_seconds"] = grace
        return self

    def finalizer(self, name: str) -> "PodBuilder":
        self._metadata["finalizers"] = (name,)
        return self

    def mirror(self) -> "PodBuilder":
        self._metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
        return self

    def marked(self, reason: str = "PreemptionByScheduler", message: str | None = None) -> "PodBuilder":
        mark = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason=reason,
            message=message if message is not None else patches.mark_message(make_order()),
        )
        self._status["conditions"] = (PodCondition(type="Ready", status="True"), mark)
        return self

    def build(self) -> Pod:
        return Pod(
            metadata=Metadata(**self._metadata), spec=PodSpec(**self._spec), status=PodStatus(**self._status)
        )


def a_pod(name: str) -> PodBuilder:
    return PodBuilder(name)


def preemptor_pod() -> PodBuilder:
    return PodBuilder("urgent").on(None).priority(1000).phase("Pending").nominated(NODE)


def make_node(uid: str = NODE_UID, *, terminating: bool = False) -> Node:
    deletion = NOW if terminating else None
    return Node(metadata=Metadata(name=NODE, uid=uid, deletion_timestamp=deletion))


def changed(pod: Pod, part: str, **fields: Any) -> Pod:
    """The pod with fields of its metadata, spec or status changed."""
    inner = msgspec.structs.replace(getattr(pod, part), **fields)
    return msgspec.structs.replace(pod, **{part: inner})
