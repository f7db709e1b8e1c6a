"""Races that the nominator has beside kube-scheduler, which the plugin does not have.

Those that both have run in both forms, where they are; see docs/external.md.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from integration.arming import HOLD, STOP, Crashes, Failpoints
from integration.asking import until_said
from integration.builders import NEVER_PREEMPTS, PRIORITY_CLASSES, make_node, make_pod
from integration.cluster import RunningCluster
from integration.crashing import RECOVERY_SECONDS, assert_nothing_left_behind
from integration.forbidding import nominations_refused
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    deletes_of,
    full_nodes,
    ordered,
    outcome_of_order,
    run_victims,
    settle,
    sized,
    taker,
)
from integration.priority_classes import CLASSES, Classes
from integration.space import Space
from integration.test_external_preemption import patch_nomination
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.dev.kwok import AFTER_GRACE
from makeway.dev.options import NOMINATOR

pytestmark = pytest.mark.wide


@pytest.fixture
def cluster(external_cluster: RunningCluster) -> RunningCluster:
    """Run them beside kube-scheduler."""
    return external_cluster


async def annotate(space: Space, name: str, value: str | None) -> None:
    """Opt a class in, or out."""
    await space.merge(f"{CLASSES}/{name}", {"metadata": {"annotations": {ANNOTATION: value}}})


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_place_is_kept_where_the_higher_pod_that_was_to_have_it_is_deleted(space: Space) -> None:
    await run_victims(space, sized("victim", "low", 500).on("n1").leaves(AFTER_GRACE).grace(6))
    lower = await ordered(space, sized("p", "mid", 500))
    higher = await ordered(space, sized("higher", "high", 500))
    (order,) = await space.bus.orders(higher.metadata.uid)
    assert [one.uid for one in order.nominations_to_clear] == [lower.metadata.uid]

    await space.delete("higher")
    await settle()
    await space.cluster.start("evictor")

    _, outcome = await outcome_of_order(space, lower)
    assert outcome.result == "succeeded"
    assert await space.until_bound("p") == "n1"
    assert len(await space.bus.orders(lower.metadata.uid)) == 1
    nominated = [
        ((event.request or {}).get("status") or {}).get("nominatedNodeName")
        for event in space.audit.events(
            verb="patch", resource="pods", subresource="status", namespace=space.namespace, name="p"
        )
        if "nominatedNodeName" in ((event.request or {}).get("status") or {})
    ]
    assert nominated == [space.node_name("n1")]


@pytest.mark.parametrize("point", ["nominator.before-nominate", "nominator.before-commit"])
async def test_a_pod_that_its_scheduler_binds_in_the_moment_of_the_plan_costs_no_pod_its_life(
    cluster: RunningCluster, space: Space, point: str
) -> None:
    failpoints = Failpoints(cluster)
    await full_nodes(space, 1, 1)
    failpoints.arm(point, HOLD)
    try:
        await space.create(sized("p", "high", 100))
        await failpoints.fired(point)
        await space.add_nodes(make_node("n2").cpu("100m"))
        assert await space.until_bound("p") == "n2"
    finally:
        failpoints.let_go(point)

    await settle()
    await settle()
    assert deletes_of(space, "n1-v1") == []
    await assert_nothing_left_behind(space)
    assert_bound_once(space, "p")


async def test_a_nomination_that_is_cleared_between_two_deletes_saves_the_pods_that_are_left(
    cluster: RunningCluster, space: Space
) -> None:
    # The last victim is deleted once the others are; there the evictor looks again.
    failpoints = Failpoints(cluster)
    await full_nodes(space, 1, 3)
    failpoints.arm("evictor.after-delete", HOLD)
    try:
        pod = await taker(space, "p", 3)
        await failpoints.fired("evictor.after-delete")
        async with nominations_refused(space):
            await patch_nomination(space, "p", None)
            await asyncio.sleep(1.5)  # longer than an evictor goes by what it has read of the pod
            failpoints.let_go("evictor.after-delete")
            order, outcome = await outcome_of_order(space, pod)
            left = [victim.name for victim in order.victims if await space.pod(victim.name) is not None]
            assert left
            assert [deletes_of(space, name) for name in left] == [[] for _ in left]
    finally:
        failpoints.disarm()

    assert (outcome.result, outcome.reason) == ("cancelled", "nomination-moved")


@pytest.mark.wide
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_nomination_that_another_changed_is_left_to_it(space: Space) -> None:
    (other,) = await space.add_nodes(make_node("n2").cpu("100m"))
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    pod = await ordered(space, sized("p", "high", 500))

    await patch_nomination(space, "p", other)
    await space.cluster.start("evictor")
    _, outcome = await outcome_of_order(space, pod)
    await assert_stays_pending(space, "p", seconds=8)

    assert (outcome.result, outcome.reason) == ("cancelled", "nomination-moved")
    assert deletes_of(space, "victim") == []
    stands = await space.pod("p")
    assert stands is not None
    assert stands.status.nominated_node_name == other
    assert len(await space.bus.orders(pod.metadata.uid)) == 1


async def opted_out(space: Space, name: str) -> None:
    await annotate(space, name, None)


async def made_anew(space: Space, name: str) -> None:
    await space.api.request("DELETE", f"{CLASSES}/{name}")
    metadata = {"name": name, "annotations": {ANNOTATION: EXTERNAL}}
    await space.post(CLASSES, {"metadata": metadata, "value": 1000})


@pytest.mark.parametrize("change", [opted_out, made_anew])
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_class_that_is_opted_out_in_mid_flight_ends_its_orders(
    space: Space, classes: Classes, change: Callable[[Space, str], Awaitable[None]]
) -> None:
    name = await classes.add("changing", 1000)
    await settle()  # so that admission knows the class
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    pod = await ordered(space, make_pod("p").spec(priorityClassName=name).cpu("500m"))

    await change(space, name)
    await space.cluster.start("evictor")
    _, outcome = await outcome_of_order(space, pod)

    assert (outcome.result, outcome.reason) == ("refused", "not-opted-in")
    assert deletes_of(space, "victim") == []
    await assert_nothing_left_behind(space)
    await assert_stays_pending(space, "p", seconds=3)
    assert len(await space.bus.orders(pod.metadata.uid)) == 1


@pytest.mark.wide
async def test_where_no_class_is_opted_in_the_nominator_only_watches_and_says_so(space: Space) -> None:
    await full_nodes(space, 1, 1)
    opted_in = [name for name in PRIORITY_CLASSES if name != NEVER_PREEMPTS]
    logs = [space.cluster.process(name).log for name in space.cluster.replicas(NOMINATOR)]

    def said() -> int:
        return sum(log.read_text().count("no_class_opted_in") for log in logs)

    before = said()
    for name in opted_in:
        await annotate(space, name, None)
    try:
        await until_said(space.cluster, "none is opted in, so the nominator only watches", "check")
        pod = await taker(space, "p", 1)
        await assert_stays_pending(space, "p", seconds=3)
        assert await space.bus.decisions(pod.metadata.uid) == []
        assert said() == before + 1
    finally:
        for name in opted_in:
            await annotate(space, name, EXTERNAL)

    # Opted in again, it is served at once.
    assert await space.until_bound("p") == "n1"


async def test_of_two_nominators_one_that_lost_its_lease_while_it_slept_writes_no_second_order(
    cluster: RunningCluster, space: Space
) -> None:
    if len(cluster.replicas(NOMINATOR)) == 1:
        await asyncio.to_thread(cluster.start_replica, NOMINATOR)
    await full_nodes(space, 1, 2)

    async def bound() -> str:
        return await space.until_bound("p", seconds=RECOVERY_SECONDS)

    crashes = Crashes(cluster, NOMINATOR, at_once=1)
    async with crashes.at("nominator.before-commit", STOP, while_frozen=bound):
        pod = await taker(space, "p", 2)
    await settle()

    assert await space.node_of("p") == "n1"
    assert len(await space.bus.orders(pod.metadata.uid)) == 1
    await assert_only_ordered_pods_were_deleted(space, [pod])
    assert_bound_once(space, "p")


@pytest.mark.wide
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_node_that_is_cordoned_loses_no_pod_and_another_is_tried(space: Space) -> None:
    await space.add_nodes(make_node("n2").cpu("500m"))
    await run_victims(space, sized("v1", "low", 500).on("n1"), sized("v2", "mid", 500).on("n2"))
    pod = await ordered(space, sized("p", "high", 500))
    await space.cordon("n1")

    await space.cluster.start("evictor")
    first, _ = await outcome_of_order(space, pod)

    assert space.short(first.node) == "n1"
    assert await space.until_bound("p", seconds=2 * RECOVERY_SECONDS) == "n2"
    await assert_only_ordered_pods_were_deleted(space, [pod])
