"""What a policy costs a plan: 5,000 nodes with 30 pods each.

    make bench

Each group is one kind of plan, without a policy first; the number in brackets after a time is its ratio to
the fastest of the group. `first`: nothing is known of the preemptor's class, so every node is looked at.
`next`: another plan of the same class after one pod has come, which is what a scheduler asks most.
`refused`: the first plan where nothing helps, with who is spared, counted and named.
"""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from makeway.core.k8s.importance import microseconds
from makeway.core.policy.document import Policy, PolicyLimits, Protection
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.preemption import (
    NAMESPACE_NAME,
    Band,
    Labels,
    PartySelector,
    Preemption,
    PreemptionRule,
)
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.planner.plan.node_scores import NodeScoreCaches
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import Adopt, PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, ask, make_budget, make_class, make_node, make_pod, make_snapshot
from unit.planner.caching import cache_of, plan

NODES, PODS = 5000, 30
CLASSES = ("steady-10m", "steady-30m", "steady", "plain")
NAMESPACES = tuple(f"team-{number}" for number in range(20))

DENY = PreemptionRule(
    name="keep",
    victims=PartySelector(namespace_selector=Labels(match_labels={NAMESPACE_NAME: "team-1"})),
    action="deny",
)
WHILE = PreemptionRule(
    name="runs-for-a-while",
    victims=PartySelector(priority_classes=("steady-10m",)),
    action="allow",
    minimum_run_time=timedelta(minutes=30),
)
BAND = Band(classes=("steady",), never="own")

POLICIES = {
    "none": Policy(),
    "one rule": Policy(preemption=Preemption(rules=(DENY,))),
    "three rules": Policy(preemption=Preemption(rules=(WHILE, DENY), bands=(BAND,))),
    "protection": Policy(
        protection=Protection(
            namespaces=NAMESPACES[:2], minimum_priority=900, never_evict_namespaces=("team-7",)
        )
    ),
    "toleration": Policy(),
    "guarantee": Policy(),
    "all, budgets hard": Policy(
        disruption_budgets="hard",
        hard_budget_namespaces=("*",),
        protection=Protection(namespaces=NAMESPACES[:2], minimum_priority=900),
        limits=PolicyLimits(victims_per_order=10),
    ),
}
TOLERATING = {"toleration", "all, budgets hard"}
RESERVED = "root.reserved"
QUEUES = QueueTree.of(
    QueueSpec(
        name="root",
        children=(QueueSpec(name="reserved", guaranteed={"cpu": 10**9}), QueueSpec(name="default")),
    )
)
"""A queue that is below its guarantee, as most are: none of its pods may go for another's."""


def cluster(name: str, minimum: int) -> Snapshot:
    """The same cluster whatever the policy: full nodes, a quarter of the pods without PriorityClass."""
    chance = random.Random(1)

    def pod(node: str, slot: int) -> PodRecord:
        since = microseconds(NOW - timedelta(minutes=chance.randrange(1, 120)))
        queue = RESERVED if slot % 10 == 0 else ""
        return make_pod(
            f"{node}-{slot}",
            node,
            chance.choice((0, 100, 500)),
            namespace=chance.choice(NAMESPACES),
            labels={"app": chance.choice(("web", "crunch", "mail")), "queue": queue},
            start_micros=since,
            facts=PodFacts(priority_class=chance.choice(("", *CLASSES)), scheduled_micros=since, queue=queue),
        )

    nodes = [f"node-{number:04d}" for number in range(NODES)]
    seconds = {"steady-10m": 600, "steady-30m": 1800, "steady": -1} if name in TOLERATING else {}
    snapshot = make_snapshot(
        [make_node(node, PODS * 100) for node in nodes],
        (pod(node, slot) for node in nodes for slot in range(PODS)),
        [make_budget("web", {"app": "web"}, 3, namespace=namespace) for namespace in NAMESPACES],
        classes=[make_class(one, minimum if one in seconds else None, seconds.get(one)) for one in CLASSES],
        policy=POLICIES[name],
    )
    if name == "guarantee":
        snapshot.apply(Adopt(QUEUES, "rev-1"))
    return snapshot


def question(priority: int, pods: int) -> Question:
    """A preemptor that needs the room of so many pods, on any node."""
    of_class = PodFacts(priority_class="steady")
    return ask(make_pod("preemptor", priority=priority, size=pods * 100, facts=of_class))


@pytest.fixture(scope="module", params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def snapshot(policy: str) -> Snapshot:
    return cluster(policy, 800)


@pytest.mark.benchmark(group="first")
def test_first(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    def forget() -> None:
        cache_of(snapshot).scores = NodeScoreCaches()

    result = benchmark.pedantic(lambda: plan(snapshot, question(700, 3), NOW), setup=forget, rounds=30)  # type: ignore[no-untyped-call]
    assert isinstance(result, Plan)


@pytest.mark.benchmark(group="next")
def test_next(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    asked = question(700, 3)
    plan(snapshot, asked, NOW)
    sizes = iter(range(10**9))

    def one_pod_comes() -> None:
        snapshot.apply(PutPod(make_pod("newcomer", "node-2500", 0, next(sizes) % 7 + 1)))

    result = benchmark.pedantic(lambda: plan(snapshot, asked, NOW), setup=one_pod_comes, rounds=200)  # type: ignore[no-untyped-call]
    assert isinstance(result, Plan)
    snapshot.apply(RemovePod("newcomer"))


@pytest.mark.benchmark(group="refused")
def test_refused(benchmark: BenchmarkFixture, snapshot: Snapshot) -> None:
    def forget() -> None:
        cache_of(snapshot).scores = NodeScoreCaches()

    result = benchmark.pedantic(lambda: plan(snapshot, question(1, PODS), NOW), setup=forget, rounds=10)  # type: ignore[no-untyped-call]
    assert isinstance(result, PlanRefusal)
