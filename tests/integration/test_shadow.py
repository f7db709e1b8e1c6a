"""A shadow scheduler verifies the nominator's plans: pods that only filters can judge need it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    run_victims,
    sized,
)
from integration.space import Space, open_space
from integration.test_third_party_filters import (
    assert_a_plan_is_mended_that_the_filter_does_not_let_through,
    assert_only_the_pod_goes_that_the_filter_objects_to,
)
from makeway.dev.options import NOMINATOR, SHADOW

PLACE = "tests.makeway.dev/place"
SHADOW_USER = "system:serviceaccount:makeway-system:makeway-shadow"

DISK = {
    "name": "disk",
    "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-11.dev.makeway:disk", "lun": 0},
}


def with_disk(pod: PodBuilder) -> PodBuilder:
    """One that writes to the disk, which two pods of a node cannot."""
    return pod.spec(volumes=[DISK])


@pytest_asyncio.fixture
async def space(shadow_cluster: RunningCluster) -> AsyncIterator[Space]:
    """Give a corner of it to one test."""
    async with open_space(shadow_cluster) as opened:
        yield opened


async def test_only_the_pod_that_holds_the_disk_goes(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu(1))
    await run_victims(
        space, with_disk(sized("holds", "low", 100)).on("n1"), sized("other", "low", 100).on("n1")
    )

    (pod,) = await space.create(with_disk(sized("p", "high", 100)))

    assert await space.until_bound("p") == "n1"
    (order,) = await space.bus.orders(pod.metadata.uid)
    assert [victim.name for victim in order.victims] == ["holds"]
    assert order.is_external
    await assert_only_ordered_pods_were_deleted(space, [pod])
    assert_bound_once(space, "p")


async def test_only_the_pod_that_a_filter_of_another_author_objects_to_goes(space: Space) -> None:
    await assert_only_the_pod_goes_that_the_filter_objects_to(space)


async def test_a_plan_that_the_filter_does_not_let_through_is_mended(space: Space) -> None:
    await assert_a_plan_is_mended_that_the_filter_does_not_let_through(space)


async def test_without_the_shadow_such_a_pod_waits_and_others_do_not(space: Space) -> None:
    await space.add_nodes(
        make_node("n1").cpu(1).label(PLACE, "disk"), make_node("n2").cpu(1).label(PLACE, "other")
    )
    await run_victims(
        space, with_disk(sized("holds", "low", 1000)).on("n1"), sized("fills", "low", 1000).on("n2")
    )

    async with space.cluster.without(SHADOW):
        await space.create(with_disk(sized("p", "high", 1000)).spec(nodeSelector={PLACE: "disk"}))
        await assert_stays_pending(space, "p", seconds=4)
        await space.create(sized("q", "mid", 1000).spec(nodeSelector={PLACE: "other"}))
        assert await space.until_bound("q", seconds=60) == "n2"
        assert "OnlyFiltersKnow" in space.cluster.process(NOMINATOR).log.read_text()

    assert await space.until_bound("p", seconds=60) == "n1"


async def test_the_shadow_writes_nothing_and_schedules_no_pod_that_names_it(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu(1))

    await space.create(sized("p", "high", 100).spec(schedulerName="makeway-shadow"))

    await assert_stays_pending(space, "p", seconds=3)
    writes = [
        event
        for event in space.audit.events(user=SHADOW_USER)
        if event.verb not in ("get", "list", "watch")
        and event.resource not in ("tokenreviews", "subjectaccessreviews")
    ]
    assert writes == []
