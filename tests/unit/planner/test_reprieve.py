"""Pods that are put back where there is room: the last of each node, as all of them one after the other."""

import numpy as np
import pytest

from makeway.planner.plan.evaluate import reprieve
from makeway.planner.snapshot.columns import Flags, Ints


def one_after_the_other(requests: Ints, room: Ints, removable: Flags, violating: Flags) -> Flags:
    """Reprieve by the words of the rule, pod by pod."""
    needed = removable.copy()
    left = room.copy()
    for turn in (removable & violating, removable & ~violating):
        for slot, node in np.argwhere(turn).tolist():
            if (requests[:, slot, node] <= left[:, node]).all():
                left[:, node] -= requests[:, slot, node]
                needed[slot, node] = False
    return needed


@pytest.mark.parametrize(("nodes", "most"), [(1, 300), (2, 300), (7, 300), (40, 300), (65, 40)])
@pytest.mark.parametrize("seed", range(25))
def test_the_last_pods_of_many_nodes_are_reprieved_as_one_by_one(nodes: int, most: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    slots = int(draw.integers(1, most))
    requests = draw.integers(0, 4, (2, slots, nodes))
    removable = draw.random((slots, nodes)) < 0.8
    violating = removable & (draw.random((slots, nodes)) < draw.choice([0.0, 0.1, 0.6]))
    total = (requests * removable).sum(axis=1)
    room = (total * draw.choice([0.0, 0.05, 0.5, 0.95, 1.0])).astype(np.int64)

    asked = draw.integers(0, nodes, nodes + 3)

    found = reprieve(requests, (total - room)[:, asked], removable, violating, asked)

    assert np.array_equal(found, one_after_the_other(requests, room, removable, violating)[:, asked])
