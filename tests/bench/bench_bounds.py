"""Clusters in which one pod, node or budget could decide how long the planner is busy: `make bench`.

150,000 pods on 5,000 nodes each. A plan is a series of chunks; the event loop has its turn between them. The
column is the whole plan; `extra_info` has the longest chunk and how many there were, and they are printed.
"""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from msgspec import structs
from pytest_benchmark.fixture import BenchmarkFixture

from bench.warmup import warm_up
from makeway.core.k8s.affinity import Term
from makeway.core.k8s.selector import Requirement, Selector
from makeway.core.k8s.spread import Spread
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import Question
from makeway.planner.quota.decide import answering
from makeway.planner.snapshot.changes import Adopt, PutBudget, PutNode, PutPod, RemovePod
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.signatures.table import PodSignature
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import NOW, ask, make_budget, make_pod
from unit.planner.caching import cache_of

NODES, PODS_A_NODE, APPS = 5_000, 30, 5_000
ROUNDS = 20
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
CPU = 100

_numbers = itertools.count()


def selecting(**labels: str) -> Selector:
    return Selector(
        tuple(Requirement(key, "In", frozenset({value})) for key, value in sorted(labels.items()))
    )


def term(key: str, namespace: str = "default", **labels: str) -> Term:
    return Term(key, frozenset({namespace}), None, selecting(**labels))


def pods_of(
    labels: Callable[[int], Mapping[str, str]], forbids: Callable[[int], tuple[Term, ...]] = lambda _: ()
) -> Iterable[PodRecord]:
    """Pods of ten priorities that fill their nodes; labels and terms by number."""
    for number in range(NODES * PODS_A_NODE):
        own = dict(labels(number))
        pod = make_pod(
            f"p{number}",
            f"n{number % NODES:05}",
            10 * (number % 10),
            start=number % 1000,
            labels=own,
            requests={"cpu": CPU},
        )
        signature = PodSignature("default", tuple(sorted(own.items())), anti_affinity=forbids(number))
        yield PodRecord(
            **{name: getattr(pod, name) for name in pod.__struct_fields__ if name != "signature"},
            signature=signature,
        )


def nodes_of(more: Callable[[int], Mapping[str, int]] = lambda _: {}) -> Iterable[NodeRecord]:
    for number in range(NODES):
        name = f"n{number:05}"
        amounts = {"cpu": PODS_A_NODE * CPU, "pods": 110, **more(number)}
        yield NodeRecord(name=name, allocatable=amounts, labels={HOST: name, ZONE: str(number % 10)})


def filled(pods: Iterable[PodRecord], nodes: Iterable[NodeRecord] | None = None) -> Snapshot:
    warm_up()
    snapshot = Snapshot(chunk=500)
    for node in nodes_of() if nodes is None else nodes:
        snapshot.apply(PutNode(node))
    for pod in pods:
        snapshot.apply(PutPod(pod))
    settle(snapshot)
    gc.collect()
    gc.freeze()  # as the process does; a full collection over 150,000 pods takes longer than any plan
    return snapshot


def settle(snapshot: Snapshot) -> list[float]:
    """Do what is left to do; return how long each chunk took."""
    took = []
    while snapshot.pending_updates.pending or snapshot.upkeep.pending:
        began = time.perf_counter()
        snapshot.pending_updates.apply_chunk()
        snapshot.upkeep.apply_chunk()
        took.append(time.perf_counter() - began)
    return took


@cache
def by_app() -> Snapshot:
    """5,000 applications; a hundredth of the pods may not stand beside their like."""
    return filled(
        pods_of(
            lambda number: {"app": f"app-{number % APPS}"},
            lambda number: (term(HOST, app=f"app-{number % APPS}"),) if number % 100 == 0 else (),
        )
    )


@cache
def own_labels() -> Snapshot:
    """Each pod has a label of its own, and may not stand beside its application's others."""
    return filled(
        pods_of(
            lambda number: {"app": f"app-{number % APPS}", "apps.kubernetes.io/pod-index": str(number)},
            lambda number: (term(HOST, app=f"app-{number % APPS}"),),
        )
    )


@cache
def large_pods() -> Snapshot:
    """A thousand pods have a hundred terms each, no two alike."""
    return filled(
        pods_of(
            lambda number: {"app": f"app-{number % APPS}"},
            lambda number: (
                tuple(term(HOST, app=f"x-{number}-{one}") for one in range(100)) if number % 150 == 0 else ()
            ),
        )
    )


