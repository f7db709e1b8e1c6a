"""Label selectors as metav1.LabelSelector means them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from makeway.core.k8s.names import is_label_value, is_qualified_name
from makeway.core.k8s.objects import LabelSelector


class SelectorError(ValueError):
    """A selector that Kubernetes would not accept. Says which part."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label: `In`, `NotIn`, `Exists` or `DoesNotExist`."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Report whether the labels meet it. An absent label meets NotIn."""
        return meets(labels, self.key, self.operator, self.values)


def meets(labels: Mapping[str, str], key: str, operator: str, values: Collection[str]) -> bool:
    """Report whether labels meet one condition, as a `Requirement` does. O(values)."""
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector: all requirements must hold. Without any it matches everything."""

    requirements: tuple[Requirement, ...]

    @property
    def empty(self) -> bool:
        """Whether it has no requirement at all."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Report whether every requirement holds. O(requirements)."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def compile_selector(selector: LabelSelector) -> Selector:
    """Check a selector once and make it quick to match. Raises SelectorError.

    Source: metav1.LabelSelectorAsSelector and labels.NewRequirement.
    """
    requirements = [
        _requirement(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())
    ]
    requirements += [
        _requirement(one.key, one.operator, one.values or ()) for one in selector.match_expressions or ()
    ]
    return Selector(tuple(requirements))


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    if not is_qualified_name(key):
        raise SelectorError(f"{key!r} is no label key")
    if operator in {"In", "NotIn"}:
        if not values:
            raise SelectorError(f"{operator} on {key!r} needs a value")
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            raise SelectorError(f"{operator} on {key!r} takes no value")
    else:
        raise SelectorError(f"{operator!r} is no operator of a label selector")
    for value in values:
        if not is_label_value(value):
            raise SelectorError(f"{value!r} is no label value")
    return Requirement(key, operator, frozenset(values))
