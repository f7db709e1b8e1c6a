"""Plans for groups where pods on nodes of no member keep a rack closed by anti-affinity."""

from dataclasses import replace
from typing import Any

import pytest

from makeway.bus.messages import ClosedDomain
from makeway.core.policy.document import CrossNode, Policy
from makeway.planner.plan.gang.domains import MOST_DOMAINS
from makeway.planner.plan.gang.model import Work
from makeway.planner.plan.refusal.text import NOT_FOUND
from makeway.planner.snapshot.changes import Adopt, Enforce, PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import make_pod, settle
from unit.planner.manifests import ZONE, anti_affinity, cluster, node, pod, spread, term
from unit.planner.test_gang_plan import members_of, nodes, planned, refused, victims

RACK = "example.com/rack"
JOB = {"job": "old"}


def racks(*sizes: int, **more: Any) -> Snapshot:
    """Racks r1, r2 and so on, of so many nodes of 4 CPUs; on each node a pod of 3 CPUs of job old."""
    names = [(f"r{rack}-{n}", f"r{rack}") for rack, size in enumerate(sizes, 1) for n in range(size)]
    made = [node(name, more={RACK: rack}) for name, rack in names]
    pods = [pod(f"old-{name}", name, cpu="3", labels=JOB, **more.get(name, {})) for name, _ in names]
    return cluster(*made, *pods)


def exclusive(snapshot: Snapshot, count: int, cpu: str = "3") -> Any:
    """Ask for a gang that shares no rack with pods of job old, as JobSet's exclusive placement does."""
    return members_of(
        snapshot, pod("m", priority=100, cpu=cpu, affinity=anti_affinity(term(RACK, JOB))), count
    )


def test_all_pods_go_that_keep_a_rack_closed_and_the_plan_says_why() -> None:
    snapshot = racks(3)

    found = planned(snapshot, exclusive(snapshot, 2))

    assert victims(found) == {"old-r1-0", "old-r1-1", "old-r1-2"}
    closed = {one.pod.node: one.closes for one in found.victims if one.pod.node not in nodes(found)}
    assert list(closed.values()) == [ClosedDomain(rule="podAntiAffinity", key=RACK, value="r1")]
    assert all(one.closes is None for one in found.victims if one.pod.node in nodes(found))


def test_a_victim_says_why_it_goes_where_the_plan_can_do_without_the_members_of_its_node() -> None:
    snapshot = racks(4)

    found = planned(snapshot, replace(exclusive(snapshot, 3), must_place=2))

    assert sum(nodes(found).values()) == 3
    closed = [one.closes for one in found.victims]
    assert closed == [ClosedDomain(rule="podAntiAffinity", key=RACK, value="r1")] * 4


def test_members_come_to_as_many_nodes_of_a_rack_as_leave_few_of_its_pods_on_others() -> None:
    made = [node(f"r1-{at}", 6, more={RACK: "r1"}) for at in range(3)]
    snapshot = cluster(*made, *(pod(f"old-{at}", f"r1-{at}", cpu="1", labels=JOB) for at in range(3)))
    snapshot.apply(Enforce(Policy(cross_node=CrossNode(most_victims=1)), "rev"))

    found = planned(snapshot, exclusive(snapshot, 2))

    assert len(found.victims) == 3
    assert sorted(nodes(found).values()) == [1, 1]


def test_a_rack_is_opened_for_one_member_where_a_queue_has_no_room_for_both_elsewhere() -> None:
    made = [node("open", 6), node("r1-0", 5, more={RACK: "r1"}), node("r1-1", 4, more={RACK: "r1"})]
    own = {"queue": "root.a"}
    old = [pod(f"old-{at}", f"r1-{at}", cpu="2", labels=JOB | own) for at in range(2)]
    snapshot = cluster(*made, pod("free", "open", cpu="3", labels=own), *old)
    snapshot.apply(Adopt(tree(queue("a", maximum={"cpu": 8000})), "rev", ("ConfigMap", "system", "queues")))
    settle(snapshot)
    members = pod("m", priority=100, cpu="3", labels=own, affinity=anti_affinity(term(RACK, JOB)))

    found = planned(snapshot, members_of(snapshot, members, 2))

    assert victims(found) == {"free", "old-0", "old-1"}
    assert nodes(found)["open"] == 1


