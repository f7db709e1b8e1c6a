"""What nodes have allocatable, also of resources that have no layer. Pure state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

_NOTHING: Mapping[str, int] = {}


class NodeResources:
    """What each node can hold, by row. Changed only by the snapshot that owns it."""

    def __init__(self) -> None:
        self._amounts: dict[int, Mapping[str, int]] = {}
        self._nodes: Counter[str] = Counter()

    def __contains__(self, name: str) -> bool:
        """Report whether some node has some of a resource."""
        return self._nodes[name] > 0

    def put(self, row: int, amounts: Mapping[str, int]) -> bool:
        """Put down what a node has; return whether it is new. O(resources) where it is."""
        before = self._amounts.get(row)
        if before == amounts:
            return False
        self._count(before or _NOTHING, -1)
        self._count(amounts, 1)
        self._amounts[row] = amounts
        return True

    def drop(self, row: int) -> None:
        """Forget a node."""
        self._count(self._amounts.pop(row, _NOTHING), -1)

    def of(self, name: str) -> Iterator[tuple[int, int]]:
        """Return row and amount of each node that has some of a resource. O(nodes)."""
        return ((row, amounts[name]) for row, amounts in self._amounts.items() if amounts.get(name))

    def _count(self, amounts: Mapping[str, int], more: int) -> None:
        for name, amount in amounts.items():
            if amount > 0:
                self._nodes[name] += more
                if not self._nodes[name]:
                    del self._nodes[name]
