"""Plans for groups while the cluster changes between their pieces."""

import random

import pytest

from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.snapshot.changes import (
    PutBudget,
    PutNode,
    PutPod,
    PutPodGroup,
    RemoveBudget,
    RemoveNode,
    RemovePod,
    RemovePodGroup,
)
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import HIGH, LOW, MID, NOW, ask, make_budget, make_node, make_pod, make_snapshot
from unit.planner.grouping import pod_group, put_group

POLICY = Policy(limits=PolicyLimits(victims_per_order=1000))
NODES = 24
UNIT = pod_group("unit")


def cluster() -> Snapshot:
    pods = [
        make_pod(f"p{n}-{i}", f"n{n}", (LOW, MID)[i % 2], 125, labels={"app": f"a{n % 4}"})
        for n in range(NODES)
        for i in range(4)
    ]
    budget = make_budget("a0", {"app": "a0"}, 1)
    snapshot = make_snapshot([f"n{n}" for n in range(NODES)], pods, [budget], policy=POLICY)
    put_group(snapshot, UNIT, *(make_pod(f"p{n}-0", f"n{n}", LOW, 125) for n in range(4)))
    return snapshot


def change(snapshot: Snapshot, turn: int, random_: random.Random) -> None:
    """Apply one of the changes that a watch tells of."""
    node, slot = random_.randrange(NODES), random_.randrange(4)
    match random_.randrange(7):
        case 0:
            snapshot.apply(RemovePod(f"p{node}-{slot}"))
        case 1:
            snapshot.apply(PutPod(make_pod(f"new{turn}", f"n{node}", HIGH, 125)))
        case 2:
            snapshot.apply(PutPod(make_pod(f"p{node}-{slot}", f"n{node}", HIGH, 125)))
        case 3:
            snapshot.apply(RemoveNode(f"n{node}"))
        case 4:
            snapshot.apply(PutNode(make_node(f"other{turn}")))
        case 5:
            snapshot.apply(RemovePodGroup(UNIT.key) if turn % 2 else PutPodGroup(UNIT))
        case 6:
            key = ("default", "a0")
            snapshot.apply(
                RemoveBudget(key) if turn % 2 else PutBudget(make_budget("a0", {"app": "a1"}, turn % 3))
            )


@pytest.mark.parametrize("seed", range(20))
def test_what_is_planned_holds_in_the_cluster_as_it_is_then(seed: int) -> None:
    random_ = random.Random(seed)
    snapshot = cluster()
    members = [make_pod("m0", "", HIGH, 250), make_pod("m1", "", HIGH, 375)]
    for member in members:
        snapshot.apply(PutPod(member))
    classes = tuple(GangClass(ask(member), 4) for member in members)
    steps = planning_gang(snapshot, GangQuestion("default/gang", classes, 8), NOW, PlanCache())

    found: GangPlan | PlanRefusal | None = None
    for turn in range(2000):
        found = next(steps)
        if found is not None:
            break
        if turn < 40 and random_.random() < 0.4:
            change(snapshot, turn, random_)

    assert isinstance(found, GangPlan)
    gone = {one.pod.uid for one in found.victims}
    assert gone <= snapshot.pods.keys()
    assert all(snapshot.pods[uid].priority < HIGH for uid in gone)
    asked: dict[str, int] = {}
    for one in found.placements:
        asked[one.node] = asked.get(one.node, 0) + one.count * (250, 375)[one.member_class]
    for name, size in asked.items():
        stays = sum(
            pod.requests["cpu"] for pod in snapshot.pods.values() if pod.node == name and pod.uid not in gone
        )
        assert snapshot.nodes[name].allocatable["cpu"] >= stays + size
