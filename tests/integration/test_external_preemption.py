"""The nominator beside a kube-scheduler without the plugin: whom it serves, what it writes, how it ends."""

import asyncio
import json

import pytest

from integration.arming import HOLD, KILL, STOP, Crashes, Failpoints
from integration.asking import until_said
from integration.builders import NEVER_PREEMPTS, PRIORITY_CLASSES, make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.crashing import COMMITTING, NOMINATING, RECOVERY_SECONDS, assert_nothing_left_behind
from integration.forbidding import UNDELETABLE, deletes_refused, nominations_refused
from integration.preempting import (
    assert_bound_once,
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    deletes_of,
    first_decision,
    full_nodes,
    ordered,
    outcome_of_order,
    run_victims,
    settle,
    sized,
    taker,
    until_ordered,
)
from integration.priority_classes import CLASSES, Classes
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.dev.kwok import AFTER_GRACE
from makeway.dev.options import NOMINATOR
from narrowing import there

NOMINATOR_USER = "system:serviceaccount:makeway-system:makeway-nominator"


@pytest.fixture
def cluster(external_cluster: RunningCluster) -> RunningCluster:
    """Run all of them beside kube-scheduler."""
    return external_cluster


async def patch_nomination(space: Space, name: str, node: str | None) -> None:
    """Write a nomination as one whom makeway does not know."""
    await space.api.request(
        "PATCH",
        f"/api/v1/namespaces/{space.namespace}/pods/{name}/status",
        query={"fieldManager": "another"},
        body=json.dumps({"status": {"nominatedNodeName": node}}).encode(),
        content_type="application/merge-patch+json",
    )


def nominators_writes(space: Space) -> list[tuple[str, str, str]]:
    """Read the audit log: verb, resource and pod of each accepted write of the nominator in the space."""
    return [
        (event.verb, f"{event.resource}/{event.subresource}", event.name)
        for event in space.audit.events(namespace=space.namespace, user=NOMINATOR_USER)
        if event.accepted and event.verb not in ("get", "list", "watch")
    ]


async def test_room_is_made_and_all_that_the_nominator_writes_is_one_nomination(space: Space) -> None:
    await full_nodes(space, 2, 3)

    pod = await taker(space, "p", 3)

    assert await space.until_bound("p") in ("n1", "n2")
    assert nominators_writes(space) == [("patch", "pods/status", "p")]
    (order,) = await space.bus.orders(pod.metadata.uid)
    assert order.is_external
    assert order.fence.name == "makeway-nominator"
    await assert_only_ordered_pods_were_deleted(space, [pod])
    assert_bound_once(space, "p")


async def test_a_pod_whose_class_is_not_opted_in_is_never_nominated(space: Space) -> None:
    await full_nodes(space, 1, 1)

    pod = await taker(space, "p", 1, priority=NEVER_PREEMPTS)

    await assert_stays_pending(space, "p", seconds=3)
    assert nominators_writes(space) == []
    assert await space.bus.decisions(pod.metadata.uid) == []


async def test_a_class_that_may_preempt_by_itself_is_refused_and_told_why(space: Space) -> None:
    name = f"{space.namespace}-wrong"
    await space.post(
        CLASSES, {"metadata": {"name": name, "annotations": {ANNOTATION: EXTERNAL}}, "value": 1000}
    )
    try:

        async def told() -> bool:
            text = await space.cluster.kubectl("describe", "priorityclass", name)
            if "ExternalPreemptionRefused" not in text:
                raise NotYet(text[-300:])
            assert "preemptionPolicy: Never" in text
            return True

        await until("the class is told", told)
    finally:
        await space.api.request("DELETE", f"{CLASSES}/{name}")


async def test_a_refused_delete_is_rolled_back_and_the_next_plan_is_another_one(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await run_victims(
        space, sized("v1", "low", 500).label(*UNDELETABLE).on("n1"), sized("v2", "mid", 500).on("n2")
    )

    async with deletes_refused(space, "v1"):
        (pod,) = await space.create(sized("p", "high", 500))
        first, outcome = await outcome_of_order(space, pod)
        assert await space.until_bound("p") == "n2"

    assert outcome.result == "failed"
    assert there(outcome.rollback).nomination_reverted
    assert [victim.name for victim in first.victims] == ["v1"]
    assert await space.pod("v1") is not None
    assert nominators_writes(space) == [("patch", "pods/status", "p")] * 2


async def test_a_nomination_of_another_is_left_alone(cluster: RunningCluster, space: Space) -> None:
    await full_nodes(space, 1, 1)
    await cluster.stop(NOMINATOR)
    await space.create(sized("p", "high", 100))
    await patch_nomination(space, "p", space.node_name("n1"))
    await cluster.start(NOMINATOR)

    await assert_stays_pending(space, "p", seconds=8)
    pod = there(await space.pod("p"))
    assert pod.status.nominated_node_name == space.node_name("n1")
    assert nominators_writes(space) == []


@pytest.mark.usefixtures("space_without_evictor")
async def test_a_cleared_nomination_stops_its_order_and_check_says_what_that_may_mean(space: Space) -> None:
    await run_victims(space, *[sized(name, "low", 250).on("n1") for name in ("v1", "v2")])
    pod = await ordered(space, sized("p", "high", 500))

    async with nominations_refused(space):
        await patch_nomination(space, "p", None)
        await space.cluster.start("evictor")
        _, outcome = await outcome_of_order(space, pod)
        await until_said(space.cluster, "does not work on this Kubernetes", "check")

    assert (outcome.result, outcome.reason) == ("cancelled", "nomination-moved")
    assert deletes_of(space, "v1") == deletes_of(space, "v2") == []
    # Then it is asked about again.
    assert await space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"


async def test_in_mode_observe_it_is_planned_and_no_more(cluster: RunningCluster, space: Space) -> None:
    await full_nodes(space, 1, 1)
    async with policy(cluster, mode="observe"):
        pod = await taker(space, "p", 1)
        decision = await first_decision(space, pod)
        await assert_stays_pending(space, "p")
        assert nominators_writes(space) == []

    assert decision.mode == "observe"
    assert [victim.name for victim in decision.victims] == ["n1-v1"]
    # It does not wait for the pod's turn where the mode has changed.
    assert await space.until_bound("p", seconds=5) == "n1"


@pytest.mark.parametrize(
    "given", ["no claim", pytest.param("a claim that no class serves", marks=pytest.mark.wide)]
)
async def test_a_claim_that_keeps_a_pod_from_every_node_costs_no_life(space: Space, given: str) -> None:
    await full_nodes(space, 2, 1)
    if given != "no claim":
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "no-such-class",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await space.post(f"/api/v1/namespaces/{space.namespace}/persistentvolumeclaims", claim)
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}

    await space.create(make_pod("p").priority("high").cpu("100m").spec(volumes=[data]))

    await assert_stays_pending(space, "p", seconds=5)
    assert nominators_writes(space) == []
    assert deletes_of(space, "n1-v1") == deletes_of(space, "n2-v1") == []


