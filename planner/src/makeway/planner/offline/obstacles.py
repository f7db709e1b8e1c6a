"""What stands in the way of one pod on every node: for a picture of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import numpy as np

from makeway.planner.plan.constraints.tally import Allowance
from makeway.planner.plan.eligibility import filters
from makeway.planner.plan.feasibility import feasibility
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import Evaluator
from makeway.planner.plan.refusal.statistics import RefusalStats
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.state import Snapshot

FITS: Final = "Room as it is"
HELPS: Final = "Room can be made"
OTHER: Final = "Evicting all removable pods is not enough"
"""Where no single constraint says it."""


def obstacles(
    snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache
) -> dict[str, tuple[str, ...]]:
    """Return the names of nodes by what stands in the way there, each node once, in order of names.

    The scheduler's filters come first, in their order; then what removing pods lacks. O(slots · nodes).
    Raises AllowanceUsedUp.
    """
    cache.bind(snapshot)
    rows = np.flatnonzero(snapshot.present)
    found: dict[str, tuple[str, ...]] = {}

    def put(reason: str, those: Ints) -> None:
        if those.size:
            found[reason] = (*found.get(reason, ()), *_names(snapshot, those.tolist()))

    for reason, allowed in filters(snapshot, question.constraints):
        put(reason, rows[~allowed[rows]])
        rows = rows[allowed[rows]]
    fits = feasibility(snapshot, question, now, cache, rows=rows).fits
    put(FITS, fits)
    rows = np.setdiff1d(rows, fits, assume_unique=True)
    stats, helped = RefusalStats(), np.zeros(snapshot.columns.nodes, np.bool_)
    for evaluated in Evaluator(snapshot, question, now, cache, Allowance()).evaluate(rows):
        stats.put(evaluated)
        helped[evaluated.batch.rows[evaluated.found.helps]] = True
    put(HELPS, rows[helped[rows]])
    rows = rows[~helped[rows]]
    for reason, flags in stats.standing().items():
        put(reason, rows[flags[rows]])
        rows = rows[~flags[rows]]
    put(OTHER, rows)
    return {reason: tuple(sorted(names)) for reason, names in found.items()}


def _names(snapshot: Snapshot, rows: Iterable[int]) -> list[str]:
    return [snapshot.names[row] for row in rows]
