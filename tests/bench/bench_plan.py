"""What one plan costs, by the size of the cluster: `make bench`.

Up to 30 pods a node, and 150,000 in all, which is as many as Kubernetes supports. Nodes are full, pods have
ten priorities, some are under budgets. The first plan of a class is that of a preemptor whose like was not
asked about before; the repeated one's was, and nothing has changed since; or one node has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.full_cluster import CPU, MEMORY, full_cluster
from bench.warmup import warm_up
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import PutPod, RemovePod
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, ask, make_pod
from unit.planner.caching import plan

SIZES = (1_000, 5_000, 15_000, 50_000)
ROUNDS = 30
CANDIDATES = 3
"""As many as the plugin asks for first."""
_PODS_A_NODE = 30
_PODS = 150_000
_APPS = 50

_numbers = itertools.count()


@cache
def cluster(nodes: int) -> Snapshot:
    """Make a cluster of full nodes."""
    warm_up()
    return full_cluster(nodes, min(_PODS_A_NODE, _PODS // nodes), _APPS, range(0, _APPS, 5))


@pytest.fixture(params=SIZES, ids=lambda nodes: f"{nodes} nodes")
def snapshot(request: pytest.FixtureRequest) -> Iterator[Snapshot]:
    nodes: int = request.param
    yield cluster(nodes)
    if request.node.name.startswith("test_one_dirty_node"):  # the last that uses this size
        cluster.cache_clear()


def question(memory: int = 0) -> Question:
    """A preemptor of three pods' size; another amount of memory is another class."""
    pod = make_pod("P", "", 95, requests={"cpu": 3 * CPU, "memory": 3 * MEMORY - memory})
    return ask(pod, max_candidates=CANDIDATES)


def answered(snapshot: Snapshot, asked: Question) -> Plan | PlanRefusal:
    result = plan(snapshot, asked, NOW)
    assert isinstance(result, Plan), result
    return result


def change_a_pod(snapshot: Snapshot) -> None:
    """Put another pod in a pod's place, each time on another node."""
    number = next(_numbers)
    node = snapshot.names[number % len(snapshot.names)]
    gone = snapshot.slots[snapshot.rows[node]][-1]
    snapshot.apply(RemovePod(gone.uid))
    snapshot.apply(
        PutPod(make_pod(f"again-{number}", node, gone.priority, requests=gone.requests, start=number % 1000))
    )


def test_first_plan(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        answered, setup=lambda: ((snapshot, question(memory=next(_numbers))), {}), rounds=ROUNDS
    )


def test_repeated_plan(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    asked = question()
    benchmark.pedantic(answered, args=(snapshot, asked), rounds=ROUNDS, warmup_rounds=1)  # type: ignore[no-untyped-call]


def test_one_dirty_node(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    asked = question()
    answered(snapshot, asked)

    def one_pod_changes() -> tuple[tuple[Snapshot, Question], dict[str, object]]:
        change_a_pod(snapshot)
        return (snapshot, asked), {}

    benchmark.pedantic(answered, setup=one_pod_changes, rounds=ROUNDS)  # type: ignore[no-untyped-call]


def test_a_thousand_classes_in_turn(benchmark: BenchmarkFixture) -> None:
    """More than are remembered at 5,000 nodes: each plan is the first of its class again."""
    snapshot, questions = cluster(5_000), itertools.cycle([question(memory=2**20 + n) for n in range(1_000)])
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        answered, setup=lambda: ((snapshot, next(questions)), {}), rounds=1_000
    )
    cluster.cache_clear()