@pytest.mark.parametrize(
    "away", ["planner", *(pytest.param(away, marks=pytest.mark.wide) for away in ("nats", "evictor"))]
)
async def test_while_a_part_is_away_no_pod_dies_and_afterwards_room_is_made(space: Space, away: str) -> None:
    await full_nodes(space, 1, 1)

    async with space.cluster.without(away):
        await taker(space, "p", 1)
        await assert_stays_pending(space, "p", seconds=3)
        assert deletes_of(space, "n1-v1") == []

    assert await space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"


@pytest.mark.wide
@pytest.mark.parametrize("point", [*NOMINATING, *COMMITTING, "evictor.after-delete", "planner.before-reply"])
async def test_a_crash_in_the_midst_of_a_preemption_leaves_nothing_behind(space: Space, point: str) -> None:
    await full_nodes(space, 1, 3)

    async with Crashes(space.cluster, point.partition(".")[0]).at(point, KILL):
        pod = await taker(space, "p", 3)

    assert await space.until_bound("p", seconds=RECOVERY_SECONDS) == "n1"
    await assert_only_ordered_pods_were_deleted(space, [pod])
    assert_bound_once(space, "p")


async def test_of_two_nominators_the_other_goes_on_where_one_dies(space: Space) -> None:
    await full_nodes(space, 1, 1)
    if len(space.cluster.replicas(NOMINATOR)) == 1:
        await asyncio.to_thread(space.cluster.start_replica, NOMINATOR)
    first, second = space.cluster.replicas(NOMINATOR)
    await space.cluster.kill(first)
    try:
        pod = await taker(space, "p", 1)
        order = await until_ordered(space, pod, seconds=RECOVERY_SECONDS)
        assert await space.until_bound("p") == "n1"
    finally:
        await space.cluster.start(first)

    assert order.fence.epoch > 0
    assert space.cluster.process(second).pid is not None


async def test_the_room_is_asked_for_once_though_the_victim_takes_long_to_leave(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1").grace(5).leaves(AFTER_GRACE))

    pod = await ordered(space, sized("p", "high", 500))

    assert await space.until_bound("p") == "n1"
    assert len(await space.bus.orders(pod.metadata.uid)) == 1


# ------------- races that the plugin does not have; those that both have run in both forms


async def annotate(space: Space, name: str, value: str | None) -> None:
    """Opt a class in, or out."""
    await space.merge(f"{CLASSES}/{name}", {"metadata": {"annotations": {ANNOTATION: value}}})


@pytest.mark.wide
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


@pytest.mark.wide
@pytest.mark.parametrize("point", ["nominator.before-nominate", "nominator.before-commit"])
async def test_a_pod_that_its_scheduler_binds_in_the_moment_of_the_plan_costs_no_pod_its_life(
    space: Space, failpoints: Failpoints, point: str
) -> None:
    await full_nodes(space, 1, 1)
    failpoints.arm(point, HOLD)
    await space.create(sized("p", "high", 100))
    await failpoints.fired(point)
    await space.add_nodes(make_node("n2").cpu("100m"))
    assert await space.until_bound("p") == "n2"
    failpoints.let_go(point)

    await settle()
    await settle()
    assert deletes_of(space, "n1-v1") == []
    await assert_nothing_left_behind(space)
    assert_bound_once(space, "p")


@pytest.mark.wide
async def test_a_nomination_that_is_cleared_between_two_deletes_saves_the_pods_that_are_left(
    space: Space, failpoints: Failpoints
) -> None:
    # The last victim is deleted once the others are; there the evictor looks again.
    await full_nodes(space, 1, 3)
    failpoints.arm("evictor.after-delete", HOLD)
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

    assert (outcome.result, outcome.reason) == ("cancelled", "nomination-moved")


@pytest.mark.wide
@pytest.mark.usefixtures("space_without_evictor")
async def test_a_class_that_is_opted_out_in_mid_flight_ends_its_orders(
    space: Space, classes: Classes
) -> None:
    name = await classes.add("changing", 1000)
    await settle()  # so that admission knows the class
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    pod = await ordered(space, make_pod("p").spec(priorityClassName=name).cpu("500m"))

    await annotate(space, name, None)
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


@pytest.mark.wide
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
