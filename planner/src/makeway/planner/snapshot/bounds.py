"""How much of what a pod's author writes a plan looks at; beyond that the scheduler's filters decide.

Any user may write a pod with thousands of terms, and each plan would weigh them. A sort of constraint that is
larger than these bounds is left out as a whole: to leave it out is looser, to cut it need not be (a shorter
list of affinity terms means more pods). What is left out is named by one of the constants here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from makeway.core.k8s.affinity import Term
from makeway.core.k8s.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)

MOST_TERMS: Final = 100
"""Terms, constraints, tolerations, host ports or claims of one sort that are looked at in one pod."""

MOST_WORDS: Final = 1000
"""Namespaces, label keys and values that the terms of one sort may name altogether."""

MOST_LABEL_KEYS: Final = 16
"""Different label keys that the selectors of one sort may ask for, of pods or of nodes."""

MOST_NAMESPACE_SELECTORS: Final = 10
"""Different selectors of namespaces in the terms of one sort; each is matched against all namespaces."""

POD_AFFINITY: Final = "podAffinity"
POD_ANTI_AFFINITY: Final = "podAntiAffinity"
EXISTING_ANTI_AFFINITY: Final = "existingPodsAntiAffinity"
TOPOLOGY_SPREAD: Final = "topologySpread"
NODE_AFFINITY: Final = "nodeAffinity"
TOLERATIONS: Final = "tolerations"
HOST_PORTS: Final = "hostPorts"
CLAIMS: Final = "volumeClaims"
RESOURCES: Final = "resources"

LEFT_OUT: Final = (
    POD_AFFINITY,
    POD_ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    TOPOLOGY_SPREAD,
    NODE_AFFINITY,
    TOLERATIONS,
    HOST_PORTS,
    CLAIMS,
    RESOURCES,
)
"""All that a plan may leave to the scheduler's filters because of a bound."""


def is_large_affinity(affinity: PodAffinity | None) -> bool:
    """Report whether required terms of pod affinity or anti-affinity are more than is looked at. O(bound)."""
    required = affinity.required if affinity is not None else None
    if not required:
        return False
    return len(required) > MOST_TERMS or _exceeds(map(_words_of_term, required), MOST_WORDS)


def is_large_spread(constraints: Iterable[TopologySpreadConstraint] | None) -> bool:
    """Report whether spread constraints are more than is looked at."""
    if not constraints:
        return False
    listed = tuple(constraints)
    words = (_words(one.label_selector) + len(one.match_label_keys or ()) for one in listed)
    return len(listed) > MOST_TERMS or _exceeds(words, MOST_WORDS)


def is_large_node_selection(pod: Pod) -> bool:
    """Report whether a pod's nodeSelector and required node affinity are more than is looked at."""
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    terms = (required.node_selector_terms if required else None) or ()
    labels = pod.spec.node_selector or ()
    if len(terms) > MOST_TERMS or len(labels) > MOST_TERMS:
        return True
    conditions = [
        one for term in terms for one in (*(term.match_expressions or ()), *(term.match_fields or ()))
    ]
    if len(conditions) > MOST_WORDS or len({*labels, *(one.key for one in conditions)}) > MOST_LABEL_KEYS:
        return True
    return _exceeds(map(_words_of, conditions), MOST_WORDS)


def is_large_matching(terms: Iterable[Term]) -> bool:
    """Report whether terms ask for more label keys, or select namespaces in more ways, than is looked at."""
    keys: set[str] = set()
    selectors = set()
    for term in terms:
        if term.selector is not None:
            keys.update(one.key for one in term.selector.requirements)
        if term.namespace_selector is not None and not term.namespace_selector.empty:
            selectors.add(term.namespace_selector)
    return len(keys) > MOST_LABEL_KEYS or len(selectors) > MOST_NAMESPACE_SELECTORS


def _words_of_term(term: PodAffinityTerm) -> int:
    return 1 + len(term.namespaces or ()) + _words(term.label_selector) + _words(term.namespace_selector)


def _words(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels or ()) + sum(map(_words_of, selector.match_expressions or ()))


def _words_of(requirement: LabelSelectorRequirement) -> int:
    return 1 + len(requirement.values or ())


def _exceeds(counts: Iterable[int], most: int) -> bool:
    total = 0
    for count in counts:
        total += count
        if total > most:
            return True
    return False
