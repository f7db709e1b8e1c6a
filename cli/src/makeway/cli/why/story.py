"""What the streams tell about one pod: orders for it, orders that took it, and the decisions behind them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder, Preemptor, Victim
from makeway.cli.history.comparisons import comparisons
from makeway.cli.history.story import Story
from makeway.cli.offline.finding import decision_by_id, decisions, orders, outcome_of
from makeway.core.k8s.pod_groups import GroupKey


async def story_of(bus: Bus, order: EvictionOrder) -> Story:
    """Read what belongs to an order. Raises BusError."""
    decision = await decision_by_id(bus, order.decision_id) if order.decision_id else None
    return Story(order=order, outcome=await outcome_of(bus, order.order_id), decision=decision)


async def orders_that_took(bus: Bus, namespace: str, name: str, uid: str = "") -> list[EvictionOrder]:
    """Find the orders with a pod among their victims, oldest first: by UID, or else by name."""

    def names(order: EvictionOrder) -> bool:
        if uid:
            return any(victim.uid == uid for victim in order.victims)
        return any((victim.namespace, victim.name) == (namespace, name) for victim in order.victims)

    async with aclosing(orders(bus)) as all_of_them:
        return [order async for order in all_of_them if names(order)]


async def orders_that_took_group(bus: Bus, namespace: str, name: str) -> list[EvictionOrder]:
    """Find the orders with a whole group among their victims, or a tree of groups, oldest first."""
    async with aclosing(orders(bus)) as all_of_them:
        return [order async for order in all_of_them if victims_of_group(order.victims, namespace, name)]


def victims_of_group(victims: Iterable[Victim], namespace: str, name: str) -> list[Victim]:
    """Return those victims that go since a group, or a tree of groups, of that name goes whole."""
    units = {str(GroupKey(namespace, name)), str(GroupKey(namespace, name, composite=True))}
    return [victim for victim in victims if victim.unit in units]


async def orders_for(bus: Bus, namespace: str, name: str, uid: str = "") -> list[EvictionOrder]:
    """Find the orders that made room for a pod, oldest first."""
    found = []
    async with aclosing(orders(bus, preemptor_uid=uid)) as all_of_them:
        async for order in all_of_them:
            preemptor = order.preemptor
            if preemptor is not None and (preemptor.namespace, preemptor.name) == (namespace, name):
                found.append(order)
    return found


async def orders_for_group(bus: Bus, namespace: str, name: str) -> list[EvictionOrder]:
    """Find the orders that made room for a PodGroup, oldest first."""

    def names(order: EvictionOrder) -> bool:
        group = order.group if order.kind == "group" else None
        return group is not None and (group.namespace, group.name) == (namespace, name)

    async with aclosing(orders(bus)) as all_of_them:
        return [order async for order in all_of_them if names(order)]


async def last_group_decision(bus: Bus, namespace: str, name: str) -> DecisionRecord | None:
    """Find the last decision about a PodGroup."""
    last = None
    async with aclosing(decisions(bus)) as records:
        async for record in records:
            group = record.group
            if group is not None and (group.namespace, group.name) == (namespace, name):
                last = record
    return last


async def by_others(
    bus: Bus, namespace: str, name: str, uid: str = ""
) -> tuple[list[Comparison], list[Comparison]]:
    """Find the preemptions that others than makeway made: of a pod, and for it; oldest first.

    By UID, or else by name. Raises BusError.
    """

    def meant(pod: Preemptor | Victim) -> bool:
        return pod.uid == uid if uid else (pod.namespace, pod.name) == (namespace, name)

    of_it, for_it = [], []
    for one in await comparisons(bus):
        victims = one.default_preemption.victims if one.default_preemption is not None else ()
        if any(meant(victim) for victim in victims):
            of_it.append(one)
        elif victims and one.group is None and meant(one.preemptor):
            for_it.append(one)
    return of_it, for_it


async def for_group_by_others(bus: Bus, namespace: str, name: str) -> list[Comparison]:
    """Find the preemptions that others than makeway made for a PodGroup, oldest first. Raises BusError."""
    return [
        one
        for one in await comparisons(bus)
        if one.group is not None
        and (one.preemptor.namespace, one.preemptor.name) == (namespace, name)
        and one.default_preemption is not None
        and one.default_preemption.victims
    ]


async def last_decision(bus: Bus, uid: str) -> DecisionRecord | None:
    """Find the last decision about a pod."""
    last = None
    async with aclosing(decisions(bus, preemptor_uid=uid)) as records:
        async for record in records:
            last = record
    return last
