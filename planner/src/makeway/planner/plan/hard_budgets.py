"""Disruption budgets that may not be violated: who may go beside whom, on every node at once.

A budget that allows nothing more exempts its pods one by one. One that allows some exempts those beyond
them, and who that is depends on who goes: the victims of a plan count first, in the order of importance,
then the others. So every subset of what is left as removable keeps every budget, also one that the
scheduler's own filters choose later.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from makeway.planner.snapshot.budgets import BudgetTable, Key
from makeway.planner.snapshot.columns import Flags, Ints


def violating_beyond(sets: Ints, victims: Flags, budgets: BudgetTable, debits: Mapping[Key, int]) -> Flags:
    """Say which pods would violate a budget if, on each node, first the victims went and then the rest.

    `sets`: int64[slots, nodes], the set of budgets of each removable pod and 0 elsewhere; `victims`:
    bool[slots, nodes], some of them. O(covered pods · log), and O(slots · log slots) for each node on
    which not all may go together.
    """
    flags = np.zeros(sets.shape, np.bool_)
    places = np.flatnonzero(budgets.violating(sets, debits).any(axis=0))
    if not places.size:
        return flags
    order = np.argsort(~victims[:, places], axis=0, kind="stable")
    ordered = np.take_along_axis(sets[:, places], order, axis=0)
    found = np.zeros_like(ordered, np.bool_)
    np.put_along_axis(found, order, budgets.violating(ordered, debits), axis=0)
    flags[:, places] = found
    return flags
