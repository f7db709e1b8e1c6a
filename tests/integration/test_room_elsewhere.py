"""While its victims are leaving a preemptor takes room that appears elsewhere, as soon as by kube-scheduler.

Case A-15 of docs/conformance.md, on a control plane with kube-scheduler alone and on one with MakeWay.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import settle, sized
from integration.side_by_side import prepare
from integration.space import Space, open_space
from integration.waiting import until_seen
from makeway.dev.kwok import NEVER

_YEAR_SECONDS = 365 * 24 * 3600
_STAYS = "tests.makeway.dev/stays"

Room = Callable[[Space], Awaitable[object]]


@pytest_asyncio.fixture
async def makeway(drawn_cluster: RunningCluster) -> AsyncIterator[Space]:
    """A space of the control plane with MakeWay."""
    await prepare(drawn_cluster)
    async with open_space(drawn_cluster) as space:
        yield space


@pytest_asyncio.fixture
async def kube_scheduler(drawn_plain_cluster: RunningCluster) -> AsyncIterator[Space]:
    """A space of the control plane with kube-scheduler alone."""
    await prepare(drawn_plain_cluster)
    async with open_space(drawn_plain_cluster) as space:
        yield space


async def _node_joins(space: Space) -> None:
    await space.add_nodes(make_node("n3").cpu("500m"))


async def _pod_ends(space: Space) -> None:
    await space.delete("other")


async def _preempting(space: Space, *, finalizer: bool) -> None:
    """Two full nodes; p is nominated to n1, and its victim there is being deleted and stays."""
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    stuck = sized("stuck", "low", 500).on("n1")
    await space.run(
        stuck if finalizer else stuck.grace(_YEAR_SECONDS).leaves(NEVER), sized("other", "high", 500).on("n2")
    )
    if finalizer:
        await space.patch("stuck", {"metadata": {"finalizers": [_STAYS]}})
    await settle()
    await space.create(sized("p", "high", 500))
    assert await space.until_nominated("p") == "n1"

    await until_seen(
        "the victim is leaving",
        lambda: space.pod("stuck"),
        lambda stuck: stuck is not None and stuck.metadata.deletion_timestamp is not None,
    )
    await asyncio.sleep(1.0)  # for the order's outcome, and cycles that it may bring


async def _seconds_to_bind(space: Space, room: Room, *, finalizer: bool) -> float:
    await _preempting(space, finalizer=finalizer)
    began = time.monotonic()
    _, node = await asyncio.gather(room(space), space.until_bound("p", seconds=10))
    seconds = time.monotonic() - began
    stuck = await space.pod("stuck")
    assert node != "n1"
    assert stuck is not None, "its victim had left"
    if finalizer:
        await space.patch("stuck", {"metadata": {"finalizers": None}})
    return seconds


@pytest.mark.parametrize(
    "finalizer",
    [
        pytest.param(True, id="a finalizer"),
        pytest.param(False, id="a grace period of a year", marks=pytest.mark.wide),
    ],
)
@pytest.mark.parametrize(
    "room",
    [
        pytest.param(_node_joins, id="a node joins", marks=pytest.mark.wide),
        pytest.param(_pod_ends, id="a pod ends elsewhere"),
    ],
)
async def test_a_pod_whose_victims_are_leaving_takes_room_that_appears_elsewhere(
    makeway: Space, kube_scheduler: Space, room: Room, finalizer: bool
) -> None:
    ours, theirs = await asyncio.gather(
        _seconds_to_bind(makeway, room, finalizer=finalizer),
        _seconds_to_bind(kube_scheduler, room, finalizer=finalizer),
    )
    print(f"bound after {ours:.2f} s, by kube-scheduler after {theirs:.2f} s")
