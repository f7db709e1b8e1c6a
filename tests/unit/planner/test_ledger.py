"""Which pods are on their way out, and through which order."""

from datetime import timedelta

import pytest

from builders_bus import make_preemptor, make_victim
from makeway.bus.messages import (
    EvictionOrder,
    Outcome,
    OutcomeResult,
    StreamPosition,
    VictimOutcome,
    VictimResult,
)
from makeway.planner.orders import ledger as module
from makeway.planner.orders.ledger import REMEMBERED, Ledger
from unit.planner.building import NOW, make_order, make_outcome


def order(order_id: str, *victims: str) -> EvictionOrder:
    return make_order(
        order_id, victims=tuple(make_victim(uid, namespace="ns", uid=uid, node="n") for uid in victims)
    )


def outcome(order_id: str, result: OutcomeResult, **victims: VictimResult) -> Outcome:
    return make_outcome(
        order_id,
        result=result,
        victims=tuple(
            VictimOutcome(namespace="ns", name=uid, uid=uid, result=became) for uid, became in victims.items()
        ),
    )


def test_what_a_lost_stream_held_is_forgotten_until_it_is_read_again() -> None:
    ledger = Ledger()
    ledger.ordered(order("ord-1", "a"))
    ledger.ordered(order("ord-2", "b"))
    ledger.ended(outcome("ord-2", "succeeded", b="deleted"))

    ledger.forget_live()
    ledger.ordered(order("ord-2", "b"))

    assert ledger.in_flight(NOW) == {}


def test_without_an_outcome_they_are_in_flight_until_two_seconds_past_the_deadline() -> None:
    ledger = Ledger()
    ledger.ordered(order("ord-1", "a"))

    assert ledger.in_flight(NOW + timedelta(seconds=62)) == {"a": "ord-1"}
    assert ledger.in_flight(NOW + timedelta(seconds=62, microseconds=1)) == {}
    assert len(ledger) == 0


def test_victims_of_an_order_that_succeeded_are_awaited_until_the_watch_shows_them_leaving() -> None:
    staying = {"a", "b", "c"}
    ledger = Ledger(staying.__contains__)
    ledger.ended(outcome("ord-1", "succeeded", a="deleted", b="terminating", c="spared"))

    assert ledger.in_flight(NOW) == {"a": "ord-1", "b": "ord-1"}

    staying.remove("a")

    assert ledger.in_flight(NOW) == {"b": "ord-1"}


def test_victims_that_the_watch_shows_staying_are_not_awaited_for_ever() -> None:
    ledger = Ledger(lambda uid: True)
    ledger.ended(outcome("ord-1", "succeeded", a="deleted"))

    assert ledger.in_flight(NOW + REMEMBERED) == {"a": "ord-1"}
    assert ledger.in_flight(NOW + REMEMBERED + timedelta(seconds=1)) == {}


def test_victims_of_an_order_that_failed_are_not_awaited() -> None:
    ledger = Ledger(lambda uid: True)
    ledger.ended(outcome("ord-1", "failed", a="deleted"))

    assert ledger.in_flight(NOW) == {}


def test_a_pod_that_two_orders_name_belongs_to_the_elder() -> None:
    ledger = Ledger()
    ledger.ordered(order("ord-2", "a"))
    ledger.ordered(order("ord-1", "a"))

    assert ledger.in_flight(NOW) == {"a": "ord-1"}


def test_only_removed_pods_are_leaving_and_only_for_a_while() -> None:
    ledger = Ledger()
    ledger.ended(outcome("ord-1", "failed", a="deleted", b="failed", c="notAttempted", d="terminating"))

    assert ledger.leaving(NOW) == {"a", "d"}
    assert ledger.leaving(NOW + timedelta(seconds=11)) == frozenset()


def test_a_preemptor_that_asks_does_not_count_on_an_order_of_its_own() -> None:
    ledger = Ledger()
    ledger.ordered(make_order("ord-1", preemptor=make_preemptor("uid-p"), victims=order("", "a").victims))
    ledger.ordered(order("ord-2", "b"))

    assert ledger.in_flight(NOW, asking="uid-p") == {"b": "ord-2"}
    assert ledger.in_flight(NOW, asking="uid-other") == {"a": "ord-1", "b": "ord-2"}


def test_what_ended_long_ago_is_kept_nowhere_though_no_plan_asks_what_is_leaving() -> None:
    ledger = Ledger()
    ledger.ended(outcome("ord-1", "succeeded", a="deleted"))

    ledger.in_flight(NOW + timedelta(seconds=11))

    assert not ledger._lately


def test_victims_of_any_order_are_named_however_it_ended_until_they_are_forgotten() -> None:
    ledger = Ledger()
    ledger.ordered(order("ord-1", "refused", "gone"))
    assert ledger.names("refused")
    assert not ledger.names("another")

    assert ledger.ended(outcome("ord-1", "failed", refused="failed", gone="deleted"))
    assert not ledger.ended(outcome("ord-1", "failed", refused="failed", gone="deleted")), "it is read again"
    ledger.ended(outcome("ord-2", "refused", spared="spared"))  # read before its order

    ledger.in_flight(NOW + REMEMBERED)
    assert all(ledger.names(uid) for uid in ("refused", "gone", "spared"))
    ledger.in_flight(NOW + REMEMBERED + timedelta(minutes=2))
    assert not any(ledger.names(uid) for uid in ("refused", "gone", "spared"))


def test_no_more_victims_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 2)
    ledger = Ledger()

    ledger.ordered(order("ord-1", "a", "b", "c"))

    assert [uid for uid in "abc" if ledger.names(uid)] == ["b", "c"]


@pytest.mark.parametrize(
    ("own", "other", "read"),
    [
        (("a", 7), None, True),
        (("a", 7), ("a", 7), True),
        (("a", 7), ("a", 8), False),
        (("a", 8), ("a", 7), True),
        (("a", 7), ("b", 8), True),
        (None, ("a", 8), True),
    ],
)
def test_what_another_has_read_is_compared_within_one_stream(
    own: tuple[str, int] | None, other: tuple[str, int] | None, read: bool
) -> None:
    def position(of: tuple[str, int] | None) -> StreamPosition | None:
        return None if of is None else StreamPosition(created=of[0], sequence=of[1])

    ledger = Ledger()
    ledger.outcomes_read = position(own)

    assert ledger.has_read(position(other)) is read
