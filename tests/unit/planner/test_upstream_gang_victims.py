"""Groups as preemptors: what kube-scheduler 1.37.2's TestPodGroupEvaluator_SelectVictimsOnDomain asks.

Each case was written anew for the planner, whose nodes and pods have sizes as theirs do. `instead` and `why`
are a chosen difference: other victims than theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.result import GangPlan
from makeway.planner.snapshot.changes import PutPod
from unit.planner.building import HIGH, LOW, MID, NOW, ask, make_budget, make_node, make_pod, make_snapshot
from unit.planner.grouping import pod_group

SURPLUS = "members beyond minCount are placed only where that costs nothing"
FITS = "the group fits, and nothing is preempted"
ENDS_SOON = "the room of a terminating pod is awaited; it is no victim"


@dataclass(frozen=True)
class Running:
    """A pod of size 1 that is there. `node`: by number, from 1."""

    name: str
    node: int
    priority: int = LOW
    group: str = ""
    start: int = 0
    covered: bool = False
    ending: bool = False


@dataclass(frozen=True)
class Case:
    """`rooms`: how many pods of size 1 each node holds. `whole`, `single`: priorities of groups by mode.

    `victims`: kube-scheduler's, None where it makes no plan. `violations`: of budgets.
    """

    rooms: tuple[int, ...]
    pods: tuple[Running, ...]
    victims: frozenset[str] | None
    whole: Mapping[str, int] = field(default_factory=dict)
    single: Mapping[str, int] = field(default_factory=dict)
    members: int = 1
    priority: int = HIGH
    violations: int = 0
    instead: frozenset[str] | None = None
    why: str = ""


def uids(names: str) -> frozenset[str]:
    return frozenset(names.split())


THREE_NODES = (Running("p1", 1), Running("p2", 2, group="pg1"), Running("p3", 3, group="pg2"))
TWO_FREE = (Running("p1", 1), Running("p2", 2), Running("p3", 3, HIGH), Running("p4", 4, HIGH))
UNIT_AND_ONE = (Running("v1", 1, MID, "pg"), Running("v2", 2, MID, "pg"), Running("v3", 3))
TWO_UNITS = (
    Running("v1", 1, MID, "pg"),
    Running("v2", 2, MID, "pg"),
    Running("v3", 3, HIGH, "high"),
    Running("v4", 4, HIGH, "high"),
)
GROUP_AND_ONE = (Running("g1", 1, group="pg1"), Running("g2", 1, group="pg1"), Running("p1", 1))

CASES = {
    "a pod without a group goes before one of a group": Case(
        (2,), (Running("p1", 1), Running("p2", 1, group="pg1")), uids("p1"), single={"pg1": LOW}
    ),
    "of one group the pod that started last goes": Case(
        (2,),
        (Running("p1", 1, group="pg1", start=1), Running("p2", 1, group="pg1", start=0)),
        uids("p1"),
        single={"pg1": LOW},
    ),
    "a unit over two nodes goes whole": Case(
        (1, 1),
        (Running("p1", 1, group="pg1"), Running("p2", 2, group="pg1")),
        uids("p1 p2"),
        whole={"pg1": LOW},
    ),
    "three members, of which four nodes have room for one each": Case(
        (2, 1, 2, 2, 2),
        (
            Running("p1", 1, group="pg1", start=2),
            Running("p2", 2, group="pg1", start=1),
            Running("p3", 3, group="pg2"),
            Running("p4", 4, MID),
            Running("p5", 5, HIGH, "pg3"),
        ),
        uids("p2"),
        single={"pg1": LOW, "pg2": LOW, "pg3": HIGH},
        members=3,
        instead=uids(""),
        why=FITS,
    ),
    "of a group the pod under no budget goes": Case(
        (2,),
        (Running("budget", 1, group="pg1", covered=True), Running("free", 1, group="pg1")),
        uids("free"),
        single={"pg1": LOW},
    ),
    "a group that may preempt does": Case(
        (1, 1, 1), THREE_NODES, uids("p1"), single={"pg1": LOW, "pg2": LOW}
    ),
    "a group that may preempt does, where the groups of others do not exist": Case(
        (1, 1, 1), THREE_NODES, uids("p1")
    ),
    "a terminating pod on another node and one to preempt": Case(
        (1, 1),
        (Running("ending", 2, ending=True), Running("other", 1)),
        uids("other ending"),
        members=2,
        instead=uids(""),
        why=f"{ENDS_SOON}; {SURPLUS}",
    ),
    "a terminating pod of a unit of higher priority": Case(
        (2, 1),
        (Running("ending", 1, group="pg", ending=True), Running("other", 1)),
        uids("other"),
        whole={"pg": HIGH},
        members=2,
        priority=MID,
        instead=uids(""),
        why=FITS,
    ),
    "a terminating pod of a group of higher priority": Case(
        (2, 1),
        (Running("ending", 1, group="pg", ending=True), Running("other", 1)),
        uids("other"),
        single={"pg": HIGH},
        members=2,
        priority=MID,
        instead=uids(""),
        why=FITS,
    ),
    "one pod of lower priority": Case((1,), (Running("p1", 1),), uids("p1")),
    "the lowest priorities go": Case(
        (2,), (Running("p1", 1), Running("p2", 1, MID), Running("p3", 1, HIGH)), uids("p1 p2")
    ),
    "as few pods as make room go": Case(
        (3,), tuple(Running(f"p{number}", 1) for number in range(1, 5)), uids("p3 p4")
    ),
    "a budget is kept": Case((2,), (Running("budget", 1, covered=True), Running("free", 1)), uids("free")),
    "a budget is kept, though the other pod has a higher priority": Case(
        (2,), (Running("budget", 1, covered=True), Running("free", 1, MID)), uids("free")
    ),
    "where a budget must be violated the lower priority goes": Case(
        (2,), (Running("p1", 1, covered=True), Running("p2", 1, MID, covered=True)), uids("p1"), violations=1
    ),
    "a single pod goes before a unit": Case((3,), GROUP_AND_ONE, uids("p1"), whole={"pg1": LOW}),
    "a unit on one node goes before a pod of higher priority": Case(
        (3,), (*GROUP_AND_ONE[:2], Running("p1", 1, MID)), uids("g1 g2"), whole={"pg1": LOW}
    ),
    "a unit of which one pod is under a budget violates it": Case(
        (3,),
        (Running("g1", 1, group="pg1", covered=True), *GROUP_AND_ONE[1:]),
        uids("p1"),
        whole={"pg1": LOW},
    ),
    "a pod of higher priority and much room": Case(
        (100,), (Running("p1", 1, HIGH),), None, priority=MID, instead=uids(""), why=FITS
    ),
    "a pod of equal priority and much room": Case(
        (100,), (Running("p1", 1, MID),), None, priority=MID, instead=uids(""), why=FITS
    ),
    "an empty node": Case((100,), (), None, priority=MID, instead=uids(""), why=FITS),
    "a unit of lower priority than its pods": Case(
        (1, 1),
        (Running("p1", 1, HIGH, "pg1"), Running("p2", 2, HIGH, "pg1")),
        uids("p1 p2"),
        whole={"pg1": MID},
    ),
    "a unit of higher priority than its pods": Case(
        (1, 1),
        (Running("p1", 1, group="pg1"), Running("p2", 2, group="pg1")),
        None,
        whole={"pg1": MID},
        priority=MID,
    ),
    "more members than minCount, and pods of higher priority": Case(
        (1, 1, 1, 1), TWO_FREE, uids("p1 p2"), members=3, instead=uids("p1"), why=SURPLUS
    ),
    "a unit and a pod of lower priority": Case(
        (1, 1, 1),
        UNIT_AND_ONE,
        uids("v1 v2 v3"),
        whole={"pg": MID},
        members=3,
        instead=uids("v3"),
        why=SURPLUS,
    ),
    "a unit that may go and one that may not": Case(
        (1, 1, 1, 1), TWO_UNITS, uids("v1 v2"), whole={"pg": MID, "high": HIGH}, members=3
    ),
}
"""Where theirs ask the same with a basic policy or with a policy of single pods that does not count, that
is one case here."""


def victims_of(case: Case) -> tuple[frozenset[str] | None, int]:
    """Return the planner's victims, None where it refuses, and how many violate a budget."""
    nodes = [make_node(f"node{number}", size=room) for number, room in enumerate(case.rooms, 1)]
    groups = [
        pod_group(name, whole=name in case.whole, priority=priority)
        for name, priority in (*case.whole.items(), *case.single.items())
    ]
    pods = [
        make_pod(
            one.name,
            f"node{one.node}",
            one.priority,
            1,
            start=one.start,
            labels={"app": "foo"} if one.covered else {},
            ends=10 if one.ending else None,
            group=one.group,
        )
        for one in case.pods
    ]
    snapshot = make_snapshot(nodes, pods, [make_budget("budget", {"app": "foo"}, 0)], groups=groups)
    member = make_pod("member", "", case.priority, 1)
    snapshot.apply(PutPod(member))
    question = GangQuestion("default/gang", (GangClass(ask(member), case.members),), 1)
    found = plan_gang(snapshot, question, NOW)
    if not isinstance(found, GangPlan):
        return None, 0
    return frozenset(one.pod.uid for one in found.victims), found.price.violations


@pytest.mark.parametrize("name", CASES)
def test_the_victims_for_a_group_are_kube_schedulers_or_differ_by_choice(name: str) -> None:
    case = CASES[name]

    found, violations = victims_of(case)

    assert found == (case.instead if case.why else case.victims)
    assert violations == case.violations


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.why])
def test_a_chosen_difference_takes_no_more_pods(name: str) -> None:
    case = CASES[name]

    assert case.instead is not None
    assert case.instead != case.victims
    assert len(case.instead) <= len(case.victims or ())
