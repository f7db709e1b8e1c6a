"""Which pods of lower priority rules exempt, by which rule, and when the first of them may go.

Everything here explains: a plan does not need it. It is asked for the nodes that a decision record shows.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from makeway.core.policy.exemption import DELETE_REFUSED, PREEMPTION_RULE, PREEMPTION_TOLERATION
from makeway.core.policy.rules import Verdict
from makeway.core.text import counted
from makeway.planner.plan.evaluate import Evaluation
from makeway.planner.snapshot.columns import Flags
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

HARD_BUDGET = "hard-budget"
"""The rule that keeps a pod under a budget that may not be violated and allows nothing more."""

REFUSED = Verdict(False, DELETE_REFUSED, "the API server refused to delete it for this pod a moment ago")
"""Of a pod whose deletion was refused for good."""

MOST_EXEMPT = 8
"""Pods of one node that a record names."""


def exempt_mask(found: Evaluation) -> Flags:
    """Return bool[slots, M]: the pods of lower priority that the policy or their class exempts."""
    return np.asarray(
        found.lower & ~found.removable & ~found.under_budget & ~found.guaranteed & ~found.grouped
    )


def budget_detail(snapshot: Snapshot, pod: PodRecord) -> str:
    """Return which hard budgets keep a pod, or that this is not known yet."""
    if pod.namespace in snapshot.undecided:
        return f"the disruption budgets of namespace {pod.namespace} are being applied"
    names = snapshot.budgets.members(snapshot.budget_set(pod.uid))
    budgets = ", ".join(f"{namespace}/{name}" for namespace, name in names)
    return f"PodDisruptionBudget {budgets} allows no more"


def exempt_text(counts: Counter[str], ends: str) -> str:
    """Return how many pods of lower priority stay, by rule; nothing where none does.

    `ends`: when the first of those may be evicted that stay for a time; empty where none does.
    """
    timed = [rule for rule in (PREEMPTION_RULE, PREEMPTION_TOLERATION) if rule in counts]
    first = f", the first{' of both' if len(timed) > 1 else ''} until {ends}" if ends else ""
    return ", ".join(
        f"{counted(number, 'pod')} exempt by {rule}{first if rule in timed[-1:] else ''}"
        for rule, number in sorted(counts.items())
    )
