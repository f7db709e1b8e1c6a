"""What a plan for a group would have cost with each other order of the terms of `groups.objective`. Pure.

Of six terms there are 720 orders, most of them alike. Where a plan is best in every term that is left, no
order of these changes it, so the orders are a tree by their beginnings that forks only elsewhere. A plan
that is best in a term stays the plan where that term counts more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
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


Shape = tuple[Terms, tuple[int, ...]]
"""Of a plan that was found: the terms in which it is not best, in their order, and how many of these may
count more than each term of the objective."""


@dataclass(slots=True)
class _Tree:
    """The orders by their beginnings.

    `planned`: orders that were planned for, with what was found. `terms`: of each price. `least`: in each
    term. `shapes`: of all that was found, by what is known as the least.
    """

    own: GroupPrice
    objective: Terms
    plan: Callable[[Terms], GroupPrice | None]
    may_go_on: Callable[[], bool]
    complete: bool = True
    planned: dict[Terms, GroupPrice] = field(default_factory=dict)
    terms: dict[GroupPrice, Mapping[GroupTerm, int]] = field(default_factory=dict)
    least: dict[GroupTerm, int] = field(default_factory=dict)
    shapes: set[Shape] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._keep(self.objective, self.own)

    def plan_by(self, order: Terms) -> None:
        """Plan by an order, while there is time."""
        if not self.may_go_on():
            self.complete = False
            return
        price = self.plan(order)
        self._keep(order, self.best(order) if price is None else price)

    def grow(self) -> None:
        """Follow the beginnings, shorter ones first, as far as what comes after them may matter.

        Each term has been the first of an order, so that the least in each is known. O(orders · shapes).
        """
        waiting: deque[Terms] = deque([()])
        while waiting:
            beginning = waiting.popleft()
            order = (*beginning, *self._left(beginning))
            if not any(self._serves(shape, order) for shape in self.shapes):
                self.plan_by(order)
            if not self._is_best_in(self.best(order), self._left(beginning)):
                waiting.extend(self._longer(beginning))

    def best(self, order: Terms) -> GroupPrice:
        """Return the least price that is known by an order. O(prices that are known)."""
        return min(self.terms, key=lambda price: tuple(self.terms[price][term] for term in order))

    def priced(self) -> list[tuple[Terms, GroupPrice]]:
        """Return the price by each beginning; only the shortest of those that cost the same."""
        found = self.terms.values()
        differ = tuple(term for term in self.objective if len({one[term] for one in found}) > 1)
        return sorted(self._priced((), differ), key=lambda one: len(one[0]))

    def _priced(self, beginning: Terms, differ: Terms) -> list[tuple[Terms, GroupPrice]]:
        left = tuple(term for term in differ if term not in beginning)
        if len(left) < 2:
            return [(beginning, self.best((*beginning, *left)))]
        found = [one for term in left for one in self._priced((*beginning, term), differ)]
        if len({price for _, price in found}) == 1:
            return [(beginning, found[0][1])]
        return found

    def _keep(self, order: Terms, price: GroupPrice) -> None:
        """Take note of a plan that was found. O(1), or O(plans) where it is the best so far in a term."""
        self.planned[order] = price
        mine = self.terms.setdefault(price, _terms(price))
        least = {term: min(mine[term], self.least.get(term, mine[term])) for term in self.objective}
        if least != self.least:
            self.least = least
            self.shapes = {self._shape(one, other) for other, one in self.planned.items()}
        self.shapes.add(self._shape(price, order))

    def _shape(self, price: GroupPrice, planned: Terms) -> Shape:
        others = tuple(term for term in planned if not self._is_best_in(price, (term,)))
        return others, self._before(planned, others)

    def _serves(self, shape: Shape, order: Terms) -> bool:
        """Report whether a plan by one order is also that by another: only what it is best in counts more."""
        others, most = shape
        return others == tuple(term for term in order if term in others) and all(
            many <= bound for many, bound in zip(self._before(order, others), most, strict=True)
        )

    def _is_best_in(self, price: GroupPrice, terms: Terms) -> bool:
        mine = self.terms[price]
        return all(mine[term] == self.least[term] for term in terms)

    def _left(self, beginning: Terms) -> Terms:
        return tuple(term for term in self.objective if term not in beginning)

    def _longer(self, beginning: Terms) -> list[Terms]:
        return [(*beginning, term) for term in self._left(beginning)]

    def _before(self, order: Terms, counted: Terms) -> tuple[int, ...]:
        """Return how many of some terms count more than each term of the objective."""
        more, so_far = {}, 0
        for term in order:
            more[term] = so_far
            so_far += term in counted
        return tuple(more[term] for term in self.objective)


def _terms(price: GroupPrice) -> Mapping[GroupTerm, int]:
    return {
        "budgets": price.pdb_violations,
        "highestPriority": price.highest_priority,
        "groups": price.groups_broken,
        "highestVictims": price.highest_victims,
        "prioritySum": price.priority_sum,
        "victims": price.victims,
    }
