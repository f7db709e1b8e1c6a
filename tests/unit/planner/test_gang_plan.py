"""Plans for pod groups: where the members go, and who has to go for them."""

from typing import Any

import msgspec
import pytest

from makeway.bus.messages import Placement
from makeway.core.policy.document import Groups, GroupTerm, Policy, PolicyLimits, Protection
from makeway.planner.plan.gang import solving
from makeway.planner.plan.gang.planner import NOT_SEEN, plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.price import Price
from makeway.planner.plan.refusal.text import FORBIDDEN, NEVER, NO_ROOM, NOT_FOUND, REFUSED_AGAIN
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.snapshot.changes import Enforce, PutPod, RemovePod
from makeway.planner.snapshot.records import pod_record
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    ask,
    make_budget,
    make_node,
    make_pod,
    make_snapshot,
    settle,
)
from unit.planner.grouping import pod_group, put_group
from unit.planner.manifests import HOST, ZONE, anti_affinity, cluster, node, pod, question, spread, term

PLENTY = Policy(limits=PolicyLimits(victims_per_order=10_000))


def gang(snapshot: Snapshot, size: int, count: int, **more: Any) -> GangQuestion:
    """Ask for a gang of equal members of a size."""
    member = make_pod("m", "", HIGH, size)
    snapshot.apply(PutPod(member))
    topology = more.pop("topology", ())
    placed = more.pop("placed", ())
    classes = (GangClass(ask(member, **more), count),)
    return GangQuestion("default/gang", classes, count, topology, placed)


def planned(snapshot: Snapshot, asked: GangQuestion) -> GangPlan:
    return as_a(GangPlan, plan_gang(snapshot, asked, NOW))


def refused(snapshot: Snapshot, asked: GangQuestion) -> PlanRefusal:
    return as_a(PlanRefusal, plan_gang(snapshot, asked, NOW))


def victims(found: GangPlan) -> set[str]:
    return {one.pod.uid for one in found.victims}


def nodes(found: GangPlan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in found.placements:
        counts[one.node] = counts.get(one.node, 0) + one.count
    return counts


def of_two_sizes(snapshot: Snapshot, large: int, small: int) -> GangQuestion:
    """Ask for members of 200 and of 150: 200 + 150 + 150 fill a node, and 200 + 200 waste it."""
    pods = make_pod("large", "", HIGH, 200), make_pod("small", "", HIGH, 150)
    for member in pods:
        snapshot.apply(PutPod(member))
    classes = (GangClass(ask(pods[0]), large), GangClass(ask(pods[1]), small))
    return GangQuestion("default/gang", classes, large + small)


@pytest.mark.parametrize("full", [0, 12])
def test_nodes_without_room_make_no_difference_to_whether_members_of_two_sizes_have_it(full: int) -> None:
    held = [make_pod(f"p{name}", name, LOW, 500) for name in "ab"]
    high = [make_pod(f"h{n}", f"full{n}", HIGH, 500) for n in range(full)]
    snapshot = make_snapshot([*"ab", *(f"full{n}" for n in range(full))], [*held, *high])

    found = planned(snapshot, of_two_sizes(snapshot, 2, 4))

    assert nodes(found) == {"a": 3, "b": 3}


def test_where_places_were_not_found_it_is_not_said_that_there_are_none() -> None:
    names = [f"n{n}" for n in range(12)]
    snapshot = make_snapshot(names, [make_pod(f"p{name}", name, LOW, 500) for name in names])

    exactly = planned(snapshot, of_two_sizes(snapshot, 12, 24))
    found = refused(snapshot, of_two_sizes(snapshot, 19, 11))
    too_many = refused(snapshot, of_two_sizes(snapshot, 12, 25))
    too_large = refused(snapshot, of_two_sizes(snapshot, 25, 1))

    assert len(exactly.victims) == 12
    assert found.reason == NOT_FOUND
    assert found.missing == {}
    assert (too_many.reason, too_large.reason) == (NO_ROOM, NO_ROOM)


def test_a_refusal_counts_the_room_of_pods_that_leave_much_later() -> None:
    names = [f"n{n}" for n in range(12)]
    leaving = [make_pod(f"p{name}", name, HIGH, 500, ends=300) for name in names]
    snapshot = make_snapshot(names, leaving)

    too_many = refused(snapshot, gang(snapshot, 500, 13))
    uncertain = refused(snapshot, of_two_sizes(snapshot, 19, 11))

    assert (too_many.reason, too_many.placeable) == (NO_ROOM, 12)
    assert uncertain.reason == NOT_FOUND


def test_a_unit_that_goes_makes_room_on_all_its_nodes() -> None:
    snapshot = make_snapshot(
        ["a", "b", "c"], [make_pod("x", "c", LOW, 500), make_pod("y", "c", MID, 0)], policy=PLENTY
    )
    put_group(snapshot, pod_group("train"), make_pod("u0", "a", LOW, 500), make_pod("u1", "b", LOW, 500))

    found = planned(snapshot, gang(snapshot, 500, 2))

    assert victims(found) == {"u0", "u1"}
    assert found.price.broken == 1
    assert {one.unit for one in found.victims} == {"PodGroup default/train"}


def test_a_hard_budget_is_never_violated() -> None:
    labels = {"app": "a"}
    pods = [make_pod(f"p{n}", "a", LOW, 250, labels=labels) for n in range(2)]
    policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))
    snapshot = make_snapshot(["a"], pods, [make_budget("budget", labels, 1)], policy=policy)

    assert victims(planned(snapshot, gang(snapshot, 250, 1))) < {"p0", "p1"}
    found = refused(snapshot, gang(snapshot, 250, 2))
    assert (found.reason, found.retry_at) == (FORBIDDEN, NOW + REFUSED_AGAIN)


