"""What holds for every plan, found out on random clusters."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.budget import PENDING, READY, UNREADY, Budget
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.document import Policy, PolicyLimits, Protection
from makeway.core.policy.facts import NOT_SCHEDULED, PodFacts
from makeway.core.policy.rules import Rule, rules_in_force
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import (
    NOW,
    ask,
    at,
    make_budget,
    make_class,
    make_node,
    make_pod,
    make_snapshot,
    victims,
)
from unit.planner.caching import plan
from unit.planner.reference import Answer, NodeCase, answer, charged

NAMESPACES = ("default", "default", "other")
LABELS: tuple[dict[str, str], ...] = ({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"})
PRIORITIES = (-10, 0, 5, 10)
PROTECTIONS = (
    Protection(),
    Protection(),
    Protection(namespaces=("default",)),
    Protection(minimum_priority=5),
    Protection(never_evict_namespaces=("*",)),
)


@dataclass
class World:
    """A random cluster and question, in a form both planners take."""

    nodes: list[NodeRecord]
    pods: list[PodRecord]
    budgets: list[Budget]
    question: Question
    classes: list[PriorityClass] = field(default_factory=list)
    policy: Policy = field(default_factory=Policy)
    in_flight: dict[str, str] = field(default_factory=dict)
    nominations: list[tuple[PodRecord, str]] = field(default_factory=list)
    assumed: list[tuple[PodRecord, str]] = field(default_factory=list)

    def snapshot(self) -> Snapshot:
        pending = [pod for pod, _ in (*self.nominations, *self.assumed)]
        return make_snapshot(
            self.nodes, [*self.pods, *pending], self.budgets, classes=self.classes, policy=self.policy
        )

    def rules(self) -> tuple[Rule, ...]:
        return rules_in_force(self.policy, {one.metadata.name: one for one in self.classes})

    def cases(self) -> list[NodeCase]:
        found = []
        for node in self.nodes:
            here = [pod for pod in self.pods if pod.node == node.name]
            here += [pod for pod, name in self.assumed if name == node.name]
            found.append(
                NodeCase(
                    name=node.name,
                    allocatable=node.allocatable,
                    pods=[pod for pod in here if pod.uid not in self.in_flight],
                    nominated=[
                        pod
                        for pod, name in self.nominations
                        if name == node.name and pod.priority >= self.question.preemptor.priority
                    ],
                    awaited=[pod for pod in here if pod.uid in self.in_flight],
                )
            )
        return found

    def debits(self) -> dict[str, int]:
        taken: dict[str, int] = {}
        for pod in (*self.pods, *(pod for pod, _ in self.assumed)):
            for budget in self.budgets:
                if pod.uid in self.in_flight and budget in charged(pod, self.budgets, self.policy):
                    taken[budget.name] = taken.get(budget.name, 0) + 1
        return taken


FACTS = st.just(PodFacts()) | st.builds(
    PodFacts,
    priority_class=st.sampled_from(["", "steady", "slow"]),
    scheduled_micros=st.sampled_from([59, 60, 61]).map(lambda ago: microseconds(NOW) - ago * 1_000_000)
    | st.just(NOT_SCHEDULED),
    mirror=st.sampled_from([False, False, False, True]),
    never_evict=st.booleans(),
)
"""Mostly none; a class that may be gone, a time about a minute ago, an annotation, a mirror pod.

