"""Only UIDs identify: victims whose names come again.

The short form recreates 25 victims during their eviction; the long one 1,000, 40 at a time. The moment is
random, so that in many repetitions every step of an order is met.
"""

import asyncio
import random
from collections import defaultdict
from itertools import count

import pytest

from integration.builders import PodBuilder, make_node, make_pod
from integration.faults import Faults
from integration.invariants import assert_invariants
from integration.preempting import EVICTOR_USER, settle, until_ordered
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.objects import Pod
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import uid_of
from makeway.dev.fault_rules import FaultRule
from makeway.dev.kwok import NEVER
from makeway.dev.options import EVICTOR
from makeway.runtime.kube import ApiError

LANES = 4
VICTIMS = 10
LATEST_RECREATION_SECONDS = 0.4
_numbers = count(1)


def sized(name: str, priority: str, cpu: str = "500m") -> PodBuilder:
    return make_pod(name).priority(priority).cpu(cpu)


async def recreate(space: Space, pod: PodBuilder) -> Pod:
    """Delete a pod at once and create it under its name as soon as that is free."""
    await space.delete(pod.name, grace_seconds=0)

    async def created() -> list[Pod]:
        try:
            return await space.create(pod)
        except ApiError as error:
            if error.status != 409:
                raise
            raise NotYet(str(error)) from error

    return (await until(f"{pod.name} is there again", created, every=0.002))[0]


async def recreated(space: Space, order: EvictionOrder, source: random.Random) -> dict[str, str]:
    """Make every victim of an order anew on the spare node, each at a moment of its own; UIDs by name."""

    async def one(name: str) -> Pod:
        await asyncio.sleep(source.random() * LATEST_RECREATION_SECONDS)
        return await recreate(space, sized(name, "low", "1m").leaves(NEVER).on("spare"))

    pods = await asyncio.gather(*(one(victim.name) for victim in order.victims))
    return {pod.metadata.name: pod.metadata.uid for pod in pods}


async def recreate_during_orders(space: Space, source: random.Random) -> tuple[list[EvictionOrder], set[str]]:
    """Have the victims of LANES orders made anew while they are evicted; the orders and the new UIDs."""
    number = next(_numbers)
    # Only this test ends a victim: KWOK's own deletes name no UID and may meet the new pod.
    victims = [
        [sized(f"v-{number}-{lane}-{n}", "low", "50m").leaves(NEVER).on(lane) for n in range(VICTIMS)]
        for lane in lanes()
    ]
    await asyncio.gather(*(space.create(*pods) for pods in victims))
    await settle()
    preemptors = await space.create(
        *(sized(f"p-{number}-{lane}", "high").spec(nodeSelector=on(space, lane)) for lane in lanes())
    )

    async def one(preemptor: Pod) -> tuple[EvictionOrder, dict[str, str]]:
        order = await until_ordered(space, preemptor, every=0.01)
        return order, await recreated(space, order, source)

    done = await asyncio.gather(*map(one, preemptors))
    for preemptor in preemptors:
        await space.until_bound(preemptor.metadata.name)
    await asyncio.sleep(0.1)
    pods = await space.pods()
    for name, uid in ((name, uid) for _, uids in done for name, uid in uids.items()):
        assert name in pods, f"{name} was deleted in its new incarnation"
        assert pods[name].metadata.uid == uid
        assert pods[name].metadata.deletion_timestamp is None
        assert "DisruptionTarget" not in {c.type for c in pods[name].status.conditions or ()}
    await space.delete_pods()
    return [order for order, _ in done], {uid for _, uids in done for uid in uids.values()}


def lanes() -> list[str]:
    return [f"n{lane}" for lane in range(LANES)]


def on(space: Space, node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": space.node_name(node)}


async def made_during(space: Space, orders: list[EvictionOrder]) -> set[str]:
    """The UIDs of the pods that the audit log shows made under a victim's name during that victim's order."""
    made: dict[str, list[AuditEvent]] = defaultdict(list)
    here = space.namespace
    for event in space.audit.events(
        about=(here,), verb="create", resource="pods", subresource="", namespace=here
    ):
        if event.accepted:
            made[event.name].append(event)
    found = set()
    for order in orders:
        (outcome,) = await space.bus.outcomes(order.order_id)
        for victim in order.victims:
            for event in made[victim.name]:
                if order.created_at < event.answered_at < outcome.finished_at:
                    found.add(uid_of(event))
    return found


async def accepted_deletes(space: Space) -> set[str]:
    """The UIDs that an evictor's accepted deletes were conditional on."""
    return {
        event.precondition_uid
        for event in space.audit.events(
            about=(space.namespace,), verb="delete", resource="pods", subresource="", user=EVICTOR_USER
        )
        if event.accepted and event.namespace == space.namespace
    }


async def recreations(space: Space, faults: Faults, total: int) -> None:
    """Evict until so many pods were made anew during their order; none of them is touched."""
    await space.add_nodes(
        *(make_node(lane).cpu("500m") for lane in lanes()), make_node("spare").cpu("64").pods(500)
    )
    # The window between an evictor's read and its write, a few milliseconds wide, is held open.
    for method in ("PATCH", "DELETE"):
        await faults.add(
            FaultRule(
                component=EVICTOR, action="delay", method=method, path="/pods/", seconds=0.15, count=10**6
            )
        )
    source = random.Random(total)
    orders: list[EvictionOrder] = []
    new: set[str] = set()
    during: set[str] = set()
    while len(during) < total:
        assert len(new) < 3 * total, f"only {len(during)} of {len(new)} were made during their order"
        some, uids = await recreate_during_orders(space, source)
        orders += some
        new |= uids
        during |= await made_during(space, some)

    assert during <= new
    assert not new & await accepted_deletes(space)
    await assert_invariants(space)


async def test_no_pod_made_anew_under_a_victims_name_is_deleted(fault_space: Space, faults: Faults) -> None:
    await recreations(fault_space, faults, 25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_none_of_a_thousand_pods_made_anew_is_deleted(fault_space: Space, faults: Faults) -> None:
    await recreations(fault_space, faults, 1000)
