"""Orders that are not carried out through no fault of their pods hold plans back; now and then one probes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from builders_bus import make_victim
from makeway.bus.messages import EvictionOrder, Outcome, Preemptor, Victim
from makeway.planner.orders.breakers import (
    BREAKER_OPEN,
    FIRST,
    LONGEST,
    MOST_NAMESPACES,
    NO_EVICTOR,
    NOT_STORED,
    TURN,
    Breakers,
)
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker, NotNow
from narrowing import there
from unit.planner.building import NOW, make_order, make_outcome
from unit.planner.test_pledges import pod, two_nodes


def order(order_id: str, namespace: str = "shop", *victims: Victim) -> EvictionOrder:
    about = Preemptor(namespace=namespace, name="p", uid="p", priority=1, scheduler_name="s")
    return make_order(order_id, preemptor=about, node="n1", victims=victims)


def outcome(
    order_id: str, result: str = "refused", reason: str = "breaker-open", at: datetime = NOW
) -> Outcome:
    return make_outcome(order_id, result=result, reason=reason, finished_at=at)


NUMBERS = count()
FAILED, SUCCEEDED = outcome("x", "failed", "x"), outcome("y", "succeeded", "")


def held(breakers: Breakers, at: datetime, namespace: str = "shop", uid: str = "") -> NotNow | None:
    """Whether a preemptor is held back; each call is another one's, where its UID is not given."""
    return breakers.held(Asker(uid or f"pod-{next(NUMBERS)}", namespace, 1), at)


def reason(breakers: Breakers, namespace: str = "shop", seconds: float = 0, uid: str = "") -> str:
    found = held(breakers, NOW + timedelta(seconds=seconds), namespace, uid)
    return "" if found is None else found.reason


def test_it_opens_after_two_in_a_row_and_one_plan_probes_less_often_each_time() -> None:
    breakers, at = Breakers(), NOW
    breakers.unanswered(order("o1"), at)
    assert held(breakers, at) is None
    breakers.unanswered(order("o2"), at)
    breakers.unanswered(order("o3"), at)  # from before it opened

    for lasts in (FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, LONGEST, LONGEST):
        found = there(held(breakers, at))
        assert (found.reason, found.retry_at) == (NO_EVICTOR, at + lasts)
        at += lasts
        assert held(breakers, at) is None, "its turn"
        assert held(breakers, at) is not None, "one at a time"
        breakers.begun(order("probe"))
        breakers.unanswered(order("probe"), at)


def test_a_plan_that_becomes_no_order_leaves_the_turn_to_the_next() -> None:
    breakers = Breakers()
    for id_ in ("o1", "o2"):
        breakers.unstored(id_, NOW)

    assert [reason(breakers, seconds=at) for at in (5, 6, 5 + TURN.total_seconds())] == ["", NOT_STORED, ""]


def test_who_has_the_turn_to_probe_may_ask_again_and_prolongs_it_by_nothing() -> None:
    breakers, turn = Breakers(), TURN.total_seconds()
    for id_ in ("o1", "o2"):
        breakers.unstored(id_, NOW)

    assert [reason(breakers, seconds=at, uid="mine") for at in (5, 6, 5 + turn - 0.1)] == ["", "", ""]
    assert reason(breakers, seconds=5 + turn - 0.1, uid="other") == NOT_STORED
    assert reason(breakers, seconds=5 + turn, uid="other") == "", "its turn"
    assert reason(breakers, seconds=5 + turn, uid="mine") == NOT_STORED
    breakers.begun(order("probe"))
    assert reason(breakers, seconds=5 + turn, uid="other") == NOT_STORED, "its order is the probe"


@pytest.mark.parametrize(
    ("fail", "mend", "closed"),
    [
        (lambda b, id_: b.unstored(id_, NOW), lambda b: b.stored(), True),
        (lambda b, id_: b.unanswered(order(id_), NOW), lambda b: b.stored(), False),
        (
            lambda b, id_: b.unanswered(order(id_), NOW),
            lambda b: b.ended(outcome("x", "failed", "x"), ""),
            True,
        ),
        (
            lambda b, id_: b.ended(outcome(id_), "shop"),
            lambda b: b.ended(outcome("x", "failed", "x"), ""),
            False,
        ),
        (
            lambda b, id_: b.ended(outcome(id_), "shop"),
            lambda b: b.ended(outcome("x", "succeeded", ""), ""),
            True,
        ),
    ],
)
def test_it_closes_once_what_failed_works(
    fail: Callable[[Breakers, str], None], mend: Callable[[Breakers], None], closed: bool
) -> None:
    breakers = Breakers()
    fail(breakers, "o1")
    fail(breakers, "o2")
    assert reason(breakers)

    mend(breakers)

    assert (reason(breakers) == "") == closed


def test_what_evictors_refuse_for_one_namespace_holds_back_no_other() -> None:
    breakers = Breakers()
    for id_ in ("o1", "o2"):
        breakers.ended(outcome(id_, reason="breaker-open-namespace"), "shop")

    assert (reason(breakers), reason(breakers, "bank")) == (BREAKER_OPEN, "")
    breakers.begun(order("probe"))
    breakers.ended(outcome("probe", "cancelled", "preemptor-gone"), "shop")
    assert reason(breakers) == "", "the probe says nothing: another one may"
    breakers.ended(outcome("o3", "succeeded", ""), "shop")
    assert reason(breakers) == ""


