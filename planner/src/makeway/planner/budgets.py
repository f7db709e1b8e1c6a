"""Disruption budgets as columns: which sets of them cover a pod, and whose removal violates one.

A pod's covering budgets are worked out when the pod or a budget changes; the columns hold the number of
the *set*. A plan then only counts.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np

from makeway.core.budget import Budget
from makeway.core.policy import in_namespaces
from makeway.planner.columns import Flags, Ints

Key = tuple[str, str]
"""Namespace and name of a budget."""

NO_BUDGETS = 0
"""The number of the empty set."""


class BudgetTable:
    """Budgets by number, and interned sets of them. Mutated only by the snapshot that owns it."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._budgets: list[Budget | None] = []
        self._discarded: set[int] = set()
        self._sets: dict[tuple[int, ...], int] = {}
        self._members: list[tuple[int, ...]] = [()]
        self._holders: list[int] = [0]
        self._free_sets: list[int] = []
        self._by_namespace: dict[str, set[int]] = {}

    def __len__(self) -> int:
        """How many budgets there are."""
        return len(self._numbers)

    def get(self, key: Key) -> Budget | None:
        """Give a budget by namespace and name."""
        number = self._numbers.get(key)
        return None if number is None else self._budgets[number]

    def keys(self) -> list[Key]:
        """Give namespace and name of every budget, in order."""
        return sorted(self._numbers)

    def put(self, budget: Budget) -> None:
        """Add a budget or put a new version in its place. The sets of pods are the caller's to change."""
        number = self._numbers.get(budget.key)
        if number is None:
            number = self._numbers[budget.key] = self._take_number()
            self._by_namespace.setdefault(budget.namespace, set()).add(number)
        self._budgets[number] = budget

    def discard(self, key: Key) -> None:
        """Forget a budget. Sets may have it until each has been exchanged for one `without_discarded`."""
        number = self._numbers.pop(key)
        self._budgets[number] = None
        self._by_namespace[key[0]].discard(number)
        self._discarded.add(number)

    def covering(self, namespace: str, name: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Give the numbers of the budgets that cover a pod, ascending. O(budgets of its namespace)."""
        numbers = self._by_namespace.get(namespace)
        if not numbers or not labels:
            return ()
        found = []
        for number in numbers:
            budget = self._budgets[number]
            if budget is not None and budget.covers(namespace, name, labels):
                found.append(number)
        return tuple(sorted(found))

    def number(self, key: Key) -> int:
        """Give a budget's number. Raises KeyError where there is no such budget."""
        return self._numbers[key]

    def holds(self, held: int, number: int) -> bool:
        """Say whether a set has a budget in it."""
        return number in self._members[held]

    def exchange(self, held: int, number: int) -> int:
        """Put a budget into a held set, or take it out; give the set that is held in its place."""
        return self._exchange(held, tuple(sorted({number}.symmetric_difference(self._members[held]))))

    def without_discarded(self, held: int) -> int:
        """Take out of a held set what was discarded; give the set that is held in its place."""
        members = self._members[held]
        left = tuple(number for number in members if number not in self._discarded)
        return held if left == members else self._exchange(held, left)

    def _exchange(self, held: int, members: tuple[int, ...]) -> int:
        changed = self.acquire(members)
        self.release(held)
        return changed

    def acquire(self, members: tuple[int, ...]) -> int:
        """Give the number of a set and count one more holder of it; the empty set counts none."""
        if not members:
            return NO_BUDGETS
        number = self._sets.get(members)
        if number is None:
            if self._free_sets:
                number = self._free_sets.pop()
                self._members[number] = members
                self._holders[number] = 0
            else:
                number = len(self._members)
                self._members.append(members)
                self._holders.append(0)
            self._sets[members] = number
        self._holders[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count one holder of a set less; a set without holders is forgotten."""
        if number == NO_BUDGETS:
            return
        self._holders[number] -= 1
        if self._holders[number] == 0:
            del self._sets[self._members[number]]
            self._members[number] = ()
            self._free_sets.append(number)

    def members(self, number: int) -> tuple[Key, ...]:
        """Give the budgets of a set, by namespace and name."""
        return self._keys(self._members[number])

    def covering_keys(self, namespace: str, name: str, labels: Mapping[str, str]) -> tuple[Key, ...]:
        """Give the budgets that cover a pod, by namespace and name. O(budgets of its namespace)."""
        return self._keys(self.covering(namespace, name, labels))

    def violating(self, sets: Ints, debits: Mapping[Key, int]) -> Flags:
        """Say which pods violate a budget if all these are removed, most important first.

        `sets`: int64[slots, nodes], the set of each removable pod and 0 elsewhere. Budgets are counted
        on each node by itself, in slot order, as kube-scheduler does. `debits`: what plans in flight
        take from a budget that its status does not show yet. O(covered pods · log).
        """
        flags = np.zeros(sets.shape, np.bool_)
        if not self._numbers or not sets.any():
            return flags
        nodes, slots = np.nonzero(sets.T)
        allowed = self.allowed(debits)
        # A pod appears once for each budget of its set; nodes stay ascending, slots within a node too.
        members = self._member_table()[sets[slots, nodes]]
        pods, places = np.nonzero(members >= 0)
        budget = members[pods, places]
        spent = allowed[budget] <= 0
        flags[slots[pods[spent]], nodes[pods[spent]]] = True
        counted = ~spent & (allowed[budget] < sets.shape[0])
        beyond = pods[counted][_beyond(budget[counted], nodes[pods[counted]], allowed)]
        flags[slots[beyond], nodes[beyond]] = True
        return flags

    def exhausted(self, sets: Ints, debits: Mapping[Key, int]) -> Flags:
        """Say of which sets a budget allows nothing more. `sets`: numbers of sets in any shape. O(sets)."""
        allowed = self.allowed(debits)
        spent = [any(allowed[number] <= 0 for number in members) for members in self._members]
        return np.asarray(np.array(spent, np.bool_)[sets])

    def of_namespaces(self, namespaces: Container[str], sets: Ints) -> Flags:
        """Report which sets are of these namespaces; the empty set is of none. O(sets).

        `sets`: numbers of sets in any shape. A set covers pods of one namespace, so it is of one.
        """
        found = [any(in_namespaces(key[0], namespaces) for key in self._keys(m[:1])) for m in self._members]
        return np.asarray(np.array(found, np.bool_)[sets])

    def _take_number(self) -> int:
        """Give a number that no set has: a discarded one if there is one, else the next. O(sets)."""
        free = self._discarded and self._discarded.difference(*self._members)
        if not free:
            self._budgets.append(None)
            return len(self._budgets) - 1
        number = min(free)
        self._discarded.remove(number)
        return number

    def _keys(self, numbers: tuple[int, ...]) -> tuple[Key, ...]:
        budgets = (self._budgets[number] for number in numbers)
        return tuple(sorted(budget.key for budget in budgets if budget is not None))

    def allowed(self, debits: Mapping[Key, int]) -> Ints:
        """Give int64[numbers], what each budget still allows; 0 where a number is not in use."""
        allowed = np.zeros(len(self._budgets), np.int64)
        for number, budget in enumerate(self._budgets):
            if budget is not None:
                allowed[number] = budget.allowed - debits.get(budget.key, 0)
        return allowed

    def _member_table(self) -> Ints:
        """Give int64[sets, most members], the budgets of each set; -1 where it has no more."""
        most = max(len(members) for members in self._members)
        table = np.full((len(self._members), most), -1, np.int64)
        for number, members in enumerate(self._members):
            table[number, : len(members)] = members
        return table


def _beyond(budget: Ints, node: Ints, allowed: Ints) -> Ints:
    """Give the places of pods beyond what their budget allows: the k-th on a node, for k > allowed."""
    if budget.size == 0:
        return budget
    # A stable sort by budget keeps nodes, and the order of importance within each, as they came.
    order = np.argsort(budget, kind="stable")
    budget, node = budget[order], node[order]
    begins = np.flatnonzero(np.r_[True, (budget[1:] != budget[:-1]) | (node[1:] != node[:-1])])
    sizes = np.diff(np.r_[begins, budget.size])
    rank = np.arange(budget.size) - np.repeat(begins, sizes) + 1
    return order[rank > allowed[budget]]