Made once: a strategy costs more to make than to draw from.
"""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    names = [f"n{index}" for index in range(draw(st.integers(1, 5)))]
    nodes = [
        make_node(
            name, draw(st.integers(0, 12)), draw(st.integers(0, 8)), **{"x.io/gpu": draw(st.integers(0, 3))}
        )
        for name in names
    ]
    budgets = [
        make_budget(
            f"b{index}",
            match,
            draw(st.integers(-1, 3)),
            draw(st.sets(st.sampled_from(["p0", "p3"]))),
            namespace=draw(st.sampled_from(NAMESPACES)),
            settled=draw(st.sampled_from([True, True, False])),
            unhealthy=draw(st.sampled_from([None, None, "AlwaysAllow"])),
            healthy=draw(st.sampled_from([(0, 0), (1, 1), (1, 2)])),
        )
        for index, match in enumerate(draw(st.lists(st.sampled_from(LABELS), max_size=3)))
    ]

    def pod(uid: str, node: str) -> PodRecord:
        return make_pod(
            uid,
            node,
            draw(st.sampled_from(PRIORITIES)),
            requests={
                "cpu": draw(st.integers(0, 6)),
                "memory": draw(st.integers(0, 6)),
                "x.io/gpu": draw(st.sampled_from([0, 0, 1, 2])),
            },
            start_micros=draw(st.sampled_from([at(1), at(2), at(3), NOT_STARTED])),
            labels=draw(st.sampled_from(LABELS)),
            facts=draw(FACTS),
            namespace=draw(st.sampled_from(NAMESPACES)),
            health=draw(st.sampled_from([READY, READY, UNREADY, PENDING])),
        )

    pods = [pod(f"p{index}", draw(st.sampled_from(names))) for index in range(draw(st.integers(0, 14)))]
    nominations = [(pod(f"q{i}", ""), draw(st.sampled_from(names))) for i in range(draw(st.integers(0, 2)))]
    assumed = [(pod(f"r{i}", ""), draw(st.sampled_from(names))) for i in range(draw(st.integers(0, 2)))]
    uids = [one.uid for one in pods] + [one.uid for one, _ in assumed]
    leaving = draw(st.sets(st.sampled_from(uids), max_size=3)) if uids else set()
    in_flight = dict.fromkeys(sorted(leaving), "ord-1")
    question = ask(
        pod("P", ""),
        in_flight=in_flight,
        nominations=[(one.uid, node) for one, node in nominations],
        assumed=[(one.uid, node) for one, node in assumed],
        max_candidates=100,
        refused=draw(st.sets(st.sampled_from(uids), max_size=2)) if uids else (),
    )
    classes = [
        make_class(
            name, draw(st.sampled_from([None, 5, 10, 11, "x"])), draw(st.sampled_from([None, -1, 0, 60]))
        )
        for name in draw(st.sets(st.sampled_from(["steady", "slow"])))
    ]
    policy = Policy(
        protection=draw(st.sampled_from(PROTECTIONS)),
        disruption_budgets=draw(st.sampled_from(["soft", "hard"])),
        hard_budget_namespaces=draw(st.sampled_from([("*",), ("default",), ("other", "more")])),
        limits=PolicyLimits(victims_per_order=draw(st.sampled_from([100, 100, 1, 2]))),
    )
    return World(nodes, pods, budgets, question, classes, policy, in_flight, nominations, assumed)


def offered(world: World) -> bool:
    """The reference counts a resource that no node offers; the planner leaves that to the scheduler."""
    return any(node.allocatable["x.io/gpu"] for node in world.nodes) or not world.question.needs.get(
        "x.io/gpu"
    )


@given(worlds().filter(offered))
def test_all_nodes_at_once_find_what_one_node_at_a_time_finds(world: World) -> None:
    result = plan(world.snapshot(), world.question, NOW)

    expected = [
        answer(
            case,
            world.question.preemptor,
            world.budgets,
            world.debits(),
            policy=world.policy,
            rules=world.rules(),
            refused=world.question.refused,
        )
        for case in world.cases()
    ]
    helped = sorted((one for one in expected if isinstance(one, Answer)), key=lambda one: one.key)
    unmodelled = sum(one == "unmodelled" for one in expected)
    if isinstance(result, Plan):
        found = [
            (one.node, victims(one), one.pdb_violations, {pod.pod.uid for pod in one.awaited})
            for one in result.candidates
        ]
        assert found == [(one.node, one.victims, one.violations, one.awaited) for one in helped]
        assert result.unmodelled_total == unmodelled
    else:
        assert not helped
        assert not unmodelled


@given(worlds())
def test_the_same_input_gives_the_same_answer_whatever_order_it_came_in(world: World) -> None:
    other = World(
        world.nodes[::-1],
        world.pods[::-1],
        world.budgets[::-1],
        world.question,
        world.classes[::-1],
        world.policy,
        world.in_flight,
        world.nominations,
        world.assumed,
    )
    first = plan(world.snapshot(), world.question, NOW)
    again = plan(other.snapshot(), world.question, NOW)
    if isinstance(first, Plan) and isinstance(again, Plan):
        assert first.candidates == again.candidates
        assert first.unmodelled == again.unmodelled
    else:
        assert not isinstance(first, Plan)
        assert not isinstance(again, Plan)
        assert (first.reason, first.message, first.node_reasons) == (
            again.reason,
            again.message,
            again.node_reasons,
        )


@given(worlds())
def test_plans_keep_hard_budgets_and_snapshot_and_refusals_hold_until_their_time(world: World) -> None:
    snapshot = world.snapshot()
    before = (snapshot.revision, snapshot.columns.requested.copy(), [list(pods) for pods in snapshot.slots])

    result = plan(snapshot, world.question, NOW)

    assert snapshot.revision == before[0]
    assert (snapshot.columns.requested[: len(before[1])] == before[1]).all()  # it may have one more counted
    assert snapshot.slots == before[2]
    if isinstance(result, Plan):
        keeps_hard_budgets(world, result)
    if world.policy.disruption_budgets != "hard" and world.policy.limits == PolicyLimits():
        stands_until_its_time(snapshot, replace(world.question, refused=frozenset()))


def keeps_hard_budgets(world: World, result: Plan) -> None:
    """Whoever of the removable goes."""
    debits = world.debits()
    for proposal in (*result.candidates, *result.unmodelled):
        pods = [one.pod for one in proposal.removable]
        for budget in world.budgets:
            if world.policy.has_hard_budgets(budget.namespace):
                covered = sum(budget in charged(pod, world.budgets, world.policy) for pod in pods)
                assert covered <= max(0, budget.allowed - debits.get(budget.name, 0))


def stands_until_its_time(snapshot: Snapshot, question: Question) -> None:
    result = plan(snapshot, question, NOW)
    if isinstance(result, Plan):
        return
    if result.retry_at is None:
        assert not isinstance(plan(snapshot, question, NOW + timedelta(days=1)), Plan)
    else:
        before = result.retry_at - timedelta(milliseconds=1)
        assert not isinstance(plan(snapshot, question, before), Plan)
        assert isinstance(plan(snapshot, question, result.retry_at), Plan)
