"""The nominator beside a kube-scheduler without the plugin: whom it serves, what it writes, how it ends."""

import asyncio
import json

import pytest

from integration.arming import KILL, Crashes
from integration.asking import until_said
from integration.builders import NEVER_PREEMPTS, make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.crashing import COMMITTING, NOMINATING
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
    sized,
    taker,
    until_ordered,
)
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.dev.kwok import AFTER_GRACE
from makeway.dev.options import NOMINATOR
from narrowing import there

NOMINATOR_USER = "system:serviceaccount:makeway-system:makeway-nominator"
RECOVERY_SECONDS = 60.0
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


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


async def test_a_delay_of_the_class_is_waited_for(space: Space) -> None:
    name = f"{space.namespace}-patient"
    annotations = {ANNOTATION: EXTERNAL, "makeway.dev/preemption-delay": "5s"}
    await space.post(
        CLASSES,
        {"metadata": {"name": name, "annotations": annotations}, "value": 1000, "preemptionPolicy": "Never"},
    )
    try:
        await full_nodes(space, 1, 1)
        await space.create(make_pod("p").spec(priorityClassName=name).cpu("100m"))

        await assert_stays_pending(space, "p", seconds=3)
        assert nominators_writes(space) == []
        assert await space.until_bound("p") == "n1"
    finally:
        await space.api.request("DELETE", f"{CLASSES}/{name}")


async def test_a_refused_delete_is_rolled_back_and_the_next_plan_is_another_one(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await run_victims(
        space,
        sized("v1", "low", 500).label(*UNDELETABLE).on("n1"),
        sized("v2", "mid", 500).on("n2"),
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


async def test_a_pod_that_the_columns_cannot_judge_is_refused(space: Space) -> None:
    await full_nodes(space, 1, 1)
    disk = {"name": "disk", "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.x:y", "lun": 0}}

    await space.create(make_pod("p").priority("high").cpu("100m").spec(volumes=[disk]))

    await assert_stays_pending(space, "p", seconds=3)
    assert nominators_writes(space) == []
    assert deletes_of(space, "n1-v1") == []


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
