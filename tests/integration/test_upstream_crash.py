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
from integration.preempting import settle
from integration.space import Space
from makeway.dev.fault_rules import Rule
from makeway.dev.options import SCHEDULER

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
BOUND_SECONDS = 60.0
PODS_WATCH = r"/api/v1/pods\?"
CORRUPTED = b"Scheduler cache is corrupted"

ANEW = {"on another node": "n1", "on no node": "", "on the same node": "n0"}
"""Where the victim's successor is, and whether kube-scheduler ends itself over it."""


def ends_itself(where: str) -> bool:
    return where != "on the same node"


async def victim_made_anew_behind_a_broken_watch(
    space: Space, cluster: RunningCluster, faults: Faults, where: str, number: int
) -> int:
    """One preemption whose victim's end the scheduler misses; gives how often the scheduler ended itself."""
    victim, urgent, n0, n1 = (f"{what}-{number}" for what in ("victim", "urgent", "n0", "n1"))
    await space.add_nodes(make_node(n0).cpu("510m"), make_node(n1).cpu("510m"))
    (first,) = await space.run(make_pod(victim).priority("low").cpu("500m").on(n0))
    await settle()
    log = cluster.process(SCHEDULER).log
    crashes, restarts = log.read_bytes().count(CORRUPTED), cluster.process(SCHEDULER).restarts
    about_victim = f'"name":"{victim}","namespace":"{space.namespace}"'
    await faults.add(
        Rule(component=SCHEDULER, action="skip", path=PODS_WATCH, event=about_victim, count=1000)
    )

    here = {"kubernetes.io/hostname": space.node_name(n0)}
    await space.create(make_pod(urgent).priority("high").cpu("500m").spec(nodeSelector=here))
    await space.until_gone(victim, uid=first.metadata.uid)
    anew = make_pod(victim).priority("low").cpu("10m")
    if name := {"n0": n0, "n1": n1}.get(ANEW[where]):
        anew.on(name)
    else:
        anew.spec(schedulingGates=[{"name": "tests.makeway.dev/held"}])
    (second,) = await space.create(anew)
    assert any(one.action == "skip" for one in await faults.applied())
    await faults.clear()
    about_urgent = f'"name":"{urgent}","namespace":"{space.namespace}"'
    await faults.add(Rule(component=SCHEDULER, action="expire", path=PODS_WATCH, event=about_urgent))
    await space.patch(urgent, {"metadata": {"annotations": {"tests.makeway.dev/seen": "no"}}})

    assert await space.until_bound(urgent, seconds=BOUND_SECONDS) == n0
    await faults.clear()
    survivor = await space.pod(victim)
    assert survivor is not None
    assert survivor.metadata.uid == second.metadata.uid
    assert survivor.metadata.deletion_timestamp is None
    ended = log.read_bytes().count(CORRUPTED) - crashes
    assert cluster.process(SCHEDULER).restarts - restarts == ended, "the scheduler ended for another reason"
    return ended


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * REPEAT)
@pytest.mark.parametrize("where", ANEW)
async def test_nobody_is_stuck_when_kube_scheduler_ends_itself_over_a_pod_made_anew(
    fault_space: Space, fault_cluster: RunningCluster, faults: Faults, where: str
) -> None:
    ended = 0
    for number in range(REPEAT):
        ended += await victim_made_anew_behind_a_broken_watch(
            fault_space, fault_cluster, faults, where, number
        )

    assert ended == (REPEAT if ends_itself(where) else 0)
    await assert_invariants(fault_space)
