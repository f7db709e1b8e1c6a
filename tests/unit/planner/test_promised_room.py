"""Plans that wait for a node that is being made: whose, for which claim, for how long."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from makeway.bus.plan import MemberPlacement
from makeway.core.k8s.node_claims import NodeClaim
from makeway.core.k8s.nodes import RequiredNodes
from makeway.core.k8s.objects import PriorityClass, Toleration
from makeway.core.policy.delay import PREEMPTION_DELAY
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.price import Price
from makeway.planner.plan.promised import (
    LONGEST_PROMISE,
    LOOK_AGAIN,
    MOST_COMING,
    ROOM_PROMISED,
    ComingNodes,
    wait_for_promise,
)
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal, RemovablePod, Scope
from narrowing import as_a
from unit.planner.building import HIGH, NOW, XL, ask, make_class, make_pod, make_snapshot
from unit.planner.caching import plan

SINCE = NOW - timedelta(minutes=2)
TAINT = {"key": "example.com/gpu", "effect": "NoSchedule"}


def claim(name: str = "c1", made: datetime = SINCE + timedelta(seconds=5), **parts: Any) -> NodeClaim:
    metadata = {"name": name, "uid": f"{name}-uid", "creationTimestamp": made, **parts.pop("metadata", {})}
    spec = {"resources": {"requests": {"cpu": "4", "memory": "8Gi"}}, **parts.pop("spec", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, **parts}, NodeClaim)


def question(**constraints: Any) -> Question:
    """Ask for a pod of class `patient` that fits nowhere since `SINCE`."""
    pod = make_pod("P", priority=HIGH, size=XL)
    pod = msgspec.structs.replace(pod, facts=PodFacts(priority=HIGH, priority_class="patient"))
    return replace(ask(pod), unfit_since=SINCE, constraints=Constraints(**constraints))


def classes(delay: str | None = "1m") -> dict[str, PriorityClass]:
    return {"patient": make_class("patient", annotations={} if delay is None else {PREEMPTION_DELAY: delay})}


def answer(*claims: NodeClaim, asked: Question | None = None, delay: str | None = "1m") -> Plan | PlanRefusal:
    asked = asked or question()
    coming = ComingNodes()
    for one in claims:
        coming.put(one)
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", 0, XL)])
    found = as_a(Plan, plan(snapshot, asked, NOW))
    return wait_for_promise(coming, classes(delay), [asked], found, NOW)


def test_a_pod_of_a_class_that_delays_waits_for_a_node_that_is_being_made() -> None:
    found = as_a(PlanRefusal, answer(claim("later", NOW), claim()))

    assert (found.reason, found.retry_at) == (ROOM_PROMISED, NOW + LOOK_AGAIN)
    assert "NodeClaim c1 promises room" in found.message


def test_it_is_looked_at_again_when_the_promise_ends() -> None:
    made = NOW - LONGEST_PROMISE + timedelta(seconds=3)

    found = as_a(PlanRefusal, answer(claim(made=made), asked=replace(question(), unfit_since=made)))

    assert found.retry_at == NOW + timedelta(seconds=3)


@pytest.mark.parametrize(
    "promised",
    [
        claim(made=SINCE - timedelta(minutes=1)),
        claim(made=NOW - LONGEST_PROMISE),
        claim(spec={"resources": {"requests": {"cpu": "1m", "memory": "8Gi"}}}),
        claim(spec={"resources": {}}),
        claim(spec={"taints": [TAINT]}),
        claim(metadata={"deletionTimestamp": NOW}),
        claim(metadata={"labels": {"zone": "b"}}),
        claim(status={"conditions": [{"type": "Initialized", "status": "True"}]}),
    ],
    ids=["before", "too long ago", "too small", "of no size", "tainted", "going", "elsewhere", "there"],
)
def test_a_node_that_is_not_for_the_pod_promises_nothing(promised: NodeClaim) -> None:
    asked = question(nodes=RequiredNodes(labels=(("zone", "a"),)))

    assert isinstance(answer(promised, asked=asked), Plan)


def test_a_taint_that_is_tolerated_and_a_label_that_is_not_known_yet_stand_in_no_way() -> None:
    asked = question(
        nodes=RequiredNodes(labels=(("zone", "a"),)), tolerations=(Toleration(operator="Exists"),)
    )

    assert isinstance(answer(claim(spec={"taints": [TAINT]}), asked=asked), PlanRefusal)


@pytest.mark.parametrize("delay", [None, "0s", "soon"])
def test_a_class_without_a_delay_waits_for_no_node(delay: str | None) -> None:
    assert isinstance(answer(claim(), delay=delay), Plan)


def test_a_pod_of_which_it_is_not_known_since_when_it_fits_nowhere_waits_for_no_node() -> None:
    assert isinstance(answer(claim(), asked=replace(question(), unfit_since=None)), Plan)


def group_answer(*claims: NodeClaim, members: int = 2, small: str = "") -> GangPlan | PlanRefusal:
    """Plan for patient members of which two need pods to go, and a small one of another class of theirs."""
    coming = ComingNodes()
    for one in claims:
        coming.put(one)
    large, other = question(), ask(make_pod("small", "", HIGH, 1))
    facts = PodFacts(priority=HIGH, priority_class=small)
    other = replace(other, preemptor=msgspec.structs.replace(other.preemptor, facts=facts))
    full = [make_pod(node, node, 0, XL) for node in ("n1", "n2")]
    snapshot = make_snapshot(["n1", "n2", "free"], [*full, large.preemptor, other.preemptor])
    asked = GangQuestion("default/gang", (GangClass(other, 1), GangClass(large, members)), members + 1)
    found = as_a(GangPlan, plan_gang(snapshot, asked, NOW))
    return wait_for_promise(coming, classes(), [other, large], found, NOW)


ONE = {"resources": {"requests": {"cpu": "500m", "memory": "500"}}}


@pytest.mark.parametrize(
    ("claims", "waits"),
    [
        ([claim(spec=ONE), claim("c2", spec=ONE)], True),
        ([claim()], True),
        ([claim(spec=ONE)], False),
        ([], False),
    ],
    ids=["a node each", "one for both", "one for one", "none"],
)
def test_a_group_waits_where_all_its_members_for_which_pods_go_are_promised_room(
    claims: list[NodeClaim], waits: bool
) -> None:
    found = group_answer(*claims)

    assert isinstance(found, PlanRefusal) == waits
    if isinstance(found, PlanRefusal):
        assert (found.reason, found.retry_at) == (ROOM_PROMISED, NOW + LOOK_AGAIN)


def test_a_member_for_which_no_pod_goes_has_its_group_wait_for_nothing() -> None:
    assert isinstance(group_answer(claim(), members=0, small="patient"), GangPlan)


@pytest.mark.parametrize(
    ("room", "zones", "waits"),
    [
        (("500m",), ("", ""), False),
        (("1",), ("", ""), True),
        (("500m", "500m"), ("", ""), True),
        (("500m", "500m"), ("a", ""), True),
        (("500m", "500m"), ("", "a"), True),
        (("500m", "500m"), ("a", "a"), False),
    ],
)
def test_members_of_two_classes_are_not_promised_the_same_room(
    room: tuple[str, ...], zones: tuple[str, str], waits: bool
) -> None:
    """A class may be bound to a zone: the first node is in zone a, the second in zone b."""
    coming = ComingNodes()
    for name, cpu in zip("ab", room, strict=False):
        spec = {"resources": {"requests": {"cpu": cpu, "memory": "8Gi"}}}
        coming.put(claim(name, spec=spec, metadata={"labels": {"zone": name}}))
    asked = [question(nodes=RequiredNodes(labels=(("zone", zone),) if zone else ())) for zone in zones]
    scope = Scope(1, 2, 2)
    victims = tuple(
        RemovablePod(pod=make_pod(node, node, 0, XL), rule="", victim=True, pdb_violating=False)
        for node in ("n1", "n2")
    )
    placements = tuple(MemberPlacement(member_class=cls, node=f"n{cls + 1}", count=1) for cls in (0, 1))
    found = GangPlan(scope, placements, victims, (), Price())

    assert isinstance(wait_for_promise(coming, classes(), asked, found, NOW), PlanRefusal) == waits


def test_claims_are_followed_up_to_a_bound_and_forgotten() -> None:
    coming = ComingNodes()
    for number in range(MOST_COMING + 1):
        coming.put(claim(f"c{number}"))

    assert len(coming.by_uid) == MOST_COMING
    coming.drop(claim("c0"))
    coming.put(claim("c1", status={"conditions": [{"type": "Initialized", "status": "True"}]}))
    coming.put(claim("c2", spec={"resources": {"requests": {"cpu": "much"}}}))
    assert not {"c0-uid", "c1-uid", "c2-uid"} & coming.by_uid.keys()
    coming.retain({"c3-uid"})
    assert coming.by_uid.keys() == {"c3-uid"}
