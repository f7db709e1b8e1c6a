"""Plans for gangs with required affinity: which pods stay for it, and in which domain members begin."""

from collections.abc import Mapping, Sequence

import pytest

from makeway.core.k8s.objects import Node, Pod
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.snapshot.changes import Enforce, PutPod
from makeway.planner.snapshot.records import pod_record
from unit.planner.building import NOW
from unit.planner.manifests import affinity, cluster, node, pod, question, term

RACK = "rack"
JOB = {"job": "train"}


def racked(name: str, rack: str) -> Node:
    return node(name, more={RACK: rack})


def member(name: str, cpu: str, near: Mapping[str, str] = JOB, labels: Mapping[str, str] = JOB) -> Pod:
    terms = [term(RACK, dict(near))] if near else []
    return pod(name, priority=100, cpu=cpu, labels=dict(labels), affinity=affinity(*terms))


def plan(there: Sequence[Node | Pod], *classes: tuple[Pod, int]) -> GangPlan | PlanRefusal:
    snapshot = cluster(*there)
    snapshot.apply(Enforce(Policy(limits=PolicyLimits(victims_per_order=1_000)), "rev-1"))
    for manifest, _ in classes:
        snapshot.apply(PutPod(pod_record(manifest)))
    asked = tuple(GangClass(question(manifest), count) for manifest, count in classes)
    return plan_gang(snapshot, GangQuestion("default/gang", asked, sum(count for _, count in classes)), NOW)


def told(found: GangPlan | PlanRefusal) -> tuple[set[str], set[str]]:
    """Return the victims, and the nodes to which members come."""
    assert isinstance(found, GangPlan), found
    return {one.pod.uid for one in found.victims}, {one.node for one in found.placements}


def test_members_begin_anew_where_all_pods_go_that_they_could_be_near() -> None:
    there: list[Node | Pod] = [racked("a", "r1"), racked("b", "r1"), pod("mate", "a", cpu="2", labels=JOB)]

    victims, nodes = told(plan(there, (member("m", "2"), 4)))

    assert victims == {"mate"}
    assert nodes == {"a", "b"}


def test_members_begin_in_another_rack_where_other_members_take_the_place_of_the_pod_they_were_near() -> None:
    nodes = [racked("a", "r1"), racked("b", "r2")]
    pods = [pod("mate", "a", labels=JOB), pod("p", "b", cpu="2"), pod("high", "b", priority=1000)]
    other = member("other", "4", {}, {})

    victims, used = told(plan([*nodes, *pods], (member("m", "1"), 1), (other, 1)))

    assert victims == {"mate"}
    assert used == {"a", "b"}


@pytest.mark.parametrize("small", ["first", "second"])
def test_of_pods_that_members_could_be_near_one_stays_whose_room_is_not_needed(small: str) -> None:
    friends = [
        pod(name, "a", cpu="1" if name == small else "2", labels={"role": "db"})
        for name in ("first", "second")
    ]

    victims, _ = told(plan([racked("a", "r1"), *friends], (member("m", "1500m", {"role": "db"}), 2)))

    assert victims == {"first", "second"} - {small}


def test_pods_that_other_racks_members_could_be_near_go_for_members_without_affinity() -> None:
    names = {"a": "r1", "b": "r2"}
    friends = [pod(f"db-{name}", name, cpu="2", labels={"role": "db"}) for name in names]
    other = member("other", "4", {}, {})

    victims, _ = told(
        plan(
            [*(racked(name, rack) for name, rack in names.items()), *friends],
            (member("m", "2", {"role": "db"}), 1),
            (other, 1),
        )
    )

    assert len(victims) == 1


def test_members_begin_in_the_rack_of_a_large_cluster_that_has_room_for_all() -> None:
    """A free node draws the first member to a rack, in which others have no room."""
    there: list[Node | Pod] = []
    for rack in range(40):
        for at in range(4):
            name = f"n{rack:02}{at}"
            there.append(racked(name, f"r{rack}"))
            if at == 0 and rack != 39:
                there.append(pod(f"high-{name}", name, priority=1000, cpu="4"))
            elif at != 1:
                there.append(pod(f"low-{name}", name, cpu="4"))

    victims, nodes = told(plan(there, (member("m", "4"), 4)))

    assert nodes == {f"n39{at}" for at in range(4)}
    assert victims == {f"low-n39{at}" for at in (0, 2, 3)}


def test_nearly_all_pods_that_members_could_be_near_go_in_a_large_cluster_before_one_of_higher_priority() -> (
    None
):
    names = [f"n{number:02}" for number in range(64)]
    there: list[Node | Pod] = [
        node(name, cpu=8, more={RACK: f"r{number % 3}"}) for number, name in enumerate(names)
    ]
    for name in names:
        there += [pod(f"db-{name}", name, cpu="4", labels={"role": "db"})]
        there += [pod(f"high-{name}", name, cpu="4", priority=50)]
    near, other = member("m", "3", {"role": "db"}, {}), member("other", "3500m", {}, {})

    victims, nodes = told(plan(there, (near, 10), (other, 53)))

    assert len(victims) == len(nodes) == 63
    assert not any(name.startswith("high") for name in victims)


def test_one_pod_that_members_could_be_near_is_left_where_the_room_of_all_others_is_needed() -> None:
    names = [f"n{number:03}" for number in range(400)]
    there: list[Node | Pod] = [node(name, more={RACK: f"r{number % 3}"}) for number, name in enumerate(names)]
    there += [pod(f"db-{name}", name, cpu="4", labels={"role": "db"}) for name in names]
    near, other = member("near", "3", {"role": "db"}, {}), member("other", "3500m", {}, {})

    victims, nodes = told(plan(there, (near, 10), (other, 389)))

    assert len(victims) == len(nodes) == 399
