"""Ranking by lost work, against a loop over the pods; `LOST_WORK_CLUSTERS=10000` looks at more of them."""

import os
import random
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.core.comparison import PRIORITY_SHIFT
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.k8s.objects import Metadata, PriorityClass
from makeway.core.policy.document import Groups, GroupTerm, LostWork, Policy
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.lost_work import CHECKPOINT_INTERVAL, UnsavedWork
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.lost_work import Losses, lost_work_of
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import plan
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import GangPlan, Plan, PlanCandidate, PlanRefusal
from makeway.planner.service.searches import pod_search
from makeway.planner.snapshot.changes import Enforce, PutPod, PutPriorityClass
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.planner.building import NOW, ask, make_budget, make_node, make_pod, make_snapshot
from unit.planner.grouping import pod_group

ON = Policy(lost_work=LostWork(rank="aboveSum"))
HOUR = timedelta(hours=1)
RESTART = 60
"""Seconds that another start counts, unless the policy says otherwise."""
CLUSTERS = int(os.environ.get("LOST_WORK_CLUSTERS", "150"))
WEIGHED: tuple[GroupTerm, ...] = ("budgets", "highestPriority", "lostWork", "prioritySum", "victims")


def saved(
    uid: str,
    node: str,
    *,
    started: timedelta,
    ago: timedelta | None = None,
    priority: int = 0,
    size: int = 100,
    of_class: str = "",
) -> PodRecord:
    """Return a pod that started so long ago, and last saved so long ago."""
    checkpointed = 0 if ago is None else microseconds(NOW - ago)
    facts = PodFacts(priority=priority, priority_class=of_class, checkpointed_micros=checkpointed)
    start = microseconds(NOW - started)
    return make_pod(uid, node, priority, size, start_micros=start, facts=facts)


def saving(name: str, interval: str) -> PriorityClass:
    return PriorityClass(metadata=Metadata(name=name, annotations={CHECKPOINT_INTERVAL: interval}), value=0)


def chosen(pods: Iterable[PodRecord], policy: Policy = ON, classes: Iterable[PriorityClass] = ()) -> str:
    """Return the node that is chosen for a preemptor that takes a whole one."""
    there = [*pods]
    nodes = [make_node(name, 100) for name in sorted({pod.node for pod in there})]
    found = as_a(
        Plan,
        plan(
            make_snapshot(nodes, there, classes=classes, policy=policy),
            ask(make_pod("P", "", 1000, 100)),
            NOW,
        ),
    )
    return found.candidates[0].node


def test_silence_is_worth_no_more_than_the_class_grants() -> None:
    silent = saved("a", "n1", started=20 * HOUR, of_class="half-hourly")
    told = saved("b", "n2", started=20 * HOUR, ago=HOUR)

    assert chosen([silent, told]) == "n2"
    assert chosen([silent, told], classes=[saving("half-hourly", "30m")]) == "n1"
    assert chosen([silent, told], classes=[saving("half-hourly", "often")]) == "n2"


def test_an_interval_below_a_second_is_one_and_none_at_all_means_that_nothing_is_lost() -> None:
    silent = saved("a", "n1", started=20 * HOUR, of_class="saving")
    told = saved("b", "n2", started=20 * HOUR, ago=timedelta(seconds=2))

    assert chosen([silent, told], classes=[saving("saving", "500ms")]) == "n1"
    assert chosen([silent, told], classes=[saving("saving", "0s")]) == "n1"
    assert chosen([silent, told], Policy(lost_work=LostWork("aboveSum", timedelta(milliseconds=1)))) == "n1"


def test_a_pod_that_is_tried_without_the_columns_weighs_work_by_what_it_asks_for() -> None:
    pods = [saved("a", "n1", started=9 * HOUR), saved("b", "n2", started=HOUR, size=50)]
    nodes = [make_node(name, 100) for name in ("n1", "n2")]
    snapshot = make_snapshot(nodes, pods, policy=ON)

    found = as_a(Plan, plan(snapshot, ask(make_pod("P", "", 1000, 100), ignore_columns=True), NOW))

    assert [(one.node, one.lost_work, one.removable[0].lost_work) for one in found.unmodelled] == [
        ("n2", 500 * 3660, 500 * 3660),
        ("n1", 1000 * (9 * 3600 + 60), 1000 * (9 * 3600 + 60)),
    ]


def test_what_thousands_of_pods_lose_that_are_a_thousand_times_as_large_is_exact() -> None:
    now, many = microseconds(NOW) // 1_000_000, 9000
    weighed = lost_work_of(LostWork(), {"cpu": 1}, microseconds(NOW))

    (rate, base, _), lost = weighed.together([UnsavedWork({"cpu": 10_000}, now - 3600)] * many)

    assert lost == many * 3660 * 1_000_000
    losses = Losses(*(np.array([number]) for number in (rate, base, 0)))
    assert losses.at(now + 60).tolist() == [many * 3720 * 1_000_000]