@cache
def drawn() -> Snapshot:
    """Labels, terms and who has them are drawn, some unique."""
    chance = random.Random(20)

    def labels(number: int) -> dict[str, str]:
        drawn = {key: f"v{int(chance.paretovariate(0.5))}" for key in "abcdef" if chance.random() < 0.5}
        return {"app": f"app-{int(chance.paretovariate(0.7)) % APPS}", "own": str(number), **drawn}

    def forbids(_: int) -> tuple[Term, ...]:
        some = int(chance.paretovariate(0.6)) % 100 if chance.random() < 0.1 else 0
        return tuple(
            term(chance.choice((HOST, ZONE)), **{chance.choice("abcdef"): f"v{chance.randrange(10**4)}"})
            for _ in range(some)
        )

    return filled(pods_of(labels, forbids))


def question(constraints: Constraints = Constraints(), **needs: int) -> Question:  # noqa: B008 - frozen
    """A preemptor of a class of its own."""
    number = next(_numbers)
    pod = make_pod("P", "", 95, requests={"cpu": 3 * CPU - number % 90, **needs})
    return replace(ask(pod, max_candidates=3), constraints=constraints)


def asking(*, terms: int = 0, spread: bool = False, **labels: str) -> Constraints:
    own = {"app": f"app-{next(_numbers) % APPS}", **labels}
    forbidden = tuple(term(HOST, app=f"app-{next(_numbers) % APPS}") for _ in range(terms))
    spreads = (Spread(ZONE, 1, 1, selecting(app=own["app"]), True, False, True),) if spread else ()
    return Constraints(
        namespace="default",
        labels=tuple(sorted(own.items())),
        has_affinity=True,
        anti_affinity=forbidden,
        spreads=spreads,
    )


def planned_in_chunks(snapshot: Snapshot, asked: Question, chunks: list[float]) -> None:
    steps = planning(snapshot, asked, NOW, cache_of(snapshot))
    found = None
    while found is None:
        began = time.perf_counter()
        found = next(steps)
        chunks.append(time.perf_counter() - began)


def measure(
    benchmark: BenchmarkFixture, snapshot: Snapshot, each: Callable[[], Question], rounds: int = ROUNDS
) -> None:
    """Plan for one preemptor after another; say how long the longest chunk was."""
    chunks: list[float] = []
    planned_in_chunks(snapshot, each(), [])
    settle(snapshot)
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        planned_in_chunks, setup=lambda: ((snapshot, each(), chunks), {}), rounds=rounds
    )
    tell(benchmark, chunks, snapshot)