def test_protected_pods_are_never_victims() -> None:
    policy = Policy(protection=Protection(namespaces=("default",)))
    snapshot = make_snapshot(["a"], [make_pod("p", "a", LOW, 500)], policy=policy)

    found = refused(snapshot, gang(snapshot, 100, 2))

    assert (found.reason, found.placeable) == (NO_ROOM, 0)


def test_a_plan_beyond_the_bound_of_an_order_is_refused() -> None:
    policy = Policy(limits=PolicyLimits(victims_per_order=1))
    pods = [make_pod(name, name, LOW, 500) for name in "ab"]
    snapshot = make_snapshot(["a", "b"], pods)
    source = ("ConfigMap", "makeway-system", "makeway-policy")
    snapshot.apply(Enforce(policy, "rev-1", source))

    found = refused(snapshot, gang(snapshot, 500, 2))

    assert (found.reason, found.retry_at, found.depends_on) == (FORBIDDEN, None, (source,))


def test_the_cheapest_domain_is_taken_and_members_stay_in_it() -> None:
    zones = {"a": "x", "b": "x", "c": "y", "d": "y"}
    made = [msgspec.structs.replace(make_node(name), labels={ZONE: zone}) for name, zone in zones.items()]
    pods = [make_pod(name, name, LOW if name in "ac" else MID, 500) for name in "ab"]
    pods += [make_pod(f"{name}{n}", name, LOW, 250) for name in "cd" for n in range(2)]
    snapshot = make_snapshot(made, pods)

    found = planned(snapshot, gang(snapshot, 500, 2, topology=(ZONE,)))

    assert nodes(found) == {"c": 1, "d": 1}
    assert found.domains == ((ZONE, "y"),)


def test_a_domain_with_members_is_the_only_one() -> None:
    made = [msgspec.structs.replace(make_node(name), labels={ZONE: name}) for name in "xy"]
    snapshot = make_snapshot(made, [make_pod("p", "x", MID, 500), make_pod("q", "y", LOW, 500)])
    placed = (Placement(namespace="default", name="m-0", uid="m-0", node="x"),)

    found = planned(snapshot, gang(snapshot, 500, 1, topology=(ZONE,), placed=placed))

    assert victims(found) == {"p"}


def test_victims_of_live_orders_are_counted_on_and_cost_nothing() -> None:
    snapshot = make_snapshot(["a", "b"], [make_pod("going", "a", MID, 500), make_pod("p", "b", LOW, 500)])

    found = planned(snapshot, gang(snapshot, 500, 1, in_flight={"going": "ord-1"}))

    assert (victims(found), [one.pod.uid for one in found.awaited]) == (set(), ["going"])


