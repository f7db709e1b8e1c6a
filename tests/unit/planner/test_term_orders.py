"""What a plan for a group would have cost with other orders of the terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from makeway.bus.messages import GroupPrice
from makeway.core.policy.document import OBJECTIVE, GroupTerm
from makeway.planner.offline.results import OtherOrders
from makeway.planner.offline.term_orders import other_orders

Terms = tuple[GroupTerm, ...]


def price(
    victims: int = 1,
    highest: int = 0,
    *,
    budgets: int = 0,
    groups: int = 0,
    as_high: int = 0,
    total: int = 0,
) -> GroupPrice:
    return GroupPrice(
        pdb_violations=budgets,
        highest_priority=highest,
        groups_broken=groups,
        highest_victims=as_high,
        priority_sum=total,
        victims=victims,
    )


def key(one: GroupPrice, order: Terms) -> tuple[int, ...]:
    terms = {
        "budgets": one.pdb_violations,
        "highestPriority": one.highest_priority,
        "groups": one.groups_broken,
        "highestVictims": one.highest_victims,
        "prioritySum": one.priority_sum,
        "victims": one.victims,
    }
    return tuple(terms[term] for term in order)


class Cheapest:
    """A planner that finds the cheapest of some plans, and how often it was asked."""

    def __init__(self, plans: Iterable[GroupPrice]) -> None:
        self.plans = list(plans)
        self.orders: list[Terms] = []

    def __call__(self, order: Terms) -> GroupPrice:
        self.orders.append(order)
        return min(self.plans, key=lambda one: key(one, order))


def looked_at(
    planner: Cheapest, objective: Terms = OBJECTIVE, may_go_on: Callable[[], bool] = lambda: True
) -> OtherOrders:
    own = min(planner.plans, key=lambda one: key(one, objective))
    return other_orders(own, objective, planner, may_go_on)


def test_a_plan_that_is_best_in_every_term_is_the_plan_of_every_order() -> None:
    planner = Cheapest([price(1), price(2, 5)])

    found = looked_at(planner)

    assert found == OtherOrders(priced=(), complete=True)
    assert len(planner.orders) == 5, "each other term first, and no more"


def test_orders_are_named_by_their_shortest_beginnings() -> None:
    few, low = price(1, 900, total=900), price(5, 0, total=5000)
    planner = Cheapest([few, low])

    found = looked_at(planner)

    (other,) = found.priced
    assert other.price == few
    assert other.first == (("prioritySum",), ("victims",))
    assert len(planner.orders) <= 12, "of 720"


def test_a_term_that_the_objective_leaves_out_has_no_order() -> None:
    planner = Cheapest([price(1, 900), price(5, 0)])

    assert looked_at(planner, ("victims",)) == OtherOrders(priced=(), complete=True)
    assert planner.orders == []
    assert looked_at(planner, ("victims", "budgets")).priced == ()


def test_where_time_runs_out_the_answer_says_so() -> None:
    planner = Cheapest([price(1, 900, budgets=1), price(5, 0), price(3, 1, groups=1)])

    found = looked_at(planner, may_go_on=lambda: len(planner.orders) < 2)

    assert not found.complete
    assert len(planner.orders) == 2


def test_an_order_by_which_no_plan_is_found_costs_what_is_known() -> None:
    own = price(2, 5)

    found = other_orders(own, OBJECTIVE, lambda order: None, lambda: True)

    assert found == OtherOrders(priced=(), complete=True)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.builds(
            price,
            *[st.integers(0, 2)] * 2,
            budgets=st.integers(0, 2),
            groups=st.integers(0, 2),
            as_high=st.integers(0, 2),
        ),
        min_size=1,
        max_size=6,
    ),
    st.permutations(OBJECTIVE).map(lambda terms: terms[:5]),
)
def test_every_order_has_the_price_that_planning_by_it_finds(
    plans: list[GroupPrice], terms: list[GroupTerm]
) -> None:
    objective = tuple(terms)
    planner = Cheapest(plans)
    own = planner(objective)

    found = other_orders(own, objective, planner, lambda: True)

    reached = {order: planner(order) for order in permutations(objective)}
    differ = [term for term in objective if len({key(one, (term,)) for one in reached.values()}) > 1]
    for order, price_of_it in reached.items():
        matters = tuple(term for term in order if term in differ)
        told = [one.price for one in found.priced for first in one.first if matters[: len(first)] == first]
        assert told == ([] if price_of_it == own else [price_of_it])
