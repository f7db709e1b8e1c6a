"""What may be removed for whom, over all slots of some nodes at once.

The same as `makeway.core.policy.rules.rules_in_force` asks of one pod: `lower-priority` from the
priorities, every rule that looks at the victim alone from its exemption, which the snapshot keeps in the
columns.
"""

from __future__ import annotations

from makeway.planner.snapshot.columns import Columns, Flags, Ints


def removable(
    columns: Columns, nodes: Ints, slots: int, *, preemptor_priority: int, now_micros: int
) -> Flags:
    """Give bool[slots, len(nodes)]: the pods that every rule allows to go; False in empty slots."""
    lower = columns.priority[:slots, nodes] < preemptor_priority
    if not columns.exempt_count[nodes].any():
        return lower
    return lower & (
        (columns.exempt_below[:slots, nodes] <= preemptor_priority)
        | (columns.exempt_until[:slots, nodes] < now_micros)
    )
