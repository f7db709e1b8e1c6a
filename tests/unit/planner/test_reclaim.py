"""Reclaim in plans: who goes for a pod whose queue is below its guarantee, and what a refusal says of it.

That plans and evictor keep to the documents in drawn trees of queues is in test_reclaim_oracle.
"""

import pytest

from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.objects import LabelSelector
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.k8s.selector import compile_selector
from makeway.core.policy.document import Policy, QueueRules
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.rules import RECLAIM
from makeway.core.queues.tree import QueueTree
from makeway.planner.commit.removable import removable_pods
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    KnowDaemonSets,
    PutDaemonSet,
    PutPod,
    PutPriorityClass,
    RemoveDaemonSet,
)
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, LOW, MID, NOW, ask, make_class, make_pod
from unit.planner.caching import plan
from unit.planner.grouping import pod_group, put_group
from unit.planner.test_gang_plan import refused as gang_refused
from unit.planner.test_queue_rules import pod, snapshot_of, victims

TWO = tree(queue("a", guaranteed={"cpu": 300}), queue("b", guaranteed={"cpu": 200}), reclaim=True)
B = {"queue": "root.b"}
OPEN = tree(queue("a", guaranteed={"cpu": 300}), queue("b"), reclaim=True)
OFF = tree(queue("a", guaranteed={"cpu": 300}), queue("b", guaranteed={"cpu": 200}))


def borrowers(number: int = 5, **more: object) -> list[PodRecord]:
    """Pods of root.b that fill a node."""
    return [pod(f"b{at}", "root.b", "n1", **more) for at in range(number)]  # type: ignore[arg-type]


def names(found: Plan | PlanRefusal) -> list[str]:
    return victims(found)["n1"] if isinstance(found, Plan) else []


def test_a_queue_below_its_guarantee_takes_back_what_another_borrows_and_not_more() -> None:
    snapshot = snapshot_of(TWO, *borrowers())

    found = plan(snapshot, ask(pod("new", "root.a", size=300)), NOW)

    assert len(names(found)) == 3
    assert {one.rule for one in as_a(Plan, found).candidates[0].victims} == {RECLAIM}
    assert isinstance(plan(snapshot, ask(pod("new", "root.b", size=100)), NOW), PlanRefusal)
    assert isinstance(plan(snapshot, ask(pod("new", "root.a", size=301)), NOW), PlanRefusal)


def test_nothing_is_taken_back_where_that_is_not_turned_on() -> None:
    assert isinstance(plan(snapshot_of(OFF, *borrowers()), ask(pod("new", "root.a")), NOW), PlanRefusal)


def test_another_tree_is_heeded_by_the_next_plan() -> None:
    snapshot, asked = snapshot_of(OFF, *borrowers()), ask(pod("new", "root.a"))
    answers = [bool(names(plan(snapshot, asked, NOW)))]
    fenced = tree(queue("a", guaranteed={"cpu": 300}, policy="fence"), queue("b"), reclaim=True)
    for number, built in enumerate((TWO, fenced, TWO, OFF)):
        snapshot.apply(Adopt(built, f"queues-{number + 2}"))
        answers.append(bool(names(plan(snapshot, asked, NOW))))

    assert answers == [False, True, False, True, False]


def test_lower_pods_go_before_equal_ones_and_higher_ones_never() -> None:
    pods = [pod("low", "root.b", "n1", LOW), pod("high", "root.b", "n1", HIGH, 200)]
    pods += [pod("mid", "root.b", "n1", MID, 200)]
    snapshot = snapshot_of(TWO, *pods)

    assert names(plan(snapshot, ask(pod("one", "root.a", priority=MID)), NOW)) == ["low"]
    assert names(plan(snapshot, ask(pod("two", "root.a", priority=MID, size=200)), NOW)) == ["mid"]
    assert names(plan(snapshot, ask(pod("all", "root.a", priority=MID, size=300)), NOW)) == ["low", "mid"]
    assert not names(plan(snapshot, ask(pod("more", "root.a", priority=MID, size=400)), NOW))


@pytest.mark.parametrize("kind", ["bound", "nominations", "assumed"])
def test_pods_on_their_way_count_towards_the_guarantee_and_terminating_ones_no_longer(kind: str) -> None:
    other = pod("other", "root.a", "n2" if kind == "bound" else "", size=200)
    snapshot = snapshot_of(TWO, *borrowers(), other, nodes=2)
    more = {} if kind == "bound" else {kind: [("other", "n2")]}
    new, small = pod("new", "root.a", size=200), pod("new", "root.a", size=100)

    assert not names(plan(snapshot, ask(new, nodes=["n1"], **more), NOW))  # type: ignore[arg-type]
    assert names(plan(snapshot, ask(small, nodes=["n1"], **more), NOW))  # type: ignore[arg-type]
    if kind == "bound":
        snapshot.apply(PutPod(make_pod("other", "n2", LOW, 200, labels={"queue": "root.a"}, ends=60)))
        assert names(plan(snapshot, ask(new, nodes=["n1"]), NOW))


