"""What a file of pods holds: YAML or JSON, pods, lists of them, and workloads with a pod template. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml

from makeway.planner.offline.daemonsets import pods_of_daemonset
from makeway.planner.snapshot.records import NodeRecord

Manifest = dict[str, Any]
"""An object as YAML or JSON has it."""

MOST_REPLICAS: Final = 10_000
"""Pods that one workload may stand for: as many as a large cluster would hardly take at once."""

_COUNTED: Final = {"Deployment": "replicas", "ReplicaSet": "replicas", "StatefulSet": "replicas"}
_ONE_AT_A_TIME: Final = {"Job": "parallelism"}
_REVISIONS: Final = {
    "Deployment": "pod-template-hash",
    "StatefulSet": "controller-revision-hash",
    "DaemonSet": "controller-revision-hash",
}
"""Labels that controllers add, and that matchLabelKeys are made for."""
_GIVE: Final = (
    "give Pods, a List of them, or Deployments, ReplicaSets, StatefulSets, DaemonSets or Jobs, and PodGroups"
)


class ManifestError(ValueError):
    """A file that does not hold pods, or not readable ones; says which document and what to do."""


class _Loader(yaml.CSafeLoader):
    """Safe YAML without dates: Kubernetes reads a time as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def documents(text: str, source: str) -> list[Manifest]:
    """Read all documents of a YAML (or JSON) text; empty ones are left out. Raises ManifestError."""
    try:
        found = [one for one in yaml.load_all(text, _Loader) if one is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(f"{where}: not YAML: {problem}") from error
    for number, one in enumerate(found, 1):
        if not isinstance(one, dict):
            raise ManifestError(f"{source}: document {number} is {type(one).__name__}, no Kubernetes object")
    return found


def groups_of(found: list[Manifest]) -> list[Manifest]:
    """Return the PodGroups among documents, in order; also those of Lists."""
    groups: list[Manifest] = []
    for one in found:
        if isinstance(one.get("items"), list):
            groups += groups_of([item for item in one["items"] if isinstance(item, dict)])
        elif one.get("kind") == "PodGroup":
            groups.append(one)
    return groups


def group_named(pod: Manifest) -> str:
    """Return the name of the PodGroup that a pod names; empty where it names none."""
    group = (pod.get("spec") or {}).get("schedulingGroup") or {}
    return str(group.get("podGroupName") or "") if isinstance(group, dict) else ""


def pods_of(found: list[Manifest], source: str, nodes: Iterable[NodeRecord] = ()) -> list[Manifest]:
    """Return the pods that the documents stand for, in order: each with a name. Raises ManifestError.

    `nodes`: of the cluster, for DaemonSets.
    """
    pods = [pod for one in found for pod in _pods(one, source, nodes)]
    if not pods:
        raise ManifestError(f"{source}: no pods in it; {_GIVE}")
    return pods


def _pods(one: Manifest, source: str, nodes: Iterable[NodeRecord]) -> Iterator[Manifest]:
    kind = one.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(one.get("items"), list):
        for item in one["items"]:
            yield from _pods({"kind": kind.removesuffix("List"), **item}, source, nodes)
    elif kind == "PodGroup":
        return
    elif kind == "Pod":
        yield _named(one, 0)
    elif kind in _COUNTED or kind in _ONE_AT_A_TIME:
        yield from _replicas(one, str(kind), source)
    elif kind == "DaemonSet":
        yield from _on_each_node(one, source, nodes)
    else:
        raise ManifestError(f"{source}: {kind or 'a document without kind'} is no pod; {_GIVE}")


def _replicas(one: Manifest, kind: str, source: str) -> Iterator[Manifest]:
    """Return the pods of a workload, as its controller would make them."""
    spec, meta = one.get("spec") or {}, one.get("metadata") or {}
    field = _COUNTED.get(kind) or _ONE_AT_A_TIME[kind]
    count = 1 if spec.get(field) is None else spec[field]
    name = meta.get("name") or kind.lower()
    template = _template(spec, f"{source}: {kind} {name}")
    if not isinstance(count, int) or not 0 <= count <= MOST_REPLICAS:
        raise ManifestError(f"{source}: {kind} {name}: spec.{field} is no number from 0 to {MOST_REPLICAS}")
    for number in range(count):
        pod = copy.deepcopy(template)
        pod["metadata"] = {
            **(pod.get("metadata") or {}),
            "name": f"{name}-{number}",
            "namespace": meta.get("namespace"),
        }
        _label_revision(pod, kind, name)
        yield pod


def _label_revision(pod: Manifest, kind: str, name: str) -> None:
    """Label a pod with the revision of its template, as its controller does: one that no other pod has."""
    if kind in _REVISIONS:
        labels = pod["metadata"].get("labels") or {}
        pod["metadata"]["labels"] = {_REVISIONS[kind]: f"simulated-{name}"[:63].rstrip("-."), **labels}


def _on_each_node(one: Manifest, source: str, nodes: Iterable[NodeRecord]) -> Iterator[Manifest]:
    """Return the pods of a DaemonSet, as its controller would make them."""
    meta = {"name": "daemonset", **(one.get("metadata") or {})}
    where = f"{source}: DaemonSet {meta['name']}"
    template = _template(one.get("spec") or {}, where)
    uid = meta.get("uid") or f"uid-of-{meta['name']}"
    try:
        pods = list(pods_of_daemonset(meta, template, uid, nodes))
    except msgspec.MsgspecError as error:
        raise ManifestError(f"{where}: {error}") from error
    if not pods:
        raise ManifestError(f"{where} selects no node: look at its node selector, affinity and tolerations")
    for pod in pods:
        _label_revision(pod, "DaemonSet", meta["name"])
        yield pod


def _template(spec: Manifest, where: str) -> Manifest:
    template = spec.get("template")
    if not isinstance(template, dict):
        raise ManifestError(f"{where} has no spec.template")
    return template


def _named(pod: Manifest, number: int) -> Manifest:
    """Name a pod with `generateName` as its first would be."""
    meta = pod.get("metadata") or {}
    if not isinstance(meta, dict) or meta.get("name") or not meta.get("generateName"):
        return pod
    return {**pod, "metadata": {**meta, "name": f"{meta['generateName']}{number}"}}
