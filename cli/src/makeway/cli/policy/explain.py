"""The rules of who may preempt whom in the order in which they are asked, with those of bands. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from makeway.core.policy.document import Policy
from makeway.core.policy.preemption import LabelExpression, PartySelector, PreemptionRule


def explained(policy: Policy) -> Iterator[str]:
    """Return a line for each rule, and what holds where none matches."""
    table = policy.preemption.table
    for number, rule in enumerate(table, 1):
        yield (
            f"{number}. {rule.name}: {_action(rule)}; "
            f"preemptors: {_side(rule.preemptors)}; victims: {_side(rule.victims)}"
        )
    rest = "no rule keeps the victim" if table else "the policy has no rules of who may preempt whom"
    yield f"{'else' if table else 'always'}: {rest}; priorities, protection, budgets and the like hold anyway"


def _action(rule: PreemptionRule) -> str:
    if rule.minimum_run_time:
        seconds = rule.minimum_run_time / timedelta(seconds=1)
        return f"allow once the victim has run {seconds:g} s, until then deny"
    return rule.action


def _side(side: PartySelector) -> str:
    parts = [
        *(f"namespace label {_condition(one)}" for one in side.namespace_selector.expressions),
        *(f"label {_condition(one)}" for one in side.label_selector.expressions),
        *([f"class {' or '.join(side.priority_classes)}"] if side.priority_classes else []),
        *([f"queue {' or '.join(side.queues)}"] if side.queues else []),
    ]
    return ", ".join(parts) or "all"


def _condition(one: LabelExpression) -> str:
    match one.operator:
        case "Exists":
            return one.key
        case "DoesNotExist":
            return f"!{one.key}"
    return f"{one.key} {'in' if one.operator == 'In' else 'notin'} ({', '.join(one.values)})"
