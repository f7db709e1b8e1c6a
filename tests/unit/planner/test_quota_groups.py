"""Lowered quotas and pod groups: units are taken whole, gangs give surplus, a group's priority counts."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.document import Groups, Policy, PolicyLimits
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.tree import QueueTree
from makeway.core.queues.victims import run_to_end
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.quota.decide import QuotaAnswer, answering, first_part, still_needed
from makeway.planner.snapshot.changes import Adopt, PutPod, RemovePod, RemovePodGroup
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.core.queue_building import queue, tree
from unit.planner.building import NOW, make_budget, make_pod, make_snapshot
from unit.planner.grouping import pod_group
from unit.planner.test_quota_loop import AT_ONCE, Evicting, ended

G = "PodGroup default/g"


def pods_of(
    names: str, cpu: int, *, group: str = "", path: str = "root.a", priority: int = 0, **labels: str
) -> list[PodRecord]:
    """Bound pods of one queue, in the order of their age."""
    pods = []
    for name in names.split():
        facts = PodFacts(queue=path, created_micros=int(name[1:] or 0))
        labels = {"queue": path, **labels}
        pods.append(
            make_pod(name, "n1", priority, requests={"cpu": cpu}, labels=labels, facts=facts, group=group)
        )
    return pods


def cluster(
    built: QueueTree,
    groups: Iterable[GroupRecord],
    *pods: PodRecord,
    policy: Policy | None = None,
    budgets: Iterable[Budget] = (),
) -> Snapshot:
    snapshot = make_snapshot(["n1"], pods, budgets, policy=policy, groups=groups)
    snapshot.apply(Adopt(built, "queues-1"))
    return snapshot


def inputs(
    snapshot: Snapshot, *, leaving: Collection[str] = (), refused: Mapping[str, str] | None = None
) -> QuotaInputs:
    built = there(snapshot.queues.tree)
    return QuotaInputs(
        decision_id="decision-1",
        at=NOW,
        queue="root.a",
        maximum=dict(built.at("root.a").maximum),
        mode="enforce",
        leaving=frozenset(leaving),
        running=frozenset(),
        refused=dict(refused or {}),
        stuck={},
    )


def answer(
    snapshot: Snapshot, *, leaving: Collection[str] = (), refused: Mapping[str, str] | None = None
) -> QuotaAnswer:
    asked = inputs(snapshot, leaving=leaving, refused=refused)
    built = there(snapshot.queues.tree)
    return run_to_end(answering(snapshot, built, asked))


def who(found: QuotaAnswer) -> list[str]:
    return sorted(one.uid for one in found.victims)


def at_most(cpu: int, miss: int = 100) -> QueueTree:
    return tree(dataclasses.replace(queue("a", maximum={"cpu": cpu}, miss=miss), delay=AT_ONCE))


def test_a_queue_of_a_group_that_goes_whole_comes_down() -> None:
    found = answer(cluster(at_most(10), [pod_group("g")], *pods_of("u1 u2 u3 u4", 5, group="g")))

    assert found.plan.result == "success"
    assert who(found) == ["u1", "u2", "u3", "u4"]
    assert {(one.unit, one.rule) for one in found.victims} == {(G, "quota")}
    assert "4 pods with cpu 20m" in found.plan.message


def test_single_pods_beside_a_unit_do_not_go_where_the_unit_goes() -> None:
    pods = [*pods_of("u1 u2 u3 u4", 5, group="g"), *pods_of("s5 s6 s7", 1)]

    assert who(answer(cluster(at_most(10), [pod_group("g")], *pods))) == ["u1", "u2", "u3", "u4"]


def test_single_pods_stay_where_the_unit_has_to_and_too_much_would_be_left_over() -> None:
    pods = [*pods_of("u1 u2 u3 u4", 5, group="g"), *pods_of("s5 s6 s7", 1)]

    found = answer(cluster(at_most(10, miss=20), [pod_group("g")], *pods), refused={"u1": "403"})

    assert (found.plan.result, found.victims) == ("unsuccessful", ())
    assert {one.reason for one in found.plan.blocked} == {"miss", "not-evicted"}


def test_gangs_give_their_surplus_before_one_is_broken() -> None:
    gangs = [pod_group("g1", whole=False, min_count=4), pod_group("g2", whole=False, min_count=2)]
    pods = [*pods_of("y0 y1 y2 y3", 1, group="g2"), *pods_of("x4 x5 x6 x7", 1, group="g1")]
    snapshot = cluster(at_most(6), gangs, *pods)

    assert who(answer(snapshot)) == ["y2", "y3"]
    as_upstream = Policy(groups=Groups(surplus_first=False))
    assert who(answer(cluster(at_most(6), gangs, *pods, policy=as_upstream))) == ["x6", "x7"]


def test_what_leaves_a_gang_already_is_no_surplus_any_more() -> None:
    gangs = [pod_group("g1", whole=False, min_count=2), pod_group("g2", whole=False, min_count=2)]
    pods = [*pods_of("y0 y1 y2", 1, group="g2"), *pods_of("x4 x5 x6", 1, group="g1")]

    assert who(answer(cluster(at_most(4), gangs, *pods), leaving={"x6"})) == ["y2"]


def test_the_priority_of_a_group_counts_for_a_quota() -> None:
    pods = [*pods_of("x0", 1, group="g"), *pods_of("z1", 1, priority=100)]

    high = cluster(at_most(1), [pod_group("g", whole=False, priority=5000)], *pods)
    assert who(answer(high)) == ["z1"]
    assert {one.priority for one in answer(high).victims} == {100}
    assert who(answer(cluster(at_most(1), [pod_group("g", whole=False)], *pods))) == ["x0"]


def test_pods_of_a_group_that_is_not_there_or_of_too_many_pods_stay() -> None:
    pods = pods_of("u1 u2", 5, group="g")
    gone = cluster(at_most(0), [pod_group("g")], *pods)
    gone.apply(RemovePodGroup(GroupKey("default", "g")))
    small = Policy(limits=PolicyLimits(victims_per_order=1))

    assert [one.reason for one in answer(gone).plan.blocked] == ["pod-group"]
    many = answer(cluster(at_most(0), [pod_group("g")], *pods, policy=small))
    assert [(one.reason, one.message[:6]) for one in many.plan.blocked] == [("victims-per-order", "2 pods")]


def test_a_group_of_more_pods_than_a_cap_lets_go_together_stays_and_others_go() -> None:
    pods = [*pods_of("u1 u2 u3 u4 u5", 5, group="g"), *pods_of("s6 s7 s8", 5)]

    for limits in (
        PolicyLimits(victims_per_order=4),
        PolicyLimits(victims_per_minute=4),
        PolicyLimits(victims_per_namespace_and_minute=4),
    ):
        found = answer(cluster(at_most(10), [pod_group("g")], *pods, policy=Policy(limits=limits)))

        assert who(found) == ["s6", "s7", "s8"]
    enough = Policy(limits=PolicyLimits(victims_per_namespace_and_minute=5))
    assert {"u1", "u5"} < set(who(answer(cluster(at_most(10), [pod_group("g")], *pods, policy=enough))))


def test_a_unit_of_which_a_part_is_leaving_stays_and_deleted_pods_of_it_count_no_more() -> None:
    pods = pods_of("u1 u2 u3", 5, group="g")

    left = answer(cluster(at_most(0), [pod_group("g")], *pods), leaving={"u1"})
    assert [one.reason for one in left.plan.blocked] == ["pod-group"]
    ending = replace(pods[0], terminating=True, ends_micros=1)
    assert who(answer(cluster(at_most(0), [pod_group("g")], ending, *pods[1:]))) == ["u2", "u3"]


def test_a_hard_budget_has_to_allow_the_whole_unit() -> None:
    pods = pods_of("u1 u2", 5, group="g", app="train")
    hard = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))

    def asked(allowed: int) -> QuotaAnswer:
        budget = make_budget("pdb", {"app": "train"}, allowed)
        return answer(cluster(at_most(0), [pod_group("g")], *pods, policy=hard, budgets=[budget]))

    assert who(asked(2)) == ["u1", "u2"]
    assert [one.reason for one in asked(1).plan.blocked] == ["hard-budget"]


def test_an_order_has_whole_units_and_no_single_pod_beside_them() -> None:
    pods = [*pods_of("u1 u2", 5, group="g"), *pods_of("v3 v4 v5", 5, group="h"), *pods_of("s6", 5)]
    found = answer(cluster(at_most(0), [pod_group("g"), pod_group("h")], *pods)).victims

    assert [one.uid for one in first_part(found, 5)] == ["u1", "u2", "v3", "v4", "v5"]
    assert [one.uid for one in first_part(found, 4)] == ["u1", "u2"]
    assert [one.uid for one in first_part(found, 1)] == ["u1", "u2"]
    singles = tuple(one for one in found if not one.unit)
    assert first_part(singles, 1) == singles


def test_a_unit_that_changed_while_it_was_planned_for_is_not_ordered() -> None:
    snapshot = cluster(at_most(5), [pod_group("g")], *pods_of("u1 u2", 5, group="g"))
    built, asked = snapshot.queues.tree, inputs(snapshot)
    assert built is not None
    victims = answer(snapshot).victims
    assert still_needed(snapshot, built, asked, victims) == victims

    snapshot.apply(PutPod(pods_of("u3", 5, group="g")[0]))
    assert still_needed(snapshot, built, asked, victims) == ()
    snapshot.apply(RemovePod("u3"))
    assert still_needed(snapshot, built, asked, victims) == victims


async def test_units_go_in_one_order_and_pods_by_themselves_in_the_next() -> None:
    pods = [*pods_of("u1 u2", 5, group="g"), *pods_of("s3 s4", 5)]
    snapshot = cluster(at_most(0), [pod_group("g")], *pods)
    bus = Evicting(snapshot)

    found = (await ended(snapshot, bus, "root.a"))["root.a"]

    assert [sorted(order) for order in bus.taken] == [["u1", "u2"], ["s3", "s4"]]
    assert (found.result, found.evicted) == ("success", 4)