def tell(benchmark: BenchmarkFixture, chunks: list[float], snapshot: Snapshot) -> None:
    info: dict[str, Any] = {
        "chunks": len(chunks),
        "longest_chunk_ms": round(1000 * max(chunks), 2),
        "median_chunk_ms": round(1000 * sorted(chunks)[len(chunks) // 2], 2),
        "signatures": len(snapshot.signatures),
        "layers": len(snapshot.columns.resources),
    }
    benchmark.extra_info.update(info)
    print("", info)


SHAPES = {"by app": by_app, "labels of their own": own_labels, "large pods": large_pods, "drawn": drawn}


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def snapshot(request: pytest.FixtureRequest) -> Iterator[Snapshot]:
    shape = SHAPES[request.param]
    yield shape()
    shape.cache_clear()


def test_plain_preemptor(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    measure(benchmark, snapshot, lambda: question(asking()))


def test_preemptor_with_a_label_of_its_own(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    measure(benchmark, snapshot, lambda: question(asking(own=str(next(_numbers)))))


def test_preemptor_with_zone_spread(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    measure(benchmark, snapshot, lambda: question(asking(spread=True)))


def test_preemptor_with_a_hundred_terms(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    measure(benchmark, snapshot, lambda: question(asking(terms=100)))


def test_grouping_by_a_new_label(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    """What it takes, in all, until a label that was never asked for is told apart; plans go on meanwhile."""
    chunks: list[float] = []

    def group() -> None:
        snapshot.use_label_keys(frozenset({f"key-{next(_numbers)}"}))
        chunks.extend(settle(snapshot))

    benchmark.pedantic(group, rounds=2)  # type: ignore[no-untyped-call]
    tell(benchmark, chunks, snapshot)


def test_pod_event_where_a_node_offers_a_thousand_resources(benchmark: BenchmarkFixture) -> None:
    """One pod after another goes and comes back; the first two resources were asked for."""
    offered = {f"example.com/device-{number}": 1 for number in range(1000)}
    snapshot = filled(
        pods_of(lambda number: {"app": f"app-{number % APPS}"}),
        nodes_of(lambda number: offered if number == 7 else {}),
    )
    chunks: list[float] = []
    for name in list(offered)[:2]:
        planned_in_chunks(snapshot, question(asking(), **{name: 1}), chunks)
        chunks += settle(snapshot)
    numbers = itertools.count()

    def event() -> None:
        pod = snapshot.pods[f"p{next(numbers) * 37 % (NODES * PODS_A_NODE)}"]
        snapshot.apply(RemovePod(pod.uid))
        snapshot.apply(PutPod(pod))

    benchmark.pedantic(event, rounds=5000)  # type: ignore[no-untyped-call]
    tell(benchmark, chunks, snapshot)


def test_plans_while_600_budgets_of_a_namespace_change(benchmark: BenchmarkFixture) -> None:
    """Of 150,000 pods 20,000 are in that namespace. Before each plan one budget's selector is another."""
    budgets = [make_budget(f"b{one}", {"app": f"app-{one}"}, 1, namespace="busy") for one in range(600)]
    warm_up()
    snapshot = Snapshot(chunk=500)
    for node in nodes_of():
        snapshot.apply(PutNode(node))
    for number, pod in enumerate(pods_of(lambda number: {"app": f"app-{number % 600}"})):
        namespace = "busy" if number < 20_000 else "default"
        snapshot.apply(
            PutPod(
                structs.replace(
                    pod, namespace=namespace, signature=PodSignature(namespace, pod.signature.labels)
                )
            )
        )
    for budget in budgets:
        snapshot.apply(PutBudget(budget))
    settle(snapshot)
    gc.freeze()
    snapshot.updates.serving = True
    chunks: list[float] = []

    def edited() -> tuple[tuple[Snapshot, Question, list[float]], dict[str, Any]]:
        number = next(_numbers)
        began = time.perf_counter()
        snapshot.apply(PutBudget(make_budget("b7", {"app": f"app-{number % 600}"}, 1, namespace="busy")))
        chunks.append(time.perf_counter() - began)
        for _ in range(10):
            began = time.perf_counter()
            snapshot.upkeep.apply_chunk()
            chunks.append(time.perf_counter() - began)
        return (snapshot, question(asking()), chunks), {}

    benchmark.pedantic(planned_in_chunks, setup=edited, rounds=ROUNDS)  # type: ignore[no-untyped-call]
    tell(benchmark, chunks, snapshot)


def test_quota_of_one_leaf_of_150_000_pods(benchmark: BenchmarkFixture) -> None:
    """A leaf comes down to half of what it uses: 75,000 victims, of which an order names 500."""
    pods = pods_of(lambda number: {"queue": "root.a"})
    snapshot = filled(
        structs.replace(pod, facts=structs.replace(pod.facts, queue="root.a", scheduled_micros=0))
        for pod in pods
    )
    built = tree(queue("a", maximum={"cpu": NODES * PODS_A_NODE * CPU // 2}))
    snapshot.apply(Adopt(built, "queues-1"))
    settle(snapshot)
    gc.freeze()
    chunks, chosen = list[float](), list[int]()
    inputs = QuotaInputs(
        decision_id="d",
        at=NOW,
        queue="root.a",
        maximum=dict(built.at("root.a").maximum),
        mode="enforce",
        leaving=frozenset(),
    )

    def plan_quota() -> None:
        steps = answering(snapshot, built, inputs)
        while True:
            began = time.perf_counter()
            try:
                next(steps)
            except StopIteration as end:
                chosen.append(len(end.value.victims))
                return
            finally:
                chunks.append(time.perf_counter() - began)

    benchmark.pedantic(plan_quota, rounds=3)  # type: ignore[no-untyped-call]
    assert set(chosen) == {NODES * PODS_A_NODE // 2}
    tell(benchmark, chunks, snapshot)