def test_the_rack_is_taken_that_fewest_pods_keep_closed() -> None:
    snapshot = racks(5, 3, 4)

    found = planned(snapshot, exclusive(snapshot, 2))

    assert {one.pod.node[:2] for one in found.victims} == {"r2"}
    assert len(found.victims) == 3


def test_racks_are_opened_together_where_one_has_not_room_for_all() -> None:
    snapshot = racks(2, 2, 2)

    found = planned(snapshot, exclusive(snapshot, 4))

    assert len(found.victims) == 4
    assert sum(nodes(found).values()) == 4


def test_a_rack_stays_closed_that_costs_less_than_another_but_is_not_needed() -> None:
    snapshot = racks(2, 2, 5)

    found = planned(snapshot, exclusive(snapshot, 6))

    assert len(found.victims) == 7
    assert len({one.pod.node[:2] for one in found.victims}) == 2


def test_small_members_go_where_each_node_of_the_rack_has_one_pod_that_keeps_it_closed() -> None:
    snapshot = racks(2)

    found = planned(snapshot, exclusive(snapshot, 2, cpu="500m"))

    assert len(found.victims) == 2


def test_a_rack_with_a_pod_that_may_not_go_stays_closed() -> None:
    blocked = racks(3, **{"r1-1": {"priority": 100}})

    found = refused(blocked, exclusive(blocked, 2))

    assert f"anti-affinity by {RACK}" in found.message


def test_of_many_closed_racks_the_cheapest_is_opened() -> None:
    snapshot = racks(*[2] * 200, **{f"r{rack}-0": {"priority": 50} for rack in range(1, 201) if rack != 150})

    found = planned(snapshot, exclusive(snapshot, 2))

    assert victims(found) == {"old-r150-0", "old-r150-1"}


def test_no_set_of_pods_is_tried_where_no_plan_has_fewer_victims_or_lower_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = racks(1, 1)
    monkeypatch.delattr("makeway.planner.plan.gang.blockers.blockers")

    found = planned(snapshot, exclusive(snapshot, 1))

    assert len(found.victims) == 1


