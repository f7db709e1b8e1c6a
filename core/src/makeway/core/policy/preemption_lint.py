"""What is wrong with the rules of who may preempt whom, and which do not do what they seem to. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from makeway.core.config.document import Document, Problem
from makeway.core.k8s.objects import LabelSelector, LabelSelectorRequirement
from makeway.core.k8s.selector import SelectorError, compile_selector
from makeway.core.policy.preemption import (
    MOST_RULES,
    Labels,
    PartySelector,
    Preemption,
    PreemptionRule,
    is_in,
)

S = TypeVar("S", bound=msgspec.Struct)

_BY_HAVING = frozenset({"In", "Exists"})
"""Operators that a label meets which is there."""


def rule_problems(document: Document[S], preemption: Preemption) -> Iterator[Problem]:
    """Return for what the rules of a policy are refused. `document`: where they stand."""
    at = "preemption.rules"
    if len(preemption.table) > MOST_RULES:
        yield document.problem(
            "preemption",
            f"has {len(preemption.table)} rules with its bands",
            f"write at most {MOST_RULES}: one rule may name several classes and queues",
        )
    names: dict[str, int] = {}
    for number, rule in enumerate(preemption.rules):
        path = f"{at}[{number}]"
        if (first := names.setdefault(rule.name, number)) != number:
            remedy = "give each rule a name of its own"
            yield document.problem(f"{path}.name", f"is the name of {at}[{first}] too", remedy)
        if rule.name.startswith("band-"):
            remedy = "choose another name: rules that bands stand for have such names"
            yield document.problem(f"{path}.name", "begins with band-", remedy)
        if rule.action == "deny" and rule.minimum_run_time:
            yield document.problem(
                f"{path}.minimumRunTime",
                "is said of a rule that denies anyway",
                "write action: allow, which then holds once a victim has run so long, or take the time out",
            )
        for side, selector in (("preemptors", rule.preemptors), ("victims", rule.victims)):
            yield from _selector_problems(document, f"{path}.{side}", selector)
    for number, band in enumerate(preemption.bands):
        where = f"preemption.bands[{number}].classes"
        if not band.classes and document.is_sound(where):
            yield document.problem(where, "names no class", "list the PriorityClasses of the band")


def _selector_problems(document: Document[S], path: str, selector: PartySelector) -> Iterator[Problem]:
    for name, labels in (
        ("namespaceSelector", selector.namespace_selector),
        ("labelSelector", selector.label_selector),
    ):
        where = f"{path}.{name}"
        found = tuple(
            LabelSelectorRequirement(key=one.key, operator=one.operator, values=one.values)
            for one in labels.match_expressions
        )
        try:
            compile_selector(LabelSelector(match_labels=labels.match_labels, match_expressions=found))
        except SelectorError as error:
            remedy = "write it as a label selector of Kubernetes"
            yield document.problem(where, f"is no label selector: {error}", remedy)


def rule_warnings(preemption: Preemption) -> Iterator[str]:
    """Return which rules never decide, change nothing, or can be used by whoever writes a pod's labels.

    Only what the rules alone show: whether a label, a class or a queue is there is no matter. O(rules²).
    """
    table = preemption.table
    for number, rule in enumerate(table):
        what = f"rule {rule.name} of preemption.rules"
        before, after = table[:number], table[number + 1 :]
        covering = next((one for one in before if _covers(one, rule)), None)
        if impossible := _impossible(rule):
            yield f"{what} never matches: no label {impossible}"
        elif covering is not None:
            says = "says the same" if _alike(covering, rule) else "contradicts it"
            yield f"{what} never decides: rule {covering.name} before it matches all that it does, and {says}"
        elif not _keeps(rule) and not any(map(_keeps, after)):
            yield f"{what} has no effect: no rule below it keeps a victim"
        yield from (
            f"{what}: whoever may write a pod's labels {can}; select namespaces, classes or queues instead"
            for can in _forgeable(rule, ends_search=any(map(_keeps, after)))
        )


def _keeps(rule: PreemptionRule) -> bool:
    return rule.action == "deny" or bool(rule.minimum_run_time)


def _alike(one: PreemptionRule, other: PreemptionRule) -> bool:
    return (one.action, one.minimum_run_time) == (other.action, other.minimum_run_time)


def _forgeable(rule: PreemptionRule, *, ends_search: bool) -> Iterator[str]:
    """Return what the author of a pod gains by a label, beside being preempted or preempting less."""
    preemptors, victims = rule.preemptors.label_selector, rule.victims.label_selector
    if (_keeps(rule) and _has(victims, having=True)) or (
        rule.action == "allow" and ends_search and _has(victims, having=False)
    ):
        yield "can keep it from being preempted by a label that this rule asks of victims"
    if (_keeps(rule) and _has(preemptors, having=False)) or (
        rule.action == "allow" and ends_search and _has(preemptors, having=True)
    ):
        yield "can let it preempt more by a label that this rule asks of preemptors"


def _has(labels: Labels, *, having: bool) -> bool:
    return any((one.operator in _BY_HAVING) == having for one in labels.expressions)


def _covers(one: PreemptionRule, other: PreemptionRule) -> bool:
    """Report whether all that the other rule matches is matched by this one, as far as their texts show."""
    return _wider(one.preemptors, other.preemptors) and _wider(one.victims, other.victims)


def _wider(one: PartySelector, other: PartySelector) -> bool:
    classes = not one.priority_classes or (
        bool(other.priority_classes) and set(other.priority_classes) <= set(one.priority_classes)
    )
    queues = not one.queues or (
        bool(other.queues) and all(any(is_in(queue, path) for path in one.queues) for queue in other.queues)
    )
    return (
        classes
        and queues
        and _looser(one.namespace_selector, other.namespace_selector)
        and _looser(one.label_selector, other.label_selector)
    )


def _looser(one: Labels, other: Labels) -> bool:
    return all(mine in other.expressions for mine in one.expressions)


def _impossible(rule: PreemptionRule) -> str:
    """Return a condition that no label meets; empty where each may be met."""
    for selector in (rule.preemptors, rule.victims):
        for labels in (selector.namespace_selector, selector.label_selector):
            allowed: dict[str, set[str]] = {}
            for one in labels.expressions:
                if one.operator == "In":
                    allowed[one.key] = allowed.get(one.key, set(one.values)) & set(one.values)
                    if not allowed[one.key]:
                        return f"{one.key} has two values at once"
    return ""
