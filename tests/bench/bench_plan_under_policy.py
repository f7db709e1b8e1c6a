"""What a policy costs a plan: 5,000 nodes with 30 pods each.

    make bench

Each group is one kind of plan, without a policy first; the number in brackets after a time is its ratio to
the fastest of the group. `first`: nothing is known of the preemptor's class, so every node is looked at.
`next`: another plan of the same class after one pod has come, which is what a scheduler asks most.
`refused`: the first plan where nothing helps, with who is spared, counted and named.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from makeway.bus.plan import NodeSelection
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Metadata, PriorityClass
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
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.planner.plan.node_scores import NodeScoreCaches
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    PutBudget,
    PutNode,
    PutPod,
    PutPriorityClass,
    RemovePod,
)
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import make_budget, make_node, make_pod
from unit.planner.caching import cache_of, plan

NODES, PODS = 5000, 30
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
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


def priority_class(name: str, minimum: int | None, seconds: int) -> PriorityClass:
    asked = {MINIMUM_PREEMPTABLE_PRIORITY: str(minimum), TOLERATION_SECONDS: str(seconds)}
    return PriorityClass(metadata=Metadata(name=name, annotations=asked if minimum is not None else None))


def cluster(name: str, minimum: int) -> Snapshot:
    """The same cluster whatever the policy: full nodes, a quarter of the pods without PriorityClass."""
    chance = random.Random(1)
    snapshot = Snapshot()
    snapshot.apply(Enforce(POLICIES[name], "rev-1"))
    if name == "guarantee":
        snapshot.apply(Adopt(QUEUES, "rev-1"))
    for index, one in enumerate(CLASSES):
        asked = minimum if name in TOLERATING and one != "plain" else None
        snapshot.apply(PutPriorityClass(priority_class(one, asked, (600, 1800, -1, 0)[index])))
    for namespace in NAMESPACES:
        snapshot.apply(PutBudget(make_budget("web", {"app": "web"}, 3, namespace=namespace)))
    for number in range(NODES):
        node = f"node-{number:04d}"
        snapshot.apply(PutNode(make_node(node, PODS * 100)))
        for slot in range(PODS):
            since = NOW - timedelta(minutes=chance.randrange(1, 120))
            queue = RESERVED if slot % 10 == 0 else ""
            snapshot.apply(
                PutPod(
                    make_pod(
                        f"{node}-{slot}",
                        node,
                        chance.choice((0, 100, 500)),
                        namespace=chance.choice(NAMESPACES),
                        labels={"app": chance.choice(("web", "crunch", "mail")), "queue": queue},
                        start_micros=microseconds(since),
                        facts=PodFacts(
                            priority_class=chance.choice(("", *CLASSES)),
                            scheduled_micros=microseconds(since),
                            queue=queue,
                        ),
                    )
                )
            )
    return snapshot


def question(priority: int, pods: int) -> Question:
    """A preemptor that needs the room of so many pods, on any node."""
    of_class = PodFacts(priority_class="steady")
    preemptor = make_pod("preemptor", priority=priority, size=pods * 100, facts=of_class)
    return Question(
        preemptor=preemptor,
        needs=preemptor.requests,
        may_preempt=True,
        scheduler_name="default-scheduler",
        nodes=NodeSelection(all_but=True),
        max_candidates=16,
    )


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
