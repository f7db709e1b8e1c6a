"""What a plan request costs the planner, from its bytes to those of the answer: `make bench`.

The snapshots of `bench_plan`, with all that the planner does around a plan: it reads the request, which names
pods that are nominated, assumed and leaving, counts what is in flight, notes the decision, and writes the
answer. Between two requests some pods have changed, as in a cluster that schedules a few hundred a second.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from pytest_benchmark.fixture import BenchmarkFixture

from bench.bench_plan import SIZES, change_a_pod, cluster
from builders_bus import plan_request
from makeway.bus import codec
from makeway.bus.decisions import DecisionRecord
from makeway.bus.ids import order_id, request_id
from makeway.bus.messages import Placement
from makeway.bus.plan import PlanReply, Profile
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.recording.decisions import Decisions
from makeway.planner.recording.journal import Journal
from makeway.planner.service.handler import Planner
from makeway.planner.service.searches import pod_search
from makeway.planner.snapshot.changes import PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import live_order, make_pod

ROUNDS = 200
CHANGED_PODS = 60
"""Between two requests: five a second, and 300 changes of pods."""
NOMINATED, ASSUMED, ORDERS, VICTIMS = 5, 20, 5, 3
_CLUSTER = "cluster-1"
_FILTERS = (
    "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions "
    "NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources MakeWay"
)
_POD: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "urgent", "uid": "P", "labels": {"app": "urgent"}},
    "spec": {
        "priority": 95,
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "300m", "memory": "768Mi"}}}],
    },
    "status": {"phase": "Pending"},
}


class _Nowhere:
    """Takes records and keeps none."""

    async def publish_decision(self, record: DecisionRecord) -> None:
        """Take one."""


@pytest.fixture(params=SIZES, ids=lambda nodes: f"{nodes} nodes")
def snapshot(request: pytest.FixtureRequest) -> Iterator[Snapshot]:
    nodes: int = request.param
    yield cluster(nodes)
    cluster.cache_clear()


def _request(snapshot: Snapshot) -> bytes:
    now = datetime.now(UTC)
    return msgspec.json.encode(
        plan_request(
            _POD,
            request_id=request_id(now),
            cluster_uid=_CLUSTER,
            timeout_milliseconds=100_000,
            max_candidates=3,
            profile=Profile(name="default-scheduler", filters=tuple(_FILTERS.split())),
            nominations=_placements("nominated", NOMINATED),
            assumed=_placements("assumed", ASSUMED),
            seen={"pods": 1, "nodes": 1},
        )
    )


def _placements(prefix: str, count: int) -> tuple[Placement, ...]:
    return tuple(
        Placement("shop", f"{prefix}-{number}", f"{prefix}-{number}", f"n{100 + number:05}")
        for number in range(count)
    )


def _planner(snapshot: Snapshot) -> Callable[[bytes], Coroutine[Any, Any, bytes]]:
    for prefix, count in (("nominated", NOMINATED), ("assumed", ASSUMED)):
        for number in range(count):
            snapshot.apply(
                PutPod(make_pod(f"{prefix}-{number}", "", 95, requests={"cpu": 300, "memory": 2**28}))
            )
    ledger = Ledger()
    for number, slots in enumerate(itertools.islice(snapshot.slots, ORDERS)):
        victims = (pod.uid for pod in slots[:VICTIMS])
        ledger.ordered(live_order(order_id(datetime.now(UTC)), f"nominated-{number}", *victims))
    metrics = PlannerMetrics(CollectorRegistry())
    journal = Journal()
    journal.begin("rec-bench")
    planner = Planner(
        _CLUSTER,
        "bench",
        snapshot=snapshot,
        ledger=ledger,
        decisions=Decisions(_Nowhere(), metrics, journal=journal),
        metrics=metrics,
        unsynced=str,
    )
    return partial(planner.handle, pod_search(snapshot, ledger, metrics))


def test_request(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    handle = _planner(snapshot)

    def some_pods_change() -> tuple[tuple[bytes], dict[str, object]]:
        for _ in range(CHANGED_PODS):
            change_a_pod(snapshot)
        return (_request(snapshot),), {}

    with asyncio.Runner() as runner:

        def answered(asked: bytes) -> PlanReply:
            reply = codec.decode(PlanReply, runner.run(handle(asked)))
            assert reply.candidates, reply
            return reply

        benchmark.pedantic(answered, setup=some_pods_change, rounds=ROUNDS, warmup_rounds=3)  # type: ignore[no-untyped-call]
