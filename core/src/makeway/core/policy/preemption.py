"""Who may preempt whom: the policy's `preemption`, a table of rules of which the first that matches decides.

A rule looks at both sides, at labels, classes and queues; no priority is compared here. `allow` ends the
search in this table alone, so that every other rule still holds. Planner, evictor and command line ask the
same functions. The planner keeps of each pod which rules' `victims` it matches, as the bits of one number, so
that a plan asks no selector again: the lowest bit that pod and preemptor have in common is the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from makeway.core.config.document import Document, Problem
from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.k8s.objects import LabelSelector, LabelSelectorRequirement
from makeway.core.k8s.selector import SelectorError, compile_selector, meets
from makeway.core.policy.exemption import (
    ANY_PREEMPTOR,
    FOREVER,
    LATEST,
    NOT_EXEMPT,
    PREEMPTION_RULE,
    RULES,
    Exemption,
)
from makeway.core.policy.section import PolicySection

MOST_RULES: Final = 60
"""Rules that a policy may have, those of bands included: the planner keeps a bit of each, of every pod."""

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label by which Kubernetes names every namespace."""

_MICROSECOND: Final = timedelta(microseconds=1)

Operator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]
Action: TypeAlias = Literal["allow", "deny"]
RuleName = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z", extra={"expected": "a name such as prod-keeps"}),
]
ClassName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z", extra={"expected": "the name of a PriorityClass"}
    ),
]
QueuePath = Annotated[
    str,
    Meta(
        pattern=r"^root(\.[a-zA-Z0-9_:#/@-]{1,64})*\Z",
        extra={"expected": "a queue's full path, such as root.team-a"},
    ),
]


KEPT_BELOW: Final = ANY_PREEMPTOR + RULES.index(PREEMPTION_RULE)
"""`below` of a pod that the table keeps."""

S = TypeVar("S", bound=msgspec.Struct)

_BY_HAVING = frozenset({"In", "Exists"})
"""Operators that a label meets which is there."""


class Party(NamedTuple):
    """What rules know of one side.

    `namespace`: the labels of its namespace (`namespace_labels`). `labels`: of the pod, of a group that
    preempts the group's. `queue`: the path of its queue, empty where there are no queues. `start_micros`:
    since when it runs, in microseconds since 1970, or NOT_STARTED.
    """

    namespace: Mapping[str, str]
    labels: Mapping[str, str]
    priority_class: str = ""
    queue: str = ""
    start_micros: int = NOT_STARTED


UNREAD: Final = Party({}, {})
"""A side of which nothing was read: the policy has no rule that asks."""


class LabelExpression(PolicySection, frozen=True, kw_only=True):
    """A condition on one label.

    Attributes:
        key: The label's key.
        operator: How its value is compared.
        values: With what, for `In` and `NotIn`.
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Labels(PolicySection, frozen=True):
    """A label selector, as Kubernetes has them. Without any condition it matches everything.

    Attributes:
        match_labels: Labels that have to be there with these values.
        match_expressions: Further conditions, all of which have to hold.
    """

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[LabelExpression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Report whether every condition holds. O(conditions)."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            meets(labels, one.key, one.operator, one.values) for one in self.match_expressions
        )

    @property
    def expressions(self) -> tuple[LabelExpression, ...]:
        """All conditions, each as an expression."""
        equal = (
            LabelExpression(key=key, operator="In", values=(value,))
            for key, value in sorted(self.match_labels.items())
        )
        return (*equal, *self.match_expressions)


class PartySelector(PolicySection, frozen=True):
    """Preemptors, or victims; what is left out matches all of them.

    Attributes:
        namespace_selector: By the labels of their namespaces; `kubernetes.io/metadata.name` is its name.
        label_selector: By their own labels; of a PodGroup that preempts, by the group's.
        priority_classes: By their PriorityClasses.
        queues: By their queues; those below a queue are in it.
    """

    namespace_selector: Labels = Labels()
    label_selector: Labels = Labels()
    priority_classes: tuple[ClassName, ...] = ()
    queues: tuple[QueuePath, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it matches everything, also where there is no preemptor."""
        return not (
            self.namespace_selector.expressions
            or self.label_selector.expressions
            or self.priority_classes
            or self.queues
        )

    def matches(self, party: Party) -> bool:
        """Report whether one side is meant. O(conditions + classes + queues)."""
        return (
            (not self.priority_classes or party.priority_class in self.priority_classes)
            and (not self.queues or any(is_in(party.queue, path) for path in self.queues))
            and self.label_selector.matches(party.labels)
            and self.namespace_selector.matches(party.namespace)
        )


