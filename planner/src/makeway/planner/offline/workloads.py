"""The pods that controllers would make of a workload's template, with the claims that go with them. Pure.

Of a DaemonSet there is one for each node that it selects. Source: pkg/controller/daemon
(NodeShouldRunDaemonPod) and its util (AddOrUpdateDaemonPodTolerations,
ReplaceDaemonSetPodNodeNameNodeAffinity) of kube-controller-manager 1.36.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from makeway.core.k8s.nodes import keeps_out, required_nodes
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.manifests import Manifest, ManifestError
from makeway.planner.snapshot.records import NodeRecord

MOST_REPLICAS: Final = 10_000
"""Pods that one workload may stand for: as many as a large cluster would hardly take at once."""

WORKLOADS: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kinds with a template of their pods, and the field that says how many there are at once."""
_STATEFUL: Final = "StatefulSet"
_REVISIONS: Final = {
    "Deployment": "pod-template-hash",
    "StatefulSet": "controller-revision-hash",
    "DaemonSet": "controller-revision-hash",
}
"""Labels that controllers add, and that matchLabelKeys are made for."""


_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Taints that the controller lets its pods tolerate, by key and effect."""

_ON_THE_HOST: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")
"""The same for pods on the host's network."""


def pods_of_workload(one: Manifest, kind: str, source: str) -> tuple[list[Manifest], list[Manifest]]:
    """Return the pods of a workload, as its controller would make them, and the claims that go with them.

    `kind`: one of WORKLOADS. Raises ManifestError.
    """
    spec, meta = one.get("spec") or {}, one.get("metadata") or {}
    field = WORKLOADS[kind]
    count = 1 if spec.get(field) is None else spec[field]
    name = meta.get("name") or kind.lower()
    template = _template(spec, f"{source}: {kind} {name}")
    if not isinstance(count, int) or not 0 <= count <= MOST_REPLICAS:
        raise ManifestError(f"{source}: {kind} {name}: spec.{field} is no number from 0 to {MOST_REPLICAS}")
    start = ((spec.get("ordinals") or {}).get("start") or 0) if kind == _STATEFUL else 0
    pods: list[Manifest] = []
    claims: list[Manifest] = []
    for number in range(start, start + count):
        pod = copy.deepcopy(template)
        pod["metadata"] = {
            **(pod.get("metadata") or {}),
            "name": f"{name}-{number}",
            "namespace": meta.get("namespace"),
        }
        _label_revision(pod, kind, name)
        if kind == _STATEFUL:
            claims += _claim(pod, spec.get("volumeClaimTemplates") or ())
        pods.append(pod)
    return pods, claims


def _claim(pod: Manifest, templates: Iterable[Manifest]) -> Iterator[Manifest]:
    """Give a StatefulSet's pod a volume for each template; return the claims, which the controller makes."""
    meta = pod["metadata"]
    for template in templates:
        of_template = template.get("metadata") or {}
        volume, claim = of_template.get("name"), f"{of_template.get('name')}-{meta['name']}"
        spec = pod["spec"] = dict(pod.get("spec") or {})
        others = [one for one in spec.get("volumes") or () if one.get("name") != volume]
        spec["volumes"] = [*others, {"name": volume, "persistentVolumeClaim": {"claimName": claim}}]
        yield {
            "kind": "PersistentVolumeClaim",
            "metadata": {**of_template, "name": claim, "namespace": meta["namespace"]},
            "spec": template.get("spec") or {},
        }


def _label_revision(pod: Manifest, kind: str, name: str) -> None:
    """Label a pod with the revision of its template, as its controller does: one that no other pod has."""
    if kind in _REVISIONS:
        labels = pod["metadata"].get("labels") or {}
        pod["metadata"]["labels"] = {_REVISIONS[kind]: f"simulated-{name}"[:63].rstrip("-."), **labels}


def pods_on_nodes(one: Manifest, source: str, nodes: Iterable[NodeRecord]) -> Iterator[Manifest]:
    """Return the pods of a DaemonSet, as its controller would make them. Raises ManifestError."""
    meta = {"name": "daemonset", **(one.get("metadata") or {})}
    where = f"{source}: DaemonSet {meta['name']}"
    template = _template(one.get("spec") or {}, where)
    uid = meta.get("uid") or f"uid-of-{meta['name']}"
    try:
        pods = list(pods_of_daemonset(meta, template, uid, nodes))
    except msgspec.MsgspecError as error:
        raise ManifestError(f"{where}: {error}") from error
    if not pods:
        raise ManifestError(f"{where} selects no node: check its node selector, affinity and tolerations")
    for pod in pods:
        _label_revision(pod, "DaemonSet", meta["name"])
        yield pod


def _template(spec: Manifest, where: str) -> Manifest:
    template = spec.get("template")
    if not isinstance(template, dict):
        raise ManifestError(f"{where} has no spec.template")
    return template


def pods_of_daemonset(
    meta: dict[str, Any], template: dict[str, Any], uid: str, nodes: Iterable[NodeRecord]
) -> Iterator[dict[str, Any]]:
    """Return a pod for each node, in the order of their names, as if none of them were there yet.

    `meta`: the DaemonSet's metadata, with a name; `uid`: its own or a substitute. Raises
    msgspec.MsgspecError where the template is no pod's.
    """
    pod = copy.deepcopy(template)
    spec = pod["spec"] = dict(pod.get("spec") or {})
    taints = (*_TOLERATED, _ON_THE_HOST) if spec.get("hostNetwork") else _TOLERATED
    spec["tolerations"] = [
        *(spec.get("tolerations") or ()),
        *({"key": key, "operator": "Exists", "effect": effect} for key, effect in taints),
    ]
    view = msgspec.convert(pod, Pod)
    wanted, tolerations = required_nodes(view), view.spec.tolerations or ()
    for node in sorted(nodes, key=lambda one: one.name):
        named = spec.get("nodeName") in (None, "", node.name)
        if named and wanted.match(node.name, node.labels) and not keeps_out(node.taints, tolerations):
            yield _bound(pod, meta, uid, node.name)


def _bound(pod: dict[str, Any], meta: dict[str, Any], uid: str, node: str) -> dict[str, Any]:
    """Return the pod for one node: the required node affinity names it, and nothing else."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = pod["spec"].get("affinity") or {}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": meta["name"],
        "uid": uid,
        "controller": True,
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {
        **pod,
        "metadata": {
            **(pod.get("metadata") or {}),
            "name": f"{meta['name']}-{node}",
            "namespace": meta.get("namespace"),
            "ownerReferences": [owner],
        },
        "spec": {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}},
    }
