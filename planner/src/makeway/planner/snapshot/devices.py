"""Extended resources that nodes serve by dynamic resource allocation (DRA) and not by a device plugin."""

from __future__ import annotations

from makeway.core.k8s.objects import DeviceClass

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass: an extended resource that asks for one of its devices."""


def served_by(device_class: DeviceClass) -> frozenset[str]:
    """Return the extended resources that devices of a class serve. Source: KEP-5004, DRAExtendedResource."""
    explicit = device_class.spec.extended_resource_name
    return frozenset({f"{_IMPLICIT}{device_class.metadata.name}", *([explicit] if explicit else [])})
