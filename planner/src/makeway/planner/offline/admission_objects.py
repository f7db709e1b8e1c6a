"""What RuntimeClasses and LimitRanges of a dump add to a new pod; on a cluster a dry run tells. Pure.

Sources: the admission plugins RuntimeClass and LimitRanger of kube-apiserver 1.37, and
SetDefaults_LimitRangeItem of core/v1. Bounds of LimitRanges and ResourceQuotas are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from makeway.core.k8s.objects import Metadata, Quantity, View


class RuntimeClass(View, frozen=True):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: Metadata
    overhead: dict[str, Any] | None = None
    scheduling: dict[str, Any] | None = None


class LimitRangeItem(View, frozen=True):
    """spec.limits[] of a LimitRange."""

    type: str = ""
    default: dict[str, Quantity] | None = None
    default_request: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None
    min: dict[str, Quantity] | None = None


class LimitRangeSpec(View, frozen=True):
    """spec of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(View, frozen=True):
    """v1.LimitRange."""

    metadata: Metadata
    spec: LimitRangeSpec = LimitRangeSpec()


AdmissionObjects = dict[tuple[str, str, str], RuntimeClass | LimitRange]
"""By kind, namespace and name."""


def complete(spec: dict[str, Any], namespace: str, objects: AdmissionObjects) -> Iterator[str]:
    """Add to a pod's spec what these add; yield what is not judged of them."""
    name = spec.get("runtimeClassName")
    known = objects.get(("RuntimeClass", "", name)) if name else None
    if isinstance(known, RuntimeClass):
        nodes = known.scheduling or {}
        spec["overhead"] = spec.get("overhead") or (known.overhead or {}).get("podFixed")
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(nodes.get("nodeSelector") or {})}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *(nodes.get("tolerations") or ())]
    elif name:
        yield f"not judged: overhead and nodes of RuntimeClass {name}, which is not known"
    for key, found in sorted(objects.items()):
        if isinstance(found, LimitRange) and key[1] == namespace:
            for item in found.spec.limits or ():
                if item.type == "Container":
                    _default(spec, item)
                if item.max or item.min:
                    yield f"not judged: min and max of LimitRange {namespace}/{key[2]}"


def _default(spec: dict[str, Any], item: LimitRangeItem) -> None:
    """Give containers the limits and requests that a LimitRange has for those that name none."""
    limits = {**(item.max or {}), **(item.default or {})}
    requests = {**(item.min or {}), **limits, **(item.default_request or {})}
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        own = container.get("resources") or {}
        container["resources"] = {
            **own,
            "limits": {**limits, **(own.get("limits") or {})},
            "requests": {**requests, **(own.get("requests") or {})},
        }
