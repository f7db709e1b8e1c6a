"""What tests of preemption ask of a space: settled watches, a preemptor's records, who deleted what."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus

import pytest

from integration.builders import PodBuilder, make_node, make_pod
from integration.space import Space
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.k8s.objects import Pod
from makeway.dev.audit_log import AuditEvent

EVICTOR_USER = "system:serviceaccount:makeway-system:makeway-evictor"
KUBELET_USER = "makeway-dev-kwok"

_SETTLE_SECONDS = 0.5
_NODE = "tests.makeway.dev/node"
_SHARE = 100
"""Milli-CPU of each victim of `full_nodes`."""


async def settle() -> None:
    """Let scheduler and planner see what was just written; both follow within milliseconds."""
    await asyncio.sleep(_SETTLE_SECONDS)


def sized(name: str, priority: str, cpu: int) -> PodBuilder:
    """A pod that requests so many milli-CPU."""
    return make_pod(name).priority(priority).cpu(f"{cpu}m")


async def run_victims(space: Space, *victims: PodBuilder) -> list[Pod]:
    """Run pods that are there to be evicted, and let scheduler and planner see them."""
    pods = await space.run(*victims)
    await settle()
    return pods


async def full_nodes(space: Space, count: int, victims: int, *labels: tuple[str, str]) -> None:
    """Nodes n1, n2, ..., each full of pods of low priority: n1-v1, n1-v2, ..."""
    names = [f"n{number}" for number in range(1, count + 1)]
    await space.add_nodes(*[make_node(name).cpu(f"{_SHARE * victims}m").label(_NODE, name) for name in names])
    builders = [
        sized(f"{name}-v{number}", "low", _SHARE).on(name)
        for name in names
        for number in range(1, victims + 1)
    ]
    for label in labels:
        builders = [builder.label(*label) for builder in builders]
    await run_victims(space, *builders)


async def taker(space: Space, name: str, victims: int, *, priority: str = "high", node: str = "") -> Pod:
    """Create a pod that needs the room of so many victims of `full_nodes`, on any node or a certain one."""
    builder = sized(name, priority, _SHARE * victims)
    (pod,) = await space.create(builder.spec(nodeSelector={_NODE: node}) if node else builder)
    return pod


async def ordered(space: Space, pod: PodBuilder) -> Pod:
    """Create a pod and wait until an order for it is committed."""
    (preemptor,) = await space.create(pod)
    await until_ordered(space, preemptor)
    return preemptor


async def until_ordered(
    space: Space, preemptor: Pod, *, seconds: float = PATIENT_SECONDS, every: float = 0.05
) -> EvictionOrder:
    """Wait until an order for a pod is committed; gives the last one."""

    async def ask() -> EvictionOrder | None:
        orders = await space.bus.orders(preemptor.metadata.uid)
        return orders[-1] if orders else None

    return await until(f"an order for {preemptor.metadata.name}", ask, seconds=seconds, every=every)


async def assert_stays_pending(space: Space, name: str, seconds: float = 2.0) -> None:
    """Nobody binds a pod for so long."""
    with pytest.raises(AssertionError, match="is bound"):
        await space.until_bound(name, seconds=seconds)


async def until_tried_again(space: Space, preemptor: Pod, tries: int, *, seconds: float = 10.0) -> None:
    """Wait until the planner was asked about a pod more than so many times.

    The bound is the promise: a preemptor is active again within 10 s of its order's end.
    """

    async def ask() -> bool:
        asked = len(await space.bus.decisions(preemptor.metadata.uid))
        if asked <= tries:
            raise NotYet(f"asked {asked} times")
        return True

    await until(f"{preemptor.metadata.name} is tried again", ask, seconds=seconds)


def deletes_of(space: Space, name: str) -> list[AuditEvent]:
    """Read the audit log: the accepted deletes of pods with that name, but for the kubelet's."""
    return [
        event
        for event in space.audit.events(
            verb="delete", resource="pods", subresource="", namespace=space.namespace, name=name
        )
        if event.accepted and event.user != KUBELET_USER
    ]


async def first_decision(space: Space, preemptor: Pod) -> DecisionRecord:
    """The first decision record about a pod."""

    async def ask() -> DecisionRecord | None:
        decisions = await space.bus.decisions(preemptor.metadata.uid)
        return decisions[0] if decisions else None

    return await until(f"a decision about {preemptor.metadata.name}", ask)


async def outcome_of_order(
    space: Space, preemptor: Pod, *, seconds: float = PATIENT_SECONDS
) -> tuple[EvictionOrder, Outcome]:
    """A preemptor's first order, and its outcome."""

    async def ask() -> tuple[EvictionOrder, Outcome]:
        for order in await space.bus.orders(preemptor.metadata.uid):
            for outcome in await space.bus.outcomes(order.order_id):
                return order, outcome
            raise NotYet(f"no outcome of {order.order_id}")
        raise NotYet("no order")

    return await until(f"the outcome of the order for {preemptor.metadata.name}", ask, seconds=seconds)


async def all_orders(space: Space, preemptors: Iterable[Pod]) -> list[EvictionOrder]:
    """Every order for any of these pods."""
    return [order for pod in preemptors for order in await space.bus.orders(pod.metadata.uid)]


async def assert_only_ordered_pods_were_deleted(space: Space, preemptors: Iterable[Pod]) -> None:
    """Read the audit log: each accepted delete names a victim of an order, by UID, and came from an evictor.

    KWOK's deletes, which end a pod that is already leaving, are the kubelet's and do not count.
    """
    victims = {
        (victim.namespace, victim.name, victim.uid)
        for order in await all_orders(space, preemptors)
        for victim in order.victims
    }
    deletes = [
        event
        for event in space.audit.events(
            verb="delete", resource="pods", subresource="", namespace=space.namespace
        )
        if event.accepted and event.user != KUBELET_USER
    ]
    assert [event.user for event in deletes if event.user != EVICTOR_USER] == []
    assert {(event.namespace, event.name, event.precondition_uid) for event in deletes} <= victims


def assert_bound_once(space: Space, *names: str) -> None:
    """Read the audit log: each of these pods, which are bound, was bound exactly once.

    A binding whose caller died before the answer is logged as a time-out, though it may have been done.
    """
    accepted: Counter[str] = Counter()
    unanswered: set[str] = set()
    for event in space.audit.events(
        verb="create", resource="pods", subresource="binding", namespace=space.namespace
    ):
        if event.accepted:
            accepted[event.name] += 1
        elif event.code == HTTPStatus.GATEWAY_TIMEOUT:
            unanswered.add(event.name)
    wrong = {n: accepted[n] for n in names if accepted[n] != 1 and not (accepted[n] == 0 and n in unanswered)}
    assert not wrong, f"how often these were bound: {wrong}"


async def until_told(space: Space, text: str, *, seconds: float = PATIENT_SECONDS) -> None:
    """Wait until a condition of the pod urgent says why it waits."""

    async def told() -> bool:
        pod = await space.pod("urgent")
        if any(text in (one.message or "") for one in (pod.status.conditions if pod else None) or ()):
            return True
        raise NotYet("it is not told")

    await until("the pod is told that it waits", told, seconds=seconds)
