"""Groups as victims of one pod: the cases with groups of kube-scheduler 1.37's TestPreemption (integration).

Each was written anew for the planner. Node names of theirs are the node selectors of pods here.
"""

from dataclasses import dataclass

import pytest

from makeway.core.k8s.pod_groups import GroupRecord
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import NOW, ask, make_node, make_pod, make_snapshot
from unit.planner.caching import plan
from unit.planner.grouping import pod_group

LOW, MEDIUM, HIGH = 100, 200, 300


def whole(name: str, priority: int = LOW, *, composite: bool = False, single: bool = False) -> GroupRecord:
    return pod_group(name, whole=not single, priority=priority, composite=composite)


def part_of(name: str, parent: str, priority: int = LOW) -> GroupRecord:
    return pod_group(name, whole=False, priority=priority, parent=parent)


def pod(name: str, node: str, milli_cpu: int, group: str = "", priority: int = LOW) -> PodRecord:
    return make_pod(name, node, priority, requests={"cpu": milli_cpu}, group=group)


@dataclass(frozen=True)
class Case:
    """`victims`: empty where nothing helps."""

    groups: tuple[GroupRecord, ...]
    pods: tuple[PodRecord, ...]
    node: str
    milli_cpu: int
    victims: tuple[str, ...]


ACROSS = (pod("a", "node1", 500, "g"), pod("b", "node2", 500, "g"))
ON_ONE = (pod("a", "node1", 200, "g"), pod("b", "node1", 200, "g"))
OF_TWO = (
    pod("low1", "node1", 200, "low"),
    pod("low2", "node2", 200, "low"),
    pod("medium1", "node1", 200, "medium", MEDIUM),
    pod("medium2", "node2", 200, "medium", MEDIUM),
)
NOT_ENOUGH = (
    pod("stays", "large", 500, priority=HIGH),
    pod("a", "large", 150, "g"),
    pod("b", "large", 150, "g"),
)

CASES = {
    "a group across nodes": Case((whole("g"),), ACROSS, "node1", 500, ("a", "b")),
    "a group on one node": Case((whole("g"),), ON_ONE, "node1", 300, ("a", "b")),
    "the lower of two groups": Case(
        (whole("low"), whole("medium", MEDIUM)), OF_TWO, "node1", 300, ("low1", "low2")
    ),
    "a group that frees too little": Case((whole("g"),), NOT_ENOUGH, "large", 600, ()),
    "a group of mode single": Case((whole("g", single=True),), ACROSS, "node1", 500, ("a",)),
    "a composite group across nodes": Case(
        (whole("c", composite=True), part_of("g", "c")), ACROSS, "node1", 500, ("a", "b")
    ),
    "a composite group on one node": Case(
        (whole("c", composite=True), part_of("g", "c")), ON_ONE, "node1", 300, ("a", "b")
    ),
    "the lower of two composite groups": Case(
        (
            whole("c-low", composite=True),
            whole("c-medium", MEDIUM, composite=True),
            part_of("low", "c-low"),
            part_of("medium", "c-medium"),
        ),
        OF_TWO,
        "node1",
        300,
        ("low1", "low2"),
    ),
    "a composite group that frees too little": Case(
        (whole("c", composite=True), part_of("g", "c")), NOT_ENOUGH, "large", 600, ()
    ),
    "a composite group of mode single": Case(
        (whole("c", composite=True, single=True), part_of("g", "c")), ACROSS, "node1", 500, ("a",)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_same_pods_go_as_with_kube_scheduler(case: Case) -> None:
    sizes = {"node1": 500, "node2": 500, "large": 1000}
    nodes = [make_node(name, size) for name, size in sizes.items()]
    snapshot = make_snapshot(nodes, case.pods, groups=case.groups)

    found = plan(snapshot, ask(pod("preemptor", "", case.milli_cpu, priority=HIGH), nodes=[case.node]), NOW)

    if not case.victims:
        assert isinstance(found, PlanRefusal)
        return
    assert isinstance(found, Plan)
    (candidate,) = found.candidates
    assert sorted(victim.pod.uid for victim in candidate.victims) == sorted(case.victims)
