"""Which pods may be removed for which: rules that all must allow it.

A rule looks at one preemptor and one pod and answers with a verdict that says which rule spoke and
with which numbers. Planner, evictor and command line ask the same rules, so that the evictor's
re-check cannot differ from the plan. Kubernetes' own rule is `lower-priority`; further policies are
further rules in the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway.core.k8s.importance import NOT_STARTED, microseconds, moment_of
from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.times import api_time
from makeway.core.policy import preemption, protection, toleration
from makeway.core.policy.document import Policy
from makeway.core.policy.exemption import (
    FOREVER,
    NOT_EXEMPT,
    PREEMPTION_RULE,
    PREEMPTION_TOLERATION,
    Exemption,
)
from makeway.core.policy.facts import SYSTEM_CRITICAL_PRIORITY, PodFacts
from makeway.core.policy.preemption import UNREAD, Party, PreemptionRule, Table
from makeway.core.policy.toleration_record import NO_RECORD, TolerationRecord

LOWER_PRIORITY: Final = "lower-priority"
LOWER_GROUP_PRIORITY: Final = "lower-group-priority"
"""The same, where a pod's own priority is not lower, but that of its groups, which counts."""

SYSTEM_CRITICAL: Final = "system-critical"

RECLAIM: Final = "reclaim"
"""The rule by which a pod of equal priority goes: the preemptor's queue takes back what it guarantees."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says of one pod. `detail` holds the numbers, for a person to read.

    `until`: the last moment of a verdict that time alone changes; None where it does not.
    """

    removable: bool
    rule: str
    detail: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class PreemptorFacts:
    """What rules know of the pod that needs room.

    `daemonset_node`: the one node that its DaemonSet has bound it to, empty where it is no such pod, or where
    no DaemonSet proves it. `parties`: as the policy's `preemption` looks at it; of a group each member.
    """

    priority: int
    namespace: str = ""
    daemonset_node: str = ""
    parties: tuple[Party, ...] = ()


@dataclass(frozen=True, slots=True)
class PreemptionPair:
    """What rules look at: the pod that needs room, the pod that might go, and the time.

    `party`: the victim as the policy's `preemption` looks at it. `reclaimed`: what the preemptor's queue
    takes back with it, for a person to read; empty where nothing.
    """

    preemptor: PreemptorFacts
    victim: PodFacts
    now: datetime
    party: Party = UNREAD
    reclaimed: str = ""


Rule = Callable[[PreemptionPair], Verdict]


def lower_rule(victim: PodFacts, preemptor_priority: int) -> str:
    """Return the rule by which a pod goes: it is lower by itself, or by its groups, or is reclaimed."""
    if victim.priority >= preemptor_priority:
        return RECLAIM
    return LOWER_PRIORITY if victim.by_itself < preemptor_priority else LOWER_GROUP_PRIORITY


def lower_priority(pair: PreemptionPair) -> Verdict:
    """Allow only pods of lower priority than the preemptor, as kube-scheduler does, and reclaimed ones."""
    victim, preemptor = pair.victim.priority, pair.preemptor.priority
    removable = victim < preemptor
    if not removable and pair.reclaimed:
        return Verdict(True, RECLAIM, pair.reclaimed)
    return Verdict(removable, LOWER_PRIORITY, f"{victim} {'<' if removable else '>='} {preemptor}")


def system_critical(pair: PreemptionPair) -> Verdict:
    """Allow a system-critical pod to go only for one of higher priority, whatever other rules say."""
    victim, preemptor = pair.victim.priority, pair.preemptor.priority
    if victim < SYSTEM_CRITICAL_PRIORITY:
        return Verdict(True, SYSTEM_CRITICAL, f"{victim} < {SYSTEM_CRITICAL_PRIORITY}")
    return Verdict(
        victim < preemptor, SYSTEM_CRITICAL, f"system-critical priority {victim}, preemptor {preemptor}"
    )


def protected(policy: Policy) -> Rule:
    """Make the rule that keeps mirror pods and those that the policy protects, each by its own name."""

    def rule(pair: PreemptionPair) -> Verdict:
        exemption = protection.exemption_of(pair.victim, policy.protection)
        detail = protection.detail_of(exemption, pair.victim, policy.protection)
        return Verdict(
            exemption == NOT_EXEMPT, "protection" if exemption == NOT_EXEMPT else exemption.rule, detail
        )

    return rule


