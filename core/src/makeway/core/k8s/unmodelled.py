"""What of a pod only the scheduler's own filters can judge: makeway keeps nothing to judge it by. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

ONLY_FILTERS_KNOW: Final = "OnlyFiltersKnow"
"""Reason of a refusal: what stands in the pod's way has no column."""

_SHARED_DISKS: Final = ("awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd")
"""Volumes that VolumeRestrictions compares with those of other pods."""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    resource_claims: tuple[msgspec.Raw, ...] | None = None
    volumes: tuple[dict[str, msgspec.Raw], ...] | None = None


class _Constrained(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_constrained = msgspec.json.Decoder(_Constrained).decode


def unmodelled(raw: bytes | msgspec.Raw) -> str:
    """Return what of a v1.Pod only the scheduler's filters can judge; empty where nothing is.

    What the planner can judge, and is more than it looks at, the planner says. Raises msgspec.DecodeError.
    """
    spec = _constrained(raw).spec
    if spec.resource_claims:
        return "devices (spec.resourceClaims)"
    for volume in spec.volumes or ():
        for kind in _SHARED_DISKS:
            if kind in volume:
                return f"a disk that pods share ({kind})"
    return ""
