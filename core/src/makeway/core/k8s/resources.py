"""Which resource names the scheduler counts, and in what unit."""

from __future__ import annotations

from collections.abc import Mapping

from makeway.core.k8s.names import is_qualified_name
from makeway.core.k8s.objects import DeviceClass, Quantity
from makeway.core.k8s.quantity import milli_value, parse, value

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

_ALWAYS = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"


def is_extended(name: str) -> bool:
    """Report whether the name is an extended resource: qualified, and outside *kubernetes.io/.

    Source: pkg/apis/core/v1/helper, IsExtendedResourceName.
    """
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return is_qualified_name("requests." + name)


def is_counted(name: str) -> bool:
    """Report whether NodeResourcesFit counts a request of this name, other than the number of pods.

    Names of no known form are ignored there and here. Resources that stand for a DeviceClass are
    left out: they are devices, which neither upstream nor makeway frees by preemption.
    """
    if name.startswith(_DEVICE_CLASS):
        return False
    return (
        name in _ALWAYS
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
        or is_extended(name)
    )


def column_value(name: str, nanos: int) -> int:
    """Round an exact amount up to the unit of its column: thousandths for cpu, else whole units."""
    return milli_value(nanos) if name == CPU else value(nanos)


def allocatable(amounts: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return a node's allocatable by column: milli-CPU, bytes, units, and the number of pods.

    Raises QuantityError.
    """
    return {
        name: column_value(name, parse(amount))
        for name, amount in (amounts or {}).items()
        if name == PODS or is_counted(name)
    }


_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass: an extended resource that asks for one of its devices."""


def served_by(device_class: DeviceClass) -> frozenset[str]:
    """Return the extended resources that devices of a class serve. Source: KEP-5004, DRAExtendedResource."""
    explicit = device_class.spec.extended_resource_name
    return frozenset({f"{_IMPLICIT}{device_class.metadata.name}", *([explicit] if explicit else [])})
