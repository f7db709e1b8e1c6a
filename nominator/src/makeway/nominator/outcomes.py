"""The outcomes of orders that were read lately, by order. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from makeway.bus.messages import Outcome

MOST: Final = 4096
"""Outcomes that are remembered: many times the orders that may be in flight."""


class RecentOutcomes:
    """The last `MOST` of them. `heard` is called with each."""

    def __init__(self) -> None:
        self.heard: Callable[[Outcome], None] = lambda outcome: None
        self._by_id: OrderedDict[str, Outcome] = OrderedDict()

    def put(self, outcome: Outcome) -> None:
        """Take note of one. The first of an order stands."""
        if outcome.order_id in self._by_id:
            return
        self._by_id[outcome.order_id] = outcome
        if len(self._by_id) > MOST:
            self._by_id.popitem(last=False)
        self.heard(outcome)

    def get(self, order_id: str) -> Outcome | None:
        """Return the outcome of an order; None where it has none, or had it long ago."""
        return self._by_id.get(order_id)
