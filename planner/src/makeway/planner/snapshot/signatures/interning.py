"""Values as small numbers, counted, so that arrays can hold them and numbers are used again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_V = TypeVar("_V", bound=Hashable)

NONE = 0
"""The number of no value."""


class InternTable(Generic[_V]):
    """Numbers from 1 for values that are held; a value without a holder is forgotten."""

    def __init__(self) -> None:
        self._numbers: dict[_V, int] = {}
        self._values: list[_V | None] = [None]
        self._holders: list[int] = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        """Return how many values are held."""
        return len(self._numbers)

    @property
    def size(self) -> int:
        """Return one more than the highest number in use so far."""
        return len(self._values)

    def number(self, value: _V) -> int:
        """Return a value's number, NONE where it is not held."""
        return self._numbers.get(value, NONE)

    def value(self, number: int) -> _V | None:
        """Return the value of a number."""
        return self._values[number]

    def acquire(self, value: _V) -> tuple[int, bool]:
        """Count one more holder; return the value's number and whether it is new."""
        number = self._numbers.get(value)
        if number is not None:
            self._holders[number] += 1
            return number, False
        if self._free:
            number = self._free.pop()
            self._values[number], self._holders[number] = value, 1
        else:
            number = len(self._values)
            self._values.append(value)
            self._holders.append(1)
        self._numbers[value] = number
        return number, True

    def release(self, number: int) -> bool:
        """Count one holder less; return whether the value is forgotten."""
        self._holders[number] -= 1
        if self._holders[number]:
            return False
        value = self._values[number]
        assert value is not None  # noqa: S101 - it had a holder
        del self._numbers[value]
        self._values[number] = None
        self._free.append(number)
        return True
