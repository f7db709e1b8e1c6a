"""The checker on orders for pod groups: it finds nothing in good ones, and what is seeded into them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from makeway.bus.messages import ClosedDomain, EvictionOrder
from makeway.dev.checker.history import InForce
from unit.dev.recorded_history import (
    Recording,
    gang_made_no_room,
    gang_made_room,
    gang_pending,
    group_order_of,
)

pytestmark = pytest.mark.tools


def test_a_good_preemption_for_a_group_breaks_no_rule() -> None:
    assert gang_made_room().found() == []
    assert gang_made_no_room().found() == []


def test_an_order_of_which_one_victim_was_not_read_is_found() -> None:
    recording = gang_made_room()
    recording.requests = [e for e in recording.requests if (e.verb, e.name) != ("get", "b")]

    assert recording.found() == ["barrier-skipped"]


def test_an_order_of_which_no_deletion_was_tried_is_found() -> None:
    assert gang_made_room(tried=False).found() == ["barrier-skipped"]


def test_victims_of_a_group_whose_min_count_was_raised_are_found() -> None:
    recording = gang_made_room(gang_pending(min_count=3))

    assert recording.found() == ["gang-short"]


@pytest.mark.parametrize("priority", [1000, 1001])
def test_a_victim_that_is_not_below_the_group_is_found(priority: int) -> None:
    assert gang_made_room(gang_pending(priority=priority)).found() == ["victim-not-lower"]


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


def test_more_victims_on_nodes_without_members_than_the_policy_allows_are_found() -> None:
    assert "cap-exceeded" in on_a_node_without_a_member(CLOSES, most=0).found()


def test_a_member_that_is_not_tried_again_is_found() -> None:
    recording = gang_made_no_room()
    recording.requests = [e for e in recording.requests if e.resource != "events" or e.name != "train-2.1"]

    assert recording.found() == ["preemptor-idle"]


def _with(order: EvictionOrder, **changes: Any) -> EvictionOrder:
    return msgspec.structs.replace(order, **changes)
