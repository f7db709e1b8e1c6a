"""Every failpoint, killed and frozen: whoever dies between whichever two side effects, nobody is stuck.

A test is one space, with MAKEWAY_REPEAT crashes (20) at each point, one after another while pods preempt:
the next comes as soon as somebody is there to be crashed, so that several orders are live at once. A point
that is not reached is a failure. What must hold is `integration.crashing.assert_whole`, and what the
independent checker finds.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from itertools import cycle
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from background import background
from integration.arming import HOLD, KILL, STOP, Act, Crashes, Failpoints, until_one_leads
from integration.cluster import RunningCluster
from integration.crashing import (
    CLEARING,
    COMMITTING,
    EACH_VICTIM,
    EVICTING,
    PLANNING,
    RECOVERY_SECONDS,
    REPAIRING,
    ROLLING_BACK,
    SCHEDULING,
    assert_nothing_left_behind,
    assert_whole,
    is_marked,
    mark_as_victim,
    without_nats,
)
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.invariants import assert_invariants, streams_of
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    full_nodes,
    outcome_of_order,
    taker,
    until_ordered,
)
from integration.space import Space, open_space
from integration.waiting import until
from makeway.core.k8s.objects import Pod
from makeway.dev.checker.history import Streams

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
VICTIMS = 5
ACTIONS = (KILL, STOP)
AT_ONCE = 8
"""Preemptions under way at once. With more, the orders that come again after a crash meet the next one."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 60 * REPEAT)]

T = TypeVar("T")


