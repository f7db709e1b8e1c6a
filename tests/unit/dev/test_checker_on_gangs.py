"""The checker on orders for pod groups: it finds nothing in good ones, and what is seeded into them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from makeway.bus.messages import ClosedDomain, EvictionOrder
from makeway.dev.checker.gangs import LOOK
from makeway.dev.checker.history import InForce
from unit.dev.recorded_history import (
    EVICTOR,
    SCHEDULER,
    Recording,
    gang_made_no_room,
    gang_made_room,
    gang_pending,
    group_order_of,
)

pytestmark = pytest.mark.tools

LATER = LOOK + timedelta(seconds=1)


def test_a_good_preemption_for_a_group_breaks_no_rule() -> None:
    assert gang_made_room().found() == []
    assert gang_made_no_room().found() == []


def test_an_order_of_which_one_victim_was_not_read_is_found() -> None:
    recording = gang_made_room()
    recording.requests = [e for e in recording.requests if (e.verb, e.name) != ("get", "b")]

    assert recording.found() == ["barrier-skipped"]


@pytest.mark.parametrize(("node", "broken"), [("node-2", []), ("node-1", ["barrier-skipped"])])
def test_a_list_of_its_node_counts_as_a_read_of_a_victim(node: str, broken: list[str]) -> None:
    recording = gang_made_room()
    recording.requests = [
        replace(event, verb="list", name="", uri=f"/pods?fieldSelector=spec.nodeName%3D{node}&limit=20")
        if (event.verb, event.name) == ("get", "b")
        else event
        for event in recording.requests
    ]

    assert recording.found() == broken


def test_an_order_of_which_no_deletion_was_tried_is_found() -> None:
    assert gang_made_room(tried=False).found() == ["barrier-skipped"]


def test_victims_of_a_group_whose_min_count_was_raised_are_found() -> None:
    recording = gang_made_room(gang_pending(min_count=3))

    assert recording.found() == ["gang-short"]


def test_a_member_that_went_after_the_evictor_had_looked_counts() -> None:
    recording = gang_made_room(gang_pending().deleted("train-2", 2.65, "user"))

    assert "gang-short" not in recording.found()


def test_a_member_that_went_long_before_does_not_count() -> None:
    recording = gang_pending().deleted("train-2", 1.6, "user")
    early = gang_made_room(recording)
    early.requests = [
        replace(e, at=e.at + LATER, answered_at=e.answered_at + LATER)
        if e.verb in ("get", "delete") and e.name in ("a", "b")
        else e
        for e in early.requests
    ]

    assert "gang-short" in early.found()


@pytest.mark.parametrize("priority", [1000, 1001])
def test_a_victim_that_is_not_below_the_group_is_found(priority: int) -> None:
    assert gang_made_room(gang_pending(priority=priority)).found() == ["victim-not-lower"]


def test_a_victim_on_another_node_than_the_order_says_is_found() -> None:
    order = group_order_of("a", "b")
    moved = msgspec.structs.replace(order.victims[0], node="node-7")
    recording = gang_made_room()
    recording.orders = [
        replace(stored, message=_with(order, victims=(moved, *order.victims[1:])))
        for stored in recording.orders
    ]

    assert recording.found() == ["victim-elsewhere"]


CLOSES = ClosedDomain(rule="podAntiAffinity", key="example.com/rack", value="a")


def on_a_node_without_a_member(closes: ClosedDomain | None, *, most: int = 32) -> Recording:
    """Room is made for a group of which one victim, b, runs on a node that no member comes to."""
    recording = gang_made_room()
    order = group_order_of("a", "b")
    second = msgspec.structs.replace(order.members[1], node="node-1")
    victims = (order.victims[0], msgspec.structs.replace(order.victims[1], closes=closes))
    changed = _with(order, members=(order.members[0], second), victims=victims)
    recording.orders = [replace(stored, message=changed) for stored in recording.orders]
    recording.in_force = InForce(victims_apart=most)
    return recording


def test_a_victim_on_a_node_without_members_that_keeps_no_domain_closed_is_found() -> None:
    assert "victim-elsewhere" in on_a_node_without_a_member(None).found()


def test_a_victim_on_a_node_without_members_that_keeps_a_domain_closed_is_none() -> None:
    assert not {"victim-elsewhere", "cap-exceeded"} & set(on_a_node_without_a_member(CLOSES).found())


@pytest.mark.parametrize(
    ("member", "victim", "broken"),
    [("a", "a", []), ("a", "b", ["victim-elsewhere"]), ("b", "a", ["victim-elsewhere"])],
)
def test_a_victim_whose_node_or_members_do_not_have_the_label_of_its_domain_is_found(
    member: str, victim: str, broken: list[str]
) -> None:
    recording = (
        on_a_node_without_a_member(CLOSES).node("node-1", 0, rack=member).node("node-2", 0, rack=victim)
    )

    assert [one for one in recording.found() if one == "victim-elsewhere"] == broken


@pytest.mark.parametrize(("seconds", "broken"), [(2.1, []), (-10, ["victim-elsewhere"])])
def test_a_label_changed_after_the_evictors_look_counts_as_it_was(seconds: float, broken: list[str]) -> None:
    recording = on_a_node_without_a_member(CLOSES).node("node-1", -20, rack="a").node("node-2", -20, rack="a")
    recording.node("node-2", seconds, rack="b")

    assert [one for one in recording.found() if one == "victim-elsewhere"] == broken


def test_more_victims_on_nodes_without_members_than_the_policy_allows_are_found() -> None:
    assert "cap-exceeded" in on_a_node_without_a_member(CLOSES, most=0).found()


def test_a_member_that_is_not_tried_again_is_found() -> None:
    recording = gang_made_no_room()
    recording.requests = [e for e in recording.requests if e.resource != "events" or e.name != "train-2.1"]

    assert recording.found() == ["preemptor-idle"]


def short_of_a_pod() -> Recording:
    """Room is made, and then one of two members goes for good, before any is bound."""
    recording = gang_made_room()
    recording.requests = [e for e in recording.requests if e.subresource != "binding"]
    return recording.deleted("train-2", 2.85, "user").removed("train-2", 2.86)


def test_a_gang_with_too_few_pods_need_not_be_tried_but_gives_its_room_up() -> None:
    assert short_of_a_pod().cleared("train-1", 22, SCHEDULER).found() == []
    assert short_of_a_pod().found() == ["preemptor-idle"]
    assert short_of_a_pod().cleared("train-1", 40, SCHEDULER).found() == ["preemptor-idle"]


def _with(order: EvictionOrder, **changes: Any) -> EvictionOrder:
    return msgspec.structs.replace(order, **changes)


def unanswered(recording: Recording, name: str, status: dict[str, Any]) -> Recording:
    """Have the evictor die before the answer to its last patch of a pod, which had this status."""
    last = [e for e in recording.requests if (e.user, e.verb, e.name) == (EVICTOR, "patch", name)][-1]
    request = {**(last.request or {}), "status": status}
    index = recording.requests.index(last)
    recording.requests[index] = replace(last, code=504, request=request, response=None)
    return recording


UNMARK = {"conditions": [{"type": "DisruptionTarget", "$patch": "delete"}]}


def test_what_an_evictor_undid_that_died_before_the_answer_is_undone() -> None:
    unmarked = unanswered(gang_made_no_room(), "b", UNMARK)

    assert unmarked.found() == []
    assert unanswered(unmarked, "train-2", {"nominatedNodeName": None}).found() == []
