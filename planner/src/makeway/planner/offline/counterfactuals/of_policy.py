"""What the policy could say otherwise. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from makeway.core.policy.document import Policy
from makeway.core.policy.exemption import NEVER_EVICT, PROTECTED_NAMESPACE, PROTECTED_PRIORITY
from makeway.planner.offline.counterfactuals.changes import Case, Found, helps, least, with_policy
from makeway.planner.offline.results import Change
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.plan.refusal.statistics import OVER_BUDGET, OVER_LIMIT
from makeway.planner.plan.unfiltered import PodVerdict


def other_policy(case: Case, judged: PodVerdict) -> Found:
    """One setting of the policy, by as little as helps."""
    refusal = judged.refusal
    if refusal is None:
        return
    policy = case.snapshot.exemptions.policy
    stood = {*refusal.exempt, *refusal.node_reasons}
    vary = None
    for change, changed in (*_settings(policy, stood), *_numbers(case, policy, stood)):
        vary = vary or case.varied()
        there = vary(with_policy(changed))
        if helps(there):
            yield change, there
            # The copy is overridden by the next setting; what was yielded is judged before that.


def _settings(policy: Policy, stood: set[str]) -> Iterator[tuple[Change, Policy]]:
    protection = policy.protection
    if stood & {HARD_BUDGET, OVER_BUDGET} and policy.disruption_budgets == "hard":
        yield (
            _change("disruptionBudgets", "hard", "soft"),
            msgspec.structs.replace(policy, disruption_budgets="soft"),
        )
    if PROTECTED_NAMESPACE in stood:
        for name in protection.namespaces:
            rest = tuple(one for one in protection.namespaces if one != name)
            yield (
                _change("protection.namespaces", list(protection.namespaces), list(rest)),
                _protecting(policy, namespaces=rest),
            )
    if NEVER_EVICT in stood:
        yield (
            _change("protection.neverEvictNamespaces", list(protection.never_evict_namespaces), []),
            _protecting(policy, never_evict_namespaces=()),
        )


def _numbers(case: Case, policy: Policy, stood: set[str]) -> Iterator[tuple[Change, Policy]]:
    """Bounds, moved just far enough. Looked for on a copy of their own."""
    least_kept = policy.protection.minimum_priority
    if PROTECTED_PRIORITY in stood and least_kept is not None:
        vary = case.varied()
        kept = {pod.priority + 1 for pod in case.snapshot.pods.values() if pod.priority >= least_kept}
        if found := least(
            sorted(kept), lambda one: vary(with_policy(_protecting(policy, minimum_priority=one)))
        ):
            change = _change("protection.minimumPriority", least_kept, found[0])
            yield change, _protecting(policy, minimum_priority=found[0])
    most = policy.limits.victims_per_order
    if OVER_LIMIT in stood:
        vary = case.varied()
        deepest = int(case.snapshot.columns.count.max())
        if found := least(range(most + 1, deepest + 1), lambda one: vary(with_policy(_limited(policy, one)))):
            yield _change("limits.victimsPerOrder", most, found[0]), _limited(policy, found[0])


def _protecting(policy: Policy, **fields: Any) -> Policy:
    return msgspec.structs.replace(policy, protection=msgspec.structs.replace(policy.protection, **fields))


def _limited(policy: Policy, victims: int) -> Policy:
    return msgspec.structs.replace(
        policy, limits=msgspec.structs.replace(policy.limits, victims_per_order=victims)
    )


def _change(field: str, now: Any, then: Any) -> Change:
    def written(value: Any) -> str:
        return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)

    return Change(
        kind="policy",
        text=f"policy: {field} {written(then)} (it is {written(now)})",
        object="policy",
        field=field,
        now=now,
        then=then,
    )
