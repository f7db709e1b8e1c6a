"""Mappings of bounded size: the latest so many keys, or what takes no more than so many bytes. Pure."""

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


class BoundedBytes(dict[K, V]):
    """A mapping whose entries take `most` bytes together at the most: one more makes it forget the others.

    `remember` adds an entry, with its size as the caller counts it; one that is larger than `most` is kept
    alone. O(1) a call.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._sizes: dict[K, int] = {}
        self._bytes = 0

    def remember(self, key: K, value: V, size: int) -> V:
        """Set a key, and return its value."""
        self._bytes += size - self._sizes.get(key, 0)
        if self._bytes > self._most:
            self.clear()
            self._sizes.clear()
            self._bytes = size
        self._sizes[key] = size
        self[key] = value
        return value
