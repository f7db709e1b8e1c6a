"""How much one plan may look at, counted in elements of arrays, so that any machine makes the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_ELEMENTS: Final = 30_000_000
"""Elements of arrays that the searches of one plan look at: some 300 ms."""

CALLS: Final = 2_000
"""Elements for which some twenty calls of numpy on small arrays take as long."""


@dataclass(slots=True)
class Work:
    """What is `left` to look at; what is spent of a part is spent of the `whole`, too."""

    left: int = MOST_ELEMENTS
    whole: Work | None = None

    def spend(self, elements: int) -> None:
        """Count elements that were looked at."""
        self.left -= elements
        if self.whole is not None:
            self.whole.spend(elements)

    def part(self) -> Work:
        """Return half of what is left, for one of several questions."""
        return Work(max(self.left // 2, 0), self)
