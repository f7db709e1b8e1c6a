"""What the pods of each queue hold, kept as pods come and go."""

from __future__ import annotations

from collections.abc import Sequence

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.tree import QueueTree


class Usage:
    """Usage by queue number: exact sums over the pods of the queue and of all below it.

    Resources of which nothing is held are left out. Changed by `add` and `remove`, O(depth · resources).
    """

    __slots__ = ("_held", "_tree")

    def __init__(self, tree: QueueTree, held: Sequence[Amounts] | None = None) -> None:
        self._tree = tree
        self._held = [dict(one) for one in held] if held is not None else [{} for _ in tree]

    def of(self, number: int) -> Amounts:
        """Return what a queue holds. The mapping is live: it changes with the queue."""
        return self._held[number]

    def add(self, number: int, amounts: Amounts) -> None:
        """Count a pod in a queue and all its ancestors."""
        for one in self._tree.queues[number].line:
            held = self._held[one]
            for name, amount in amounts.items():
                held[name] = held.get(name, 0) + amount

    def remove(self, number: int, amounts: Amounts) -> None:
        """Count a pod no longer."""
        for one in self._tree.queues[number].line:
            held = self._held[one]
            for name, amount in amounts.items():
                if name not in held:
                    continue  # a copy does not count it
                if left := held[name] - amount:
                    held[name] = left
                else:
                    del held[name]

    def copy(self) -> Usage:
        """Return a copy of the resources that the tree counts, to take pods from. O(queues · those).

        A pod's author names as many others as he likes.
        """
        counted = self._tree.counted
        return Usage(self._tree, [{name: one[name] for name in counted if name in one} for one in self._held])