def test_what_others_have_taken_back_keeps_the_lender_at_its_guarantee() -> None:
    snapshot = snapshot_of(TWO, *borrowers(3), *(pod(f"c{at}", "root.b", "n2") for at in range(2)), nodes=2)
    new = pod("new", "root.a", size=300)

    assert len(names(plan(snapshot, ask(new, nodes=["n1"]), NOW))) == 1
    free = ask(pod("new", "root.a", size=400), nodes=["n1"], in_flight={"c0": "o", "c1": "o"})
    assert not names(plan(snapshot, free, NOW))


def test_pods_of_namespaces_that_no_queue_holds_stay() -> None:
    snapshot = snapshot_of(TWO, *borrowers())
    snapshot.apply(Enforce(Policy(queues=QueueRules(exempt_namespaces=("default",))), "rev-1"))
    new = pod("new", "root.a")

    assert not names(plan(snapshot, ask(new), NOW))
    assert not removable_pods(snapshot, ask(new), borrowers()[:1], NOW)


def test_pods_of_a_daemonset_stay_where_it_proves_them() -> None:
    claims = PodFacts(queue="root.b", daemon=True, daemonset_uid="ds", daemonset_name="ds")
    mine = make_pod("d", "n1", LOW, 500, labels=B, facts=claims)
    snapshot = snapshot_of(OPEN, mine)
    asked = ask(pod("new", "root.a"))
    owner = DaemonSetOwner(
        namespace="default", name="ds", uid="ds", selector=compile_selector(LabelSelector(match_labels=B))
    )

    def goes() -> bool:
        planned = bool(names(plan(snapshot, asked, NOW)))
        assert planned == bool(removable_pods(snapshot, asked, [mine], NOW))
        return planned

    assert not goes(), "until DaemonSets are listed a claim keeps its pod"
    snapshot.apply(PutDaemonSet(owner))
    snapshot.apply(KnowDaemonSets(True))
    assert not goes()
    snapshot.apply(RemoveDaemonSet("ds"))
    assert goes()


def test_what_protects_pods_from_preemptors_protects_them_from_reclaim() -> None:
    tolerant = PodFacts(queue="root.b", priority_class="tolerant")
    steady = make_pod("b", "n1", LOW, 500, labels=B, facts=tolerant)
    snapshot = snapshot_of(OPEN, steady)
    assert names(plan(snapshot, ask(pod("new", "root.a")), NOW)) == ["b"]

    snapshot.apply(PutPriorityClass(make_class("tolerant", minimum=MID, seconds=-1)))

    refused = as_a(PlanRefusal, plan(snapshot, ask(pod("new", "root.a")), NOW))
    assert refused.exempt == {"preemption-toleration": 1}


@pytest.mark.parametrize(("other", "goes"), [("root.b", True), ("root.a", False)])
def test_a_unit_goes_whole_where_all_of_it_is_reclaimed(other: str, goes: bool) -> None:
    snapshot = snapshot_of(TWO, nodes=2)
    put_group(snapshot, pod_group("g"), pod("x", "root.b", "n1", size=500), pod("y", other, "n2", size=300))
    pods = [*snapshot.pods.values()]
    asked = ask(pod("new", "root.a", size=100), nodes=["n1"])

    # What is left of root.b with the unit gone is less than its guarantee but for a pod beside it.
    snapshot.apply(PutPod(pod("z", "root.b", "n2", size=200)))
    assert bool(names(plan(snapshot, asked, NOW))) == goes
    assert bool(removable_pods(snapshot, asked, pods, NOW)) == goes


@pytest.mark.parametrize(("own", "whole"), [(LOW, True), (LOW, False), (HIGH, True), (HIGH, False)])
def test_a_pod_that_is_more_important_than_its_group_stays(own: int, whole: bool) -> None:
    """The scheduler looks at pods by their own priority: the next one would take the room back."""
    snapshot = snapshot_of(OPEN)
    put_group(snapshot, pod_group("g", whole=whole), pod("x", "root.b", "n1", own, 500))
    asked = ask(pod("new", "root.a"))

    assert bool(names(plan(snapshot, asked, NOW))) == (own == LOW)
    assert bool(removable_pods(snapshot, asked, [snapshot.pods["x"]], NOW)) == (own == LOW)


def with_gang(snapshot: Snapshot, *classes: tuple[PodRecord, int]) -> GangQuestion:
    """The question about a group all of whose members need a node."""
    put_group(snapshot, pod_group("gang", whole=False))
    for one, _ in classes:
        snapshot.apply(PutPod(one))
    asked = tuple(GangClass(ask(one), count) for one, count in classes)
    return GangQuestion("default/gang", asked, sum(count for _, count in classes))


