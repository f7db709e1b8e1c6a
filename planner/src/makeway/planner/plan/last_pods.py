"""Nodes that their last pods decide: a first plan of a class reads no others there.

Pods are reprieved in the order of importance. Where the last few of a node free enough, all before them find
a place, whatever rules apply to them, and the node's score depends on none of them. So such a node costs the
same however many pods it has. Not where more than the node's own pods decide, or all of them together: pods
of groups, guarantees of queues, required affinity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from makeway.planner.plan.batch import NodeBatch, Overlay
from makeway.planner.plan.candidates import EvaluatedBatch
from makeway.planner.plan.evaluate import LAST, resource_room
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots


def last_pods(overlay: Overlay, rows: Ints, needs: Mapping[str, int], devices: frozenset[str]) -> NodeBatch:
    """Return some nodes with their last pods alone: those that these are likely to decide. O(nodes).

    On them half of the last pods would free enough, were they as large as the node's pods are on average: to
    look at a node twice costs half as much again. No budget covers one of the last pods, since which pods
    violate it depends on those before. Nodes that have no others are all returned, but none that the request
    changes.
    """
    if overlay.in_flight_pods:
        rows = rows[~np.isin(rows, [*overlay.in_flight_pods])]
    batch = _with_last(overlay, rows)
    columns = batch.columns
    vector = columns.amounts(needs)
    asked = np.flatnonzero(vector > 0)
    lack = -resource_room(batch, asked, vector[asked][:, None], devices)
    likely = (lack * (2.0 * columns.count / LAST) <= columns.requested[asked]).all(axis=0)
    if len(overlay.snapshot.budgets):
        likely &= ~columns.budgets.any(axis=0)
    chosen = likely | (columns.count <= LAST)
    return batch if chosen.all() else _with_last(overlay, rows[chosen])


def _with_last(overlay: Overlay, rows: Ints) -> NodeBatch:
    snapshot = overlay.snapshot
    columns = NodeSlots.of(snapshot.columns, rows, LAST)
    nothing = np.zeros((len(columns.resources), 1), np.int64)
    order = columns.count - columns.depth + np.arange(columns.depth)[:, None]
    return NodeBatch(columns, rows, snapshot.slots, nothing, nothing, order=order)


def decided(evaluated: EvaluatedBatch) -> Flags:
    """Return bool[M], on which nodes of `last_pods` the others make no difference to the score."""
    found = evaluated.found
    return (evaluated.batch.columns.count <= LAST) | found.helps | (found.fits & found.removable.any(axis=0))
