"""What the nominator decides: whom it asks about, and what it asks for. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, chain, islice
from typing import Any, Final

import msgspec

from makeway.bus import codec
from makeway.bus.commit import CommitRequest
from makeway.bus.messages import (
    API_VERSION,
    MOST_NOMINATIONS,
    PAST_DEADLINE,
    EvictionOrder,
    Fence,
    NominationToClear,
    Outcome,
    Placement,
)
from makeway.bus.plan import Candidate
from makeway.core.k8s.objects import ENDED_PHASES, Metadata, Pod
from makeway.core.policy.facts import annotations_read
from makeway.nominator.pending import PendingPod

STORED_WITHIN: Final = timedelta(seconds=5)
"""How long after it was asked for an order may be stored."""

SETTLES: Final = timedelta(seconds=60)
"""How long after its victims' grace periods a pod may take to be bound, before it is asked about again.
The plugin waits as long for pods that are leaving."""

PATIENCE: Final = timedelta(minutes=2)
"""How long a pod waits for terminating pods at the most, before it is planned for again."""

MOST_NOMINATED_BYTES: Final = codec.MAX_BYTES // 2
"""Of the nominations in one question, which has a pod and nodes besides."""

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_CLAIMS: Final = ("persistentVolumeClaim", "ephemeral")
"""Volumes that the planner reads."""

_NO_FILTER_READS: Final = (
    "env",
    "envFrom",
    "args",
    "command",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "volumeMounts",
)
"""Fields of a container that may hold secrets or be long, and that decide about no node."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def as_preemptor(raw: bytes, *, for_filters: bool) -> bytes:
    """Return a v1.Pod as it is asked about: it may preempt, and has no environment, commands and the like.

    They may hold secrets and make a question large
    (docs/decisions/planning-requests-and-candidates.md). Its class says Never to the scheduler; that it is
    opted in says that makeway may. `for_filters`: the scheduler's own filters read it
    too, so annotations and volumes of all kinds stay. Raises msgspec.DecodeError.
    """
    pod: dict[str, Any] = msgspec.json.decode(raw)
    spec, metadata = pod.setdefault("spec", {}), pod.setdefault("metadata", {})
    spec["preemptionPolicy"] = "PreemptLowerPriority"
    metadata.pop("managedFields", None)
    for container in chain.from_iterable(spec.get(kind) or () for kind in _CONTAINERS):
        for name in _NO_FILTER_READS:
            container.pop(name, None)
    annotations = metadata.get("annotations") or {}
    annotations.pop(_LAST_APPLIED, None)
    if not for_filters:
        metadata["annotations"] = dict(annotations_read(Metadata(annotations=annotations)))
        spec["volumes"] = [
            {name: one[name] for name in ("name", *_CLAIMS) if name in one}
            for one in spec.get("volumes") or ()
            if not one.keys().isdisjoint(_CLAIMS)
        ]
    return msgspec.json.encode(pod)


def nominations(pods: Iterable[PendingPod]) -> tuple[Placement, ...]:
    """Return where pods are nominated to, the more important first: as many as a question carries.

    A plan without the others is looser, never stricter. O(pods · log pods).
    """
    ordered = sorted(pods, key=lambda one: (-one.priority, one.uid))
    places = [
        Placement(namespace=one.namespace, name=one.name, uid=one.uid, node=one.nominated) for one in ordered
    ]
    bytes_with = accumulate(len(codec.encode(one)) + 1 for one in places)
    return tuple(places[: bisect_right(tuple(bytes_with), MOST_NOMINATED_BYTES)])