@pytest.mark.parametrize(("count", "size", "goes"), [(2, 150, True), (3, 150, False)])
def test_a_group_takes_back_what_all_of_its_members_may(count: int, size: int, goes: bool) -> None:
    first = [pod(f"b{at}", "root.b", "n1") for at in range(5)]
    snapshot = snapshot_of(TWO, *first, *(pod(f"c{at}", "root.b", "n2") for at in range(5)), nodes=2)
    members = [pod(f"m{at}", "root.a", size=size) for at in range(count)]
    for one in members:
        snapshot.apply(PutPod(one))

    found = plan_gang(snapshot, with_gang(snapshot, (members[0], count)), NOW)

    assert isinstance(found, GangPlan) == goes
    if isinstance(found, GangPlan):
        assert {one.rule for one in found.victims} == {RECLAIM}
    else:
        assert found.retry_at is not None
    judged = removable_pods(
        snapshot, ask(members[0]), first[:2], NOW, members=members, preempting=GroupKey("default", "gang")
    )
    assert (judged.keys() == {"b0", "b1"}) == goes


def test_preemptors_of_other_queues_share_no_scores() -> None:
    built: QueueTree = tree(queue("a", guaranteed={"cpu": 300}), queue("b"), queue("c"), reclaim=True)
    snapshot = snapshot_of(built, *borrowers())
    asked = [ask(pod("new", path)) for path in ("root.a", "root.c", "root.a")]

    assert [bool(names(plan(snapshot, one, NOW))) for one in asked] == [True, False, True]


def test_a_refusal_says_what_could_be_taken_back_and_is_tried_again() -> None:
    built = tree(queue("a", guaranteed={"cpu": 300}), queue("b", guaranteed={"cpu": 500}), reclaim=True)
    refused = as_a(PlanRefusal, plan(snapshot_of(built, *borrowers()), ask(pod("new", "root.a")), NOW))

    assert "queue root.a uses cpu 0 of its guaranteed 300m" in refused.message
    assert "takes back only from queues above theirs" in refused.message
    assert refused.exempt == {"queue-guaranteed": 5}
    assert refused.retry_at is not None


@pytest.mark.parametrize("bound", [4, 3])
def test_a_refusal_names_once_the_queues_that_use_too_much_to_take_anything_back(bound: int) -> None:
    """Pods on their way to a node count, as they do where it is decided."""
    team = queue("team", queue("a", guaranteed={"cpu": 300}), guaranteed={"cpu": 400})
    own = [pod(f"a{at}", "root.team.a", "n1" if at < bound else "") for at in range(4)]
    snapshot = snapshot_of(tree(team, queue("b"), reclaim=True), *own, *borrowers(5 - bound))
    coming = [(one.uid, "n2") for one in own[bound:]]

    refused = as_a(PlanRefusal, plan(snapshot, ask(pod("new", "root.team.a"), nominations=coming), NOW))

    assert refused.message.endswith(
        "; queue root.team.a uses cpu 400m of its guaranteed 300m, and queue root.team uses cpu 400m of its "
        "guaranteed 400m, too much to take anything back for it"
    )
    assert refused.message.count("guaranteed") == 2


@pytest.mark.parametrize(
    ("built", "sizes", "told"),
    [
        (TWO, [100], "cpu 0 of its guaranteed 300m, and takes back only from queues above theirs, with pods"),
        (TWO, [150], "cpu 0 of its guaranteed 300m, too much to take anything back for it"),
        (TWO, [100, 150], "cpu 0 of its guaranteed 300m, too much to take anything back for it"),
        (OFF, [100], "cpu 0 of its guaranteed 300m, which keeps its own pods and reclaims nothing"),
        (OFF, [150], ""),
    ],
)
def test_a_groups_refusal_says_the_same_of_all_members(built: QueueTree, sizes: list[int], told: str) -> None:
    """Three of each size, and every pod that they could have back is higher."""
    snapshot = snapshot_of(built, pod("b", "root.b", "n1", HIGH, 500))
    asked = with_gang(snapshot, *((pod(f"m{size}", "root.a", size=size), 3) for size in sizes))

    found = gang_refused(snapshot, asked)

    assert found.message.count("queue root.a uses") == (1 if told else 0)
    assert told in found.message


def test_a_refusal_of_a_group_in_several_queues_names_none() -> None:
    snapshot = snapshot_of(TWO, pod("b", "root.b", "n1", HIGH, 500))
    asked = with_gang(snapshot, (pod("m", "root.a"), 4), (pod("n", "root.b"), 4))

    found = gang_refused(snapshot, asked)

    assert "guaranteed" not in found.message


def test_a_refusal_depends_on_the_queues_where_they_take_back() -> None:
    source = ("ConfigMap", "makeway-system", "makeway-queues")
    for built in (TWO, OFF):
        snapshot = snapshot_of(built, *borrowers())
        snapshot.apply(Adopt(built, "queues", source))
        refused = as_a(PlanRefusal, plan(snapshot, ask(pod("new", "root.a", size=400)), NOW))

        assert (source in refused.depends_on) == built.reclaim
