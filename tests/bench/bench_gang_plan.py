"""What a plan for a group costs, by the size of the cluster and of the group: `make bench`.

`mixed`: every other node has one large pod, the others thirty small ones, and each member needs a whole node.
`levels`: full nodes with 30 pods of ten priorities, and members of three pods' size.
"""

from __future__ import annotations

from functools import cache

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.snapshot.changes import PutPod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, ask, make_node, make_pod, make_snapshot

ROUNDS = 3
_POLICY = Policy(limits=PolicyLimits(victims_per_order=100_000))


@cache
def mixed(nodes: int) -> Snapshot:
    """Make the cluster on which nodes differ most in how many pods would have to go."""
    return make_snapshot(
        (make_node(f"n{node:05}", 4_000) for node in range(nodes)),
        (
            make_pod(f"p{node:05}-{slot}", f"n{node:05}", 0, 3_500 if node % 2 else 100)
            for node in range(nodes)
            for slot in range(1 if node % 2 else 30)
        ),
        policy=_POLICY,
    )


@cache
def levels(nodes: int) -> Snapshot:
    """Make the cluster in which priorities differ."""
    return make_snapshot(
        (make_node(f"n{node:05}", 3_000) for node in range(nodes)),
        (
            make_pod(
                f"p{node:05}-{slot}",
                f"n{node:05}",
                10 * ((node + slot) % 10),
                100,
                start=(node * 31 + slot * 17) % 1_000,
            )
            for node in range(nodes)
            for slot in range(30)
        ),
        policy=_POLICY,
    )


def planned(snapshot: Snapshot, member: PodRecord, count: int) -> GangPlan:
    found = plan_gang(snapshot, GangQuestion("bench/gang", (GangClass(ask(member), count),), count), NOW)
    assert isinstance(found, GangPlan), found
    return found


@pytest.mark.parametrize("nodes", [100, 1_000, 5_000])
def test_a_gang_of_40_on_a_mixed_cluster(benchmark: BenchmarkFixture, nodes: int) -> None:
    snapshot, member = mixed(nodes), make_pod("m", "", 100, 3_970)
    snapshot.apply(PutPod(member))

    found = benchmark.pedantic(planned, args=(snapshot, member, 40), rounds=ROUNDS, warmup_rounds=1)  # type: ignore[no-untyped-call]

    assert len(found.victims) == 40


@pytest.mark.parametrize("count", [100, 1_000])
def test_a_gang_on_5000_nodes_with_150000_pods(benchmark: BenchmarkFixture, count: int) -> None:
    snapshot, member = levels(5_000), make_pod("m", "", 95, 300)
    snapshot.apply(PutPod(member))

    found = benchmark.pedantic(planned, args=(snapshot, member, count), rounds=ROUNDS)  # type: ignore[no-untyped-call]

    assert found.price.highest == 0
    assert len(found.victims) == 3 * count
