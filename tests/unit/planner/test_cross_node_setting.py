"""`crossNode.mostVictims` counts wherever a plan for a group is made; orders have a test of their own."""

from datetime import UTC, datetime
from typing import Any

import pytest

from makeway.core.policy.document import CrossNode, Policy
from makeway.planner.observe import loop
from makeway.planner.offline.replaying import Replay, differences
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.result import GangPlan
from makeway.planner.recording.entries import encode_entry, pack
from makeway.planner.recording.journal import Journal, contents
from makeway.planner.snapshot.changes import Enforce, PutPod
from makeway.planner.snapshot.records import pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.planner import offline_building as offline
from unit.planner.building import HIGH, NOW
from unit.planner.grouping import pod_group, put_group
from unit.planner.manifests import anti_affinity, pod, term
from unit.planner.test_gang_blockers import JOB, RACK, exclusive, racks
from unit.planner.test_group_service import Bench, member
from unit.planner.test_observing import SCHEDULER, pod_object
from unit.planner.test_observing_groups import Groups
from unit.planner.test_simulated_groups import group, members, simulated

APART = anti_affinity(term(RACK, JOB, namespaces=["default"]))
SETTINGS = pytest.mark.parametrize("most", [0, 1])
"""One victim on a node without a member is enough to open the rack."""


def policy(most: int) -> Policy:
    return Policy(cross_node=CrossNode(most_victims=most))


def rack(most: int) -> Snapshot:
    """A rack of two nodes with a pod each that keeps it closed to a member, of which each has room."""
    snapshot = racks(2)
    snapshot.apply(Enforce(policy(most), "rev"))
    return snapshot


@SETTINGS
def test_the_planner_takes_at_most_so_many_victims_on_nodes_without_members(most: int) -> None:
    snapshot = rack(most)

    assert isinstance(plan_gang(snapshot, exclusive(snapshot, 1), NOW), GangPlan) == bool(most)


@SETTINGS
async def test_so_does_a_planner_that_is_asked_and_the_replay_of_its_answer(most: int) -> None:
    snapshot, journal = rack(most), Journal()
    snapshot.apply(PutPod(pod_record(pod("M", priority=HIGH, cpu="3", namespace="shop"))))
    bench = Bench(snapshot, journal=journal)
    begun = [encode_entry(one) for one in contents(snapshot, "cluster-1", "planner-1", datetime.now(UTC))]
    journal.begin("rec-1")

    reply = await bench.ask(classes=(member(1, cpu="3", affinity=APART),), must_place=1)

    assert bool(reply.plan) == bool(most)
    (record,) = await bench.written()
    replay = Replay()
    (decided,) = replay.read(pack(0, [*begun, *(encode_entry(one) for one in journal.take(10))]))
    assert differences(record, replay.again(decided)) == []


@SETTINGS
def test_a_simulated_group_takes_at_most_so_many(most: int) -> None:
    labels: dict[str, Any] = {"labels": {RACK: "r1"}}
    olds = (offline.pod(f"old-{name}", name, cpu="3", labels=JOB) for name in "ab")
    cluster = offline.world(*(offline.node(name, **labels) for name in "ab"), *olds)
    cluster.enforce(policy(most), "rev")
    asked = members(1, cpu="3")
    asked[0]["spec"]["affinity"] = APART

    answer = simulated(cluster, group(least=1), asked)

    assert (answer.result, len(answer.victims)) == (("preempts", 2) if most else ("refused", 0))


@SETTINGS
async def test_what_others_did_for_a_group_is_compared_with_at_most_so_many(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "POLL_SECONDS", 0.0)
    snapshot = rack(most)
    snapshot.apply(PutPod(pod_record(pod("g0", priority=HIGH, cpu="3"))))
    put_group(snapshot, pod_group("train", whole=False, priority=HIGH, min_count=1, uid="G"))
    bench = Groups(snapshot)
    bench.observing.following = True
    bench.mark_for_group("old-r1-0", "old-r1-1")
    nominated = {
        "schedulerName": SCHEDULER,
        "priority": HIGH,
        "schedulingGroup": {"podGroupName": "train"},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
        "affinity": APART,
    }
    bench.observing.put(pod_object("g0", spec=nominated, status={"nominatedNodeName": "r1-0"}))

    await bench.planned()
    (found,) = await bench.told()

    assert found.result == ("same" if most else "defaultOnly")
