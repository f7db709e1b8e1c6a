"""What a file of manifests holds: pods, workloads that stand for pods, and what pods depend on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from makeway.planner.offline.manifests import Manifest, ManifestError
from makeway.planner.offline.workloads import WORKLOADS, pods_of_workload, pods_on_nodes
from makeway.planner.snapshot.records import NodeRecord

APPLIED: Final = frozenset(
    {
        "DeviceClass",
        "LimitRange",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "PriorityClass",
        "RuntimeClass",
        "StorageClass",
    }
)
"""Kinds that count as if they were applied before the pods."""

_GIVE: Final = (
    "give Pods, a List of them, or Deployments, ReplicaSets, StatefulSets, DaemonSets or Jobs, and PodGroups"
)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file of manifests holds, in order, those of Lists too.

    `applied`: objects that count as if they were there, such as PriorityClasses. `skipped`: those of other
    kinds, none of which a plan looks at.
    """

    pods: list[Manifest] = field(default_factory=list)
    groups: list[Manifest] = field(default_factory=list)
    applied: list[Manifest] = field(default_factory=list)
    skipped: list[Manifest] = field(default_factory=list)

    def put(self, one: Manifest, source: str, nodes: Iterable[NodeRecord]) -> None:
        """Take an object. Raises ManifestError."""
        kind = one.get("kind")
        if isinstance(kind, str) and kind.endswith("List") and isinstance(one.get("items"), list):
            for item in one["items"]:
                self.put({"kind": kind.removesuffix("List"), **item}, source, nodes)
        elif not isinstance(kind, str) or not kind:
            raise ManifestError(f"{source}: a document without kind is no Kubernetes object")
        elif kind == "PodGroup":
            self.groups.append(one)
        elif kind == "Pod":
            self.pods.append(_named(one, 0))
        elif kind in WORKLOADS:
            pods, claims = pods_of_workload(one, kind, source)
            self.pods.extend(pods)
            self.applied.extend(claims)
        elif kind == "DaemonSet":
            self.pods.extend(pods_on_nodes(one, source, nodes))
        elif kind in APPLIED:
            self.applied.append(one)
        else:
            self.skipped.append(one)


def contents_of(found: Iterable[Manifest], source: str, nodes: Iterable[NodeRecord] = ()) -> Contents:
    """Sort the documents of a file. `nodes`: of the cluster, for DaemonSets. Raises ManifestError."""
    contents = Contents()
    for one in found:
        try:
            contents.put(one, source, nodes)
        except ManifestError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The API server would name the field; what reads templates here trusts their shapes.
            raise ManifestError(
                f"{source}: the API server would not take this {one['kind']}: {error}"
            ) from error
    return contents


def no_pods(source: str, skipped: Iterable[Manifest]) -> ManifestError:
    """Return what is wrong with a file without pods. `skipped`: what it has instead."""
    told = kinds_text(skipped)
    return ManifestError(f"{source}: no pods in it{f', only {told}' if told else ''}; {_GIVE}")


def kinds_text(objects: Iterable[Manifest]) -> str:
    """Count objects by kind: `2 Service, 1 ServiceAccount`."""
    kinds = Counter(str(one.get("kind")) for one in objects)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def group_named(pod: Manifest) -> str:
    """Return the name of the PodGroup that a pod names; empty where it names none."""
    spec = pod.get("spec")
    group = spec.get("schedulingGroup") if isinstance(spec, dict) else None
    return str(group.get("podGroupName") or "") if isinstance(group, dict) else ""


def _named(pod: Manifest, number: int) -> Manifest:
    """Name a pod with `generateName` as its first would be."""
    meta = pod.get("metadata") or {}
    if not isinstance(meta, dict) or meta.get("name") or not meta.get("generateName"):
        return pod
    return {**pod, "metadata": {**meta, "name": f"{meta['generateName']}{number}"}}
