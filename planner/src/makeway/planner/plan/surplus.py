"""Pods of a gang beyond its minCount, which are evicted by themselves. Pure."""

from __future__ import annotations

import numpy as np

from makeway.planner.snapshot.columns import Flags, Ints


def surplus_pods(numbers: Ints, surplus: Ints) -> Flags:
    """Return which pods leave without breaking their gang: on each node the least important ones of it.

    `numbers`: int64[slots, M], groups by number, in the order of importance. O(slots · nodes · log slots).
    """
    gang = surplus[numbers] > 0
    if not gang.any():
        return gang
    slots = numbers.shape[0]
    key = np.where(gang, numbers, 0)
    order = np.lexsort((-np.arange(slots)[:, None] * np.ones_like(numbers), key), axis=0)
    ordered = np.take_along_axis(key, order, axis=0)
    rank = np.zeros_like(ordered)
    for slot in range(1, slots):
        rank[slot] = np.where(ordered[slot] == ordered[slot - 1], rank[slot - 1] + 1, 0)
    behind = np.empty_like(rank)
    np.put_along_axis(behind, order, rank, axis=0)
    return np.asarray(gang & (behind < surplus[numbers]))
