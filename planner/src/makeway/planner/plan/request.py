"""The plan request as the planner's core takes it: decoded, counted, with what is in flight."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from makeway.bus.messages import Placement
from makeway.bus.plan import MemberClass, NodeSelection, PlanRequest, Profile
from makeway.bus.subjects import token
from makeway.core.daemonset.binding import bound_node
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.resources import is_extended
from makeway.planner.plan.constraints.pods import Constraints, constraints_of, read_arguments
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.result import AwaitedPod
from makeway.planner.plan.terminating import NO_ROOM, AwaitedRoom
from makeway.planner.snapshot.records import PodRecord, PodRecords

FIT = "NodeResourcesFit"
UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled once the scheduler has tried and failed."""

QUEUE_FULL = "QueueFull"
"""The same where the queue gate has held the pod; a cluster autoscaler adds no node for it."""

MOST_PODS = 4000
"""Removable pods that a list may name: about 400 kB of JSON, of the 1 MiB that NATS carries."""

_RESOLUTION = timedelta(seconds=1)
_pod_decoder = msgspec.json.Decoder(Pod)


class NamelessPodError(ValueError):
    """A pod that no record can name: a part of its name is missing, or its UID cannot stand in a subject."""


class _FitArgs(msgspec.Struct):
    """NodeResourcesFitArgs, with every name in lower case."""

    ignoredresources: tuple[str, ...] | None = None
    ignoredresourcegroups: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One preemptor and all that a plan for it depends on besides the snapshot and the policy.

    `needs`: what it asks of a node, by column; empty where the profile does not filter by resources.
    `constraints`: what it asks besides.
    `max_candidates`, `most_pods`: how many nodes the answer may name, and about how many pods on them.
    `in_flight`: UID of each pod that a live order removes, to that order's id. `leaving`: UIDs of
    victims whose order ended a moment ago, for budgets that do not show it yet.
    `daemonset_node`: the one node that a DaemonSet has bound it to, as it says itself; else empty.
    `unfit_since`: since when it has not fitted, as far as is known.
    `terminating`: the pods that are being deleted and whose room is awaited; the plan finds them. `patient`:
    also those with much of their grace period left.
    `refused`: UIDs of pods whose deletion the API server lately refused for this preemptor. `left_out`: these
    and the nodes that earlier orders for it leave out, as the ledger knows them.
    `ignore_columns`: leave every node with a removable pod to the scheduler's filters; `weighed` is what the
    pod needs then, for lost work alone.
    `turn`: a number that differs from request to request; it picks the sample of a refusal.
    `restored`: pods that have left since the moment that is planned for; they count as being where they were,
    while `Snapshot.restoring` holds them. `allowed_before`: what budgets allowed at that moment, where that
    differs.
    """

    preemptor: PodRecord
    needs: Mapping[str, int]
    may_preempt: bool
    scheduler_name: str
    nodes: NodeSelection
    max_candidates: int
    most_pods: int = MOST_PODS
    constraints: Constraints = field(default_factory=Constraints)
    nominations: tuple[Placement, ...] = ()
    assumed: tuple[Placement, ...] = ()
    in_flight: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    terminating: AwaitedRoom = NO_ROOM
    patient: bool = False
    daemonset_node: str = ""
    unfit_since: datetime | None = None
    refused: frozenset[str] = frozenset()
    left_out: PassedOver = NOTHING_PASSED_OVER
    ignore_columns: bool = False
    weighed: Mapping[str, int] | None = None
    turn: int = 0
    restored: tuple[PodRecord, ...] = ()
    allowed_before: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def each(self) -> tuple[Question, ...]:
        """Return the questions about each class of the pods that are asked about: this one."""
        return (self,)

    def leaving_out(self, left_out: PassedOver) -> Question:
        """Return the question without what earlier orders left out."""
        return replace(self, refused=left_out.victims, left_out=left_out)

    def awaited(self, pods: Iterable[PodRecord]) -> tuple[AwaitedPod, ...]:
        """Return pods that leave anyway, each with the order that removes it where one does."""
        return tuple(AwaitedPod(pod, "" if pod.terminating else self.in_flight[pod.uid]) for pod in pods)


def question_of(
    request: PlanRequest,
    in_flight: Mapping[str, str],
    leaving: frozenset[str] = frozenset(),
    *,
    records: PodRecords | None = None,
    of: MemberClass | None = None,
) -> Question:
    """Decode and count the request's pod, or one `of` a class of a group's.

    `records`: of the pods that were asked for before.

    Raises msgspec.DecodeError (a ValidationError too) where the pod, or an argument of a filter, is not
    one, QuantityError where it asks for what is no quantity, SelectorError where a selector is none,
    NamelessPodError where no record could name it.
    """
    asked = request.classes[0] if of is None else of
    pod = _pod_decoder.decode(asked.pod)
    _check_names(pod)
    known = PodRecords() if records is None else records
    return Question(
        preemptor=known.record(pod),
        needs=_needs(known.requests(pod, placed=False), request.profile),
        may_preempt=pod.spec.preemption_policy != "Never",
        scheduler_name=pod.spec.scheduler_name or "",
        nodes=request.nodes_of(asked),
        max_candidates=request.max_candidates if request.group is None else 1,
        constraints=constraints_of(pod, request.profile.filters, request.profile.filter_args),
        nominations=request.nominations,
        assumed=request.assumed,
        in_flight=in_flight,
        leaving=leaving,
        daemonset_node=bound_node(pod),
        unfit_since=_unfit_since(pod),
        ignore_columns=request.ignore_columns,
        turn=zlib.crc32(request.request_id.encode()),
    )


def _unfit_since(pod: Pod) -> datetime | None:
    """Read when the scheduler first found that the pod does not fit, rounded up: the API keeps seconds."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            moment = condition.last_transition_time
            return (
                moment + _RESOLUTION if moment and condition.reason in (UNSCHEDULABLE, QUEUE_FULL) else None
            )
    return None


def _check_names(pod: Pod) -> None:
    meta = pod.metadata
    if not (meta.namespace and meta.name and pod.spec.scheduler_name):
        raise NamelessPodError("the pod has no namespace, no name or no schedulerName")
    try:
        token(meta.uid)
    except ValueError as error:
        raise NamelessPodError(f"the pod's uid: {error}") from error


def _needs(requests: Mapping[str, int], profile: Profile) -> dict[str, int]:
    """Leave out what the profile's own filters do not look at: a column is never stricter than they."""
    if profile.filters and FIT not in profile.filters:
        return {}
    ignored, groups = _ignored(profile.filter_args.get(FIT))
    return {
        name: amount
        for name, amount in requests.items()
        if not (is_extended(name) and (name in ignored or name.partition("/")[0] in groups))
    }


def _ignored(arguments: msgspec.Raw | None) -> tuple[frozenset[str], frozenset[str]]:
    """Read `ignoredResources` and `ignoredResourceGroups` of NodeResourcesFitArgs."""
    fields = read_arguments(arguments, _FitArgs, _FitArgs())
    return frozenset(fields.ignoredresources or ()), frozenset(fields.ignoredresourcegroups or ())
