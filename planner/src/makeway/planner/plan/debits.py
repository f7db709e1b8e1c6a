"""What evictions in flight take from disruption budgets before the budgets' status shows it.

A budget's `disruptionsAllowed` follows a delete after a while; two plans within that while would both
count on the same allowance (kubernetes#91492).
"""

from __future__ import annotations

from collections.abc import Iterable

from makeway.planner.snapshot.budgets import Key
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
            if departure is None or snapshot.budget_revision(key) <= departure.revision:
                taken[key] = taken.get(key, 0) + 1
    return taken