def refusal_of(pod: PendingPod, external: frozenset[str]) -> str:
    """Return why a pod is no pod to make room for; empty where it is one that waits."""
    if pod.class_name not in external or pod.policy != "Never":
        return "its PriorityClass is not opted in"
    if pod.leaving:
        return "it is being deleted"
    if pod.nominated:
        return f"it is nominated to node {pod.nominated}"
    if pod.unfit_since is None:
        return "its scheduler has not said that it is unschedulable"
    if pod.group:
        return f"it is one of pod group {pod.group}, for which its scheduler preempts or does not"
    return ""


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Who writes orders. `scheduler_name`: of the pod that an order is for."""

    cluster_uid: str
    source: str
    fence: Callable[[], Fence]


def commit_of(
    writer: Writer,
    *,
    order_id: str,
    offer: str,
    preemptor: Pod,
    candidate: Candidate,
    node_uid: str,
    now: datetime,
) -> CommitRequest:
    """Return the question to store the order for a candidate, behind no message yet."""
    return CommitRequest(
        api_version=API_VERSION,
        order_id=order_id,
        cluster_uid=writer.cluster_uid,
        bridge=writer.source,
        fence=writer.fence(),
        offer=offer,
        placements=(
            Placement(
                namespace=preemptor.metadata.namespace,
                name=preemptor.metadata.name,
                uid=preemptor.metadata.uid,
                node=candidate.node,
                node_uid=node_uid,
            ),
        ),
        store_by=now + STORED_WITHIN,
        victims=tuple(one.uid for one in candidate.removable if one.victim),
        awaited=candidate.awaited,
    )


def still_waits(pod: Pod, uid: str) -> bool:
    """Report whether the pod under a preemptor's name is the preemptor, without a node or a nomination."""
    is_preemptor, placed = pod.metadata.uid == uid, pod.spec.node_name or pod.status.nominated_node_name
    return is_preemptor and not placed and pod.metadata.deletion_timestamp is None


def has_its_place(pod: Pod, order: EvictionOrder) -> bool:
    """Report whether the pod under a preemptor's name is the preemptor, and holds the place of its order."""
    is_preemptor = order.preemptor is not None and pod.metadata.uid == order.preemptor.uid
    return is_preemptor and pod.spec.node_name == order.node and pod.status.phase not in ENDED_PHASES


def outnominated(
    pods: Iterable[PendingPod], node: str, preemptor: PendingPod
) -> tuple[NominationToClear, ...]:
    """Return the pods of lower priority that are nominated to a node."""
    lower = (
        NominationToClear(namespace=one.namespace, name=one.name, uid=one.uid)
        for one in pods
        if one.nominated == node and one.priority < preemptor.priority and one.uid != preemptor.uid
    )
    return tuple(islice(lower, MOST_NOMINATIONS))


def is_outranked(pods: Iterable[PendingPod], node: str, lower: PendingPod) -> bool:
    """Report whether a pod of higher priority is nominated to a node, whoever preempts for it there.

    kube-scheduler clears the nominations of less important pods to a node where it preempts.
    """
    return any(one.nominated == node and one.priority > lower.priority for one in pods)


def waits_until(candidate: Candidate, now: datetime) -> datetime | None:
    """Return until when a candidate is waited for whose room terminating pods alone make; None for others.

    Where nothing else helps, a plan counts on pods with any grace period; something may help soon.
    """
    if any(one.victim for one in candidate.removable) or any(one.order_id for one in candidate.awaited):
        return None
    until = max((one.until for one in candidate.awaited if one.until is not None), default=None)
    return None if until is None else min(until, now + PATIENCE)


def is_over(order: EvictionOrder, outcome: Outcome | None, now: datetime) -> bool:
    """Report whether an order that was stored makes room for its pod no more."""
    if outcome is None:
        return now >= order.not_after + PAST_DEADLINE
    return outcome.result != "succeeded" or now >= settles_until(outcome, outcome.finished_at)


def settles_until(outcome: Outcome, now: datetime) -> datetime:
    """Return until when the preemptor may take to be bound after its order has ended well."""
    grace = max((one.grace_period_seconds for one in outcome.victims), default=0)
    longest = timedelta(hours=1).total_seconds()
    return now + timedelta(seconds=max(0, min(grace, longest))) + SETTLES
