"""kube-scheduler ends itself over a pod made anew while its watch was broken; nobody is stuck by it.

The informer takes the new pod for an update of the old one. Where the two are on different nodes, or the new
one on none, the scheduler's cache says "Scheduler cache is corrupted" and the process exits with 1
(kubernetes#141255; pkg/scheduler/backend/cache/cache.go, UpdatePod). That is upstream's, with or without
makeway: each such exit is counted here, and every exit must be one. makeway has to survive it.
"""

import os

import pytest

from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.faults import Faults
from integration.invariants import assert_invariants
from integration.preempting import run_victims
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.objects import Pod
from makeway.dev.fault_rules import FaultRule
from makeway.dev.kwok import NEVER
from makeway.dev.options import SCHEDULER

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
BOUND_SECONDS = 60.0
PODS_WATCH = r"/api/v1/pods\?"
CORRUPTED = b"Scheduler cache is corrupted"

SAME, OTHER, NONE = "same", "other", "none"
"""Where a victim's successor is: on the victim's node, on another, on none. These two end kube-scheduler."""


async def made_anew(space: Space, victim: Pod, place: str) -> Pod:
    """End a victim once an evictor has deleted it, and make a small pod under its name.

    KWOK shall not end it: its deletes name no UID and may meet the new pod.
    """
    name = victim.metadata.name

    async def leaving() -> bool:
        pod = await space.pod(name)
        return pod is not None and pod.metadata.deletion_timestamp is not None

    await until(f"{name} is deleted", leaving)
    await space.delete(name, grace_seconds=0)
    await space.until_gone(name, uid=victim.metadata.uid)
    anew = make_pod(name).priority("low").cpu("10m")
    if place == NONE:
        anew.spec(schedulingGates=[{"name": "tests.makeway.dev/held"}])
    else:
        anew.on(f"{place}-{name}")
    return (await space.create(anew))[0]


async def preempt_behind_a_broken_watch(
    space: Space, cluster: RunningCluster, faults: Faults, places: dict[str, str]
) -> int:
    """Preempt while the scheduler misses all about the victims, which are made anew; then it lists anew.

    places: where each successor is, by the victim's name. Gives how often the scheduler ended itself.
    """
    scheduler = cluster.process(SCHEDULER)
    await space.add_nodes(
        *(make_node(f"{node}-{name}").cpu("510m") for name in places for node in (SAME, OTHER))
    )
    victims = await run_victims(
        space,
        *(make_pod(name).priority("low").cpu("500m").leaves(NEVER).on(f"{SAME}-{name}") for name in places),
    )
    crashes, restarts = scheduler.log.read_bytes().count(CORRUPTED), scheduler.restarts
    names = "|".join(places)
    here = f'"namespace":"{space.namespace}"'
    await faults.add(
        FaultRule(
            component=SCHEDULER,
            action="skip",
            path=PODS_WATCH,
            event=f'"name":"({names})",{here}',
            count=10**6,
        )
    )

    await space.create(
        *(
            make_pod(f"urgent-{name}")
            .priority("high")
            .cpu("500m")
            .spec(nodeSelector={"kubernetes.io/hostname": space.node_name(f"{SAME}-{name}")})
            for name in places
        )
    )
    successors = [
        await made_anew(space, pod, place) for pod, place in zip(victims, places.values(), strict=True)
    ]
    await faults.add(
        FaultRule(
            component=SCHEDULER, action="expire", path=PODS_WATCH, event=f'"name":"urgent-({names})",{here}'
        )
    )
    await space.patch(f"urgent-{min(places)}", {"metadata": {"annotations": {"tests.makeway.dev/seen": ""}}})
    await until_expired(faults)
    # The reflector pauses before it lists, so that the list shows all that was skipped.
    await faults.clear()

    for name in places:
        assert await space.until_bound(f"urgent-{name}", seconds=BOUND_SECONDS) == f"{SAME}-{name}"
    pods = await space.pods()
    for pod in successors:
        survivor = pods[pod.metadata.name]
        assert survivor.metadata.uid == pod.metadata.uid
        assert survivor.metadata.deletion_timestamp is None
    ended = scheduler.log.read_bytes().count(CORRUPTED) - crashes
    assert scheduler.restarts - restarts == ended, "the scheduler ended for another reason"
    return ended


async def until_expired(faults: Faults) -> None:
    async def expired() -> bool:
        done = {one.action for one in await faults.applied()}
        if done != {"skip", "expire"}:
            raise NotYet(f"{done}")
        return True

    await until("the scheduler's watch has expired", expired, every=0.01)


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * REPEAT)
async def test_nobody_is_stuck_when_kube_scheduler_ends_itself_over_a_pod_made_anew(
    fault_space: Space, fault_cluster: RunningCluster, faults: Faults
) -> None:
    ended = 0
    for number in range(REPEAT):
        place = (OTHER, NONE)[number % 2]
        ended += await preempt_behind_a_broken_watch(
            fault_space, fault_cluster, faults, {f"v{number}": place}
        )

    assert ended == REPEAT
    await assert_invariants(fault_space)


@pytest.mark.slow
async def test_preemptors_of_victims_made_anew_on_the_same_node_are_released_by_the_next_list(
    fault_space: Space, fault_cluster: RunningCluster, faults: Faults
) -> None:
    places = {f"v{number}": SAME for number in range(REPEAT)}

    assert await preempt_behind_a_broken_watch(fault_space, fault_cluster, faults, places) == 0

    await assert_invariants(fault_space)
