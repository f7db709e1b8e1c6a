"""What judging a commit costs, by the number of victims: `make bench`.

A group's victims are on as many nodes, all under one budget. A commit is judged on receipt and once more
right before its order is stored, each time without a pause of the planner's loop.
"""

from __future__ import annotations

from functools import cache

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from makeway.bus.messages import Placement
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.commit.judge import Accepted, Circumstances, judge
from makeway.planner.plan.cache import PlanCache
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import HIGH, LOW, NOW, make_budget, make_node, make_pod
from unit.planner.test_commit_judge import group_commit, group_offer
from unit.planner.test_plan_groups import cluster, group, member

PODS_A_NODE = 30
WEB = {"app": "web"}


@cache
def full(nodes: int) -> Snapshot:
    """Make full nodes, and a group whose members wait."""
    each = 2**30
    running = [
        make_pod(f"p{node}-{slot}", f"n{node}", LOW, labels=WEB, requests={"memory": each})
        for node in range(nodes)
        for slot in range(PODS_A_NODE)
    ]
    members = [member("train", f"m{node}", "", priority=HIGH) for node in range(nodes)]
    return cluster(
        [group("train", whole=False, priority=HIGH, min_count=nodes)],
        [*running, *members],
        nodes=[make_node(f"n{node}", pods=110, memory=PODS_A_NODE * each) for node in range(nodes)],
        budgets=[make_budget("web", WEB, nodes)],
        policy=Policy(limits=PolicyLimits(victims_per_order=nodes)),
    )


@pytest.mark.parametrize("victims", [1, 64, 256, 1000, 3000], ids=lambda victims: f"{victims} victims")
def test_judge(benchmark: BenchmarkFixture, victims: int) -> None:
    snapshot, cache = full(victims), PlanCache()
    uids = [f"p{node}-0" for node in range(victims)]
    nodes = {f"m{node}": f"n{node}" for node in range(victims)}
    places = tuple(
        Placement(namespace="default", name=uid, uid=uid, node=node, node_uid=f"{node}-uid")
        for uid, node in nodes.items()
    )
    asked = group_commit(*uids, must_place=victims, placements=places)
    around = Circumstances(
        now=NOW, mode="enforce", nominated=nodes, versions=dict.fromkeys(snapshot.pods, "1")
    )
    offer = group_offer(uids)

    found = benchmark(judge, snapshot, cache, asked, offer, around)

    assert isinstance(found, Accepted)
    assert len(found.order.victims) == victims
