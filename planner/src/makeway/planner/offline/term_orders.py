"""What a plan for a group would have cost with each other order of the terms of `groups.objective`. Pure.

Of five terms there are 120 orders, most of them alike. Where a plan is best in every term that is left, no
order of these changes it, so the orders are a tree by their beginnings that forks only elsewhere. A plan
that is best in a term stays the plan where that term counts more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from makeway.bus.messages import GroupPrice
from makeway.core.policy.document import GroupTerm
from makeway.planner.offline.results import OtherOrders, PricedOrders
from makeway.planner.plan.gang.price import NO_PRIORITY

Terms = tuple[GroupTerm, ...]

NOTHING = GroupPrice(highest_priority=NO_PRIORITY)
"""The price of a plan without victims."""


def other_orders(
    own: GroupPrice,
    objective: Terms,
    plan: Callable[[Terms], GroupPrice | None],
    may_go_on: Callable[[], bool],
) -> OtherOrders:
    """Return the prices by other orders of the terms in which plans differ, shortest beginnings first.

    `own`: the price by the order `objective`. `plan` returns the price by another, None where no plan is
    found. It is called as long as `may_go_on`, at most as often as there are orders; what is not looked at
    then has the best price of those that are known, and `complete` is False.
    """
    tree = _Tree(own, objective, plan, may_go_on)
    for term in objective[1:]:
        tree.plan_by((term, *(one for one in objective if one != term)))
    tree.grow()
    prices: defaultdict[GroupPrice, list[Terms]] = defaultdict(list)
    for beginning, price in tree.priced():
        if price != own:
            prices[price].append(beginning)
    return OtherOrders(
        priced=tuple(PricedOrders(first=tuple(first), price=price) for price, first in prices.items()),
        complete=tree.complete,
    )


@dataclass(slots=True)
class _Tree:
    """The orders by their beginnings. `planned`: orders that were planned for, with what was found."""

    own: GroupPrice
    objective: Terms
    plan: Callable[[Terms], GroupPrice | None]
    may_go_on: Callable[[], bool]
    complete: bool = True
    planned: dict[Terms, GroupPrice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planned[self.objective] = self.own

    def plan_by(self, order: Terms) -> None:
        """Plan by an order, while there is time."""
        if not self.may_go_on():
            self.complete = False
            return
        price = self.plan(order)
        self.planned[order] = self.best(order) if price is None else price

    def grow(self) -> None:
        """Follow the beginnings, shorter ones first, as far as what comes after them may matter.

        Each term has been the first of an order, so that the least in each is known.
        """
        waiting: deque[Terms] = deque([()])
        while waiting:
            beginning = waiting.popleft()
            order = (*beginning, *self._left(beginning))
            if not any(self._serves(price, other, order) for other, price in self.planned.items()):
                self.plan_by(order)
            if not self._is_best_in(self.best(order), self._left(beginning)):
                waiting.extend(self._longer(beginning))

    def best(self, order: Terms) -> GroupPrice:
        """Return the least price that is known by an order. O(prices that are known)."""
        return min(self.planned.values(), key=lambda price: _key(price, order))

    def priced(self) -> list[tuple[Terms, GroupPrice]]:
        """Return the price by each beginning; only the shortest of those that cost the same."""
        terms = [_terms(price) for price in self.planned.values()]
        differ = tuple(term for term in self.objective if len({one[term] for one in terms}) > 1)
        return sorted(self._priced((), differ), key=lambda one: len(one[0]))

    def _priced(self, beginning: Terms, differ: Terms) -> list[tuple[Terms, GroupPrice]]:
        left = tuple(term for term in differ if term not in beginning)
        if len(left) < 2:
            return [(beginning, self.best((*beginning, *left)))]
        found = [one for term in left for one in self._priced((*beginning, term), differ)]
        if len({price for _, price in found}) == 1:
            return [(beginning, found[0][1])]
        return found

    def _serves(self, price: GroupPrice, planned: Terms, order: Terms) -> bool:
        """Report whether a plan by one order is also that by another: only what it is best in counts more."""
        others = {term for term in planned if not self._is_best_in(price, (term,))}
        before = _before(planned, others)
        return [term for term in planned if term in others] == [
            term for term in order if term in others
        ] and (all(many <= before[term] for term, many in _before(order, others).items()))

    def _is_best_in(self, price: GroupPrice, terms: Terms) -> bool:
        mine, all_of_them = _terms(price), [_terms(one) for one in self.planned.values()]
        return all(mine[term] == min(one[term] for one in all_of_them) for term in terms)

    def _left(self, beginning: Terms) -> Terms:
        return tuple(term for term in self.objective if term not in beginning)

    def _longer(self, beginning: Terms) -> list[Terms]:
        return [(*beginning, term) for term in self._left(beginning)]


def _before(order: Terms, counted: Set[GroupTerm]) -> Mapping[GroupTerm, int]:
    """Return how many of some terms count more than each term."""
    return {term: sum(one in counted for one in order[:place]) for place, term in enumerate(order)}


def _terms(price: GroupPrice) -> Mapping[GroupTerm, int]:
    return {
        "budgets": price.pdb_violations,
        "highestPriority": price.highest_priority,
        "groups": price.groups_broken,
        "prioritySum": price.priority_sum,
        "victims": price.victims,
    }


def _key(price: GroupPrice, order: Terms) -> tuple[int, ...]:
    terms = _terms(price)
    return tuple(terms[term] for term in order)