def test_a_refusal_tells_how_many_members_would_have_room() -> None:
    snapshot = make_snapshot(["a", "b"], [make_pod("p", "a", LOW, 500), make_pod("q", "b", HIGH, 500)])

    found = refused(snapshot, gang(snapshot, 500, 2))

    assert found.placeable == 1
    assert "1 of the 2 pods" in found.message


def test_a_group_whose_pods_have_not_been_seen_is_not_planned_for() -> None:
    snapshot = make_snapshot(["a"])
    asked = gang(snapshot, 100, 2)
    snapshot.apply(RemovePod("m"))

    assert refused(snapshot, asked).reason == NOT_SEEN


def prices(snapshot: Snapshot, *objective: GroupTerm) -> None:
    snapshot.apply(Enforce(Policy(groups=Groups(objective=objective)), "rev-2"))


def test_the_order_of_terms_decides() -> None:
    pods = [make_pod("one", "a", MID, 500), *(make_pod(f"p{n}", "b", LOW, 100) for n in range(5))]
    snapshot = make_snapshot(["a", "b"], pods)
    asked = gang(snapshot, 500, 1)

    assert victims(planned(snapshot, asked)) == {f"p{n}" for n in range(5)}
    prices(snapshot, "victims", "budgets", "highestPriority")
    assert victims(planned(snapshot, asked)) == {"one"}


def test_fewer_pods_of_the_highest_priority_go_rather_than_fewer_pods() -> None:
    pods = [make_pod(f"high{n}", f"a{n}", MID, 500) for n in range(2)]
    pods += [make_pod(f"low{n}{i}", f"b{n}", LOW, 100) for n in range(2) for i in range(5)]
    snapshot = make_snapshot(["a0", "a1", "b0", "b1"], pods)
    asked = gang(snapshot, 500, 3)

    found = planned(snapshot, asked)
    prices(snapshot, "budgets", "highestPriority", "groups", "prioritySum", "victims")
    other = planned(snapshot, asked)

    assert nodes(found) == {"a0": 1, "b0": 1, "b1": 1}
    assert (found.price.highest_victims, found.price.victims) == (1, 11)
    assert (other.price.highest_victims, other.price.victims) == (2, 7)


def members_of(snapshot: Snapshot, manifest: Any, count: int) -> GangQuestion:
    snapshot.apply(PutPod(pod_record(manifest)))
    asked = question(manifest)
    settle(snapshot)
    return GangQuestion("default/gang", (GangClass(asked, count),), count)


def hosts_with(pods: dict[str, int], **more: Any) -> tuple[Snapshot, GangQuestion]:
    """Return nodes a and b with pods that a spread counts, and a gang of two such pods for node a alone."""
    labels = {"app": "gang"}
    there = [pod(f"p{name}", name, priority=level, labels=labels) for name, level in pods.items()]
    snapshot = cluster(node("a"), node("b"), *there)
    manifest = pod(
        "m",
        priority=100,
        labels=labels,
        nodeSelector={HOST: "a"},
        topologySpreadConstraints=[spread(HOST, labels, maxSkew=2, minDomains=10, **more)],
    )
    return snapshot, members_of(snapshot, manifest, 2)


def test_a_pod_goes_that_leaves_no_even_spread_for_all_members() -> None:
    snapshot, asked = hosts_with({"a": 10})

    found = planned(snapshot, asked)

    assert nodes(found) == {"a": 2}
    assert victims(found) == {"pa"}


def test_a_pod_that_may_not_go_leaves_no_even_spread_for_all_members() -> None:
    snapshot, asked = hosts_with({"a": 200})

    assert refused(snapshot, asked).reason == NOT_FOUND


def test_members_wait_for_an_even_spread_rather_than_have_pods_go() -> None:
    labels = {"app": "gang"}
    made = [node(name, zone=name[0]) for name in ("x1", "x2", "y1", "y2")]
    snapshot = cluster(*made, pod("p", "x1", labels=labels))
    manifest = pod("m", priority=100, labels=labels, topologySpreadConstraints=[spread(ZONE, labels)])

    found = planned(snapshot, members_of(snapshot, manifest, 4))

    assert victims(found) == set()
    assert sum(count for name, count in nodes(found).items() if name[0] == "y") in (2, 3)


