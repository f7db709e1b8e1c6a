"""Claims, volumes and storage classes: which nodes a pod's claims leave it. Pure state.

Sources: kube-scheduler's VolumeBinding (node affinity of bound volumes, topologies of a class whose claims
wait for their first consumer) and VolumeZone (zone and region labels of volumes). What is not known leaves
every node: looser, never stricter. The capacity and number of volumes are left to verification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from makeway.core.k8s.nodes import NodeTerm, RequiredNodes, selected_nodes
from makeway.core.k8s.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from makeway.planner.snapshot.budgets import Key

ZONES = "topology.kubernetes.io/zone"
REGIONS = "topology.kubernetes.io/region"
GENERAL = {
    "failure-domain.beta.kubernetes.io/zone": ZONES,
    "failure-domain.beta.kubernetes.io/region": REGIONS,
}
"""What the beta labels are called now."""

ZONE_LABELS = (*GENERAL, ZONES, REGIONS)
"""Labels of nodes and volumes that VolumeZone compares."""

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_SEPARATOR = "__"
_WAITS = "WaitForFirstConsumer"

Zone = tuple[str, tuple[str, ...]]
"""A label, and the values of which a node needs one."""


class ClaimRecord(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim: its volume (empty: none), its class, and whether only one pod may use it."""

    volume: str = ""
    storage_class: str = ""
    exclusive: bool = False


class VolumeRecord(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolume: the nodes it can be used on, by affinity and by zone labels.

    `vacant`: no claim is bound to it, so that one of its class may come to be.
    """

    nodes: RequiredNodes = RequiredNodes()
    zones: tuple[Zone, ...] = ()
    storage_class: str = ""
    vacant: bool = False


NO_CLAIM = ClaimRecord()


def claim_record(claim: PersistentVolumeClaim) -> ClaimRecord:
    """Keep of a claim what plans look at."""
    spec = claim.spec
    annotations = claim.metadata.annotations or {}
    return ClaimRecord(
        volume=spec.volume_name,
        storage_class=annotations.get(_CLASS_ANNOTATION, spec.storage_class_name or ""),
        exclusive="ReadWriteOncePod" in (spec.access_modes or ()),
    )


def volume_record(volume: PersistentVolume) -> VolumeRecord:
    """Keep of a volume what plans look at.

    The affinity of a volume whose driver has moved out of Kubernetes is left to verification: the scheduler
    translates it into the labels of the new driver.
    """
    spec, labels = volume.spec, volume.metadata.labels or {}
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    zones = ((key, _values(labels[key])) for key in ZONE_LABELS if key in labels)
    return VolumeRecord(
        nodes=RequiredNodes() if _is_migrated(spec) else selected_nodes(required),
        zones=tuple((key, values) for key, values in zones if values),
        storage_class=spec.storage_class_name,
        vacant=volume.status.phase != "Bound",
    )


def class_nodes(storage_class: StorageClass) -> RequiredNodes:
    """Return the nodes for which volumes of a class can be made once a pod is placed there."""
    terms = storage_class.allowed_topologies
    if not terms or not waits(storage_class):
        return RequiredNodes()
    return RequiredNodes(
        terms=tuple(
            NodeTerm(tuple((one.key, "In", one.values or ()) for one in term.match_label_expressions or ()))
            for term in terms
        )
    )


def waits(storage_class: StorageClass) -> bool:
    """Report whether claims of a class get a volume once a pod that uses them is placed."""
    return storage_class.volume_binding_mode == _WAITS


def _is_migrated(spec: PersistentVolumeSpec) -> bool:
    sources = (
        spec.aws_elastic_block_store,
        spec.azure_disk,
        spec.azure_file,
        spec.cinder,
        spec.gce_persistent_disk,
        spec.portworx_volume,
        spec.vsphere_volume,
    )
    return any(source is not None for source in sources)


def _values(label: str) -> tuple[str, ...]:
    """Read the zones of a label; one that is malformed counts as none."""
    values = sorted({value.strip() for value in label.split(_SEPARATOR)})
    return () if "" in values else tuple(values)


class Volumes:
    """All of a cluster, by name. Changed only by the snapshot that owns it; each change is O(1).

    `known`: all volumes have been listed. Before, and where they may not be read, a volume that no claim has
    yet may be anywhere, so that no class rules a node out.
    """

    def __init__(self) -> None:
        self.known = True
        self.claims: dict[Key, ClaimRecord] = {}
        self.volumes: dict[str, VolumeRecord] = {}
        self.classes: dict[str, RequiredNodes] = {}
        self.waiting: set[str] = set()
        """Names of the classes whose claims wait for their first consumer."""
        self._vacant: Counter[str] = Counter()

    def put_claim(self, key: Key, claim: ClaimRecord) -> bool:
        """Add or change a claim; one of which nothing is known is forgotten. Return whether it is new."""
        if self.claims.get(key, NO_CLAIM) == claim:
            return False
        if claim == NO_CLAIM:
            del self.claims[key]
        else:
            self.claims[key] = claim
        return True

    def put_volume(self, name: str, volume: VolumeRecord | None) -> bool:
        """Add, change or (None) forget a volume. Return whether it is new."""
        before = self.volumes.get(name)
        if before == volume:
            return False
        if before is not None and before.vacant:
            self._vacant[before.storage_class] -= 1
        if volume is None:
            del self.volumes[name]
            return True
        self.volumes[name] = volume
        self._vacant[volume.storage_class] += volume.vacant
        return True

    def put_class(self, name: str, nodes: RequiredNodes, *, waits: bool) -> bool:
        """Add, change or (all nodes, and none that waits) forget a class. Return whether it is new."""
        if self.classes.get(name, RequiredNodes()) == nodes and (name in self.waiting) == waits:
            return False
        if nodes.anywhere:
            self.classes.pop(name, None)
        else:
            self.classes[name] = nodes
        if waits:
            self.waiting.add(name)
        else:
            self.waiting.discard(name)
        return True

    def unbound(self, namespace: str, claims: Iterable[str]) -> str:
        """Return a claim that has no volume and does not get one with the pod's node; empty for none.

        kube-scheduler rejects its pod on every node, whatever is removed. A claim that is not known is one.
        """
        for name in claims:
            claim = self.claims.get((namespace, name), NO_CLAIM)
            if not claim.volume and claim.storage_class not in self.waiting:
                return name
        return ""

    def nodes(self, namespace: str, claims: Iterable[str]) -> Iterator[RequiredNodes]:
        """Yield what a node has to match for the volumes of some claims, as VolumeBinding does."""
        for claim in self._known(namespace, claims):
            volume = self.volumes.get(claim.volume)
            if volume is not None:
                yield volume.nodes
            elif self.known and not claim.volume and not self._vacant[claim.storage_class]:
                yield self.classes.get(claim.storage_class, RequiredNodes())

    def zones(self, namespace: str, claims: Iterable[str]) -> Iterator[Zone]:
        """Yield the labels of which a node needs a value for the volumes of claims, as VolumeZone does."""
        for claim in self._known(namespace, claims):
            volume = self.volumes.get(claim.volume)
            if volume is not None:
                yield from volume.zones

    def _known(self, namespace: str, claims: Iterable[str]) -> Iterator[ClaimRecord]:
        for name in claims:
            claim = self.claims.get((namespace, name))
            if claim is not None:
                yield claim
