"""A cluster from a file: the v1 List that `kubectl get nodes,pods,... -A -o json` (or yaml) prints. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from makeway.bus.reasons import reason_of
from makeway.core.k8s.objects import ConfigMap, DeviceClass, Metadata, View
from makeway.planner.offline.admission_objects import LimitRange, RuntimeClass
from makeway.planner.offline.manifests import ManifestError, documents
from makeway.planner.offline.world import World
from makeway.planner.snapshot.objects import KINDS

_EXPECTED: Final = {
    "PriorityClass": "priorityclasses",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Namespace": "namespaces",
    "LimitRange": "limitranges",
    "RuntimeClass": "runtimeclasses",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "StorageClass": "storageclasses",
    "DeviceClass": "deviceclasses",
    "DaemonSet": "daemonsets",
}
"""Kinds that a dump should have besides nodes and pods, as kubectl names them."""

COMMAND: Final = f"kubectl get nodes,pods,{','.join(_EXPECTED.values())} -A -o json"
"""What prints a dump; where the cluster has pod groups, with `,podgroups` behind `daemonsets`."""

_TYPES: Final[dict[str, type[View]]] = {
    one.__name__: one for one in (*KINDS, DeviceClass, ConfigMap, LimitRange, RuntimeClass)
}
_DECODERS: Final = {name: msgspec.json.Decoder(one) for name, one in _TYPES.items()}


class _List(View, frozen=True, gc=False):
    kind: str = ""
    items: tuple[msgspec.Raw, ...] | None = None


class _Item(View, frozen=True, gc=False):
    kind: str = ""
    metadata: Metadata = Metadata()


_decode_list = msgspec.json.Decoder(_List).decode
_decode_item = msgspec.json.Decoder(_Item).decode


def world_of(data: bytes, source: str) -> tuple[World, dict[tuple[str, str], ConfigMap]]:
    """Read a dump; return the cluster, and its ConfigMaps by namespace and name. O(bytes + pods · slots).

    Raises ManifestError where it is no dump; an object that cannot be read is left out and told.
    """
    world = World()
    maps: dict[tuple[str, str], ConfigMap] = {}
    for kind, raw in _items(data, source):
        item = read_object(world, kind, raw)
        if isinstance(item, ConfigMap):
            maps[item.metadata.namespace, item.metadata.name] = item
    if not world.seen["Node"]:
        raise ManifestError(f"{source}: no nodes in it; make it with `{COMMAND}`")
    _complete(world)
    return world, maps


def read_object(world: World, kind: str, raw: bytes | msgspec.Raw) -> View | None:
    """Put an object into a world; return it, or None where it is of another kind or cannot be read."""
    if kind == "ResourceQuota":
        world.seen[kind] += 1
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        item = decoder.decode(raw)
        world.put(item)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        world.warnings.append(f"{_name(kind, raw)} is left out: {error}")
        return None
    return item


def _complete(world: World) -> None:
    """Make up for what a dump lacks, and tell."""
    if world.seen["ResourceQuota"]:
        world.warnings.append("not judged: ResourceQuotas; on a cluster the API server is asked")
    missing = [name for kind, name in _EXPECTED.items() if not world.seen[kind]]
    if not missing:
        return
    told = f"none in the dump, so taken not to exist: {', '.join(missing)}"
    if not world.seen["PriorityClass"]:
        world.classes_of_pods()
        told += "; a class counts as its pods have it"
    world.claims_known = world.seen["PersistentVolumeClaim"] > 0
    world.warnings.append(told)


def _items(data: bytes, source: str) -> Iterator[tuple[str, msgspec.Raw | bytes]]:
    if data.lstrip().startswith(b"{"):
        try:
            found = _decode_list(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # JSON documents one after the other, or YAML
        else:
            yield from _listed(found, data, source)
            return
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{source}: {reason_of(error)}") from error
    for one in documents(text, source):
        encoded = msgspec.json.encode(one)
        try:
            found = _decode_list(encoded)
        except msgspec.DecodeError as error:
            raise _no_list(source, error) from error
        yield from _listed(found, encoded, source)


def _listed(found: _List, data: bytes, source: str) -> Iterator[tuple[str, msgspec.Raw | bytes]]:
    if found.items is None:
        yield found.kind, data
    try:
        for raw in found.items or ():
            yield _decode_item(raw).kind or found.kind.removesuffix("List"), raw
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_list(source, error) from error


def _no_list(source: str, error: Exception) -> ManifestError:
    return ManifestError(f"{source}: no v1 List: {error}; make it with `{COMMAND}`")


def _name(kind: str, raw: msgspec.Raw | bytes) -> str:
    try:
        meta = _decode_item(raw).metadata
    except msgspec.DecodeError:
        return kind
    return f"{kind} {'/'.join(part for part in (meta.namespace, meta.name) if part)}"
