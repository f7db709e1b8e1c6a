"""The pods that controllers would make of a workload's template, with the claims that go with them. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from makeway.planner.offline.daemonsets import pods_of_daemonset
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
