"""Typed views of Kubernetes objects that name only the fields makeway reads.

They decode straight from the API server's JSON (about 10 µs a pod); every field that is not named
here is skipped by the decoder. Absent and null both give the default, as in Kubernetes. Nothing
here is ever encoded back: writes are patches of their own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of the views: frozen, camelCase, unknown fields ignored."""


Quantity = str | int | float
"""A resource quantity as JSON carries it; `makeway.core.k8s.quantity` gives it a value."""

Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A pod's priority: 32 bits, as in Kubernetes. Columns hold sums of them."""


class OwnerReference(View, frozen=True, gc=False):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(View, frozen=True, gc=False):
    """metadata, without managedFields."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


class ResourceRequirements(View, frozen=True, gc=False):
    """resources of a container or of a whole pod."""

    requests: dict[str, Quantity] | None = None


class ContainerPort(View, frozen=True, gc=False):
    """spec.containers[].ports[]."""

    host_port: int | None = None
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(View, frozen=True, gc=False):
    """A container or init container; `restart_policy` "Always" on an init container makes it a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None


class LabelSelectorRequirement(View, frozen=True, gc=False):
    """matchExpressions[] of a label selector or of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(View, frozen=True, gc=False):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelectorTerm(View, frozen=True, gc=False):
    """One term of a node selector: all of its expressions and fields must match."""

    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_fields: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelector(View, frozen=True, gc=False):
    """A node selector: any of its terms must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(View, frozen=True, gc=False):
    """spec.affinity.nodeAffinity; only what is required."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(View, frozen=True, gc=False):
    """A required term of pod affinity or anti-affinity; the API server has merged matchLabelKeys into it."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(View, frozen=True, gc=False):
    """spec.affinity.podAffinity or podAntiAffinity; only what is required."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True, gc=False):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View, frozen=True, gc=False):
    """spec.topologySpreadConstraints[]."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class Toleration(View, frozen=True, gc=False):
    """spec.tolerations[]."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ClaimSource(View, frozen=True, gc=False):
    """spec.volumes[].persistentVolumeClaim."""

    claim_name: str = ""


class Volume(View, frozen=True, gc=False):
    """spec.volumes[], of which only claims matter."""

    persistent_volume_claim: ClaimSource | None = None


class SchedulingGroup(View, frozen=True, gc=False):
    """spec.schedulingGroup, of Kubernetes 1.36 and newer."""

    pod_group_name: str | None = None


class PodSpec(View, frozen=True, gc=False):
    """spec of a pod."""

    node_name: str | None = None
    priority: Priority | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    scheduler_name: str | None = None
    termination_grace_period_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    scheduling_group: SchedulingGroup | None = None


class PodCondition(View, frozen=True, gc=False):
    """status.conditions[]."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class ContainerStatus(View, frozen=True, gc=False):
    """status.containerStatuses[], for in-place resize: what the kubelet has allocated and runs."""

    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


ENDED_PHASES: Final = ("Succeeded", "Failed")
"""In these a pod runs no more and takes no room."""


class PodStatus(View, frozen=True, gc=False):
    """status of a pod."""

    phase: str | None = None
    nominated_node_name: str | None = None
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    allocated_resources: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


class Pod(View, frozen=True, gc=False):
    """v1.Pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()


class Taint(View, frozen=True, gc=False):
    """spec.taints[] of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(View, frozen=True, gc=False):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class NodeStatus(View, frozen=True, gc=False):
    """status of a node."""

    allocatable: dict[str, Quantity] | None = None


class Node(View, frozen=True, gc=False):
    """v1.Node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PersistentVolumeClaimSpec(View, frozen=True, gc=False):
    """spec of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] | None = None
    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaim(View, frozen=True, gc=False):
    """v1.PersistentVolumeClaim."""

    metadata: Metadata
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class VolumeNodeAffinity(View, frozen=True, gc=False):
    """spec.nodeAffinity of a PersistentVolume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(View, frozen=True, gc=False):
    """spec of a PersistentVolume; of its source only whether CSI drivers have taken that sort over."""

    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    aws_elastic_block_store: Any = None
    azure_disk: Any = None
    azure_file: Any = None
    cinder: Any = None
    gce_persistent_disk: Any = None
    portworx_volume: Any = None
    vsphere_volume: Any = None


class PersistentVolumeStatus(View, frozen=True, gc=False):
    """status of a PersistentVolume."""

    phase: str = ""


class PersistentVolume(View, frozen=True, gc=False):
    """v1.PersistentVolume."""

    metadata: Metadata
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorRequirement(View, frozen=True, gc=False):
    """allowedTopologies[].matchLabelExpressions[] of a StorageClass."""

    key: str = ""
    values: tuple[str, ...] | None = None


class TopologySelectorTerm(View, frozen=True, gc=False):
    """allowedTopologies[] of a StorageClass: all of its expressions must match."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] | None = None


class StorageClass(View, frozen=True, gc=False):
    """storage.k8s.io/v1 StorageClass."""

    metadata: Metadata
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None


class DeviceClassSpec(View, frozen=True, gc=False):
    """spec of a DeviceClass."""

    extended_resource_name: str | None = None


class DeviceClass(View, frozen=True, gc=False):
    """resource.k8s.io/v1 DeviceClass."""

    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()


class PodDisruptionBudgetSpec(View, frozen=True, gc=False):
    """spec of a PodDisruptionBudget."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(View, frozen=True, gc=False):
    """status of a PodDisruptionBudget; `disrupted_pods`: pod name to the time of eviction."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disrupted_pods: dict[str, datetime] | None = None
    observed_generation: int | None = None


class PodDisruptionBudget(View, frozen=True, gc=False):
    """policy/v1 PodDisruptionBudget."""

    metadata: Metadata
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(View, frozen=True, gc=False):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: Metadata
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class DaemonSetSpec(View, frozen=True, gc=False):
    """spec of a DaemonSet."""

    selector: LabelSelector | None = None


class DaemonSet(View, frozen=True, gc=False):
    """apps/v1 DaemonSet."""

    metadata: Metadata
    spec: DaemonSetSpec = DaemonSetSpec()


class ConfigMap(View, frozen=True, gc=False):
    """v1.ConfigMap, without what is not text."""

    metadata: Metadata
    data: dict[str, str] | None = None


class Namespace(View, frozen=True, gc=False):
    """v1.Namespace."""

    metadata: Metadata
