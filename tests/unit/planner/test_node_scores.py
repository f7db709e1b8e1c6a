"""What is kept from plan to plan changes no answer: warm and cold planners say the same."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from makeway.bus.messages import Placement
from makeway.core.k8s.objects import Node, Pod, PriorityClass
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.queues.tree import QueueTree
from makeway.planner.plan.constraints.tally import Tallies
from makeway.planner.plan.evaluate import evaluate
from makeway.planner.plan.node_scores import NodeScoreCaches
from makeway.planner.plan.planner import planning
from makeway.planner.plan.ranking import top
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    PutBudget,
    PutNode,
    PutPod,
    PutPriorityClass,
    RemoveNode,
    RemovePod,
)
from makeway.planner.snapshot.records import node_record, pod_record
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner.building import NOW, make_budget
from unit.planner.caching import cache_of, plan
from unit.planner.manifests import HOST, ZONE, affinity, anti_affinity, node, pod, question, spread, term

WEB = {"app": "web"}
PORT = [{"containerPort": 80, "hostPort": 80}]


POLICIES = [
    Policy(),
    Policy(disruption_budgets="hard", hard_budget_namespaces=("*",)),
    Policy(
        disruption_budgets="hard", hard_budget_namespaces=("*",), limits=PolicyLimits(victims_per_order=1)
    ),
]


def askers() -> list[Question]:
    def preemptor(**more: Any) -> Question:
        return question(pod("preemptor", priority=100, **more))

    return [
        preemptor(cpu="2"),
        preemptor(cpu="1", labels=WEB, topologySpreadConstraints=[spread(ZONE, WEB)]),
        preemptor(cpu="1", affinity=anti_affinity(term(HOST, WEB))),
        preemptor(cpu="2", labels=WEB, affinity=affinity(term(ZONE, WEB))),
        preemptor(ports=PORT),
        question(pod("preemptor", priority=5, cpu="4")),
        preemptor(cpu="9"),
    ]


QUEUES = [
    None,
    tree(
        queue("a", guaranteed={"cpu": 4000}),
        queue("b", queue("c", guaranteed={"cpu": 2000}), guaranteed={"cpu": 5000}, maximum={"cpu": 9000}),
        queue("default", maximum={"cpu": 6000}),
    ),
]
"""Preemptors that say nothing are in root.default."""


class Cluster:
    """What there is, so that a snapshot can be made anew from it."""

    def __init__(
        self,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        queues: QueueTree | None = None,
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, int] = {}
        self.policy, self.queues = policy, queues
        self.warm = self._bare()

    def change(self, draw: random.Random) -> None:
        choice = draw.random()
        if choice < 0.15 or not self.nodes:
            name = f"n{draw.randrange(6)}"
            self.nodes[name] = node(name, draw.randint(1, 6), zone=draw.choice(["", "1", "2"]))
            self.warm.apply(PutNode(node_record(self.nodes[name])))
        elif choice < 0.2:
            name = draw.choice(sorted(self.nodes))
            del self.nodes[name]
            self.warm.apply(RemoveNode(name))
        elif choice < 0.3 and self.pods:
            uid = draw.choice(sorted(self.pods))
            del self.pods[uid]
            self.warm.apply(RemovePod(uid))
        elif choice < 0.35:
            name = draw.choice(["a", "b"])
            self.budgets[name] = draw.randint(0, 2)
            self.warm.apply(PutBudget(make_budget(name, WEB, self.budgets[name])))
        else:
            self._put_pod(draw)

    def _put_pod(self, draw: random.Random) -> None:
        uid = f"p{draw.randrange(14)}"
        again = self.pods.get(uid)
        kinds: list[dict[str, Any]] = [
            {},
            {"affinity": anti_affinity(term(HOST, WEB))},
            {"priorityClassName": "slow"},
        ]
        on = (again.spec.node_name if again else None) or draw.choice(["", f"n{draw.randrange(6)}"])
        labels = draw.choice([{}, WEB, *({"queue": path} for path in ("root.a", "root.b.c", "root.default"))])
        if again and again.spec.node_name:
            # Its queue stays what it was when it was placed, which a fresh planner cannot know.
            queue = (again.metadata.labels or {}).get("queue")
            labels = {key: value for key, value in labels.items() if key != "queue"}
            labels |= {"queue": queue} if queue else {}
        self.pods[uid] = pod(
            uid,
            on,
            priority=draw.choice([0, 1, 50, 200]),
            cpu=str(draw.randint(0, 3)),
            labels=labels,
            terminating=draw.random() < 0.1,
            ports=draw.choice([[], [], PORT]),
            **draw.choice(kinds),
        )
        self.warm.apply(PutPod(pod_record(self.pods[uid])))

    def _bare(self) -> Snapshot:
        snapshot = Snapshot()
        snapshot.apply(Enforce(self.policy, "1"))
        snapshot.apply(Adopt(self.queues, "1"))
        snapshot.apply(PutPriorityClass(_tolerant()))
        return snapshot

    def cold(self) -> Snapshot:
        snapshot = self._bare()
        for one in self.nodes.values():
            snapshot.apply(PutNode(node_record(one)))
        for name, allowed in self.budgets.items():
            snapshot.apply(PutBudget(make_budget(name, WEB, allowed)))
        for item in self.pods.values():
            snapshot.apply(PutPod(pod_record(item)))
        return snapshot


def _tolerant() -> PriorityClass:
    keys = "preemption-toleration.scheduling.x-k8s.io/"
    annotations = {f"{keys}minimum-preemptable-priority": "150", f"{keys}toleration-seconds": "30"}
    return msgspec.convert(
        {"metadata": {"name": "slow", "uid": "slow", "annotations": annotations}, "value": 1}, PriorityClass
    )


def told(result: Any) -> Any:
    """The answer without the snapshot's own count of its changes."""
    if isinstance(result, Plan):
        return result.candidates, result.candidates_total, result.unmodelled, result.unmodelled_total
    return replace(result, scope=replace(result.scope, revision=0))