def test_orders_that_one_namespace_keeps_from_ending_hold_back_no_other() -> None:
    breakers = Breakers()
    for id_, namespace in (("o1", "shop"), ("o2", "shop"), ("o3", "bank")):
        breakers.unanswered(order(id_, namespace, make_victim("v", namespace="shop")), NOW)

    assert (reason(breakers), reason(breakers, "bank"), reason(breakers, "mill")) == (NO_EVICTOR, "", "")
    assert "no outcome in time for namespace shop" in there(held(breakers, NOW)).message
    breakers.unanswered(order("o4", "mill"), NOW)
    assert reason(breakers, "mill") == NO_EVICTOR, "these have nothing in common: there is no evictor"
    breakers.ended(outcome("o5", "failed", "x"), "mill")
    assert (reason(breakers), reason(breakers, "mill")) == ("", "")


def test_a_preemptor_that_its_namespace_holds_back_takes_no_turn_from_others() -> None:
    breakers = Breakers()
    for id_ in ("o1", "o2"):
        breakers.unstored(id_, NOW)
        breakers.ended(outcome(id_, reason="breaker-open-namespace", at=NOW + timedelta(seconds=3)), "shop")

    assert [reason(breakers, seconds=6), reason(breakers, "bank", seconds=6)] == [BREAKER_OPEN, ""]
    assert reason(breakers, "bank", seconds=7) == NOT_STORED, "one at a time"


def test_orders_of_different_ends_in_turn_open_nothing() -> None:
    breakers = Breakers()
    breakers.unstored("o1", NOW)
    breakers.unanswered(order("o2"), NOW)
    for number in range(4):
        breakers.ended(outcome(f"r{number}"), "shop")
        breakers.ended(outcome(f"s{number}", "succeeded", ""), "shop")

    assert reason(breakers) == ""


def test_namespaces_are_remembered_up_to_a_bound() -> None:
    breakers = Breakers()
    for number in range(MOST_NAMESPACES + 1):
        for id_ in ("o1", "o2"):
            breakers.ended(outcome(id_, reason="breaker-open-namespace"), f"ns-{number}")

    assert (reason(breakers, "ns-0"), reason(breakers, "ns-1")) == ("", BREAKER_OPEN)


def test_the_ledger_counts_orders_without_an_outcome_and_not_those_that_were_not_stored() -> None:
    ledger = Ledger()
    for id_ in ("o1", "o2"):
        ledger.reserve(order(id_))
    assert ledger.live_beside("x", "x", NOW + timedelta(minutes=2)) == ""
    assert reason(ledger.breakers) == ""

    for id_ in ("o3", "o4"):
        ledger.ordered(order(id_))
    assert ledger.live_beside("x", "x", NOW + timedelta(minutes=2)) == ""
    assert reason(ledger.breakers, seconds=62) == NO_EVICTOR
    ledger.ended(outcome("o5", "failed", "x"))
    assert reason(ledger.breakers, seconds=62) == ""


def test_orders_whose_ends_are_read_and_forgotten_before_them_say_nothing_of_the_evictors() -> None:
    ledger, before = Ledger(), NOW - timedelta(minutes=15)
    for id_ in ("o1", "o2"):
        ledger.ended(outcome(id_, "succeeded", "", before))
    ledger.held(NOW)  # forgets ends of so long ago

    for id_ in ("o1", "o2"):
        ledger.ordered(make_order(id_, before, preemptor=order(id_).preemptor))
    ledger.held(NOW)

    assert [reason(ledger.breakers) for _ in range(2)] == ["", ""]


def test_an_order_that_is_not_stored_for_its_own_sake_leaves_the_probe_to_the_next() -> None:
    ledger = Ledger()
    for id_ in ("o1", "o2"):
        ledger.ordered(order(id_))
    assert ledger.live_beside("x", "x", NOW + timedelta(minutes=2)) == ""
    assert reason(ledger.breakers, seconds=70) == ""
    ledger.reserve(make_order("probe", NOW + timedelta(seconds=70), preemptor=order("p").preemptor))
    assert reason(ledger.breakers, seconds=73) == NO_EVICTOR

    ledger.withdraw("probe")  # its pod is gone, say

    assert reason(ledger.breakers, seconds=73) == ""


def test_an_order_of_a_quota_takes_no_probe_from_a_pod() -> None:
    ledger = Ledger()
    ledger.breakers.unanswered(order("o1"), NOW)
    ledger.breakers.unanswered(order("o2"), NOW)
    assert reason(ledger.breakers, seconds=FIRST.total_seconds()) == ""
    ledger.reserve(make_order("probe", NOW + timedelta(seconds=70), preemptor=order("p").preemptor))

    ledger.reserve(make_order("ord-q", kind="quota", queue="root.a"))
    ledger.withdraw("ord-q")

    assert reason(ledger.breakers, seconds=60) == NO_EVICTOR, "the pod's order is the probe still"


def test_an_order_that_the_stream_does_not_take_is_not_probed_again_at_once() -> None:
    ledger = Ledger()
    for id_ in ("o1", "o2", "o3"):
        ledger.reserve(order(id_))
        ledger.unstored(id_, NOW)
        ledger.withdraw(id_)

    assert reason(ledger.breakers, seconds=9) == NOT_STORED
    assert reason(ledger.breakers, seconds=10) == ""


@pytest.mark.parametrize(
    ("fail", "status", "told"),
    [
        (lambda b, now: b.unstored("o", now), "notSynced", NOT_STORED),
        (
            lambda b, now: b.ended(make_outcome("o", reason="breaker-open", finished_at=now), ""),
            "refused",
            BREAKER_OPEN,
        ),
    ],
)
async def test_a_plan_that_would_not_be_carried_out_is_told_as_none_or_refused(
    fail: Callable[..., None], status: str, told: str
) -> None:
    bench = two_nodes()
    for _ in range(2):
        fail(bench.ledger.breakers, datetime.now(UTC))

    reply = await bench.ask(pod=pod("p"))

    assert (reply.status, there(reply.refusal).reason) == (status, told)
    assert (await bench.ask(pod=pod("p"), mode="observe")).candidates
