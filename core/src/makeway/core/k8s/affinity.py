"""Required pod affinity and anti-affinity terms, compiled so that they can be compared and matched.

Sources: kube-scheduler's framework (GetAffinityTerms, AffinityTerm.Matches) and its InterPodAffinity
plugin. matchLabelKeys and mismatchLabelKeys need nothing here: the API server merges them into the
label selector when a pod is created.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from makeway.core.k8s.objects import LabelSelector, Pod, PodAffinity, PodAffinityTerm
from makeway.core.k8s.selector import Selector, compile_selector

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Term:
    """Which pods a term matches, and over what they are counted.

    `selector`, `namespace_selector`: None matches nothing, an empty one everything.
    """

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector | None

    def matches(self, namespace: str, namespace_labels: Labels | None, labels: Labels) -> bool:
        """Report whether a pod of that namespace and with those labels matches. O(requirements)."""
        if self.selector is None:
            return False
        if namespace not in self.namespaces and not _selects(self.namespace_selector, namespace_labels or {}):
            return False
        return self.selector.matches(labels)

    def resolved(self, selected: Callable[[Selector], frozenset[str]]) -> Term:
        """Return the term with the namespaces that its selector selects now named one by one.

        `selected`: returns those whose labels a selector matches. As kube-scheduler does for the incoming
        pod's own terms. It keeps the selector and matches it against no labels later, so that one of only
        NotIn and DoesNotExist matches every namespace; so does this.
        """
        selector = self.namespace_selector
        if selector is None or selector.empty:
            return self
        chosen = selected(selector)
        return Term(
            self.topology_key,
            self.namespaces | chosen if self.namespaces else chosen,
            Selector(()) if selector.matches({}) else None,
            self.selector,
        )


def affinity_terms(pod: Pod) -> tuple[Term, ...]:
    """Return the pod's required affinity terms. Raises SelectorError."""
    affinity = pod.spec.affinity
    return _terms(pod.metadata.namespace, affinity.pod_affinity if affinity else None)


def anti_affinity_terms(pod: Pod) -> tuple[Term, ...]:
    """Return the pod's required anti-affinity terms. Raises SelectorError."""
    affinity = pod.spec.affinity
    return _terms(pod.metadata.namespace, affinity.pod_anti_affinity if affinity else None)


def matches_all(terms: Collection[Term], namespace: str, labels: Labels) -> bool:
    """Report whether every one of some resolved terms matches a pod; False where there is no term."""
    return bool(terms) and all(term.matches(namespace, None, labels) for term in terms)


def _terms(namespace: str, affinity: PodAffinity | None) -> tuple[Term, ...]:
    required = affinity.required if affinity is not None else None
    return tuple(_term(namespace, term) for term in required or ())


def _term(namespace: str, term: PodAffinityTerm) -> Term:
    names = frozenset(term.namespaces or ())
    if not names and term.namespace_selector is None:
        names = frozenset({namespace})
    return Term(term.topology_key, names, _compiled(term.namespace_selector), _compiled(term.label_selector))


def _compiled(selector: LabelSelector | None) -> Selector | None:
    return None if selector is None else compile_selector(selector)


def _selects(selector: Selector | None, labels: Labels) -> bool:
    return selector is not None and selector.matches(labels)