def test_of_no_pod_counts_more_than_the_policy_lets() -> None:
    pods = [saved("a", "n1", started=900 * HOUR), saved("b", "n2", started=30 * HOUR)]
    unbounded = Policy(lost_work=LostWork(rank="aboveSum", longest=timedelta()))

    assert chosen(pods, unbounded) == "n2"
    assert chosen([*pods[:1], saved("b", "n2", started=25 * HOUR)]) == "n2", "then the latest start decides"


def test_a_pod_that_has_not_started_loses_nothing() -> None:
    waiting = replace(saved("a", "n1", started=HOUR), start_micros=NOT_STARTED)

    assert chosen([waiting, saved("b", "n2", started=HOUR / 60)]) == "n1"


def test_another_start_counts_for_every_pod_by_how_much_it_holds() -> None:
    large = saved("a", "n1", started=timedelta(seconds=1), size=300)
    small = saved("b", "n2", started=timedelta(minutes=5), size=100)
    nodes = [make_node("n1", 300), make_node("n2", 100)]

    def node_for(restart: timedelta) -> str:
        policy = Policy(lost_work=LostWork("aboveSum", restart=restart))
        asked = ask(make_pod("P", "", 1000, 100))
        found = as_a(Plan, plan(make_snapshot(nodes, [large, small], policy=policy), asked, NOW))
        return found.candidates[0].node

    assert node_for(timedelta()) == "n1"
    assert node_for(timedelta(minutes=10)) == "n2"


@pytest.mark.parametrize("seed", range(0, CLUSTERS, 50))
def test_the_choice_is_that_of_a_loop_over_all_pods(seed: int) -> None:
    for number in range(seed, seed + 50):
        snapshot, question = _drawn(random.Random(number), ON)
        found = plan(snapshot, question, NOW)
        if not isinstance(found, Plan) or not found.candidates:
            continue
        keys = [_naive(snapshot, question, one) for one in found.candidates]
        assert keys == sorted(keys), number
        for (one, key), (_, after) in pairwise(zip(found.candidates, keys, strict=True)):
            names = ("fewest-pdb-violations", "lowest-highest-priority", "least-lost-work")
            first = next(at for at, (own, other) in enumerate(zip(key, after, strict=True)) if own != other)
            assert first >= len(names) or one.decided_by == names[first], number
        assert all(one.lost_work == key[2] for one, key in zip(found.candidates, keys, strict=True)), number
        plain = min(keys, key=lambda key: (*key[:2], *key[3:]))
        assert found.candidates[0].lost_work_avoided == int(plain[2]) - found.candidates[0].lost_work, number
        assert all(sum(pod.lost_work for pod in one.victims) == one.lost_work for one in found.candidates), (
            number
        )


@pytest.mark.parametrize("seed", range(0, CLUSTERS, 50))
def test_a_plan_from_what_was_kept_is_the_same_while_hours_pass(seed: int) -> None:
    for number in range(seed, seed + 50):
        chance = random.Random(number)
        snapshot, question = _drawn(chance, ON)
        cache, now = PlanCache(), NOW
        for _ in range(5):
            assert plan(snapshot, question, now, cache) == plan(snapshot, question, now), number
            now += timedelta(seconds=chance.choice([0.4, 1, 59, 1800, 40_000]))
            if chance.random() < 0.4:
                snapshot.apply(PutPriorityClass(saving("saves", chance.choice(["10m", "2h", "no"]))))
            if chance.random() < 0.4 and snapshot.pods:
                pod = chance.choice(sorted(snapshot.pods.values(), key=lambda one: one.uid))
                told = microseconds(now - timedelta(seconds=chance.randint(-60, 9000)))
                snapshot.apply(PutPod(replace(pod, facts=replace(pod.facts, checkpointed_micros=told))))


@pytest.mark.parametrize("seed", range(0, CLUSTERS, 50))
def test_off_it_changes_nothing(seed: int) -> None:
    for number in range(seed, seed + 50):
        snapshot, question = _drawn(random.Random(number), Policy())
        plain, _ = _drawn(random.Random(number), Policy(), silent=True)
        found = plan(snapshot, question, NOW)
        other = plan(plain, question, NOW)
        if isinstance(found, PlanRefusal):
            assert isinstance(other, PlanRefusal), number
            assert found.message == other.message, number
            continue
        assert isinstance(other, Plan), number
        assert [_told(one) for one in found.candidates] == [_told(one) for one in other.candidates], number


