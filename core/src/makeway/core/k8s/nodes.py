"""Which nodes a pod may run on by itself: node selector, required node affinity, taints.

Sources: component-helpers' nodeaffinity (GetRequiredNodeAffinity) and core/v1's ToleratesTaint. Tolerations
that compare (Lt, Gt) are read as with their feature gate on: looser where it is off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from makeway.core.k8s.objects import (
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)
from makeway.core.k8s.selector import meets

_KEEPS_OUT = ("NoSchedule", "NoExecute")
_OF_SELECTORS = ("In", "NotIn", "Exists", "DoesNotExist")
NAME_FIELD = "metadata.name"
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node; a pod that tolerates it may run there."""

Condition = tuple[str, str, tuple[str, ...]]
"""Key, operator and values."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a node selector: labels and fields that must all match, as (key, operator, values)."""

    expressions: tuple[Condition, ...] = ()
    fields: tuple[Condition, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Report whether a node is meant; a term without any condition means none."""
        if not self.expressions and not self.fields:
            return False
        return all(_holds(*one, labels) for one in self.expressions) and all(
            field_holds(*one, name) for one in self.fields
        )


@dataclass(frozen=True, slots=True)
class RequiredNodes:
    """A pod's nodeSelector and required node affinity. `terms` None: no affinity; empty: no node."""

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None

    @property
    def anywhere(self) -> bool:
        """Whether every node will do."""
        return not self.labels and self.terms is None

    def match(self, name: str, labels: Mapping[str, str]) -> bool:
        """Report whether a node of that name and with those labels will do. O(conditions)."""
        if any(labels.get(key) != value for key, value in self.labels):
            return False
        return self.terms is None or any(term.matches(name, labels) for term in self.terms)


def required_nodes(pod: Pod) -> RequiredNodes:
    """Take a pod's requirements on its node."""
    affinity = pod.spec.affinity
    selector = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    labels = tuple(sorted((pod.spec.node_selector or {}).items()))
    return RequiredNodes(labels, selected_nodes(selector).terms)


def selected_nodes(selector: NodeSelector | None) -> RequiredNodes:
    """Take a node selector by itself; none means every node."""
    if selector is None:
        return RequiredNodes()
    return RequiredNodes(terms=tuple(_term(term) for term in selector.node_selector_terms or ()))


def field_holds(key: str, operator: str, values: tuple[str, ...], name: str) -> bool:
    """Report whether a node of that name meets a condition on a field; the API server accepts no others."""
    return (
        operator in ("In", "NotIn") and len(values) == 1 and _holds(key, operator, values, {NAME_FIELD: name})
    )


def keeps_out(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Report whether a taint that forbids scheduling is not tolerated."""
    tolerations = tuple(tolerations)
    return any(
        taint.effect in _KEEPS_OUT and not any(tolerates(one, taint) for one in tolerations)
        for taint in taints
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Report whether a toleration covers a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator in ("Gt", "Lt"):
        return compares(toleration.operator, (toleration.value,), taint.value)
    return toleration.operator == "Exists"


def _term(term: NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(_conditions(term.match_expressions), _conditions(term.match_fields))


def _conditions(
    requirements: tuple[LabelSelectorRequirement, ...] | None,
) -> tuple[Condition, ...]:
    return tuple((one.key, one.operator, one.values or ()) for one in requirements or ())


def _holds(key: str, operator: str, values: tuple[str, ...], labels: Mapping[str, str]) -> bool:
    if operator in _OF_SELECTORS:
        return meets(labels, key, operator, values)
    return compares(operator, values, labels.get(key))


def compares(operator: str, values: tuple[str, ...], label: str | None) -> bool:
    """Report whether a label's value meets `Gt` or `Lt`; an operator that is none of these is never met."""
    if operator not in ("Gt", "Lt") or len(values) != 1:
        return False
    bound, have = whole_number(values[0]), whole_number(label or "")
    if bound is None or have is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def whole_number(text: str) -> int | None:
    """Return the number that `Gt` and `Lt` take a text for; None where it is none."""
    return int(text) if _WHOLE.fullmatch(text) else None
