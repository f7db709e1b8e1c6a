"""What disruption budgets leave to one plan.

Debits: what evictions in flight take from budgets before the budgets' status shows it. `disruptionsAllowed`
follows a delete after a while; two plans within that while would both count on the same allowance
(kubernetes#91492).

Hard budgets, which may not be violated. One that allows nothing more exempts its pods one by one. One that
allows some exempts those beyond them, and which these are depends on which go: the victims of a plan count
first, in the order of importance, then the others. So every subset of what is left as removable keeps every
budget, also one that the scheduler's own filters choose later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from makeway.planner.snapshot.budgets import BudgetTable, Key
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.state import Snapshot


def debits(snapshot: Snapshot, leaving: Iterable[str]) -> dict[Key, int]:
    """Count, by budget, the pods that orders remove or have just removed and its status may not show.

    `leaving`: UIDs of victims of live orders and of orders that ended a moment ago. A pod no longer
    counts against a budget whose object changed after the pod was seen to go. O(pods · budgets each).
    """
    taken: dict[Key, int] = {}
    if not len(snapshot.budgets):
        return taken
    for uid in set(leaving):
        departure = snapshot.departures.get(uid)
        if uid in snapshot.pods:
            keys = snapshot.budgets.charged(snapshot.budget_set(uid))
        elif departure is not None:
            pod = departure.pod
            keys = snapshot.budgets.covering_keys(pod.namespace, pod.name, pod.labels)
        else:
            continue
        for key in keys:
            if departure is None or snapshot.budgets.revisions.get(key, 0) <= departure.revision:
                taken[key] = taken.get(key, 0) + 1
    return taken


def debits_before(snapshot: Snapshot, leaving: Iterable[str], allowed: Mapping[Key, int]) -> dict[Key, int]:
    """Count debits, and what budgets have come to allow more since they allowed so much."""
    taken = debits(snapshot, leaving)
    for key, before in allowed.items():
        taken[key] = taken.get(key, 0) + snapshot.budgets.allows(key) - before
    return taken


def violating_beyond(sets: Ints, victims: Flags, budgets: BudgetTable, debits: Mapping[Key, int]) -> Flags:
    """Return which pods would violate a budget if, on each node, first the victims went and then the rest.

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
