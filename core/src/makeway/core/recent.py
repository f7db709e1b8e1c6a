"""What is remembered of the latest so many: a mapping of bounded size. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A mapping of `most` keys at the most: one more makes it forget the eldest. O(1) a call.

    A key that is set again is the youngest.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __reduce__(self) -> tuple[object, ...]:
        """Return how it is copied: an OrderedDict is made without arguments."""
        return type(self), (self._most,), None, None, iter(self.items())

    def __setitem__(self, key: K, value: V) -> None:
        """Set a key, as the youngest."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
