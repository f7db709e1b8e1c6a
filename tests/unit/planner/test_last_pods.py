"""What the last pods of a node decide is the same as with all of them, and no others are read there."""

from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from makeway.core.policy.document import LostWork, Policy, PolicyLimits
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan import planner
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.evaluate import LAST, Evaluation, evaluate
from makeway.planner.plan.planner import plan
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    ask,
    choices,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
)

WEB = {"app": "web"}
KEPT = PodFacts(mirror=True)


def pods_on(node: str, sizes: Sequence[int], first: int = 0, **more: Any) -> list[PodRecord]:
    """Pods of some sizes, most important first; `first`: how many are there that are more important."""
    return [
        make_pod(f"{node}-{turn}", node, size=size, start=turn, **more)
        for turn, size in enumerate(sizes, first)
    ]


def first_plan(snapshot: Snapshot, question: Question) -> tuple[Plan | PlanRefusal, list[tuple[int, int]]]:
    """Plan as on thousands of nodes; return as well how many nodes were looked at together, and how deep."""
    looked: list[tuple[int, int]] = []

    def watched(batch: NodeBatch, *args: Any, **more: Any) -> Evaluation:
        looked.append((batch.rows.size, batch.depth))
        return evaluate(batch, *args, **more)

    with patch.object(planner, "BATCH_NODES", 0), patch.object(planner, "evaluate", watched):
        return plan(snapshot, question, NOW), looked


def test_nodes_of_any_number_of_pods_are_looked_at_together_by_their_last_ones() -> None:
    widths = {"a": 3, "b": 20, "c": 90, "d": 400}
    snapshot = make_snapshot(
        [make_node(name, 10 * width, pods=500) for name, width in widths.items()],
        [pod for name, width in widths.items() for pod in pods_on(name, [10] * width)],
    )
    question = ask(make_pod("P", priority=HIGH, size=30), max_candidates=1)

    found, looked = first_plan(snapshot, question)

    assert looked[0] == (4, LAST)
    assert looked[1:] == [(2, 400)]  # the best ones, to be written down
    assert found == plan(snapshot, question, NOW)


@pytest.mark.parametrize("free", [0, 30])
@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(pods_on("n", [100] * 12 + [1] * LAST), id="the last are too small"),
        pytest.param(
            [*pods_on("n", [50] * 12), *pods_on("n", [50] * LAST, 12, facts=KEPT)], id="the last are exempt"
        ),
        pytest.param(pods_on("n", [50] * 20, labels=WEB), id="a budget covers them"),
        pytest.param(
            [*pods_on("n", [50] * 12, labels=WEB), *pods_on("n", [50] * LAST, 12)],
            id="a budget covers those before",
        ),
        pytest.param([*pods_on("n", [50] * 18), *pods_on("n", [50, 50], 18, ends=20)], id="some terminate"),
        pytest.param(pods_on("n", [50] * LAST, labels=WEB), id="there are no others"),
        pytest.param(pods_on("n", [0] * 20), id="they take nothing"),
        pytest.param([], id="there are none"),
    ],
)
def test_a_node_is_decided_as_by_all_of_its_pods(pods: list[PodRecord], free: int) -> None:
    full = sum(pod.requests.get("cpu", 0) for pod in pods)
    snapshot = make_snapshot([make_node("n", full + free)], pods, [make_budget("b", WEB, 1)])

    for size in (10, 60, 100, 150, 500):
        question = ask(make_pod("P", priority=HIGH, size=size))
        assert first_plan(snapshot, question)[0] == plan(snapshot, question, NOW)


def test_the_pods_before_decide_where_a_budget_covers_the_last() -> None:
    """On each node the first pod alone violates none, and the node whose first pod has run least is best."""
    pods = [
        *pods_on("a", [50] * 20, 5, labels=WEB),
        *(pod for name in "bc" for pod in pods_on(name, [50], labels=WEB)),
        *(pod for name in "bc" for pod in pods_on(name, [50] * 19, 100, labels=WEB)),
    ]
    snapshot = make_snapshot([make_node(name, 1000) for name in "abc"], pods, [make_budget("b", WEB, 1)])
    question = ask(make_pod("P", priority=HIGH, size=50), max_candidates=1)

    found, _ = first_plan(snapshot, question)

    assert isinstance(found, Plan)
    assert choices(found) == [("a", {"a-5"})]


@pytest.mark.parametrize("seed", range(100))
def test_drawn_nodes_are_decided_as_by_all_of_their_pods(seed: int) -> None:
    draw = Random(seed)
    names = [f"n{number}" for number in range(draw.randint(2, 12))]
    covered, kept = draw.choice([0.0, 0.05, 0.5]), draw.choice([0.0, 0.05])
    pods = [
        make_pod(
            f"{name}-{turn}",
            name,
            draw.choice([LOW, LOW, MID, HIGH]),
            draw.choice([0, 1, 1, 2, 3, 20]),
            start=draw.randint(0, 5),
            labels=WEB if draw.random() < covered else {},
            facts=KEPT if draw.random() < kept else PodFacts(),
        )
        for name in names
        for turn in range(draw.choice([0, 3, LAST, LAST + 1, 20, 40]))
    ]
    nodes = [
        make_node(
            name, sum(pod.requests.get("cpu", 0) for pod in pods if pod.node == name) + draw.choice([0, 0, 2])
        )
        for name in names
    ]
    policy = draw.choice(
        [
            Policy(),
            Policy(disruption_budgets="hard", hard_budget_namespaces=("*",)),
            Policy(limits=PolicyLimits(victims_per_order=2)),
            Policy(lost_work=LostWork(rank="aboveSum")),
        ]
    )
    snapshot = make_snapshot(nodes, pods, [make_budget("b", WEB, draw.randint(0, 2))], policy=policy)
    uids = [pod.uid for pod in pods]
    question = ask(
        make_pod("P", priority=draw.choice([MID, HIGH]), size=draw.choice([1, 2, 4, 9, 30])),
        max_candidates=1,
        in_flight=dict.fromkeys(draw.sample(uids, min(2, len(uids))), "order"),
        refused=draw.sample(uids, min(2, len(uids))),
    )

    assert first_plan(snapshot, question)[0] == plan(snapshot, question, NOW)