def test_no_victims_cost_less_than_any() -> None:
    objective: tuple[GroupTerm, ...] = ("highestPriority",)

    assert Price().key(objective) < Price(highest=-(2**31)).key(objective)


def test_a_group_that_may_not_preempt_comes_only_where_there_is_room() -> None:
    snapshot = make_snapshot(["a", "b"], [make_pod("p", "a", LOW, 500)])

    assert nodes(planned(snapshot, gang(snapshot, 500, 1, may_preempt=False))) == {"b": 1}
    assert refused(snapshot, gang(snapshot, 500, 2, may_preempt=False)).reason == NEVER


def test_a_refusal_names_the_rule_that_leaves_room_for_no_more() -> None:
    labels = {"app": "gang"}
    snapshot = cluster(*(node(name, zone="r") for name in "abcd"))
    manifest = pod("m", priority=100, labels=labels, affinity=anti_affinity(term(ZONE, labels)))

    found = refused(snapshot, members_of(snapshot, manifest, 4))

    assert (found.reason, found.placeable, found.missing) == (NO_ROOM, 1, {})
    assert (
        f"at most 1 of the 4 pods that group default/gang needs: Pod anti-affinity by {ZONE}" in found.message
    )


# -------------------------------------------------------------------------------------- how far a search goes


def test_no_search_follows_where_as_few_pods_as_any_plan_takes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*arguments: object, **named: object) -> None:
        raise AssertionError("a search")

    monkeypatch.setattr(solving, "improve", searched)
    names = [f"n{number}" for number in range(6)]
    pods = [make_pod(f"p{name}-{slot}", name, LOW, 100) for name in names for slot in range(5)]
    snapshot = make_snapshot((make_node(name, 500) for name in names), pods)

    assert len(planned(snapshot, gang(snapshot, 200, 5)).victims) == 10


def test_over_twenty_nodes_the_set_of_nodes_that_costs_least_is_found() -> None:
    """Steps that cost least a member (two of 500 for three members) leave a last member at a high price."""
    policy = Policy(limits=PolicyLimits(victims_per_order=1_000))
    pods = [make_pod(f"low{n}-{slot}", f"n{n:02}", LOW, 500) for n in range(20) for slot in range(2)]
    pods += [make_pod("mid", "m", MID, 1_000)]
    nodes = [make_node(f"n{n:02}", 1_000) for n in range(20)] + [make_node("m", 1_000)]
    snapshot = make_snapshot(nodes, pods, policy=policy)

    found = plan_gang(snapshot, gang(snapshot, 330, 31), NOW)

    assert isinstance(found, GangPlan)
    assert found.price.highest == LOW
    assert len(victims(found)) == 21


def small_pods_and_large_ones(small: int, large: int) -> Snapshot:
    """Make nodes on which a member of 400 takes 16 pods, and others with one pod of higher priority."""
    pods = [make_pod(f"s{n}-{slot}", f"n{n:03}", LOW, 25) for n in range(small) for slot in range(20)]
    pods += [make_pod(f"l{n}", f"z{n}", MID, 500) for n in range(large)]
    nodes = [make_node(f"n{n:03}", 500) for n in range(small)] + [
        make_node(f"z{n}", 500) for n in range(large)
    ]
    return make_snapshot(nodes, pods, policy=Policy(limits=PolicyLimits(victims_per_order=20)))


def test_over_many_nodes_a_plan_is_found_with_as_few_victims_as_an_order_may_have() -> None:
    snapshot = small_pods_and_large_ones(100, 10)

    found = planned(snapshot, gang(snapshot, 400, 10))

    assert found.price.highest == MID
    assert len(victims(found)) <= 20


def test_a_refusal_for_the_bound_of_victims_is_final_only_where_every_plan_has_more() -> None:
    few, enough = small_pods_and_large_ones(100, 7), small_pods_and_large_ones(100, 9)

    forbidden = refused(few, gang(few, 400, 9))
    found = planned(enough, gang(enough, 400, 9))

    assert forbidden.reason == FORBIDDEN
    assert len(victims(found)) <= 20