def tolerating(classes: Mapping[str, PriorityClass], record: TolerationRecord = NO_RECORD) -> Rule:
    """Make the rule that asks the victim's PriorityClass, as `classes` has it when the rule is asked.

    `record`: what counts of a class that is gone.
    """

    def rule(pair: PreemptionPair) -> Verdict:
        victim = pair.victim
        found = toleration.can_tolerate_preemption(
            victim, classes.get(victim.priority_class), pair.preemptor.priority, pair.now, record
        )
        return Verdict(not found.exempt, PREEMPTION_TOLERATION, found.detail, found.until)

    return rule


def in_table(table: Table) -> Rule:
    """Make the rule that asks who may preempt whom; of members of a group, for each of them."""

    def rule(pair: PreemptionPair) -> Verdict:
        found = [preemption.first_rule(table, one, pair.party) for one in pair.preemptor.parties or (None,)]
        return of_table(
            [one for one in found if one is not None], pair.party.start_micros, microseconds(pair.now)
        )

    return rule


def of_table(found: Sequence[PreemptionRule], start_micros: int, now_micros: int) -> Verdict:
    """Return what the table says of a pod that has started then: by the rules that decide, each of a member.

    That of them speaks which keeps the pod longest.
    """
    decides = max(found, key=lambda one: one.keeps_until(start_micros), default=None)
    if decides is None:
        return Verdict(True, PREEMPTION_RULE, "no rule of preemption.rules matches")
    until = decides.keeps_until(start_micros)
    ends = moment_of(until) if 0 < until < FOREVER else None
    return Verdict(until < now_micros, PREEMPTION_RULE, _detail(decides, start_micros), ends)


def _detail(rule: PreemptionRule, start_micros: int) -> str:
    if rule.action == "deny":
        return f"rule {rule.name} of preemption.rules denies it"
    if not rule.minimum_run_time:
        return f"rule {rule.name} of preemption.rules allows it"
    started = start_micros != NOT_STARTED
    runs = f"runs since {api_time(moment_of(start_micros))}" if started else "has not started yet"
    least = round(rule.minimum_run_time.total_seconds(), 3)
    return f"rule {rule.name} of preemption.rules allows it after {least:g} s, and the pod {runs}"


def rules_in_force(
    policy: Policy, classes: Mapping[str, PriorityClass], record: TolerationRecord = NO_RECORD
) -> tuple[Rule, ...]:
    """Return the rules of ordinary preemption, in the order in which they are asked.

    Those that time changes come last, so that the first that forbids says how long it stays so.
    """
    return (lower_priority, *victim_rules(policy, classes, record))


def victim_rules(
    policy: Policy, classes: Mapping[str, PriorityClass], record: TolerationRecord = NO_RECORD
) -> tuple[Rule, ...]:
    """Return the rules that hold for every kind of preemption, also where equal priorities may go."""
    table = policy.preemption.table
    asked = (in_table(table),) if table else ()
    return (system_critical, protected(policy), tolerating(classes, record), *asked)


def exemption_of(
    victim: PodFacts,
    policy: Policy,
    classes: Mapping[str, PriorityClass],
    record: TolerationRecord = NO_RECORD,
) -> Exemption:
    """Return `protected` and `tolerating` of one pod as an exemption: the planner's columns hold it. O(1).

    What the policy's `preemption` says depends on the preemptor, and is no part of it.
    """
    exemption = protection.exemption_of(victim, policy.protection)
    if exemption != NOT_EXEMPT:
        return exemption
    return toleration.exemption_of(victim, classes.get(victim.priority_class), record)


def judge(rules: Sequence[Rule], pair: PreemptionPair) -> Verdict:
    """Ask the rules in order: the first that forbids speaks, else the first of all. O(rules)."""
    allowed: Verdict | None = None
    for rule in rules:
        verdict = rule(pair)
        if not verdict.removable:
            return verdict
        allowed = allowed or verdict
    return allowed or Verdict(removable=False, rule="", detail="no rule")