def with_pods_in_flight(asked: Question, cluster: Cluster, draw: random.Random) -> Question:
    """The same preemptor, while some pods are on their way and orders remove others."""
    some = {uid for uid in sorted(cluster.pods) if draw.random() < 0.3}
    coming = [Placement("default", uid, uid, f"n{draw.randrange(6)}") for uid in sorted(some)]
    half = draw.randint(0, len(coming))
    gone = {uid: f"order-{uid}" for uid in sorted(cluster.pods) if draw.random() < 0.3}
    refused = frozenset(uid for uid in sorted(cluster.pods) if draw.random() < 0.2)
    return replace(
        asked,
        nominations=tuple(coming[:half]),
        assumed=tuple(coming[half:]),
        in_flight=gone,
        refused=refused,
        ignore_columns=draw.random() < 0.1,
    )


@settings(max_examples=int(0.25 * settings().max_examples))
@given(st.integers(0, 2**32))
def test_a_planner_that_has_planned_before_says_what_a_fresh_one_says(seed: int) -> None:
    draw = random.Random(seed)
    most = draw.choice([1, 2, 16])
    cluster, now = Cluster(draw.choice(POLICIES), draw.choice(QUEUES)), NOW
    questions = [replace(one, max_candidates=most) for one in askers()]
    overlaid = questions
    for _ in range(40):
        for _ in range(draw.randint(1, 3)):
            cluster.change(draw)
        now += timedelta(seconds=draw.choice([0, 1, 20]))
        if draw.random() < 0.5:
            overlaid = [with_pods_in_flight(one, cluster, draw) for one in questions]
        asked = draw.choice(overlaid if draw.random() < 0.7 else questions)
        # Of a pod that was seen to leave it counts when, compared with its budget's status.
        gone = {uid: order for uid, order in asked.in_flight.items() if uid not in cluster.warm.departures}
        asked = replace(asked, in_flight=gone, turn=draw.randrange(10))

        assert told(plan(cluster.warm, asked, now)) == told(plan(cluster.cold(), asked, now))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 31))