def test_no_rack_is_opened_once_the_work_is_used_up_and_the_refusal_is_not_final(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = racks(3)
    monkeypatch.setattr("makeway.planner.plan.gang.planner.Work", lambda: Work(1))

    found = refused(snapshot, exclusive(snapshot, 2))

    assert found.reason == "PlacesNotFound"


def test_one_of_several_questions_has_half_of_what_is_left_and_spends_of_the_whole() -> None:
    whole = Work(100)
    part = whole.part()

    part.spend(20)

    assert (part.left, whole.left, whole.part().left) == (30, 80, 40)


@pytest.mark.parametrize("own", [True, False])
def test_pods_whose_own_anti_affinity_keeps_the_rack_closed_go_as_well(own: bool) -> None:
    made = [node(f"r1-{n}", more={RACK: "r1"}) for n in range(3)]
    theirs = anti_affinity(term(RACK, {"app": "gang"}))
    pods = [pod(f"p{n}", f"r1-{n}", cpu="3", affinity=theirs if n == 2 or own else {}) for n in range(3)]
    snapshot = cluster(*made, *pods)
    asked = members_of(snapshot, pod("m", priority=100, cpu="3", labels={"app": "gang"}), 2)

    found = planned(snapshot, asked)

    closed = [one.closes for one in found.victims if one.closes is not None]
    assert all(one == ClosedDomain(rule="existingPodAntiAffinity", key=RACK, value="r1") for one in closed)
    assert "p2" in victims(found)


def test_a_refusal_says_what_keeps_racks_closed_and_how_many_pods_may_go_for_it() -> None:
    snapshot = racks(3)
    snapshot.apply(Enforce(Policy(cross_node=CrossNode(most_victims=0)), "rev"))

    found = refused(snapshot, exclusive(snapshot, 2))

    assert found.reason == NOT_FOUND
    assert found.message.endswith(
        f"; nodes are closed by Pod anti-affinity by {RACK}, and crossNode.mostVictims lets 0 pods go on "
        "nodes without members"
    )


def test_members_go_where_most_pods_keep_the_rack_closed_where_few_may_go_elsewhere() -> None:
    made = [node(f"r1-{n}", more={RACK: "r1"}) for n in range(3)]
    pods = [
        pod(f"old-{n}{i}", f"r1-{n}", labels=JOB) for n, count in enumerate((1, 1, 3)) for i in range(count)
    ]
    snapshot = cluster(*made, *pods)
    snapshot.apply(Enforce(Policy(cross_node=CrossNode(most_victims=2)), "rev"))

    found = planned(snapshot, exclusive(snapshot, 1, cpu="500m"))

    assert nodes(found) == {"r1-2": 1}
    assert sum(one.closes is not None for one in found.victims) == 2


@pytest.mark.parametrize("most", [0, 32])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_leaving_pod_opens_the_rack_of_members_elsewhere_and_is_named(most: int, ordered: bool) -> None:
    made = [node("r1-0", more={RACK: "r1"}), node("r1-1", more={RACK: "r1"}, unschedulable=True)]
    snapshot = cluster(*made)
    snapshot.apply(PutPod(make_pod("old", "r1-1", labels=JOB, ends=None if ordered else 20)))
    snapshot.apply(Enforce(Policy(cross_node=CrossNode(most_victims=most)), "rev"))
    asked = exclusive(snapshot, 1)
    if ordered:
        asked = replace(
            asked,
            classes=tuple(
                replace(one, question=replace(one.question, in_flight={"old": "ord-1"}))
                for one in asked.classes
            ),
        )

    found = planned(snapshot, asked)

    assert not found.victims
    assert [(one.pod.uid, one.order_id) for one in found.awaited] == [("old", "ord-1" if ordered else "")]


def test_a_pod_that_leaves_another_rack_is_not_awaited() -> None:
    snapshot = cluster(*(node(f"r{n}-0", more={RACK: f"r{n}"}) for n in (1, 2)))
    snapshot.apply(PutPod(make_pod("old", "r2-0", labels=JOB, ends=20)))

    found = planned(snapshot, exclusive(snapshot, 1))

    assert nodes(found) == {"r1-0": 1}
    assert not found.awaited


def test_pods_that_a_spread_counts_on_nodes_without_members_stay_and_the_refusal_is_not_final() -> None:
    labels = {"app": "db"}
    made = [node("a1", zone="a", unschedulable=True), node("a2", zone="a"), node("b1", zone="b", cpu=1)]
    snapshot = cluster(*made, *(pod(f"old{number}", "a1", labels=labels) for number in range(3)))
    even = [spread(ZONE, labels)]
    asked = pod("m", priority=100, cpu="3", labels=labels, topologySpreadConstraints=even)

    found = refused(snapshot, members_of(snapshot, asked, 1))

    assert found.reason == "PlacesNotFound"


@pytest.mark.parametrize(("skew", "awaited"), [(1, ["old"]), (2, [])])
def test_a_pod_leaving_a_zone_is_awaited_where_a_spread_has_no_room(skew: int, awaited: list[str]) -> None:
    labels = {"app": "gang"}
    made = [node("x1", zone="x"), node("x2", zone="x"), node("y1", zone="y")]
    kept = [pod(f"kept-{name}", name, cpu="3900m", priority=200) for name in ("x1", "y1")]
    snapshot = cluster(*made, *kept)
    snapshot.apply(PutPod(make_pod("old", "x1", 0, requests={"cpu": 100}, labels=labels)))
    manifest = pod(
        "m", priority=100, labels=labels, topologySpreadConstraints=[spread(ZONE, labels, maxSkew=skew)]
    )
    asked = members_of(snapshot, manifest, 1)
    (one,) = asked.classes
    asked = replace(
        asked, classes=(replace(one, question=replace(one.question, in_flight={"old": "ord-1"})),)
    )

    found = planned(snapshot, asked)

    assert (nodes(found), found.victims) == ({"x2": 1}, ())
    assert [one.pod.uid for one in found.awaited] == awaited


def test_domains_without_a_node_for_members_keep_no_other_from_being_looked_at() -> None:
    """Their nodes are looked at since a pod keeps the zone closed, which all of them are in."""
    cordoned = [
        node(f"c{n}", 64, zone="z", more={RACK: f"c{n}"}, unschedulable=True) for n in range(MOST_DOMAINS)
    ]
    closing = pod("x", "a", labels={"app": "x"}, cpu="3")
    snapshot = cluster(*cordoned, node("a", zone="z", more={RACK: "r"}), closing)
    member = pod("m", priority=100, cpu="3", affinity=anti_affinity(term(ZONE, {"app": "x"})))

    assert victims(planned(snapshot, replace(members_of(snapshot, member, 1), topology=(RACK,)))) == {"x"}
