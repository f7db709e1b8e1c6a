"""Orders in flight: whose place another order takes."""

from datetime import UTC, datetime

from builders_bus import make_order, make_outcome, make_preemptor
from makeway.bus.messages import NominationToClear
from makeway.nominator.in_flight import OrdersInFlight


def test_an_order_takes_the_place_of_those_whose_nomination_it_clears_on_its_node_alone() -> None:
    orders = OrdersInFlight()
    there = make_order(order_id="ord-1", preemptor=make_preemptor("uid-there", name="there"), node="n1")
    elsewhere = make_order(
        order_id="ord-2", preemptor=make_preemptor("uid-elsewhere", name="elsewhere"), node="n2"
    )
    cleared = tuple(
        NominationToClear(namespace="shop", name=name, uid=f"uid-{name}") for name in ("there", "elsewhere")
    )
    higher = make_order(
        order_id="ord-3", preemptor=make_preemptor("uid-p", name="p"), node="n1", nominations_to_clear=cleared
    )
    first = orders.begin(there, stored=True)
    orders.begin(elsewhere, stored=True)

    assert orders.outnominated_by(higher) == (first,)
    assert orders.outnominated_by(elsewhere) == ()


def test_what_waits_for_terminating_pods_holds_its_place_and_is_in_no_bound() -> None:
    orders, until = OrdersInFlight(), datetime(2026, 1, 31, 12, 1, tzinfo=UTC)

    one = orders.begin(
        make_order(preemptor=make_preemptor("uid-p", name="p"), node="n1", victims=()), waits_until=until
    )

    assert (one.waits, one.until) == (True, until)
    assert orders.without_outcome() == 0


def test_an_order_whose_outcome_is_known_waits_for_none_while_its_nomination_is_taken_back() -> None:
    orders = OrdersInFlight()
    one = orders.begin(make_order(preemptor=make_preemptor("uid-p", name="p"), node="n1"), stored=True)
    assert orders.without_outcome() == 1

    one.outcome = make_outcome(one.order, result="failed", reason="x")

    assert orders.without_outcome() == 0


def test_rooms_are_looked_at_in_turn_so_many_at_a_time() -> None:
    orders, now = OrdersInFlight(), datetime(2026, 1, 31, 12, 1, tzinfo=UTC)
    for number in range(5):
        one = orders.begin(make_order(preemptor=make_preemptor(f"uid-{number}")), stored=True)
        one.made = number < 4

    first = orders.to_look_at(now, 3)
    for uid in first:
        orders.of(uid).looks_at = now  # type: ignore[union-attr]

    assert first == {"uid-0", "uid-1", "uid-2"}
    assert orders.to_look_at(now, 3) == {"uid-3", "uid-0", "uid-1"}