def test_the_top_places_are_those_that_sorting_puts_first(pairs: list[tuple[int, int]], most: int) -> None:
    keys = [np.array(column, np.int64) for column in zip(*pairs, strict=True)]
    keys.append(np.arange(len(pairs)))

    found = sorted(top(keys, np.arange(len(pairs)), most).tolist())

    assert found == sorted(np.lexsort(tuple(reversed(keys)))[:most].tolist())


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes are looked at, each time."""
    sizes: list[int] = []

    def counting(batch: Any, *args: Any, **more: Any) -> Any:
        sizes.append(int(batch.rows.size))
        return evaluate(batch, *args, **more)

    monkeypatch.setattr("makeway.planner.plan.planner.evaluate", counting)
    return sizes


def test_a_second_plan_looks_only_at_nodes_that_changed(looked: list[int]) -> None:
    snapshot = Snapshot()
    for number in range(50):
        snapshot.apply(PutNode(node_record(node(f"n{number}"))))
        snapshot.apply(PutPod(pod_record(pod(f"p{number}", f"n{number}", cpu="4"))))
    asked = question(pod("preemptor", priority=100, cpu="4"))
    plan(snapshot, asked, NOW)
    looked.clear()

    snapshot.apply(PutPod(pod_record(pod("p7", "n7", cpu="3"))))
    plan(snapshot, asked, NOW)

    assert looked == [1 + asked.max_candidates + 1]  # and the best of the others, at one go


def test_a_plan_for_another_queue_looks_only_at_nodes_that_changed(looked: list[int]) -> None:
    snapshot = Snapshot()
    snapshot.apply(Adopt(tree(queue("a", guaranteed={"cpu": 400_000}), queue("default")), "1"))
    for number in range(50):
        snapshot.apply(PutNode(node_record(node(f"n{number}"))))
        path = "root.a" if number % 2 else "root.default"
        snapshot.apply(PutPod(pod_record(pod(f"p{number}", f"n{number}", cpu="4", labels={"queue": path}))))
    asked = question(pod("preemptor", priority=100, cpu="4"))
    first = as_a(Plan, plan(snapshot, asked, NOW))
    assert first.candidates_total == 25
    looked.clear()

    snapshot.apply(RemovePod("p7"))
    plan(snapshot, asked, NOW)

    assert looked == [1 + asked.max_candidates + 1]


def test_as_the_best_nodes_get_worse_one_after_another_the_next_ones_are_found() -> None:
    snapshot = Snapshot()

    def put(number: int, priority: int) -> None:
        snapshot.apply(PutPod(pod_record(pod(f"p{number}", f"n{number:02}", cpu="4", priority=priority))))

    for number in range(40):
        snapshot.apply(PutNode(node_record(node(f"n{number:02}"))))
        put(number, priority=number)
    asked = replace(question(pod("preemptor", priority=100, cpu="4")), max_candidates=1)

    found = []
    for number in range(39):
        result = as_a(Plan, plan(snapshot, asked, NOW))
        found.append(result.candidates[0].node)
        put(number, priority=90)

    assert found == [f"n{number:02}" for number in range(39)]


def played(
    snapshot: Snapshot, asked: Question, between: Callable[[], None] = lambda: None
) -> tuple[Plan | PlanRefusal, int]:
    """Plan with pauses, and have something happen at each; return the answer and how many there were."""
    steps, pauses = planning(snapshot, asked, NOW, cache_of(snapshot)), 0
    while (found := next(steps)) is None:
        pauses += 1
        between()
    return found, pauses


@settings(max_examples=int(0.4 * settings().max_examples))
@given(st.integers(0, 2**32))
def test_a_plan_with_pauses_says_what_one_without_says(seed: int) -> None:
    draw = random.Random(seed)
    cluster = Cluster()
    for _ in range(40):
        cluster.change(draw)
    asked = draw.choice(askers())
    expected = told(plan(cluster.cold(), asked, NOW))

    with (
        patch("makeway.planner.plan.planner.CHUNK_NODES", 2),
        patch("makeway.planner.plan.planner.BATCH_NODES", 1),
        patch("makeway.planner.plan.batch.BATCH_NODES", 1),
    ):
        found, pauses = played(cluster.cold(), asked)

    assert told(found) == expected
    assert pauses <= 2 * cluster.cold().columns.nodes


def test_what_changes_at_a_pause_is_in_the_plan(monkeypatch: Any) -> None:
    monkeypatch.setattr("makeway.planner.plan.planner.CHUNK_NODES", 10)
    monkeypatch.setattr("makeway.planner.plan.planner.BATCH_NODES", 5)
    snapshot = Snapshot()
    for number in range(50):
        snapshot.apply(PutNode(node_record(node(f"n{number:02}"))))
        snapshot.apply(PutPod(pod_record(pod(f"p{number}", f"n{number:02}", cpu="4", priority=10))))
    asked = question(pod("preemptor", priority=100, cpu="4"))

    def first_node_gets_better() -> None:
        snapshot.apply(PutPod(pod_record(pod("p7", "n07", cpu="4", priority=1))))

    found, pauses = played(snapshot, asked, first_node_gets_better)

    assert pauses > 0
    assert as_a(Plan, found).candidates[0].node == "n07"


def test_nodes_and_pods_may_go_while_a_refusal_is_explained(monkeypatch: Any) -> None:
    monkeypatch.setattr("makeway.planner.plan.planner.CHUNK_NODES", 10)
    monkeypatch.setattr("makeway.planner.plan.planner.BATCH_NODES", 5)
    snapshot = Snapshot()
    for number in range(50):
        snapshot.apply(PutNode(node_record(node(f"n{number:02}"))))
        snapshot.apply(PutPod(pod_record(pod(f"p{number}", f"n{number:02}", cpu="4", priority=10))))
    asked = question(pod("preemptor", priority=100, cpu="9"))
    left = iter(range(49, 0, -1))

    def one_goes() -> None:
        number = next(left)
        snapshot.apply(RemovePod(f"p{number}"))
        snapshot.apply(RemoveNode(f"n{number:02}"))

    found, pauses = played(snapshot, asked, one_goes)

    assert pauses > 5
    assert as_a(PlanRefusal, found).reason == "NotEnoughRoom"


def test_a_snapshot_holds_nothing_of_the_plans_made_on_it() -> None:
    snapshot = Snapshot()
    snapshot.apply(PutNode(node_record(node("n1"))))
    asked = question(pod("preemptor", priority=100, cpu="4"))
    before = set(vars(snapshot))

    plan(snapshot, asked, NOW)

    assert set(vars(snapshot)) == before
    assert not any(isinstance(part, NodeScoreCaches | Tallies) for part in vars(snapshot).values())


def test_a_cache_is_never_used_on_another_snapshot() -> None:
    one, other = Snapshot(), Snapshot()
    asked = question(pod("preemptor", priority=100, cpu="4"))
    list(planning(one, asked, NOW, cache_of(one)))

    with pytest.raises(ValueError, match="another snapshot"):
        list(planning(other, asked, NOW, cache_of(one)))
