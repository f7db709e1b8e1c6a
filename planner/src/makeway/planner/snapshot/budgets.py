"""Disruption budgets as columns: which sets of them cover a pod, and whose removal violates one.

A pod's covering budgets are worked out when the pod or a budget changes; the columns hold the number of
the *set*. A plan then only counts. Pods of other health have other sets: where budgets are hard, the eviction
API evicts some without asking their budget, and so they are charged to none here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

import numpy as np

from makeway.core.index import Index
from makeway.core.k8s.budget import PENDING, UNREADY, Budget, Health
from makeway.core.policy.document import in_namespaces
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.signatures.interning import InternTable

Key = tuple[str, str]
"""Namespace and name of a budget."""

NO_BUDGETS = 0
"""The number of the empty set."""

MOST_A_POD: Final = 16
"""Budgets that may cover one pod. A pod under more has none left: the eviction API itself refuses to evict
a pod that is under two."""

MOST_LOOSE: Final = 100
"""Budgets of one namespace that no label finds, since their selectors require none, and that each of its pods
is compared with. Where there are more, its pods have none left."""

TOO_MANY: Final = "(too many budgets)"
"""Stands for the name of a budget that allows nothing and covers pods under too many of them."""

_ANY: Final = ("", "")
_EMPTY: Final = ("", "empty")
"""Under these stand budgets that no label finds: any pod may match them, or they have an empty selector."""


class _Namespace:
    """The budgets of one namespace, by a label that they require."""

    def __init__(self) -> None:
        self.found = Index[tuple[str, str], int, None]()

    def put(self, number: int, budget: Budget) -> None:
        for label in _labels(budget):
            self.found.put(label, number, None)

    def drop(self, number: int, budget: Budget) -> None:
        for label in _labels(budget):
            self.found.discard(label, number)

    def loose(self, hard: bool) -> int:
        """Return how many are found by no label; those with an empty selector only where budgets are hard."""
        return len(self.found.of(_ANY)) + (len(self.found.of(_EMPTY)) if hard else 0)

    def all_loose(self) -> Iterable[int]:
        """Return the budgets that require no label, or select all pods."""
        return (*self.found.of(_ANY), *self.found.of(_EMPTY))

    def candidates(self, labels: Mapping[str, str], hard: bool) -> Iterable[int]:
        """Return the budgets that may cover a pod, each once."""
        yield from self.found.of(_ANY)
        if hard:
            yield from self.found.of(_EMPTY)
        for label in labels.items():
            yield from self.found.of(label)


def _labels(budget: Budget) -> list[tuple[str, str]]:
    """Return the labels by which a budget is found; none for one that covers nothing."""
    if budget.selector is None:
        return []
    if budget.selector.empty:
        return [_EMPTY]
    required = [one for one in budget.selector.requirements if one.operator == "In"]
    first = min(required, key=lambda one: len(one.values), default=None)
    return [_ANY] if first is None else [(first.key, value) for value in first.values]


class BudgetTable:
    """Budgets by number, and interned sets of them. Mutated only by the snapshot that owns it.

    What plans read of all budgets and sets at once is in arrays that are kept with every change:
    `_allowed`: int64[numbers], what each budget allows; `_table`: int64[sets, MOST_A_POD], their budgets, -1
    where a set has no more; `_widest`: no set has more; `_health`: int64[sets], their pods'; `_hard`:
    bool[sets], they are of namespaces whose budgets are hard, which `_hard_spaces` lists; `_frees`:
    bool[numbers], hard budgets that free pods that are not ready.
    `revisions`: at which each budget was last seen to change.
    """

    def __init__(self) -> None:
        self.revisions: dict[Key, int] = {}
        self._numbers: dict[Key, int] = {}
        self._budgets: list[Budget | None] = []
        self._discarded: set[int] = set()
        self._sets: InternTable[tuple[Health, tuple[int, ...]]] = InternTable()
        self._by_namespace: dict[str, _Namespace] = {}
        self._allowed: Ints = np.zeros(8, np.int64)
        self._table: Ints = np.full((8, MOST_A_POD), -1, np.int64)
        self._widest = 0
        self._health: Ints = np.zeros(8, np.int64)
        self._hard: Flags = np.zeros(8, np.bool_)
        self._hard_spaces: Container[str] = ()
        self._frees: Flags = np.zeros(8, np.bool_)

    def __len__(self) -> int:
        """How many budgets there are."""
        return len(self.revisions)

    def get(self, key: Key) -> Budget | None:
        """Return a budget by namespace and name."""
        number = self._numbers.get(key)
        return None if number is None else self._budgets[number]

    def keys(self) -> list[Key]:
        """Return namespace and name of every budget, in order."""
        return sorted(self.revisions)

    def put(self, budget: Budget, revision: int) -> None:
        """Add a budget or put a new version in its place. The sets of pods are the caller's to change."""
        self.revisions[budget.key] = revision
        if (number := self._numbers.get(budget.key)) is None:
            number = self._numbers[budget.key] = self._take_number()
        namespace = self._by_namespace.setdefault(budget.namespace, _Namespace())
        before = self._budgets[number]
        if before is None or before.selector != budget.selector:
            if before is not None:
                namespace.drop(number, before)
            namespace.put(number, budget)
        self._budgets[number] = budget
        self._count(number, budget)

    def hold(self, namespaces: Container[str]) -> list[str]:
        """Let the budgets of these namespaces be hard, `"*"` for all, and no others. O(budgets + sets).

        Return those namespaces whose pods have to be matched anew: other budgets may cover them now.
        """
        before = {name for name in self._by_namespace if self._is_hard(name)}
        self._hard_spaces = namespaces
        for number, budget in enumerate(self._budgets):
            if budget is not None:
                self._count(number, budget)
        for held in range(1, self._sets.size):
            self._hard[held] = self._is_hard(self._space(held))
        return [
            name
            for name, budgets in self._by_namespace.items()
            if (name in before) != self._is_hard(name)
            and any(
                one is not None and one.covers_unlabelled
                for one in map(self._budgets.__getitem__, budgets.all_loose())
            )
        ]

    def _is_hard(self, namespace: str) -> bool:
        return bool(namespace) and in_namespaces(namespace, self._hard_spaces)

    def _count(self, number: int, budget: Budget) -> None:
        hard = self._is_hard(budget.namespace)
        self._allowed[number] = 0 if hard and not budget.settled else budget.allowed
        self._frees[number] = hard and budget.frees_unready

    def discard(self, key: Key) -> None:
        """Forget a budget. Sets may have it until each has been exchanged for one of what covers the pod."""
        number = self._numbers.pop(key)
        del self.revisions[key]
        budget = self._budgets[number]
        assert budget is not None  # noqa: S101 - its key had its number
        namespace = self._by_namespace.setdefault(key[0], _Namespace())
        namespace.drop(number, budget)
        if not namespace.found:
            del self._by_namespace[key[0]]
        self._budgets[number] = None
        self._allowed[number] = 0
        self._frees[number] = False
        self._discarded.add(number)

    def covering(self, namespace: str, name: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the numbers of the budgets that cover a pod, ascending.

        Where they are hard as the eviction API has it, else as kube-scheduler. One that allows nothing
        takes the place of more than MOST_A_POD of them, or more than MOST_LOOSE to compare.
        O(labels + budgets that require one of them).
        """
        budgets = self._by_namespace.get(namespace)
        hard = self._is_hard(namespace)
        if budgets is None or not (labels or hard):
            return ()
        if budgets.loose(hard) > MOST_LOOSE:
            return (self._too_many(namespace),)
        found = []
        for number in budgets.candidates(labels, hard):
            budget = self._budgets[number]
            covers = budget and (budget.covers_eviction if hard else budget.covers)
            if covers and covers(namespace, name, labels):
                found.append(number)
        return tuple(sorted(found)) if len(found) <= MOST_A_POD else (self._too_many(namespace),)

    def exchange(self, held: int, members: tuple[int, ...], health: Health) -> int:
        """Hold the set of these budgets, for a pod of this health, in place of another; return its number."""
        changed = self.acquire(members, health)
        self.release(held)
        return changed

    def acquire(self, members: tuple[int, ...], health: Health) -> int:
        """Return the number of a set and count one more holder of it; the empty set counts none.

        `health`: of the pod that holds it.
        """
        if not members:
            return NO_BUDGETS
        number, new = self._sets.acquire((health, members))
        if new:
            if number >= self._table.shape[0]:
                self._table = extended(self._table, number, -1, axis=0)
                self._health, self._hard = extended(self._health, number), extended(self._hard, number)
            self._table[number, : len(members)] = members
            self._widest = max(self._widest, len(members))
            self._health[number] = health
            self._hard[number] = self._is_hard(self._space(number))
        return number

    def _space(self, number: int) -> str:
        """Return the namespace of a set; empty where it is not known any more."""
        first = next((self._budgets[one] for one in self._members(number)), None)
        return "" if first is None else first.namespace

    def _members(self, number: int) -> tuple[int, ...]:
        held = self._sets.value(number)
        return () if held is None else held[1]

    def release(self, number: int) -> None:
        """Count one holder of a set less; a set without holders is forgotten."""
        if number != NO_BUDGETS and self._sets.release(number):
            self._table[number] = -1
            self._hard[number] = False

    def members(self, number: int) -> tuple[Key, ...]:
        """Return the budgets of a set, by namespace and name."""
        return self._keys(self._members(number))

    def covering_keys(self, namespace: str, name: str, labels: Mapping[str, str]) -> tuple[Key, ...]:
        """Return the budgets that cover a pod, by namespace and name. As `covering`."""
        return self._keys(self.covering(namespace, name, labels))

    def violating(self, sets: Ints, debits: Mapping[Key, int]) -> Flags:
        """Return which pods violate a budget if all these are removed, most important first.

        `sets`: int64[slots, nodes], the set of each removable pod and 0 elsewhere. Budgets are counted
        on each node by itself, in slot order, as kube-scheduler does. `debits`: what plans in flight
        take from a budget that its status does not show yet. O(covered pods · log).
        """
        flags = np.zeros(sets.shape, np.bool_)
        if not len(self._sets) or not sets.any():
            return flags
        nodes, slots = np.nonzero(sets.T)
        allowed = self.allowed(debits)
        # A pod appears once for each budget of its set; nodes stay ascending, slots within a node too.
        members = self._charges()[sets[slots, nodes]]
        pods, places = np.nonzero(members >= 0)
        budget = members[pods, places]
        spent = allowed[budget] <= 0
        flags[slots[pods[spent]], nodes[pods[spent]]] = True
        counted = ~spent & (allowed[budget] < sets.shape[0])
        beyond = pods[counted][_beyond(budget[counted], nodes[pods[counted]], allowed)]
        flags[slots[beyond], nodes[beyond]] = True
        return flags

    def violations(self, victims: Iterable[Mapping[int, int]], debits: Mapping[Key, int]) -> list[int]:
        """Return, of each victim, how many of its pods violate a budget if all victims go in this order.

        Of a victim it is told how many of its pods have which set. O(sets of all victims).
        """
        left, charges = self.allowed(debits).tolist(), self._charges()
        return [
            sum(_charge(left, charges[number], count) for number, count in one.items()) for one in victims
        ]

    def exhausted(self, sets: Ints, debits: Mapping[Key, int]) -> Flags:
        """Return of which sets a budget allows nothing more. `sets`: numbers of sets in any shape. O(sets).

        Of hard budgets also those that are several: the eviction API evicts no pod that two cover.
        """
        members = self._charges()
        spent = np.zeros(len(self._budgets) + 1, np.bool_)  # the last place, which -1 means, is no budget's
        spent[:-1] = self.allowed(debits) <= 0
        several = self._hard[: self._sets.size] & ((members >= 0).sum(axis=1) > 1)
        return np.asarray(np.asarray(spent[members].any(axis=1) | several)[sets])

    def hard(self, sets: Ints) -> Flags:
        """Report which sets, by number, are of hard budgets: all of one namespace are, or none. O(sets)."""
        return np.asarray(self._hard[sets])

    def charged(self, number: int) -> tuple[Key, ...]:
        """Return the budgets that allow one disruption less when a pod of a set goes."""
        return () if self._hard[number] and self._free()[number] else self.members(number)

    def kept(self, number: int, left: Mapping[Key, int]) -> tuple[Key, ...]:
        """Return the budgets that keep a pod of a set, where they have so much `left`.

        Those that allow nothing more; and where they are hard and several, all.
        """
        keys = self.charged(number)
        if len(keys) > 1 and self._hard[number]:
            return keys
        return tuple(key for key in keys if left.get(key, 1) <= 0)

    def allows(self, key: Key) -> int:
        """Return what a budget allows; 0 where there is none. O(1)."""
        number = self._numbers.get(key)
        return 0 if number is None else int(self._allowed[number])

    def state(self, debits: Mapping[Key, int]) -> Ints:
        """Return all of the budgets that a plan depends on, to be compared with what it was. O(budgets)."""
        return np.concatenate([self.allowed(debits), self._frees[: len(self._budgets)]])

    def allowed(self, debits: Mapping[Key, int]) -> Ints:
        """Return int64[numbers], what each budget still allows; 0 where a number is not in use."""
        allowed = self._allowed[: len(self._budgets)].copy()
        for key, taken in debits.items():
            if (number := self._numbers.get(key)) is not None:
                allowed[number] -= taken
        return allowed

    def _too_many(self, namespace: str) -> int:
        """Return the number of the budget that stands for too many in a namespace."""
        key = (namespace, TOO_MANY)
        if (number := self._numbers.get(key)) is None:
            number = self._numbers[key] = self._take_number()
            self._budgets[number] = Budget(namespace, TOO_MANY, 0, None, frozenset())
        return number

    def _take_number(self) -> int:
        """Return a number that no set has: a discarded one if there is one, else the next. O(sets)."""
        free = self._discarded and self._discarded.difference(np.unique(self._table).tolist())
        if not free:
            self._budgets.append(None)
            if len(self._budgets) > self._allowed.size:
                self._frees = extended(self._frees, self._allowed.size)
                self._allowed = extended(self._allowed, self._allowed.size)
            return len(self._budgets) - 1
        number = min(free)
        self._discarded.remove(number)
        return number

    def _keys(self, numbers: tuple[int, ...]) -> tuple[Key, ...]:
        budgets = (self._budgets[number] for number in numbers)
        return tuple(sorted(budget.key for budget in budgets if budget is not None))

    def _charges(self) -> Ints:
        """Return int64[sets, most members], the budgets that each set is charged to; -1 where no more are."""
        table = self._table[: self._sets.size, : max(1, self._widest)]
        if not self._hard[: self._sets.size].any():
            return table
        return np.where(self._free()[:, None], -1, table)

    def _free(self) -> Flags:
        """Return bool[sets], those whose pods the eviction API evicts without asking a hard budget."""
        sets = self._sets.size
        health, first = self._health[:sets], self._table[:sets, 0]
        alone = (first >= 0) & (self._table[:sets, 1] < 0)
        unready = (health == UNREADY) & alone & self._frees[first]
        return np.asarray(self._hard[:sets] & ((health == PENDING) | unready))


def _charge(left: list[int], budgets: Ints, pods: int) -> int:
    """Charge pods to their budgets, and return how many of them are beyond one. `left`: what each allows."""
    beyond = 0
    for budget in budgets.tolist():
        if budget >= 0:
            beyond = max(beyond, pods - max(left[budget], 0))
            left[budget] -= pods
    return min(beyond, pods)


def _beyond(budget: Ints, node: Ints, allowed: Ints) -> Ints:
    """Return the places of pods beyond what their budget allows: the k-th on a node, for k > allowed."""
    if budget.size == 0:
        return budget
    # A stable sort by budget keeps nodes, and the order of importance within each, as they came.
    order = np.argsort(budget, kind="stable")
    budget, node = budget[order], node[order]
    begins = np.flatnonzero(np.r_[True, (budget[1:] != budget[:-1]) | (node[1:] != node[:-1])])
    sizes = np.diff(np.r_[begins, budget.size])
    rank = np.arange(budget.size) - np.repeat(begins, sizes) + 1
    return order[rank > allowed[budget]]
