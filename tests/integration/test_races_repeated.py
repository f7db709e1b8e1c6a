"""Races without a referee: something happens at a random moment of a preemption that nobody holds up.

Each case runs MAKEWAY_REPEAT times (20) in `make test-all`, in a space of its own
each time. What held is judged by the independent checker, and by who was bound where in the end.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable

import pytest

from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.crashing import assert_nothing_left_behind
from integration.invariants import assert_invariants
from integration.preempting import deletes_of, run_victims, sized
from integration.space import Space, open_space
from makeway.runtime.kube import ApiError

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
LATEST_SECONDS = 0.25
"""Within this time a preemption here is planned, nominated, ordered and carried out."""
BOUND_SECONDS = 30.0

Act = Callable[[Space], Awaitable[None]]


def victim(name: str, node: str) -> PodBuilder:
    return sized(name, "low", 250).on(node)


def preemptor() -> PodBuilder:
    return sized("p", "mid", 500)


async def nothing_happens(space: Space) -> None:
    assert await space.until_bound("p", seconds=BOUND_SECONDS)


async def a_victim_is_deleted(space: Space) -> None:
    await space.delete("n1-a", grace_seconds=0)
    assert await space.until_bound("p", seconds=BOUND_SECONDS)


async def a_victim_is_made_anew_elsewhere(space: Space) -> None:
    await space.remove("n1-a", grace_seconds=0)
    (new,) = await space.create(victim("n1-a", "n3"))
    assert await space.until_bound("p", seconds=BOUND_SECONDS)
    # KWOK, unlike a kubelet, deletes by name alone and may take the new pod for the old one; nobody else may.
    assert new.metadata.uid not in {event.precondition_uid for event in deletes_of(space, "n1-a")}


async def the_preemptor_is_deleted(space: Space) -> None:
    await space.remove("p", grace_seconds=0)


async def the_preemptor_is_made_anew(space: Space) -> None:
    await space.remove("p", grace_seconds=0)
    await space.create(preemptor())
    assert await space.until_bound("p", seconds=BOUND_SECONDS)


async def the_preemptor_is_bound_elsewhere(space: Space) -> None:
    try:
        await space.bind("p", space.node_name("n3"))
    except ApiError as error:
        if error.status != 409:
            raise
    assert await space.until_bound("p", seconds=BOUND_SECONDS)


async def the_node_is_deleted(space: Space) -> None:
    await space.delete_node("n1")
    # Where it was bound before, it stays, as every pod of a deleted node does for a while.
    assert await space.until_bound("p", seconds=BOUND_SECONDS)


async def the_node_is_made_anew(space: Space) -> None:
    await space.delete_node("n1")
    await space.add_nodes(make_node("n1").cpu("500m"))
    assert await space.until_bound("p", seconds=BOUND_SECONDS)


async def a_higher_preemptor_comes(space: Space) -> None:
    await space.create(sized("higher", "high", 500))
    nodes = [await space.until_bound(name, seconds=BOUND_SECONDS) for name in ("higher", "p")]
    assert sorted(nodes) == ["n1", "n2"]


async def an_equal_preemptor_comes(space: Space) -> None:
    await space.create(sized("equal", "mid", 500))
    nodes = [await space.until_bound(name, seconds=BOUND_SECONDS) for name in ("equal", "p")]
    assert sorted(nodes) == ["n1", "n2"]


ACTS: tuple[Act, ...] = (
    nothing_happens,
    a_victim_is_deleted,
    a_victim_is_made_anew_elsewhere,
    the_preemptor_is_deleted,
    the_preemptor_is_made_anew,
    the_preemptor_is_bound_elsewhere,
    the_node_is_deleted,
    the_node_is_made_anew,
    a_higher_preemptor_comes,
    an_equal_preemptor_comes,
)


@pytest.mark.slow
@pytest.mark.timeout(60 * REPEAT)
@pytest.mark.parametrize("act", ACTS, ids=[act.__name__ for act in ACTS])
async def test_whatever_happens_nobody_is_stuck_or_wronged(race_cluster: RunningCluster, act: Act) -> None:
    for number in range(REPEAT):
        delay = random.uniform(0, LATEST_SECONDS) if number else 0.0
        try:
            await once(race_cluster, act, delay)
        except AssertionError as error:
            error.add_note(f"round {number + 1} of {REPEAT}, after {delay * 1000:.0f} ms")
            raise


async def once(cluster: RunningCluster, act: Act, delay: float) -> None:
    """Let one preemptor have the choice between two full nodes, and act after so many seconds."""
    async with open_space(cluster) as space:
        await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
        await space.add_nodes(make_node("n3").cpu("500m").taint("example.com/kept-free"))
        await run_victims(
            space, *[victim(f"{node}-{name}", node) for node in ("n1", "n2") for name in ("a", "b")]
        )

        await space.create(preemptor())
        await asyncio.sleep(delay)
        await act(space)

        await assert_nothing_left_behind(space)
        await assert_invariants(space)
