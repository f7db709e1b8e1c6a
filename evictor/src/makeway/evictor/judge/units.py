"""Which units an order has begun to delete, and when their pods were looked through. Pure.

A unit goes whole, so what is left of one that has begun goes whoever waits for its room by then. One pod of
each goes before all others, and is noted on the bus before: for an evictor that takes the order over the unit
has begun where that pod has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from makeway.bus.messages import Begun, BegunUnit, EvictionOrder, Victim
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupKey, Membership
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.judge import decide


class Units:
    """An order's, in one delivery of it."""

    def __init__(self, order: EvictionOrder) -> None:
        self._order = order
        self.names = frozenset(victim.unit for victim in order.victims if victim.unit)
        self.noted: Begun | None = None
        """That pods of units are deleted, by this delivery or an earlier one."""
        self.is_taken_over = False
        """Whether an earlier delivery has noted it."""
        self.begun = set[str]()
        """Units of which a delivery of the order has deleted a pod."""
        self.first: Mapping[str, Victim] = {}
        """By unit, the pod that goes before all others of it."""
        self._looked_at: datetime | None = None

    def take_over(self, noted: Begun) -> PreemptorFacts:
        """Go on from what an earlier delivery has noted; return what rules knew of the preemptor then."""
        self.noted, self.is_taken_over = noted, True
        return PreemptorFacts(noted.priority, noted.namespace, noted.daemonset_node)

    def find_begun(self, found: Iterable[tuple[Victim, Pod | None]]) -> None:
        """Find the units of which an earlier delivery has deleted a pod. `found`: victims and pods now."""
        if self.noted is None or not self.is_taken_over:
            return
        first = {unit.first for unit in self.noted.units}
        for victim, pod in found:
            if victim.uid in first and not isinstance(decide.staying(victim, pod), Pod):
                self.begun.add(victim.unit)

    def note(self, preemptor: PreemptorFacts, memberships: Mapping[str, Membership], now: datetime) -> Begun:
        """Return what is to be written before the first delete. `memberships`: by UID, as judged last."""
        return Begun(
            order_id=self._order.order_id,
            cluster_uid=self._order.cluster_uid,
            at=now,
            units=tuple(
                BegunUnit(unit=unit, first=victim.uid, priority=found.priority if found else None)
                for unit, victim in self.first.items()
                for found in (memberships.get(victim.uid),)
            ),
            priority=preemptor.priority,
            namespace=preemptor.namespace,
            daemonset_node=preemptor.daemonset_node,
        )

    def noted_membership(self, unit: str) -> Membership | None:
        """Return what the groups of a unit's pods meant when an order began to delete them."""
        kind, _, name = unit.partition(" ")
        namespace, _, name = name.partition("/")
        for one in self.noted.units if self.noted is not None else ():
            if one.unit == unit:
                return Membership(GroupKey(namespace, name, kind == "CompositePodGroup"), one.priority)
        return None

    def looked_through(self, now: datetime) -> None:
        """Take notice that all pods of the units have been read, and stand in the order.

        Counted from here: a list of a large namespace takes longer than it may be old.
        """
        self._looked_at = now

    def is_looked_through(self, unit: str, now: datetime, lasts: timedelta) -> bool:
        """Report whether a pod of a unit may go by when all of its pods were read last; "" for none."""
        if not unit or unit in self.begun:
            return True
        return self._looked_at is not None and now - self._looked_at <= lasts