@pytest_asyncio.fixture
async def whole_cluster(crash_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """The cluster with one of each, all of it ready again after the test."""
    yield crash_cluster
    await healed(crash_cluster)


@pytest_asyncio.fixture
async def replicas(replicated_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """The cluster with several planners and evictors, all of it ready again after the test."""
    yield replicated_cluster
    await healed(replicated_cluster)


async def healed(cluster: RunningCluster) -> None:
    Failpoints(cluster).disarm()
    await cluster.heal()
    await until_one_leads(cluster)


async def side_by_side(acts: Iterable[Coroutine[Any, Any, T]], at_once: int = AT_ONCE) -> list[T]:
    """Do them in turn, so many at once; the first that fails ends the others."""
    free = asyncio.Semaphore(at_once)

    async def do(act: Coroutine[Any, Any, T]) -> T:
        try:
            async with free:
                return await act
        finally:
            act.close()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(do(act)) for act in acts]
    return [task.result() for task in tasks]


# ----------------------------------------------------------------------------------- one dies, all is well


@pytest.mark.parametrize(
    ("point", "hit"),
    [(point, hit) for point in EVICTING for hit in (range(1, VICTIMS + 1) if point in EACH_VICTIM else (1,))],
)
async def test_evictor(replicas: RunningCluster, point: str, hit: int) -> None:
    await preempt_through(replicas, "evictor", point, hit)


@pytest.mark.parametrize("point", [*PLANNING, *COMMITTING])
async def test_planner(whole_cluster: RunningCluster, point: str) -> None:
    await preempt_through(whole_cluster, "planner", point)


@pytest.mark.parametrize("point", SCHEDULING)
async def test_scheduler(whole_cluster: RunningCluster, point: str) -> None:
    await preempt_through(whole_cluster, "scheduler", point)


async def preempt_through(cluster: RunningCluster, service: str, point: str, hit: int = 1) -> None:
    """A preemption for each crash: each has one order, carried out once.

    Planners crash one preemption at a time: whoever dies of every question is asked less and less often.
    """
    crashes = Crashes(cluster, service, at_once=max(1, len(cluster.replicas(service)) - 1))
    async with open_space(cluster) as space:
        await full_nodes(space, len(ACTIONS) * REPEAT, VICTIMS)

        async def preempt(name: str, action: str) -> Pod:
            async with crashes.at(point, action, hit=hit):
                pod = await taker(space, name, VICTIMS)
            await space.until_bound(name, seconds=RECOVERY_SECONDS)
            return pod

        acts = [preempt(f"p{number}", action) for number, action in enumerate(ACTIONS * REPEAT)]
        preemptors = await side_by_side(acts, at_once=1 if service == "planner" else AT_ONCE)
        assert crashes.hits == Counter({(point, action, hit): REPEAT for action in ACTIONS})
        await assert_whole(space, preemptors, orders=1)
        await assert_invariants(space, wait=False)


# ------------------------------------------------------------------------------------- undoing and clearing


@pytest.mark.parametrize("point", ROLLING_BACK)
async def test_evictor_that_rolls_back(replicas: RunningCluster, point: str) -> None:
    crashes = Crashes(replicas, "evictor", at_once=2)
    async with open_space(replicas) as space:
        await full_nodes(space, len(ACTIONS) * REPEAT, 2, UNDELETABLE)

        async def fail_then_preempt(number: int, action: str) -> Pod:
            node, name = f"n{number}", f"p{number}"
            victims = [f"{node}-v1", f"{node}-v2"]
            async with crashes.at(point, action):
                pod = await taker(space, name, 2, node=node)
            _, outcome = await outcome_of_order(space, pod, seconds=RECOVERY_SECONDS)
            # The next evictor may find the nomination taken back by the one that died.
            assert outcome.result in ({"failed"} if action == STOP else {"failed", "cancelled"})
            await assert_nothing_left_behind(space, name, *victims)
            for victim in victims:
                await space.patch(victim, {"metadata": {"labels": {UNDELETABLE[0]: None}}})
            assert await space.until_bound(name, seconds=2 * RECOVERY_SECONDS) == node
            return pod

        async with deletes_refused(space, "n1-v1"):
            preemptors = await side_by_side(
                fail_then_preempt(number, action) for number, action in enumerate(ACTIONS * REPEAT, start=1)
            )
        assert crashes.hits == Counter({(point, action, 1): REPEAT for action in ACTIONS})
        await assert_whole(space, preemptors)
        await assert_invariants(space, wait=False)


@pytest.mark.parametrize("point", CLEARING)
async def test_evictor_that_clears_nominations(whole_cluster: RunningCluster, point: str) -> None:
    crashes = Crashes(whole_cluster, "evictor")
    async with open_space(whole_cluster) as space:
        await full_nodes(space, len(ACTIONS) * REPEAT, VICTIMS)

        async def displace(number: int, action: str) -> list[Pod]:
            node = f"n{number}"
            async with crashes.at(point, action) as reached:
                async with whole_cluster.without("evictor"):
                    lesser = await taker(space, f"lesser{number}", VICTIMS, priority="mid", node=node)
                    await until_ordered(space, lesser)
                    pod = await taker(space, f"p{number}", VICTIMS, node=node)
                    await until_ordered(space, pod)
                    # It would clear the nomination itself, once the lesser pod's victims have gone.
                    await whole_cluster.pause("scheduler")
                await reached()
                await whole_cluster.resume("scheduler")
            assert await space.until_bound(f"p{number}", seconds=RECOVERY_SECONDS) == node
            return [lesser, pod]

        pairs = await side_by_side(
            displace(number, action) for number, action in enumerate(ACTIONS * REPEAT, start=1)
        )
        assert crashes.hits == Counter({(point, action, 1): REPEAT for action in ACTIONS})
        # The victims are those of the lesser pods' orders, on which the other ones count.
        await assert_only_ordered_pods_were_deleted(space, [pod for pair in pairs for pod in pair])
        assert_bound_once(space, *[pod.metadata.name for _, pod in pairs])
        await assert_nothing_left_behind(space)
        await assert_invariants(space, wait=False)


# ------------------------------------------------------------------------------------------- another is there


@pytest.mark.parametrize(
    ("point", "hit", "action"),
    [
        ("planner.before-reply", 1, KILL),
        ("planner.before-reply", 1, STOP),
        ("evictor.order-received", 1, STOP),
        ("evictor.after-delete", 2, STOP),
    ],
)
async def test_the_other_replica_takes_over(
    replicas: RunningCluster, point: str, hit: int, action: str
) -> None:
    """A frozen one stays so until the other has done its work. Evictors that are killed: `test_evictor`."""
    service = point.partition(".")[0]
    crashes = Crashes(replicas, service, at_once=1 if service == "planner" else 3)
    async with open_space(replicas) as space:
        await full_nodes(space, REPEAT, VICTIMS)

        async def preempt(name: str) -> Pod:
            async def bound() -> str:
                return await space.until_bound(name, seconds=RECOVERY_SECONDS)

            async with crashes.at(point, action, hit=hit, while_frozen=bound):
                pod = await taker(space, name, VICTIMS)
            await bound()
            return pod

        preemptors = await side_by_side(preempt(f"p{number}") for number in range(REPEAT))
        assert crashes.hits == Counter({(point, action, hit): REPEAT})
        await assert_whole(space, preemptors, orders=1)
        await assert_invariants(space, wait=False)


# ------------------------------------------------------------------------------------------------------ NATS


WHERE_ORDERS_STAND = (
    "scheduler.before-publish",
    "scheduler.after-publish",
    "evictor.order-received",
    "evictor.before-mark",
    "evictor.after-delete",
    "evictor.before-outcome",
    "evictor.before-ack",
    "scheduler.on-outcome",
)
"""One order at each of them at the same time, when NATS goes away; the last two are the same order's."""


@pytest.mark.parametrize("how", ["killed", "frozen", "wiped"])
async def test_nats(whole_cluster: RunningCluster, how: str) -> None:
    """Whoever is held at a point goes on while NATS is away. A scheduling cycle is at one point at a time."""
    for _ in range(REPEAT):
        async with open_space(whole_cluster) as space:
            await full_nodes(space, 2 * len(WHERE_ORDERS_STAND), 2)
            lost = Streams()
            preemptors: list[Pod] = []
            for asking in ("planner.before-reply", "scheduler.nominated"):
                number = len(preemptors) + 1
                names = [f"p{number + more}" for more in range(len(WHERE_ORDERS_STAND))]
                go_on, held = await hold_everywhere(whole_cluster, space, names, asking)
                preemptors += held
                if how == "wiped":
                    lost = (await settled_streams(whole_cluster, space)).joined(lost)
                await without_nats(whole_cluster, how, go_on)
                for name in names:
                    await space.until_bound(name, seconds=2 * RECOVERY_SECONDS)

            if how != "wiped":
                await assert_whole(space, preemptors)
            await assert_nothing_left_behind(space)
            await assert_invariants(space, wait=False, lost=lost)


async def hold_everywhere(
    cluster: RunningCluster, space: Space, names: list[str], asking: str
) -> tuple[Act, list[Pod]]:
    """Have pods preempt until each point holds somebody; gives what lets them go, and the pods."""
    failpoints = Failpoints(cluster)
    for point in WHERE_ORDERS_STAND:
        failpoints.arm(point, HOLD)
    pods = [await taker(space, name, 2) for name in names[:-1]]
    for point in WHERE_ORDERS_STAND:
        await failpoints.fired(point)
    failpoints.arm(asking, HOLD)
    pods.append(await taker(space, names[-1], 2))
    await failpoints.fired(asking)

    async def go_on() -> None:
        for point in (*WHERE_ORDERS_STAND, asking):
            failpoints.let_go(point)
        await asyncio.sleep(2)

    return go_on, pods


async def settled_streams(cluster: RunningCluster, space: Space) -> Streams:
    """What the streams hold once nothing more is written."""
    seen = Streams()

    async def unchanged() -> Streams | None:
        nonlocal seen
        before, seen = seen, await streams_of(cluster, since=space.opened_at)
        return seen if seen == before else None

    return await until("nothing more is written", unchanged, every=0.2)


# ------------------------------------------------------------------------------------------ marks left behind


async def test_repair_of_marks_left_behind(replicas: RunningCluster) -> None:
    """Marks appear all the while; planners and evictors are crashed side by side."""
    crashes = {service: Crashes(replicas, service, at_once=1) for service in ("planner", "evictor")}
    async with open_space(replicas) as space:
        await full_nodes(space, 1, 50)
        before = {name: pod.metadata.uid for name, pod in (await space.pods()).items()}

        async def mark_forever() -> None:
            for name in cycle(before):
                await mark_as_victim(space, name)
                await asyncio.sleep(0.4)

        async def crash(point: str, action: str) -> None:
            async with crashes[point.partition(".")[0]].at(point, action):
                pass

        async with background(mark_forever()):
            await side_by_side(
                [crash(point, action) for _ in range(REPEAT) for point in REPAIRING for action in ACTIONS],
                at_once=REPEAT * len(REPAIRING) * len(ACTIONS),
            )

        hits = crashes["planner"].hits + crashes["evictor"].hits
        assert hits == Counter({(point, action, 1): REPEAT for point in REPAIRING for action in ACTIONS})
        await assert_nothing_left_behind(space)
        assert {name: pod.metadata.uid for name, pod in (await space.pods()).items()} == before


async def test_marks_of_orders_that_everybody_has_lost_are_cleared(whole_cluster: RunningCluster) -> None:
    failpoints = Failpoints(whole_cluster)
    async with open_space(whole_cluster) as space:
        await full_nodes(space, REPEAT, VICTIMS)
        before = (await space.pods()).keys()
        for number in range(1, REPEAT + 1):
            failpoints.arm("evictor.before-delete", KILL)
            pod = await taker(space, "p", VICTIMS, node=f"n{number}")
            await failpoints.fired("evictor.before-delete")
            for component in ("evictor", "scheduler", "planner"):
                await whole_cluster.kill(component)
            await space.delete("p")
            await space.until_gone("p", uid=pod.metadata.uid)
            await without_nats(whole_cluster, "wiped")
            assert any(
                is_marked(pod) for name, pod in (await space.pods()).items() if name.startswith(f"n{number}-")
            )

            await whole_cluster.end_lease("scheduler")
            for component in ("planner", "evictor", "scheduler"):
                await whole_cluster.start(component)

        await assert_nothing_left_behind(space)
        assert (await space.pods()).keys() == before
