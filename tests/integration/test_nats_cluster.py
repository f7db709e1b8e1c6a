"""Three nats-servers that keep every stream on all three: each in turn is killed while pods preempt."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats.errors
import nats.js.errors
import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import HOLDING, policy
from integration.invariants import assert_invariants
from integration.preempting import (
    EVICTOR_USER,
    KUBELET_USER,
    all_orders,
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    run_victims,
    sized,
)
from integration.space import Space, open_space
from integration.waiting import NotYet, until, until_seen
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.subjects import Subjects
from makeway.core.k8s.objects import Pod
from makeway.dev.site import nats_servers

pytestmark = pytest.mark.wide

NODES = 10
VICTIMS = 12
"""On each node; each preemptor needs the room of one."""
RATE = 2.0
"""Preemptors a second."""
BOUND_MEANWHILE = 5
"""So many preemptors are bound while a server is away."""


async def full_nodes(space: Space) -> None:
    names = [f"n{number}" for number in range(NODES)]
    await space.add_nodes(*(make_node(name).cpu(f"{100 * VICTIMS}m") for name in names))
    await run_victims(
        space,
        *(sized(f"{name}-v{number}", "low", 100).on(name) for name in names for number in range(VICTIMS)),
    )


class Load:
    """Preemptors that come steadily."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.pods: list[Pod] = []
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def coming(self) -> AsyncIterator[None]:
        """Have them come for the length of a block."""
        task = asyncio.create_task(self._come())
        try:
            yield
        finally:
            self._ended.set()
            await task

    async def _come(self) -> None:
        while len(self.pods) < NODES * VICTIMS and not self._ended.is_set():
            self.pods += await self._space.create(sized(f"urgent-{len(self.pods):03}", "high", 100))
            await asyncio.sleep(1 / RATE)

    async def bound(self) -> int:
        """How many have a node."""
        pods = await self._space.pods()
        return sum(bool(pod.spec.node_name) for name, pod in pods.items() if name.startswith("urgent"))

    async def until_more_are_bound(self, more: int, than: int) -> None:
        await until_seen(
            f"{more} more preemptors are bound", self.bound, lambda found: found >= than + more, every=0.3
        )


async def until_whole(cluster: RunningCluster) -> None:
    """Wait until every stream has a leader, and is the same on all servers."""
    subjects = Subjects(cluster.owned.options.subject_prefix)
    streams = (subjects.orders_stream, subjects.outcomes_stream, subjects.decisions_stream)

    async def whole() -> bool:
        try:
            async with cluster.jetstream() as jetstream:
                for stream in streams:
                    info = await jetstream.stream_info(stream)
                    replicas = (info.cluster and info.cluster.replicas) or []
                    behind = [one.name for one in replicas if one.offline or not one.current]
                    if info.config.num_replicas != 3 or len(replicas) != 2 or behind:
                        raise NotYet(f"{stream}: {info.config.num_replicas} replicas, behind: {behind}")
        except (nats.errors.Error, nats.js.errors.Error) as error:
            raise NotYet(str(error)) from error
        return True

    await until("every stream is the same on all servers", whole, every=0.3)


async def outcomes_of(space: Space, orders: list[EvictionOrder]) -> dict[str, Outcome]:
    """The one outcome of each order."""

    async def ended() -> dict[str, Outcome]:
        found = {order.order_id: await space.bus.outcomes(order.order_id) for order in orders}
        if open_orders := [name for name, outcomes in found.items() if not outcomes]:
            raise NotYet(f"no outcome of {open_orders}")
        assert all(len(outcomes) == 1 for outcomes in found.values()), found
        return {name: outcomes[0] for name, outcomes in found.items()}

    return await until("every order has its outcome", ended, seconds=90)


def deleted(space: Space) -> Counter[str]:
    """How often each pod was deleted, by UID, but for the kubelet's."""
    events = space.audit.events(verb="delete", resource="pods", subresource="", namespace=space.namespace)
    ours = [event for event in events if event.accepted and event.user != KUBELET_USER]
    assert {event.user for event in ours} == {EVICTOR_USER}
    return Counter(event.name for event in ours)


async def test_each_of_three_servers_is_killed_under_load_and_no_order_is_lost_or_doubled(
    three_servers_cluster: RunningCluster,
) -> None:
    cluster = three_servers_cluster
    await until_whole(cluster)
    # Whom a plan does not help waits for one: nobody preempts but makeway.
    async with policy(cluster, protection=HOLDING), open_space(cluster) as space:
        await full_nodes(space)
        load = Load(space)
        async with load.coming():
            await load.until_more_are_bound(BOUND_MEANWHILE, than=0)
            for server in nats_servers(cluster.owned.options):
                before = await load.bound()
                await cluster.kill(server)
                await load.until_more_are_bound(BOUND_MEANWHILE, than=before)
                await cluster.start(server)
                await until_whole(cluster)
        await load.until_more_are_bound(len(load.pods), than=0)

        orders = await all_orders(space, load.pods)
        outcomes = await outcomes_of(space, orders)
        pods = await space.pods()

        carried_out = [order for order in orders if outcomes[order.order_id].result == "succeeded"]
        victims = Counter(victim.name for order in carried_out for victim in order.victims)
        assert len(outcomes) == len(orders), "an order is stored twice"
        assert victims == deleted(space)
        assert set(victims.values()) == {1}
        left = {name: pod.status.nominated_node_name for name, pod in pods.items() if not pod.spec.node_name}
        assert left == {}
        assert_bound_once(space, *(pod.metadata.name for pod in load.pods))
        await assert_only_ordered_pods_were_deleted(space, load.pods)
        await assert_invariants(space)
