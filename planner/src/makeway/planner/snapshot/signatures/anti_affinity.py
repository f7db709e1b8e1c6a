"""Required anti-affinity of pods that are there: which of their terms match a preemptor, found by an index.

Pods with the same terms are one *group*. A term is found by its namespaces and by one label that it requires.
So a plan looks only at terms that name the preemptor's namespace, or select namespaces, and one of its
labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from makeway.core.index import Index
from makeway.core.k8s.affinity import Term
from makeway.planner.snapshot.signatures.interning import NONE, InternTable

MOST_CANDIDATES: Final = 2000
"""Terms that are compared with one preemptor; where more might match it, they are left out: about 1 ms."""

_FEW: Final = 4
"""Namespaces, or values of a label, under which a term is found one by one; beyond that under all of them."""

Terms: TypeAlias = tuple[Term, ...]
_Place: TypeAlias = tuple[str | None, str, str]
"""A namespace (None: any) and a label with its value (empty: none is required)."""


class AntiAffinityIndex:
    """The terms of pods that are there, by group. Changed only by the table of signatures that owns it.

    `changes` counts how often the terms have changed.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._groups: InternTable[Terms] = InternTable()
        self._numbers: dict[Term, int] = {}
        self._holders: dict[Term, dict[int, None]] = {}
        self._places = Index[_Place, Term, None]()
        self._last = 0

    @property
    def size(self) -> int:
        """One more than the highest number of a group in use so far."""
        return self._groups.size

    def terms(self, group: int) -> Terms:
        """Return the terms of a group."""
        return self._groups.value(group) or ()

    def acquire(self, terms: Terms) -> int:
        """Count one more holder of some terms; return their group. O(terms) where they are new."""
        if not terms:
            return NONE
        group, new = self._groups.acquire(terms)
        if new:
            for term in terms:
                self._enter(term, group)
        return group

    def release(self, group: int) -> None:
        """Count one holder less."""
        if group == NONE:
            return
        terms = self.terms(group)
        if self._groups.release(group):
            for term in dict.fromkeys(terms):
                self._leave(term, group)

    def number(self, term: Term) -> int:
        """Return the number of a term, which no other term has ever had."""
        return self._numbers[term]

    def groups(self, term: Term) -> Iterable[int]:
        """Return the groups that have a term."""
        return self._holders[term]

    def matching(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
    ) -> list[Term] | None:
        """Return the terms that match a pod of that namespace and with those labels.

        None where more than MOST_CANDIDATES might. O(labels + terms that might).
        """
        wanted = [("", ""), *labels.items()]
        found = [
            place
            for where in (namespace, None)
            for key, value in wanted
            if (place := self._places.get((where, key, value)))
        ]
        if sum(map(len, found)) > MOST_CANDIDATES:
            return None
        return [
            term for place in found for term in place if term.matches(namespace, namespace_labels, labels)
        ]

    def _enter(self, term: Term, group: int) -> None:
        holders = self._holders.get(term)
        if holders is not None:
            holders[group] = None
            return
        self.changes += 1
        self._last += 1
        self._numbers[term] = self._last
        self._holders[term] = {group: None}
        for place in _places(term):
            self._places.put(place, term, None)

    def _leave(self, term: Term, group: int) -> None:
        holders = self._holders[term]
        del holders[group]
        if holders:
            return
        self.changes += 1
        del self._holders[term], self._numbers[term]
        for place in _places(term):
            self._places.discard(place, term)


def _places(term: Term) -> list[_Place]:
    """Return where a term is found; a pod that it matches has one of these, or several."""
    if term.selector is None:
        return []
    by_name = term.namespace_selector is None and len(term.namespaces) <= _FEW
    namespaces: list[str | None] = [*sorted(term.namespaces)] if by_name else [None]
    required = [one for one in term.selector.requirements if one.operator == "In" and len(one.values) <= _FEW]
    first = min(required, key=lambda one: len(one.values), default=None)
    labels = [("", "")] if first is None else [(first.key, value) for value in sorted(first.values)]
    return [(namespace, key, value) for namespace in namespaces for key, value in labels]
