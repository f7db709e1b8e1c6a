"""Pod groups in an order: a unit is deleted whole or not at all. Pure.

The groups, and all bound pods of a unit, are read from the API server before the first delete of an order.
One that the order does not name, or that may not go, refuses the order. Once the first pod of a unit is
deleted, what its group says no longer keeps the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from makeway.bus.messages import EvictionOrder, Victim
from makeway.core.k8s.objects import ENDED_PHASES, Pod
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, Membership, group_of, membership
from makeway.evictor.verdicts import Exempt, Refused

POD_GROUP = "pod-group"
"""The rule that keeps a pod since what has to go with it may not go, or is not known."""

Find = Callable[[GroupKey], GroupRecord | None]


def key_of(pod: Pod) -> GroupKey | None:
    """Return the PodGroup that a pod names."""
    name = group_of(pod)
    return GroupKey(pod.metadata.namespace, name) if name else None


def membership_of(pod: Pod, find: Find) -> Membership:
    """Return what a pod's groups mean for it."""
    key = key_of(pod)
    return Membership() if key is None else membership(key, find)


def exempt_by_group(victim: Victim, found: Membership) -> Exempt | None:
    """Return why a victim's group keeps it: it is another one than the order says, or not known."""
    if found.unknown:
        return Exempt(POD_GROUP, f"it is not known what has to go with it: {found.unknown}")
    unit = "" if found.unit is None else str(found.unit)
    if unit == victim.unit:
        return None
    if not unit:
        return Exempt(POD_GROUP, f"the order takes it for a pod of {victim.unit}, with which it need not go")
    named = f"names {victim.unit}" if victim.unit else "names it alone"
    return Exempt(POD_GROUP, f"{unit} goes whole or not at all, and the order {named}")


def incomplete_unit(order: EvictionOrder, pods: Iterable[Pod], find: Find) -> Refused | None:
    """Return that an order leaves a pod of a unit out; None where it has all that are bound.

    `pods`: all of the namespaces in which it has units. O(pods).
    """
    units = {victim.unit for victim in order.victims if victim.unit}
    named = {victim.uid: victim.unit for victim in order.victims}
    awaited = {one.uid for one in order.awaited}
    for pod in pods:
        if not pod.spec.node_name or pod.status.phase in ENDED_PHASES or not group_of(pod):
            continue
        unit = membership_of(pod, find).unit
        if unit is None or str(unit) not in units or pod.metadata.uid in awaited:
            continue
        if pod.metadata.deletion_timestamp is None and named.get(pod.metadata.uid) != str(unit):
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            return Refused(
                "unit-incomplete", f"{unit} goes whole or not at all, and the order leaves {name} out"
            )
    return None


def groups_in(pods: Iterable[Pod], order: EvictionOrder) -> frozenset[GroupKey]:
    """Return the PodGroups named by pods that may be of a unit of an order.

    All of them where one is a composite group, whose parts only they tell.
    """
    units = {victim.unit for victim in order.victims if victim.unit}
    keys = frozenset(key for pod in pods if (key := key_of(pod)) is not None)
    plain = frozenset(key for key in keys if str(key) in units)
    return plain if {str(key) for key in plain} == units else keys
