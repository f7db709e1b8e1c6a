"""What RuntimeClasses of a dump add to a new pod; on a cluster a dry run tells. Pure.

Source: the admission plugin RuntimeClass of kube-apiserver 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from makeway.core.k8s.objects import Metadata, View


class RuntimeClass(View, frozen=True):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: Metadata
    overhead: dict[str, Any] | None = None
    scheduling: dict[str, Any] | None = None


AdmissionObjects = dict[str, RuntimeClass]
"""By name."""


def complete(spec: dict[str, Any], objects: AdmissionObjects) -> Iterator[str]:
    """Add to a pod's spec what these add; yield what is not judged of them."""
    if not (name := spec.get("runtimeClassName")):
        return
    known = objects.get(name)
    if known is None:
        yield f"not judged: overhead and nodes of RuntimeClass {name}, which is not known"
        return
    nodes = known.scheduling or {}
    spec["overhead"] = spec.get("overhead") or (known.overhead or {}).get("podFixed")
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(nodes.get("nodeSelector") or {})}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *(nodes.get("tolerations") or ())]
