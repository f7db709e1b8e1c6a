"""Labels of signatures as columns of numbers, one a key: a selector is matched for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from makeway.core.k8s.selector import Requirement
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.signatures.interning import NONE, InternTable


class _Column:
    """The values of one key: `numbers`: int64[signatures], NONE where a signature lacks it."""

    def __init__(self, size: int) -> None:
        self.values: InternTable[str] = InternTable()
        self.numbers: Ints = np.zeros(size, np.int64)


class LabelColumns:
    """A column for each label key that some signature has.

    Changed only by the table of signatures that owns it.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._size = 64

    def __len__(self) -> int:
        """Return how many columns there are."""
        return len(self._columns)

    def put(self, number: int, labels: Iterable[tuple[str, str]]) -> None:
        """Put down the labels of a signature. O(labels)."""
        if number >= self._size:
            more, self._size = self._size, 2 * self._size
            for column in self._columns.values():
                column.numbers = extended(column.numbers, more)
        for key, value in labels:
            known = self._columns.get(key)
            if known is None:
                known = self._columns[key] = _Column(self._size)
            known.numbers[number], _ = known.values.acquire(value)

    def drop(self, number: int, labels: Iterable[tuple[str, str]]) -> None:
        """Take out what `put` put down; a column that no signature needs is freed."""
        for key, _ in labels:
            column = self._columns[key]
            column.values.release(int(column.numbers[number]))
            column.numbers[number] = NONE
            if not len(column.values):
                del self._columns[key]

    def meets(self, requirement: Requirement, numbers: Ints) -> Flags:
        """Return bool[numbers], which signatures meet a requirement. An absent label meets NotIn."""
        column = self._columns.get(requirement.key)
        negative = requirement.operator in ("NotIn", "DoesNotExist")
        if column is None:
            return np.full(numbers.size, negative)
        held = column.numbers[numbers]
        if requirement.operator in ("Exists", "DoesNotExist"):
            return np.asarray((held == NONE) == negative)
        return np.asarray(
            is_one_of(held, (column.values.number(one) for one in requirement.values)) != negative
        )

    def of(self, key: str, numbers: Ints) -> Ints:
        """Return int64[numbers], the number of each signature's value of a label; NONE where it lacks it."""
        column = self._columns.get(key)
        return np.zeros(numbers.size, np.int64) if column is None else column.numbers[numbers]

    def value(self, key: str, number: int) -> str:
        """Return the value that a number of `of` stands for; empty for NONE."""
        return (self._columns[key].values.value(number) or "") if number != NONE else ""


def is_one_of(held: Ints, wanted: Iterable[int]) -> Flags:
    """Return which are among some numbers, NONE not being one."""
    chosen = [number for number in wanted if number != NONE]
    if not chosen:
        return np.zeros(held.size, np.bool_)
    if len(chosen) == 1:
        return np.asarray(held == chosen[0])
    table = np.zeros(max(int(held.max(initial=0)), *chosen) + 1, np.bool_)
    table[chosen] = True
    return np.asarray(table[held])
