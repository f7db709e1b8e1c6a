"""A cluster from a file: the v1 List that `kubectl get nodes,pods,... -A -o json` (or yaml) prints. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from makeway.bus.reasons import reason_of
from makeway.core.k8s.objects import (
    ConfigMap,
    DaemonSet,
    DeviceClass,
    Metadata,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
    View,
)
from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.planner.offline.manifests import ManifestError, documents
from makeway.planner.offline.world import World

COMMAND: Final = (
    "kubectl get nodes,pods,priorityclasses,poddisruptionbudgets,namespaces,persistentvolumeclaims,"
    "persistentvolumes,storageclasses,deviceclasses,daemonsets -A -o json"
)
"""What prints a dump; where the cluster has pod groups, with `,podgroups` behind `daemonsets`."""

_TYPES: Final[dict[str, type[View]]] = {
    one.__name__: one
    for one in (
        Node,
        Pod,
        PriorityClass,
        PodDisruptionBudget,
        Namespace,
        PersistentVolumeClaim,
        PersistentVolume,
        StorageClass,
        DeviceClass,
        DaemonSet,
        ConfigMap,
        PodGroup,
        CompositePodGroup,
    )
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
        decoder = _DECODERS.get(kind)
        if decoder is None:
            continue
        try:
            item = decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            world.warnings.append(f"{_name(kind, raw)} is left out: {error}")
            continue
        if isinstance(item, ConfigMap):
            maps[item.metadata.namespace, item.metadata.name] = item
        else:
            world.put(item)
    if not world.seen["Node"]:
        raise ManifestError(f"{source}: no nodes in it; make it with `{COMMAND}`")
    return world, maps


def _items(data: bytes, source: str) -> Iterator[tuple[str, msgspec.Raw | bytes]]:
    if not data.lstrip().startswith(b"{"):
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ManifestError(f"{source}: {reason_of(error)}") from error
        for one in documents(text, source):
            yield from _listed(msgspec.json.encode(one), source)
        return
    yield from _listed(data, source)


def _listed(data: bytes, source: str) -> Iterator[tuple[str, msgspec.Raw | bytes]]:
    try:
        found = _decode_list(data)
        if found.items is None:
            yield found.kind, data
        for raw in found.items or ():
            yield _decode_item(raw).kind or found.kind.removesuffix("List"), raw
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{source}: no v1 List: {error}; make it with `{COMMAND}`") from error


def _name(kind: str, raw: msgspec.Raw | bytes) -> str:
    try:
        meta = _decode_item(raw).metadata
    except msgspec.DecodeError:
        return kind
    return f"{kind} {'/'.join(part for part in (meta.namespace, meta.name) if part)}"
