"""First plans for groups: what is priced side by side ahead is what one node after the other would cost."""

import random
from collections import Counter
from heapq import heappop
from typing import Any

import pytest

from makeway.planner.plan.gang import fill
from makeway.planner.plan.gang.planner import plan_gang, planning_gang
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.result import GangPlan
from makeway.planner.snapshot.changes import Adopt
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, NOW
from unit.planner.manifests import HOST, ZONE, anti_affinity, cluster, node, pod, spread, term
from unit.planner.test_gang_plan import members_of, victims

GANG = {"app": "gang"}
APART = anti_affinity(term(HOST, GANG))
PORTS = [{"hostPort": 80, "containerPort": 80}]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("port", [False, True])
@pytest.mark.parametrize("most", [100, 140])
def test_nodes_priced_ahead_side_by_side_give_the_plan_of_one_after_the_other(
    seed: int, port: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    places = [f"n{number}" for number in range(70)]
    pods = [
        pod(
            f"{place}-{turn}",
            place,
            priority=chance.choice((0, 1, 5)),
            cpu=chance.choice(("500m", "1", "1500m")),
            labels={"queue": chance.choice(("root.a", "root.b"))},
            ports=[{"hostPort": 80, "containerPort": 80}]
            if port and not turn and chance.random() < 0.5
            else [],
        )
        for place in places
        for turn in range(3)
    ]
    snapshot = cluster(*map(node, places), *pods)
    built = tree(queue("a", maximum={"cpu": most * 1000}), queue("b"))
    snapshot.apply(Adopt(built, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))
    member = pod("m", priority=HIGH, cpu="800m", labels={"queue": "root.a"}, ports=PORTS if port else [])
    asked = members_of(snapshot, member, 25)

    ahead = plan_gang(snapshot, asked, NOW)
    monkeypatch.setattr(fill, "AHEAD", 0)
    alone = plan_gang(snapshot, asked, NOW)

    assert isinstance(ahead, GangPlan), ahead
    assert isinstance(alone, GangPlan), alone
    assert victims(ahead) == victims(alone)
    assert ahead.price == alone.price


@pytest.mark.parametrize("rule", [{"affinity": APART}, {"topologySpreadConstraints": [spread(HOST, GANG)]}])
def test_no_more_pods_go_than_for_the_members_that_rules_let_come(rule: dict[str, Any]) -> None:
    places = [f"n{number}" for number in range(70)]
    pods = [pod(f"{place}-{turn}", place) for place in places for turn in range(2)]
    snapshot = cluster(*(node(place, 2) for place in places), *pods)

    found = plan_gang(snapshot, members_of(snapshot, pod("m", priority=HIGH, labels=GANG, **rule), 45), NOW)

    assert isinstance(found, GangPlan), found
    assert len(found.victims) == 45


def test_a_first_plan_pauses_while_it_looks_at_nodes_that_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes of a zone wait for the other one, in which one member after the other makes it even."""
    there = [pod(f"g{number}", f"a{number}", cpu="100m", priority=HIGH, labels=GANG) for number in range(9)]
    nodes = [node(f"a{number}", zone="a") for number in range(1_000)]
    snapshot = cluster(*nodes, node("b", 16, zone="b"), *there)
    member = pod("m", priority=HIGH, labels=GANG, topologySpreadConstraints=[spread(ZONE, GANG)])
    looks = Counter[int]()
    pauses = 0

    def looked(heap: list[Any]) -> Any:
        looks[pauses] += 1
        return heappop(heap)

    monkeypatch.setattr(fill, "heappop", looked)
    for _ in planning_gang(snapshot, members_of(snapshot, member, 12), NOW, PlanCache()):
        pauses += 1

    assert looks.total() > 1_000
    assert max(looks.values()) <= 300


def test_members_come_to_free_nodes_of_a_large_cluster_with_queue_room_that_victims_elsewhere_leave() -> None:
    """Ten pods of 1,500 in a queue at its max make room for 15 members of 1,000; ten take their nodes."""
    held = [f"z{number}" for number in range(10)]
    pods = [pod(f"p-{name}", name, cpu="1500m", labels={"queue": "root.a"}) for name in held]
    nodes = [*(node(f"free{number}", 1) for number in range(120)), *(node(name, 2) for name in held)]
    high = [pod(f"high-{name}", name, cpu="400m", priority=HIGH) for name in held]
    snapshot = cluster(*nodes, *pods, *high)
    built = tree(queue("a", maximum={"cpu": 15_000}), queue("b"))
    snapshot.apply(Adopt(built, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))

    found = plan_gang(
        snapshot, members_of(snapshot, pod("m", priority=HIGH, labels={"queue": "root.a"}), 15), NOW
    )

    assert isinstance(found, GangPlan), found
    assert len(found.victims) == 10


def test_pods_of_a_member_s_own_node_go_for_an_even_spread_in_a_large_cluster() -> None:
    """The only other zone has no room, and three pods that count are on the last node."""
    nodes = [node(f"a{number}", zone="a") for number in range(130)]
    there = [pod(f"g{number}", "a129", labels=GANG) for number in range(3)]
    there += [pod("high", "b", cpu="4", priority=HIGH)]
    snapshot = cluster(*nodes, node("b", zone="b"), *there)
    member = pod("m", priority=HIGH, labels=GANG, topologySpreadConstraints=[spread(ZONE, GANG)])

    found = plan_gang(snapshot, members_of(snapshot, member, 1), NOW)

    assert isinstance(found, GangPlan), found
    assert victims(found) == {"g0", "g1", "g2"}