@pytest.mark.parametrize("seed", range(0, CLUSTERS, 50))
def test_a_group_whose_objective_names_it_takes_the_nodes_that_lose_least(seed: int) -> None:
    for number in range(seed, seed + 50):
        chance = random.Random(number)
        nodes = [make_node(f"n{at}", 100) for at in range(chance.randint(2, 7))]
        pods = [
            saved(
                f"{node.name}-{at}",
                node.name,
                started=timedelta(seconds=chance.randint(1, 90_000)),
                ago=chance.choice([None, timedelta(seconds=chance.randint(1, 9000))]),
                priority=chance.choice([0, 0, 5]),
                size=50,
            )
            for node in nodes
            for at in range(2)
        ]
        member = make_pod("m", "", 1000, 100)
        snapshot = make_snapshot(nodes, [*pods, member], policy=Policy())
        count = chance.randint(1, len(nodes))
        gang = GangQuestion("default/g", (GangClass(ask(member), count),), count)
        snapshot.apply(Enforce(Policy(groups=Groups(objective=WEIGHED)), "rev-2"))
        found = plan_gang(snapshot, gang, NOW)
        assert isinstance(found, GangPlan), number

        by_node = [[pod for pod in pods if pod.node == node.name] for node in nodes]
        costs = sorted(
            (max(pod.priority for pod in there), sum(_lost(pod, {"cpu": 100}) for pod in there))
            for there in by_node
        )
        highest = costs[count - 1][0]
        least = sum(sorted(lost for top, lost in costs if top <= highest)[:count])
        assert (found.price.highest, found.price.lost_work) == (highest, least), number
        snapshot.apply(Enforce(Policy(), "rev-3"))
        plain = plan_gang(snapshot, gang, NOW)
        assert isinstance(plain, GangPlan), number
        assert not plain.price.lost_work


def _drawn(chance: random.Random, policy: Policy, *, silent: bool = False) -> tuple[Snapshot, Question]:
    """Return a cluster and a question. `silent`: no pod and no class says anything of its work."""
    nodes = [make_node(f"n{at}", chance.choice([200, 300])) for at in range(chance.randint(2, 9))]
    pods = []
    for node in nodes:
        for at in range(chance.randint(0, 5)):
            pod = saved(
                f"{node.name}-{at}",
                node.name,
                started=timedelta(seconds=chance.randint(1, 200_000)),
                ago=chance.choice([None, timedelta(seconds=chance.randint(-90, 90_000))]),
                priority=chance.choice([-5, 0, 0, 10]),
                size=chance.choice([20, 50, 100]),
                of_class=chance.choice(["", "saves"]),
            )
            if silent:
                pod = replace(pod, facts=replace(pod.facts, checkpointed_micros=0))
            pods.append(replace(pod, labels={"app": chance.choice("ab")}))
    budgets = [make_budget("a", {"app": "a"}, chance.randint(0, 2))] if chance.random() < 0.5 else []
    classes = [PriorityClass(metadata=Metadata(name="saves"), value=0) if silent else saving("saves", "40m")]
    snapshot = make_snapshot(nodes, pods, budgets, classes=classes, policy=policy)
    preemptor = make_pod("P", "", chance.choice([5, 100]), chance.choice([60, 110, 200]))
    return snapshot, ask(preemptor, max_candidates=100)


def _naive(snapshot: Snapshot, question: Question, one: PlanCandidate) -> tuple[int | str, ...]:
    victims = [victim.pod for victim in one.victims]
    highest = max(pod.priority for pod in victims)
    return (
        sum(victim.pdb_violating for victim in one.victims),
        highest,
        sum(_lost(pod, question.needs, interval=snapshot.exemptions.work_of(pod).longest) for pod in victims),
        sum(pod.priority + PRIORITY_SHIFT for pod in victims),
        len(victims),
        -min(pod.start_micros for pod in victims if pod.priority == highest),
        len(victims),
        one.node,
    )


