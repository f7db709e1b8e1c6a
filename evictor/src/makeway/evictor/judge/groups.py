"""Pod groups in an order: a unit is deleted whole or not at all. Pure.

The groups, and all bound pods of a unit, are read from the API server before the first delete of an order.
One that the order does not name, or that may not go, refuses the order. Once the first pod of a unit is
deleted, the others go as well, whatever its group or the preemptor says by then, also where another evictor
deleted it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from makeway.bus.messages import EvictionOrder, Victim
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, Membership, came_lately, group_of, membership
from makeway.evictor.judge.members import Members
from makeway.evictor.judge.verdicts import Exempt, Refused

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
        return Exempt(POD_GROUP, f"the pods to be evicted with it are not known: {found.unknown}")
    unit = "" if found.unit is None else str(found.unit)
    if unit == victim.unit:
        return None
    if not unit:
        return Exempt(POD_GROUP, f"the order takes it for a pod of {victim.unit}, with which it need not go")
    named = f"names {victim.unit}" if victim.unit else "names it alone"
    return Exempt(POD_GROUP, f"{unit} is evicted whole or not at all, and the order {named}")


def first_of_units(victims: Iterable[Victim]) -> dict[str, Victim]:
    """Return the pod of each unit that is deleted before all others of it, by unit."""
    first: dict[str, Victim] = {}
    for victim in victims:
        if victim.unit:
            first.setdefault(victim.unit, victim)
    return first


@dataclass(frozen=True)
class LeftOut:
    """A pod of a unit, by namespace and name, that an order does not name.

    `late`: it was bound after the order was written, or less than `LATELY` before: the planner sees a pod a
    moment after it is bound, and a large gang is nominated member by member before its order is written.
    """

    unit: str
    pod: str
    late: bool

    def refusal(self) -> Refused:
        """Return what the order ends by."""
        when = ", bound since or just before the order was written" if self.late else ""
        message = f"{self.unit} is evicted whole or not at all, and the order leaves {self.pod} out{when}"
        return Refused("unit-incomplete", message)


def left_out(
    order: EvictionOrder,
    members: Members,
    find: Find,
    begun: Collection[str] = (),
    growing: Collection[str] = (),
) -> LeftOut | None:
    """Return a pod of a unit that an order leaves out, a late one last; None where it has all that count.

    `members`: all of the namespaces in which it has units. `begun`: units of which a pod has been deleted;
    what has come to them since then stays. `growing`: units whose late pods stay as well. O(groups + pods of
    the order's units).
    """
    late: LeftOut | None = None
    units = {victim.unit for victim in order.victims if victim.unit} - set(begun)
    if not units:
        return None
    named = {victim.uid: victim.unit for victim in order.victims}
    awaited = {one.uid for one in order.awaited}
    for key, pods in members.items():
        unit = membership(key, find).unit
        if unit is None or str(unit) not in units:
            continue
        for pod in pods:
            if pod.leaving or pod.uid in awaited or named.get(pod.uid) == str(unit):
                continue
            name = f"{pod.namespace}/{pod.name}"
            if not came_lately(pod.bound_at, order.created_at):
                return LeftOut(str(unit), name, late=False)
            if str(unit) not in growing:
                late = late or LeftOut(str(unit), name, late=True)
    return late


def groups_in(members: Members, order: EvictionOrder) -> frozenset[GroupKey]:
    """Return the PodGroups whose pods may be of a unit of an order, in the namespaces of `members`.

    All of them where one is a composite group, whose parts only they tell.
    """
    namespaces = {key.namespace for key in members}
    units = {victim.unit for victim in order.victims if victim.unit and victim.namespace in namespaces}
    plain = frozenset(key for key in members if str(key) in units)
    return plain if {str(key) for key in plain} == units else frozenset(members)
