"""What the streams tell about one pod or PodGroup: orders, decisions, and preemptions by others."""

from __future__ import annotations

from dataclasses import dataclass

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Victim
from makeway.cli.history.comparisons import comparisons
from makeway.cli.history.story import Story
from makeway.cli.offline.finding import decision_by_id, decisions, orders, outcome_of
from makeway.core.k8s.pod_groups import GroupKey


@dataclass(frozen=True)
class Subject:
    """What is asked about: a pod, by its UID where that is known and else by its name, or a PodGroup.

    A PodGroup is a victim where pods go since it, or a tree of groups of that name, goes whole.
    """

    namespace: str
    name: str
    uid: str = ""
    group: bool = False

    def takes(self, victim: Victim) -> bool:
        """Report whether it is a victim, or a victim belongs to it."""
        if self.group:
            key = GroupKey(self.namespace, self.name)
            return victim.unit in (str(key), str(GroupKey(self.namespace, self.name, composite=True)))
        return self._is(victim.namespace, victim.name, victim.uid)

    def served(self, order: EvictionOrder) -> bool:
        """Report whether an order makes room for it; one for a group does for each of its members."""
        if any(self._is(one.namespace, one.name, one.uid) for one in order.members if not self.group):
            return True
        for_it = order.room_for
        named = for_it is not None and self._is(for_it.namespace, for_it.name, for_it.uid)
        return named and (order.kind == "group") == self.group

    def compared(self, one: Comparison) -> bool:
        """Report whether another scheduler's preemption made room for it."""
        pod = one.preemptor
        return (one.group is not None) == self.group and self._is(pod.namespace, pod.name, pod.uid)

    def decided(self, record: DecisionRecord) -> bool:
        """Report whether a decision is about it."""
        about = record.group if self.group else record.preemptor
        return about is not None and self._is(about.namespace, about.name, about.uid)

    def _is(self, namespace: str, name: str, uid: str) -> bool:
        return uid == self.uid if self.uid else (namespace, name) == (self.namespace, self.name)


async def story_of(bus: Bus, order: EvictionOrder) -> Story:
    """Read what belongs to an order. Raises BusError."""
    decision = await decision_by_id(bus, order.decision_id) if order.decision_id else None
    return Story(order=order, outcome=await outcome_of(bus, order.order_id), decision=decision)


async def orders_about(bus: Bus, subject: Subject) -> tuple[list[EvictionOrder], list[EvictionOrder]]:
    """Find the orders that took it, and those that made room for it, oldest first. Raises BusError."""
    taken: list[EvictionOrder] = []
    made: list[EvictionOrder] = []
    async for order in orders(bus):
        if any(map(subject.takes, order.victims)):
            taken.append(order)
        if subject.served(order):
            made.append(order)
    return taken, made


async def by_others(bus: Bus, subject: Subject) -> tuple[list[Comparison], list[Comparison]]:
    """Find the preemptions that others made: of it, and for it; oldest first. Raises BusError."""
    of_it: list[Comparison] = []
    for_it: list[Comparison] = []
    for one in await comparisons(bus):
        victims = one.default_preemption.victims if one.default_preemption is not None else ()
        if not subject.group and any(map(subject.takes, victims)):
            of_it.append(one)
        elif victims and subject.compared(one):
            for_it.append(one)
    return of_it, for_it


async def last_decision(bus: Bus, subject: Subject) -> DecisionRecord | None:
    """Find the last decision about it. Raises BusError."""
    last = None
    async for record in decisions(bus, preemptor_uid=subject.uid):
        if subject.decided(record):
            last = record
    return last
