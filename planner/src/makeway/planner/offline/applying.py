"""Files of manifests on a cluster: what counts as applied, and which pods are to be created. Pure.

It changes the world that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from makeway.planner.offline.contents import contents_of, kinds_text, no_pods
from makeway.planner.offline.dump import read_object
from makeway.planner.offline.manifests import Manifest, ManifestError, NewPod
from makeway.planner.offline.world import World

_CLUSTER_WIDE: Final = frozenset(
    {"DeviceClass", "Namespace", "PersistentVolume", "PriorityClass", "RuntimeClass", "StorageClass"}
)
_MOST_NAMED: Final = 5
_PROVISIONED: Final = "(to be provisioned)"


@dataclass(frozen=True, slots=True)
class NewPods:
    """What files ask for: pods and PodGroups, each with its source, and notes about the rest, in sentences.

    `brought`: kind and name of what the files bring besides, whether a plan looks at it or not.
    """

    pods: list[NewPod] = field(default_factory=list)
    groups: list[tuple[Manifest, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    brought: set[tuple[str, str]] = field(default_factory=set)


def applied(world: World, files: Iterable[tuple[Sequence[Manifest], str]], namespace: str) -> NewPods:
    """Apply what files bring, and return the pods that they would create.

    `files`: each with its source. `namespace`: where a manifest names none. What is there already stays as it
    is, and is told. Raises ManifestError, also where there are no pods at all.
    """
    new, there = NewPods(), list[str]()
    sources = [(contents_of(found, source, world.snapshot.nodes.values()), source) for found, source in files]
    skipped = [one for contents, _ in sources for one in contents.skipped]
    brought = [one for contents, _ in sources for one in contents.applied]
    if not any(contents.pods for contents, _ in sources):
        raise no_pods(", ".join(source for _, source in sources), [*brought, *skipped])
    new.brought.update((str(one.get("kind")), name_of(one)) for one in (*brought, *skipped))
    there += [_title(one, namespace) for one in brought if _is_there(world, one, namespace, new)]
    for contents, source in sources:
        for group in contents.groups:
            if any(_key(group, namespace) == _key(one, namespace) for one, _ in new.groups):
                raise ManifestError(f"{source}: {_title(group, namespace)} is there twice")
            new.groups.append((group, source))
        for pod in contents.pods:
            if _runs(world, pod, namespace):
                there.append(_title(pod, namespace))
            else:
                new.pods.append(NewPod(pod, source))
    if skipped:
        new.notes.append(f"skipped, as no plan reads them: {kinds_text(skipped)}")
    if there:
        more = f" and {len(there) - _MOST_NAMED} others" if len(there) > _MOST_NAMED else ""
        new.notes.append(f"there already, and left as they are: {', '.join(there[:_MOST_NAMED])}{more}")
    return new


def _is_there(world: World, manifest: Manifest, namespace: str, new: NewPods) -> bool:
    """Report whether an object is there already; where it is not, put it into the world."""
    kind, name = str(manifest["kind"]), name_of(manifest)
    space = "" if kind in _CLUSTER_WIDE else namespace_of(manifest, namespace)
    if (kind, space, name) in world.known:
        return True
    changed = {**manifest, "metadata": {**_meta(manifest), "namespace": space}}
    spec = manifest.get("spec") or {}
    if kind == "PersistentVolumeClaim" and isinstance(spec, dict):
        changed["spec"] = _provisioned(world, spec, f"{space}/{name}", new)
    read_object(world, kind, msgspec.json.encode(changed))
    return False


def _provisioned(world: World, spec: dict[str, Any], name: str, new: NewPods) -> dict[str, Any]:
    """Give a new claim its class, and a volume where the class makes one before a pod comes.

    Such a volume is taken to be usable on every node, which a note says.
    """
    spec = {**spec}
    if spec.get("storageClassName") is None:
        spec["storageClassName"] = world.default_class
    volumes, of_class = world.snapshot.volumes, str(spec["storageClassName"])
    is_known = ("StorageClass", "", of_class) in world.known
    if spec.get("volumeName") or of_class in volumes.waiting or (world.seen["StorageClass"] and not is_known):
        return spec
    new.notes.append(f"PersistentVolumeClaim {name} is taken to get a volume that any node can use")
    return {**spec, "volumeName": _PROVISIONED}


def _runs(world: World, pod: Manifest, namespace: str) -> bool:
    """Report whether a pod of that name has a node."""
    uid = world.snapshot.uid_of(namespace_of(pod, namespace), name_of(pod))
    there = world.snapshot.pods.get(uid or "")
    return there is not None and bool(there.node)


def _title(one: Manifest, namespace: str) -> str:
    kind, name = str(one.get("kind") or "Pod"), name_of(one)
    return f"{kind} {name}" if kind in _CLUSTER_WIDE else f"{kind} {namespace_of(one, namespace)}/{name}"


def _key(one: Manifest, namespace: str) -> tuple[str, str]:
    return namespace_of(one, namespace), name_of(one)


def _meta(one: Manifest) -> dict[str, Any]:
    meta = one.get("metadata")
    return meta if isinstance(meta, dict) else {}


def namespace_of(one: Manifest, default: str) -> str:
    """Return the namespace of a manifest, which may have any shape."""
    return str(_meta(one).get("namespace") or default)


def name_of(one: Manifest) -> str:
    """Return its name; empty where it has none."""
    return str(_meta(one).get("name") or "")
