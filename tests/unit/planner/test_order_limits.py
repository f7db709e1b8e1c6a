"""How many orders may be without an outcome, and of which namespace and priority."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders_bus import make_group, make_preemptor
from makeway.bus.messages import PAST_DEADLINE, EvictionOrder, Outcome
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.limits import (
    ASKED_AGAIN,
    LATELY,
    MOST_NAMESPACES,
    MOST_ORDERS,
    MOST_WAITING,
    NAMESPACE_SHARE,
    ORDERS_IN_FLIGHT,
    HeldOrder,
    LimitedPreemptors,
    by_namespace,
    kept_for_higher,
    limit_reached,
    most_orders,
    share_of,
)
from makeway.planner.orders.not_now import Asker, NotNow
from makeway.planner.plan.result import Plan, PlanCandidate, Scope
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.planner.building import HIGH, make_order, make_outcome, make_pod, make_snapshot

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SYSTEM = 2_000_001_000
PLAN = Plan(Scope(1, 1, 1), (), 0, (PlanCandidate("n1", (), (), 0, 0, 0),), 1)


def held(count: int, namespace: str = "a", priority: int = 1) -> list[HeldOrder]:
    return [HeldOrder(namespace, priority, NOW + MINUTE) for _ in range(count)]


def asking(namespace: str = "b", priority: int = 1, uid: str = "P") -> Asker:
    return Asker(uid, namespace, priority)


def reason(who: Asker, orders: list[HeldOrder], most: int = 100, *, others_wait: bool = False) -> str:
    reached = limit_reached(who, orders, most, NOW, others_wait=others_wait)
    return reached.reason if reached else ""


def order(number: int, *, uid: str = "", namespace: str = "a", group: bool = False) -> EvictionOrder:
    preemptor = make_preemptor(uid or f"p{number}", namespace=namespace, name="p", priority=1)
    about = make_group(uid or f"g{number}", namespace=namespace, name="g", priority=1, must_place=1000)
    return make_order(
        f"ord-{number}",
        NOW,
        kind="group" if group else "pod",
        preemptor=None if group else preemptor,
        group=about if group else None,
        node="" if group else "n1",
    )


def outcome(number: int) -> Outcome:
    return make_outcome(f"ord-{number}", NOW, preemptor_uid=f"p{number}")


def cluster(most: int | None = None) -> Snapshot:
    pods = [make_pod(f"{name}{n}", priority=HIGH, namespace=name) for name in "abc" for n in range(20)]
    return make_snapshot(["n1"], pods, policy=Policy(limits=PolicyLimits(orders_in_flight=most)))


def test_a_tenth_is_kept_for_priorities_above_those_that_hold_the_rest() -> None:
    assert reason(asking(priority=2), held(90)) == ""
    assert reason(asking(priority=2), held(90) + held(9, priority=2)) == ""
    assert reason(asking(priority=2), held(89) + held(1, priority=2)) == ORDERS_IN_FLIGHT
    assert reason(asking(priority=SYSTEM), held(100)) == ORDERS_IN_FLIGHT


def test_a_namespace_with_its_share_still_has_what_is_kept_for_higher_priorities() -> None:
    assert reason(asking("a", SYSTEM), held(90), others_wait=True) == ""


def test_the_refusal_says_the_numbers_and_when_it_ends() -> None:
    whole = limit_reached(asking(), held(90), 100, NOW, others_wait=False)
    share = limit_reached(asking("a"), held(30), 100, NOW, others_wait=True)

    assert whole == NotNow(
        ORDERS_IN_FLIGHT,
        "90 eviction orders have no outcome yet, and limits.ordersInFlight of the policy allows 100, of "
        "which 10 are kept for higher priorities; the next try is when one of them ends",
        NOW + ASKED_AGAIN,
        (("orders", "", "limits.ordersInFlight"),),
    )
    assert share is not None
    assert share.message.startswith(
        "30 eviction orders for namespace a have no outcome yet; while preemptors of other namespaces wait, "
        "one namespace has at most 25 of the 100 that limits.ordersInFlight of the policy allows; "
    )
    assert share.depends_on == (("orders", "a", "limits.ordersInFlight"),)


@pytest.mark.parametrize(("most", "kept", "share"), [(1, 0, 1), (2, 1, 1), (10, 1, 2), (1000, 100, 250)])
def test_of_few_orders_one_is_kept_and_one_is_a_share(most: int, kept: int, share: int) -> None:
    assert (kept_for_higher(most), share_of(most)) == (kept, share)


def test_the_policy_may_lower_the_limit_and_not_raise_it() -> None:
    assert most_orders(PolicyLimits()) == MOST_ORDERS
    assert most_orders(PolicyLimits(orders_in_flight=7)) == 7
    assert most_orders(PolicyLimits(orders_in_flight=1_000_000)) == MOST_ORDERS


events = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.booleans(), st.integers(0, 50)), max_size=150
)


@given(most=st.integers(1, 40), events=events)
def test_whatever_comes_limit_and_shares_hold(most: int, events: list[tuple[str, int, bool, int]]) -> None:
    orders: list[HeldOrder] = []
    for namespace, priority, others_wait, ends in events:
        who = asking(namespace, priority)
        own = sum(one.namespace == namespace for one in orders)
        lower = sum(one.priority < priority for one in orders)
        general = most - kept_for_higher(most)
        if limit_reached(who, orders, most, NOW, others_wait=others_wait) is None:
            assert len(orders) < most
            assert len(orders) < general or lower >= general
            assert not others_wait or own < share_of(most) or lower >= general
            orders.append(HeldOrder(namespace, priority))
        else:
            assert len(orders) >= general or own >= share_of(most)
        for p in range(1, 5):
            assert sum(one.priority == p for one in orders) <= general
        if ends < len(orders):
            orders.pop(ends)


@given(priorities=st.lists(st.integers(1, 100), max_size=300), most=st.integers(2, 100))
def test_many_preemptors_of_one_priority_keep_out_no_higher_one(priorities: list[int], most: int) -> None:
    one = max(priorities, default=1)
    orders: list[HeldOrder] = []
    for _ in priorities:
        if limit_reached(asking("a", one), orders, most, NOW, others_wait=False) is None:
            orders.append(HeldOrder("a", one))

    assert reason(asking("b", one + 1), orders, most) == ""


def test_orders_count_until_their_outcome_however_long_their_victims_take() -> None:
    ledger, snapshot = Ledger(), cluster()
    for number in range(MOST_ORDERS):
        ledger.ordered(order(number))
    assert ledger.limit(asking(priority=SYSTEM), PLAN, snapshot, NOW) is not None

    for number in range(MOST_ORDERS):
        ledger.ended(outcome(number))

    assert ledger.limit(asking(priority=1), PLAN, snapshot, NOW) is None


def test_two_large_groups_are_two_orders() -> None:
    ledger = Ledger()
    for number in range(2):
        ledger.ordered(order(number, group=True))

    assert len(ledger.held(NOW)) == 2
    assert ledger.limit(asking(), PLAN, cluster(), NOW) is None


def test_orders_that_no_stream_has_yet_count_once() -> None:
    ledger, held = Ledger(), [HeldOrder("a", 1, NOW + MINUTE + PAST_DEADLINE)]

    ledger.reserve(order(1, uid="a1"))
    first = ledger.held(NOW)
    ledger.ordered(order(1, uid="a1"))

    assert (first, ledger.held(NOW)) == (held, held)
    assert ledger.held(NOW, asking="a1") == []


def test_an_order_without_an_outcome_counts_no_longer_than_it_may_live() -> None:
    ledger = Ledger()
    ledger.ordered(order(1))

    assert len(ledger.held(NOW)) == 1
    assert ledger.held(NOW + 2 * MINUTE + PAST_DEADLINE) == []


def test_while_others_wait_the_share_holds_and_ends_when_they_are_served() -> None:
    ledger, snapshot = Ledger(), cluster(8)
    for number in range(7):
        ledger.ordered(order(number))
    other, own = asking("b", uid="b1"), asking("a", uid="a1")
    waits = ledger.limit(other, PLAN, snapshot, NOW)
    ledger.ended(outcome(0))

    share = ledger.limit(own, PLAN, snapshot, NOW)
    served = ledger.limit(other, PLAN, snapshot, NOW)
    after = ledger.limit(own, PLAN, snapshot, NOW)

    assert there(waits).reason == ORDERS_IN_FLIGHT
    assert there(share).reason == NAMESPACE_SHARE
    assert (served, after) == (None, None)


def test_a_preemptor_that_is_gone_or_was_refused_long_ago_does_not_wait() -> None:
    waiting, pods = LimitedPreemptors(), cluster().pods
    waiting.refused(asking("b", uid="b1"), NOW)
    waiting.refused(asking("c", uid="gone"), NOW)

    assert waiting.beside("a", pods, NOW + LATELY)
    assert not waiting.beside("b", pods, NOW)
    assert not waiting.beside("a", pods, NOW + LATELY + timedelta(seconds=1))
    assert len(waiting) == 0


def test_no_more_preemptors_are_remembered_than_there_is_room_for() -> None:
    waiting = LimitedPreemptors()
    for number in range(MOST_WAITING + 1):
        waiting.refused(asking(uid=str(number)), NOW)

    assert len(waiting) == MOST_WAITING


def test_a_plan_without_an_order_is_in_no_limit() -> None:
    ledger, snapshot = Ledger(), cluster(1)
    ledger.ordered(order(1))
    on_its_way = replace(PLAN, candidates=(PlanCandidate("n1", (), (), 0, 0, 0),), unmodelled=())

    assert ledger.limit(asking(), on_its_way, snapshot, NOW) is None
    assert ledger.limit(asking(), PLAN, snapshot, NOW) is not None


def test_the_metric_names_twenty_namespaces_at_the_most() -> None:
    orders = [one for n in range(30) for one in held(30 - n, f"ns{n}")]

    counted = by_namespace(orders)

    assert len(counted) == MOST_NAMESPACES + 1 == 20
    assert counted["ns0"] == 30
    assert counted["other"] == sum(range(1, 12))
    assert sum(counted.values()) == len(orders)
