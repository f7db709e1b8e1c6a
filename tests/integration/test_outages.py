"""What happens when a part is down: pods that need no preemption never notice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

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
    full_nodes,
    outcome_of_order,
    run_victims,
    sized,
    until_told,
)
from integration.scraping import scrape
from integration.space import Space, open_space
from integration.waiting import NotYet, until, until_seen
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.subjects import Subjects
from makeway.core.k8s.objects import Pod
from makeway.dev.options import EVICTOR, NATS, PLANNER, STREAMS
from makeway.dev.site import nats_servers


async def full_node_and_empty_node(space: Space) -> None:
    """A full node n1, and n2 with room for a small pod only."""
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("100m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))


async def test_without_nats_scheduling_goes_on_and_makeway_comes_back_with_it(space: Space) -> None:
    await full_node_and_empty_node(space)

    async with space.cluster.without("nats"):
        await space.create(sized("small", "low", 100))
        await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("small", seconds=5) == "n2"
        assert await space.until_bound("urgent", seconds=5) == "n1"
    for component in ("planner", "evictor"):
        await asyncio.to_thread(space.cluster.process(component).wait_ready)
    await makes_room_again(space.cluster)


@pytest.mark.wide
async def test_planners_outwait_nats_without_exiting_and_one_leads_again(cut_cluster: RunningCluster) -> None:
    cluster = cut_cluster
    running = {name: cluster.process(name).pid for name in (*cluster.replicas(PLANNER), EVICTOR)}

    async with cluster.without(NATS):
        await asyncio.sleep(14)  # longer than a leader without NATS keeps its Lease

    for name in running:
        await asyncio.to_thread(cluster.process(name).wait_ready)
    await makes_room_again(cluster)
    assert {name: cluster.process(name).pid for name in running} == running


async def test_without_a_quorum_of_jetstream_no_pod_goes_where_the_policy_protects_some_and_it_recovers(
    three_servers_cluster: RunningCluster,
) -> None:
    cluster = three_servers_cluster
    await makes_room_again(cluster)
    lost = (f"{NATS}-2", f"{NATS}-3")
    async with open_space(cluster) as space:
        await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
        await run_victims(
            space,
            sized("kept", "low", 500).annotation("makeway.dev/never-evict", "true").on("n1"),
            sized("loose", "mid", 500).on("n2"),
        )

        async with policy(cluster, protection={"neverEvictNamespaces": ["*"]}):
            await until("the scheduler keeps to the policy", partial(scheduler_follows, cluster))
            for server in lost:
                await cluster.kill(server)
            try:
                await space.create(sized("urgent", "high", 500))
                await until_told(space, "pods are protected by protection.neverEvictNamespaces", seconds=120)
                assert {"kept", "loose"} <= (await space.pods()).keys()
            finally:
                for server in lost:
                    await cluster.start(server)
            await until("JetStream answers again", partial(answers, space))
            assert await space.until_bound("urgent", seconds=120) == "n2"
            assert await space.pod("kept") is not None
    await makes_room_again(cluster)


async def scheduler_follows(cluster: RunningCluster) -> bool:
    """Whether the scheduler has the control state that the planner told last."""
    told = (await scrape(cluster.info.planner_url)).total("makeway_planner_control_revision")
    taken = (await scrape(cluster.info.scheduler_url)).total("makeway_scheduler_control_revision")
    if told != taken:
        raise NotYet(f"control state {told:.0f} was told, {taken:.0f} taken")
    return True


async def answers(space: Space) -> bool:
    """Whether the streams can be read."""
    try:
        await space.bus.orders()
    except (nats.errors.Error, nats.js.errors.Error) as error:
        raise NotYet(str(error)) from error
    return True


async def makes_room_again(cluster: RunningCluster, seconds: float = 30) -> None:
    """An order of makeway's, carried out, in a space of its own."""
    async with open_space(cluster) as space:

        async def by_makeway() -> bool:
            number = len(await space.pods())
            await space.add_nodes(make_node(f"n{number}").cpu("500m"))
            await space.run(sized(f"victim-{number}", "low", 500).on(f"n{number}"))
            (urgent,) = await space.create(sized(f"urgent-{number}", "high", 500))
            await space.until_bound(f"urgent-{number}")
            return bool(await space.bus.orders(urgent.metadata.uid))

        await until("makeway makes room again", by_makeway, seconds=seconds)


async def test_an_evictor_that_is_back_in_time_carries_the_order_out(space: Space) -> None:
    await full_node_and_empty_node(space)

    async with space.cluster.without("evictor"):
        (urgent,) = await space.create(sized("urgent", "high", 500))
        await space.until_nominated("urgent")
        await asyncio.sleep(3)
        assert await space.pod("victim") is not None

    assert await space.until_bound("urgent") == "n1"
    _, outcome = await outcome_of_order(space, urgent)
    assert outcome.result == "succeeded"
    await assert_only_ordered_pods_were_deleted(space, [urgent])


async def test_without_an_evictor_another_preempts_once_two_orders_had_no_outcome(
    short_orders_cluster: RunningCluster,
) -> None:
    cluster = short_orders_cluster
    async with open_space(cluster) as space:
        await full_node_and_empty_node(space)

        async with cluster.without("evictor"):
            (urgent,) = await space.create(sized("urgent", "high", 500))

            assert await space.until_bound("urgent", seconds=40) == "n1"
            assert len(await space.bus.orders(urgent.metadata.uid)) == 2
        await makes_room_again(cluster)


@asynccontextmanager
async def orders_not_stored(cluster: RunningCluster) -> AsyncIterator[None]:
    """Let the stream of orders take nothing, for the length of a block."""
    async with cluster.without(STREAMS), cluster.jetstream() as jetstream:
        config = (
            await jetstream.stream_info(Subjects(cluster.owned.options.subject_prefix).orders_stream)
        ).config
        most = config.max_msg_size
        config.max_msg_size = 1
        await jetstream.update_stream(config)
        try:
            yield
        finally:
            config.max_msg_size = most
            await jetstream.update_stream(config)


@pytest.mark.wide
async def test_where_orders_cannot_be_stored_another_preempts_and_makeway_comes_back(space: Space) -> None:
    await full_node_and_empty_node(space)

    async with orders_not_stored(space.cluster):
        (urgent,) = await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("urgent", seconds=20) == "n1"
        assert await space.bus.orders(urgent.metadata.uid) == []
    await makes_room_again(space.cluster)


# ------------- three nats-servers that keep every stream on all three


NODES = 10
VICTIMS = 12
"""On each node; each preemptor needs the room of one."""
RATE = 2.0
"""Preemptors a second."""
BOUND_MEANWHILE = 5
"""So many preemptors are bound while a server is away."""


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


@pytest.mark.wide
async def test_each_of_three_servers_is_killed_under_load_and_no_order_is_lost_or_doubled(
    three_servers_cluster: RunningCluster,
) -> None:
    cluster = three_servers_cluster
    await until_whole(cluster)
    # Pods that a plan does not help wait for one: only makeway preempts.
    async with policy(cluster, protection=HOLDING), open_space(cluster) as space:
        await full_nodes(space, NODES, VICTIMS)
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
