"""A cluster, a pod that looks for a node in it, and kube-scheduler's answer: what `tests/upstream` writes."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from builders_bus import plan_request
from makeway.bus import codec
from makeway.bus.messages import Placement
from makeway.bus.plan import NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import (
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
)
from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.core.policy.document import Groups, Policy, PolicyLimits
from makeway.planner.plan.request import question_of
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import Enforce, KnowPodGroups, KnowVolumes
from makeway.planner.snapshot.objects import change_of
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from unit.planner.caching import plan

NOW = datetime(2026, 1, 2, tzinfo=UTC)
"""When the planner is asked: after every pod of a random cluster has started."""

UPSTREAM = Policy(limits=PolicyLimits(victims_per_order=10_000), groups=Groups(surplus_first=False))
"""What kube-scheduler does: no bound of victims, and no pod of a gang before others."""

FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""The filters of the profile that was asked."""


class Victims(msgspec.Struct, frozen=True):
    """Who has to go on a node, by UID, most important first, and how many violate a budget."""

    uids: tuple[str, ...]
    violations: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What kube-scheduler says: see Answer in tests/upstream/answers/case.go."""

    potential: tuple[str, ...]
    candidates: dict[str, Victims]
    chosen: str = ""
    sampled: str = ""
    fits: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """One cluster, decoded into the views that the planner's watch decodes into."""

    seed: int
    constraints: tuple[str, ...]
    namespaces: tuple[Namespace, ...]
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    preemptor: msgspec.Raw
    answer: Answer
    budgets: tuple[PodDisruptionBudget, ...] = ()
    claims: tuple[PersistentVolumeClaim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    pod_groups: tuple[PodGroup, ...] = msgspec.field(default=(), name="podGroups")
    composite_pod_groups: tuple[CompositePodGroup, ...] = msgspec.field(default=(), name="compositePodGroups")
    assumed: dict[str, str] = {}
    note: str = ""
    written: dict[str, Any] | None = None
    """The preemptor as it was written, before the API server filled in what `preemptor` has."""


_decoder = msgspec.json.Decoder(Case)


def decode(line: bytes) -> Case:
    """Decode a case. Raises msgspec.DecodeError."""
    return _decoder.decode(line)


def snapshot_of(case: Case) -> Snapshot:
    """Put the cluster into a snapshot, object by object, as the watch does."""
    snapshot = Snapshot()
    snapshot.apply(Enforce(UPSTREAM, "upstream"))
    records = PodRecords()

    def put(*items: Any) -> None:
        for item in items:
            change = change_of(item, records)
            assert change is not None
            snapshot.apply(change)

    put(*case.namespaces, *case.nodes, *case.budgets, *case.claims, *case.volumes)
    snapshot.apply(KnowVolumes(True))
    snapshot.apply(KnowPodGroups(True, True, True))
    put(*case.composite_pod_groups, *case.pod_groups, *case.pods)
    return snapshot


def asked(case: Case, snapshot: Snapshot, nodes: Sequence[str], most: int) -> Plan | PlanRefusal:
    """Ask the planner as its service does, of these nodes, for so many candidates."""
    data = codec.encode(_request(case, nodes, most))
    return plan(snapshot, question_of(codec.decode(PlanRequest, data), {}), NOW)


def _request(case: Case, nodes: Sequence[str], most: int) -> PlanRequest:
    """Write the request as the plugin would; the nodes as the smaller of the set and its complement."""
    if 2 * len(nodes) > len(case.nodes):
        chosen = set(nodes)
        rest = tuple(node.metadata.name for node in case.nodes if node.metadata.name not in chosen)
        selection = NodeSelection(names=rest, all_but=True)
    else:
        selection = NodeSelection(names=tuple(nodes))
    by_uid = {pod.metadata.uid: pod for pod in case.pods}
    nominated = (
        (pod, pod.status.nominated_node_name)
        for pod in case.pods
        if pod.status.nominated_node_name and not pod.spec.node_name
    )
    return plan_request(
        case.preemptor,
        max_candidates=most,
        profile=Profile(name="default-scheduler", filters=FILTERS),
        nodes=selection,
        nominations=_placements(nominated),
        assumed=_placements((by_uid[uid], node) for uid, node in case.assumed.items()),
    )


def _placements(pods: Iterable[tuple[Pod, str]]) -> tuple[Placement, ...]:
    placed = (
        Placement(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, node=node)
        for pod, node in pods
    )
    return tuple(sorted(placed, key=lambda placement: placement.uid))