def _lost(pod: PodRecord, needs: Mapping[str, int], *, interval: int = 2**40) -> int:
    """Return what a pod loses, step by step as docs/lost-work.md has it."""
    now = microseconds(NOW) // 1_000_000
    since = max(pod.start_micros, pod.facts.checkpointed_micros) // 1_000_000
    unsaved = min(max(now - since, 0), interval, 24 * 3600)
    share = max(pod.requests.get(name, 0) * 1000 // need for name, need in needs.items() if name != "pods")
    return min(share, 1_000_000) * (unsaved + RESTART)


def _told(one: PlanCandidate) -> tuple[object, ...]:
    return one.node, [pod.pod.uid for pod in one.removable if pod.victim], one.decided_by, one.lost_work


def test_a_unit_costs_what_all_its_pods_lose_wherever_they_run() -> None:
    def node_for(elsewhere: timedelta) -> str:
        pods = [
            saved("a", "n1", started=HOUR),
            saved("b", "n3", started=elsewhere),
            saved("c", "n2", started=3 * HOUR),
        ]
        unit = [replace(pod, group="train") for pod in pods[:2]]
        nodes = [make_node(name, 100) for name in ("n1", "n2", "n3")]
        snapshot = make_snapshot(nodes, [*unit, pods[2]], policy=ON, groups=[pod_group("train")])
        question = ask(make_pod("P", "", 1000, 100), nodes=["n1", "n2"])
        found, cache = plan(snapshot, question, NOW), PlanCache()
        assert isinstance(found, Plan)
        plan(snapshot, question, NOW, cache)
        for hours in (1, 30):
            later = NOW + hours * HOUR
            assert plan(snapshot, question, later, cache) == plan(snapshot, question, later)
        return found.candidates[0].node

    assert node_for(HOUR) == "n1"
    assert node_for(6 * HOUR) == "n2"


def test_work_counts_whole_seconds_and_thousandths() -> None:
    work = UnsavedWork({"cpu": 333, "pods": 1}, since=100, longest=50)

    assert work.lost({"cpu": 1000, "pods": 1}, 2**40, 0, 130) == 333 * 30
    assert work.lost({"cpu": 1000}, 2**40, 0, 900) == 333 * 50
    assert work.lost({"cpu": 1000}, 20, 0, 900) == 333 * 20
    assert work.lost({"cpu": 1000}, 20, 60, 900) == 333 * 80
    assert work.lost({"cpu": 1000}, 2**40, 0, 99) == 0
    assert work.lost({"memory": 1}, 2**40, 60, 900) == 0


def test_another_bound_of_the_policy_counts_at_once() -> None:
    pods = [saved("a", "n1", started=20 * HOUR), saved("b", "n2", started=10 * HOUR)]
    snapshot = make_snapshot([make_node("n1", 100), make_node("n2", 100)], pods, policy=ON)
    question, cache = ask(make_pod("P", "", 1000, 100)), PlanCache()
    plan(snapshot, question, NOW, cache)

    snapshot.apply(Enforce(Policy(lost_work=LostWork("aboveSum", HOUR)), "rev-2"))

    assert plan(snapshot, question, NOW, cache) == plan(snapshot, question, NOW)


def test_a_save_marks_no_node_where_no_policy_ranks_by_it_and_counts_once_one_does() -> None:
    pods = [saved("a", "n1", started=20 * HOUR), saved("b", "n2", started=10 * HOUR)]
    snapshot = make_snapshot([make_node("n1", 100), make_node("n2", 100)], pods, policy=ON)
    question, cache = ask(make_pod("P", "", 1000, 100)), PlanCache()
    plan(snapshot, question, NOW, cache)
    snapshot.apply(Enforce(Policy(), "rev-2"))
    revision, marked = snapshot.revision, snapshot.changed.copy()

    facts = replace(pods[0].facts, checkpointed_micros=microseconds(NOW - HOUR))
    snapshot.apply(PutPod(replace(pods[0], facts=facts)))

    assert snapshot.revision > revision
    assert (snapshot.changed == marked).all()
    snapshot.apply(Enforce(ON, "rev-3"))
    found = as_a(Plan, plan(snapshot, question, NOW, cache))
    assert found.candidates[0].node == "n1"
    assert found == plan(snapshot, question, NOW)
    snapshot.apply(PutPod(pods[0]))
    assert plan(snapshot, question, NOW, cache) == plan(snapshot, question, NOW)


@pytest.mark.parametrize(("policy", "counts"), [(ON, (1, 3660, 8 * 3600)), (Policy(), (0, 0, 0))])
def test_what_plans_lose_and_lose_less_is_counted_where_the_policy_ranks_by_it(
    policy: Policy, counts: tuple[float, ...]
) -> None:
    little = [saved(uid, "n1", started=HOUR, size=50) for uid in "ab"]
    pods = [*little, saved("c", "n2", started=9 * HOUR)]
    snapshot = make_snapshot([make_node("n1", 100), make_node("n2", 100)], pods, policy=policy)
    found, registry = plan(snapshot, ask(make_pod("P", "", 1000, 100)), NOW), CollectorRegistry()

    pod_search(snapshot, Ledger(), PlannerMetrics(registry)).count(as_a(Plan, found), 0.1)

    names = ("seconds_count", "seconds_sum", "avoided_seconds_total")
    assert tuple(registry.get_sample_value(f"makeway_planner_lost_work_{name}") for name in names) == counts
