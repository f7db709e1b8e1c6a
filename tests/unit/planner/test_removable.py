"""Victims that are named one by one are judged as plans for their nodes would choose among them."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.bus.plan import NodeSelection
from makeway.core.policy.document import Groups, Policy
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.parsing import parse_queues
from makeway.planner.commit.removable import removable_pods
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.changes import Adopt
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import HIGH, LOW, NOW, S, ask, make_budget, make_pod, make_snapshot
from unit.planner.caching import plan
from unit.planner.test_group_properties import PREEMPTOR, Cluster
from unit.planner.test_plan_properties import World, worlds

HARD = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))


def by_plans(snapshot: Snapshot, question: Question, victims: Sequence[PodRecord]) -> bool:
    """Whether plans for the victims' nodes, one after the other, let all of them go, and units whole."""
    going: dict[str, str] = {}
    chosen = {one.uid for one in victims}
    units: dict[str, str] = {}
    for node in sorted({one.node for one in victims}):
        there = {pod.uid for pod in snapshot.pods_of(node)}
        asked = replace(
            question,
            needs={},
            nodes=NodeSelection(names=(node,)),
            in_flight={**question.in_flight, **dict.fromkeys(going, "mine")},
            refused=frozenset(there - chosen),
            nominations=(),
            assumed=(),
            ignore_columns=True,
        )
        found = plan(snapshot, asked, NOW)
        for one in (*found.candidates, *found.unmodelled) if isinstance(found, Plan) else ():
            going |= dict.fromkeys((pod.pod.uid for pod in one.removable), node)
            units |= {pod.pod.uid: pod.unit for pod in one.removable if pod.unit}
    return chosen <= going.keys() and {uid for uid, unit in units.items() if unit} <= chosen


def one_by_one(snapshot: Snapshot, question: Question, victims: Sequence[PodRecord]) -> bool:
    found = removable_pods(snapshot, question, victims, NOW)
    units = (snapshot.groups.unit_of_pod(one) for one in victims)
    mates = {pod.uid for unit in units if unit is not None for pod in unit.members()}
    chosen = {one.uid for one in victims}
    return found.keys() == chosen and mates <= chosen


@given(worlds(), st.randoms(use_true_random=False))
def test_pods_that_plans_for_their_nodes_evict_are_removable(world: World, pick: random.Random) -> None:
    snapshot = world.snapshot()
    question = replace(world.question, assumed=(), refused=frozenset())
    bound = [one for one in world.pods if one.uid not in world.in_flight]
    victims = [one for one in bound if pick.random() < 0.3] or bound[:1]
    if victims:
        assert one_by_one(snapshot, question, victims) == by_plans(snapshot, question, victims)


@pytest.mark.parametrize("policy", [Policy(), HARD, Policy(groups=Groups(surplus_first=True))])
@pytest.mark.parametrize("seed", range(60))
def test_units_and_pods_of_gangs_are_removable_as_plans_have_it(seed: int, policy: Policy) -> None:
    cluster = Cluster(seed, policy)
    snapshot, question, pick = cluster.snapshot, ask(PREEMPTOR, max_candidates=100), random.Random(seed)
    for _ in range(10):
        cluster.change()
        found = plan(snapshot, question, NOW)
        for candidate in found.candidates if isinstance(found, Plan) else ():
            assert one_by_one(snapshot, question, [one.pod for one in candidate.victims])
        chosen = {uid: one for uid, one in snapshot.pods.items() if one.node and pick.random() < 0.2}
        for one in [*chosen.values()] if pick.random() < 0.8 else ():
            unit = snapshot.groups.unit_of_pod(one)
            chosen |= {mate.uid: mate for mate in (() if unit is None else unit.members())}
        victims = [*chosen.values()]
        apps = Counter(one.labels.get("app", "") for one in victims)
        # Of a unit beside other pods, plans without needs do not see what hard budgets allow to all of them.
        if victims and (policy != HARD or all(apps[app] <= most for app, most in cluster.budgets.items())):
            assert one_by_one(snapshot, question, victims) == by_plans(snapshot, question, victims)
        elif victims:
            assert not one_by_one(snapshot, question, victims)


def test_a_soft_budget_is_charged_over_all_nodes_in_the_order_of_importance() -> None:
    web = {"app": "web"}
    pods = [make_pod(name, node, LOW, S, start=start, labels=web) for name, node, start in PODS]
    snapshot = make_snapshot(["n1", "n2"], pods, [make_budget("web", web, 1)])

    found = removable_pods(snapshot, ask(PREEMPTOR), pods, NOW)

    assert {uid for uid, one in found.items() if one.pdb_violating} == {"a", "c"}, "b runs for longest"


NODES_OF = (("a", "n1"), ("b", "n2"), ("c", "n3"), ("d", "n3"))
PODS = (("a", "n1", 3), ("b", "n2", 1), ("c", "n1", 2))


@pytest.mark.parametrize(("guaranteed", "stay"), [(200, set[str]()), (201, {"a", "b"})])
def test_victims_of_several_nodes_leave_a_queue_its_guarantee(guaranteed: int, stay: set[str]) -> None:
    pods = [make_pod(name, node, LOW, 100) for name, node in NODES_OF]
    snapshot = make_snapshot(["n1", "n2", "n3"], pods)
    default = f"{{name: default, resources: {{guaranteed: {{memory: {guaranteed}}}}}}}"
    text = f"partitions: [{{queues: [{default}, {{name: a}}]}}]"
    snapshot.apply(Adopt(parse_queues(text, "queues.yaml").tree, "r", None))
    asked = ask(make_pod("p", priority=HIGH, facts=PodFacts(queue="root.a")))

    found = removable_pods(snapshot, asked, pods[:2], NOW)

    assert {"a", "b"} - found.keys() == stay
