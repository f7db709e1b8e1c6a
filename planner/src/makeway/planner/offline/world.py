"""A cluster as it is read once, from the API server or from a dump: the snapshot, and the nominated pods.

A PodDisruptionBudget may be there as it is written, without the status that its controller gives it; it
allows no disruption then, as for kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from makeway.bus.messages import Placement
from makeway.core.k8s.objects import (
    ENDED_PHASES,
    DaemonSet,
    DeviceClass,
    Metadata,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    PriorityClass,
    StorageClass,
)
from makeway.core.k8s.pod_groups import PodGroup
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.resources import served_by
from makeway.core.policy.document import Policy
from makeway.core.queues.tree import QueueTree
from makeway.planner.offline.admission import stand_in_uid
from makeway.planner.offline.admission_objects import AdmissionObjects, LimitRange, RuntimeClass
from makeway.planner.plan.naming import as_placement
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    KnowDaemonSets,
    KnowPodGroups,
    PutDevices,
    PutPod,
    PutPriorityClass,
)
from makeway.planner.snapshot.exemptions import Source
from makeway.planner.snapshot.objects import change_of
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot

_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


class World:
    """What one reading of a cluster has brought; `put` takes its objects one by one.

    `nominations`: where pods without a node are to come, by UID. `admission`: what the API server adds to new
    pods. `seen`: how many objects of each kind. `warnings`: what could not be read, and what is missing, in
    sentences. An object without a UID gets one by its name.
    """

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._records = PodRecords()
        self.nominations: dict[str, Placement] = {}
        self.admission: AdmissionObjects = {}
        self.seen: Counter[str] = Counter()
        self.known: set[tuple[str, str, str]] = set()
        """Kind, namespace and name of all but pods."""
        self.warnings: list[str] = []
        self.claims_known = True
        """The claims of the cluster were read; else one that was not is not judged."""
        self.default_class = ""
        """The StorageClass of claims that name none."""
        self._devices: frozenset[str] = frozenset()

    def forget_groups(self) -> None:
        """Take each pod by itself, whatever group it names: the API server serves no pod groups."""
        self.snapshot.apply(KnowPodGroups(False, False))

    def enforce(self, policy: Policy, revision: str, source: Source | None = None) -> None:
        """Put a policy in force."""
        self.snapshot.apply(Enforce(policy, revision, source))

    def adopt(self, tree: QueueTree | None, revision: str, source: Source | None = None) -> None:
        """Put a tree of queues in force."""
        self.snapshot.apply(Adopt(tree, revision, source))

    def classes_of_pods(self) -> None:
        """Let each PriorityClass that pods name have the priority of its first pod."""
        for pod in self.snapshot.pods.values():
            name = pod.facts.priority_class
            if name and name not in self.snapshot.priority_classes:
                item = PriorityClass(metadata=Metadata(name=name), value=pod.facts.by_itself)
                self.snapshot.apply(PutPriorityClass(item))

    def put(self, item: Any) -> None:
        """Take one object; one of a kind that no plan looks at is passed over. O(slots) for a pod."""
        kind, meta = type(item).__name__, item.metadata
        self.seen[kind] += 1
        if not isinstance(item, Pod):
            self.known.add((kind, meta.namespace, meta.name))
        try:
            match item:
                case Pod():
                    self._put_pod(item)
                    return
                case PodGroup():
                    self.snapshot.apply(KnowPodGroups(True, True, True))
                case DaemonSet():
                    self.snapshot.apply(KnowDaemonSets(True))
                case StorageClass() if (meta.annotations or {}).get(_IS_DEFAULT) == "true":
                    self.default_class = meta.name
                case PodDisruptionBudget() if item.status == PodDisruptionBudgetStatus():
                    told = f"PodDisruptionBudget {meta.namespace}/{meta.name} has no status"
                    self.warnings.append(f"{told}, so it allows no disruption here")
                case RuntimeClass() | LimitRange():
                    self.admission[kind, meta.namespace, meta.name] = item
                case DeviceClass():
                    self._devices |= served_by(item)
                    self.snapshot.apply(PutDevices(self._devices))
            if (change := change_of(item, self._records)) is not None:
                self.snapshot.apply(change)
        except QuantityError as error:
            name = "/".join(part for part in (meta.namespace, meta.name) if part)
            self.warnings.append(f"{kind} {name} is left out: {error}")

    def _put_pod(self, pod: Pod) -> None:
        meta = pod.metadata
        if pod.status.phase in ENDED_PHASES:
            return
        if not meta.uid:
            meta = msgspec.structs.replace(meta, uid=stand_in_uid(meta.namespace, meta.name))
            pod = msgspec.structs.replace(pod, metadata=meta)
        record = self._records.record(pod)
        if record.group:
            self.snapshot.apply(KnowPodGroups(True, True, True))
        self.snapshot.apply(PutPod(record))
        nominated = pod.status.nominated_node_name
        if nominated and not pod.spec.node_name:
            self.nominations[meta.uid] = as_placement(meta, nominated)