class PreemptionRule(PolicySection, frozen=True, kw_only=True):
    """One rule.

    Attributes:
        name: What refusals call it.
        preemptors: Whom it is about. Left out: all, and quotas too, which have no preemptor.
        victims: Whose eviction it is about. Left out: all pods.
        action: `deny`: these victims stay. `allow`: no rule below this one keeps them; all else still does.
        minimum_run_time: With `allow`: only once a victim has run so long; until then it stays. Does not
            count for quotas.
    """

    name: RuleName
    preemptors: PartySelector = PartySelector()
    victims: PartySelector = PartySelector()
    action: Action
    minimum_run_time: timedelta = timedelta()

    def keeps_until(self, start_micros: int) -> int:
        """Return the last microsecond for which a victim stays; 0 where no time keeps it."""
        if self.action == "deny":
            return FOREVER
        least = self.minimum_run_time // _MICROSECOND
        if not least:
            return 0
        last = start_micros + least - 1
        return last if last < LATEST else FOREVER


class Band(PolicySection, frozen=True):
    """Classes whose pods never preempt one another: a rule behind all `rules`.

    Attributes:
        classes: The PriorityClasses of the band.
        never: Whom they never preempt; `own`: pods of the band.
    """

    classes: Annotated[tuple[ClassName, ...], Meta(min_length=1)]
    never: Literal["own"]


class Preemption(PolicySection, frozen=True):
    """Who may preempt whom, beyond priorities. Of the rules that match both sides the first decides.

    Attributes:
        rules: The rules, in their order; at most 60 with the bands.
        bands: Classes that never preempt their own, as rules behind all others.
    """

    rules: tuple[PreemptionRule, ...] = ()
    bands: tuple[Band, ...] = ()

    @property
    def table(self) -> tuple[PreemptionRule, ...]:
        """All rules in the order in which they are asked, those of the bands last."""
        return (*self.rules, *(_of_band(number, band) for number, band in enumerate(self.bands, 1)))


Table: TypeAlias = Sequence[PreemptionRule]
"""Rules in their order."""


def _of_band(number: int, band: Band) -> PreemptionRule:
    own = PartySelector(priority_classes=band.classes)
    return PreemptionRule(name=f"band-{number}", preemptors=own, victims=own, action="deny")


def namespace_labels(name: str, labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a namespace's labels with its name, which Kubernetes always gives it."""
    return {**(labels or {}), NAMESPACE_NAME: name}


def asks_for_namespaces(table: Table) -> bool:
    """Report whether a rule looks at labels of namespaces."""
    return any(_sides(table, lambda one: bool(one.namespace_selector.expressions)))


def asks_for_queues(table: Table) -> bool:
    """Report whether a rule looks at queues."""
    return any(_sides(table, lambda one: bool(one.queues)))


def _sides(table: Table, asks: Callable[[PartySelector], bool]) -> Iterator[bool]:
    return (asks(one) for rule in table for one in (rule.preemptors, rule.victims))


def is_in(queue: str, path: str) -> bool:
    """Report whether a queue is the one of that path, or below it."""
    return f"{queue}.".startswith(f"{path}.")


def preemptor_bits(table: Table, preemptor: Party | None) -> int:
    """Return of which rules a preemptor is, bit by bit; None: there is none. O(rules)."""
    return _bits(_is_of(one, preemptor) for one in table)


def victim_bits(table: Table, victim: Party) -> int:
    """Return of which rules a pod may be the victim, bit by bit. O(rules)."""
    return _bits(one.victims.matches(victim) for one in table)


def first_rule(table: Table, preemptor: Party | None, victim: Party) -> PreemptionRule | None:
    """Return the rule that decides over a pod; None where none matches. O(rules)."""
    meant = (one for one in table if one.victims.matches(victim) and _is_of(one, preemptor))
    return next(meant, None)


def exemption_by(table: Table, masks: Sequence[int], bits: int, start_micros: int) -> Exemption:
    """Return how a pod is exempt by the table, of several preemptors by the one that leaves it longest.

    `masks`: of each preemptor, `preemptor_bits`; `bits`: the pod's `victim_bits`. O(masks).
    """
    until = max((one.keeps_until(start_micros) for one in deciding(table, masks, bits)), default=0)
    return Exemption(KEPT_BELOW, until) if until else NOT_EXEMPT


def deciding(table: Table, masks: Sequence[int], bits: int) -> list[PreemptionRule]:
    """Return the rules that decide over a pod, of each preemptor the one that it has. O(masks).

    `masks`, `bits`: as for `exemption_by`.
    """
    return [table[(both & -both).bit_length() - 1] for mask in masks if (both := mask & bits)]


def _is_of(rule: PreemptionRule, preemptor: Party | None) -> bool:
    """Report whether a rule is about a preemptor; None: there is none."""
    return rule.preemptors.is_open if preemptor is None else rule.preemptors.matches(preemptor)


def _bits(matches: Iterator[bool]) -> int:
    return sum(1 << number for number, one in enumerate(matches) if one)


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
    """Return which rules can be used by whoever writes a pod's labels. O(rules²)."""
    table = preemption.table
    for number, rule in enumerate(table):
        ends_search = any(map(_keeps, table[number + 1 :]))
        yield from (
            f"rule {rule.name} of preemption.rules: whoever may write a pod's labels {can}; "
            "select namespaces, classes or queues instead"
            for can in _forgeable(rule, ends_search=ends_search)
        )


def _keeps(rule: PreemptionRule) -> bool:
    return rule.action == "deny" or bool(rule.minimum_run_time)


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
