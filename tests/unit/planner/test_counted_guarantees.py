"""A guarantee also holds for a resource that is still being counted for a preemptor."""

import pytest
from msgspec.structs import replace

from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.snapshot.changes import Adopt, PutNode, PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, LOW, NOW, ask, make_node, make_pod
from unit.planner.caching import plan

GPU = "nvidia.com/gpu"


def all_done(snapshot: Snapshot) -> None:
    while snapshot.pending_updates.pending:
        snapshot.pending_updates.apply_chunk()


@pytest.mark.parametrize("counting", [False, True])
def test_a_guarantee_of_a_resource_that_is_still_being_counted_is_kept(counting: bool) -> None:
    snapshot = Snapshot(chunk=2)
    snapshot.apply(PutNode(make_node("n1", size=1000, **{GPU: 8})))
    for number in range(8):
        pod = make_pod(
            f"a{number}", "n1", LOW, 100, labels={"queue": "root.a"}, facts=PodFacts(queue="root.a")
        )
        snapshot.apply(PutPod(replace(pod, requests={**pod.requests, GPU: 1})))
    snapshot.updates.serving = True
    all_done(snapshot)
    if counting:
        assert not snapshot.count(GPU)  # a preemptor has just asked for it
    snapshot.apply(Adopt(tree(queue("a", guaranteed={GPU: 8}), queue("p")), "queues-1"))
    all_done(snapshot)
    preemptor = make_pod("new", "", HIGH, 300, labels={"queue": "root.p"}, facts=PodFacts(queue="root.p"))
    found = plan(snapshot, ask(preemptor), NOW)
    assert isinstance(found, PlanRefusal)
    assert found.exempt == {"queue-guaranteed": 8}


def test_a_node_whose_pods_are_counted_again_is_seen_as_changed_by_a_plan_of_this_revision() -> None:
    snapshot = Snapshot(chunk=2)
    snapshot.apply(PutNode(make_node("n1", size=1000, **{GPU: 8})))
    pod = make_pod("a", "n1", LOW, 100)
    snapshot.apply(PutPod(replace(pod, requests={**pod.requests, GPU: 1})))
    all_done(snapshot)
    snapshot.count(GPU)
    looked_at = snapshot.revision
    while snapshot.upkeep.pending:
        snapshot.upkeep.apply_chunk()
    assert snapshot.changed[snapshot.rows["n1"]] > looked_at
