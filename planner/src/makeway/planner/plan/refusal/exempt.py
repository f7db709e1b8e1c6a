"""Which pods of lower priority rules exempt, by which rule, and when the first of them may go.

Everything here explains: a plan does not need it. It is asked for the nodes that a decision record shows.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import numpy as np

from makeway.core.policy.exemption import DELETE_REFUSED, PREEMPTION_RULE, PREEMPTION_TOLERATION
from makeway.core.policy.rules import PreemptionPair, Verdict, judge
from makeway.core.text import counted
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.queues import QUEUE_GUARANTEED, guarantee_of
from makeway.planner.plan.evaluate import Evaluation
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import ExemptPod, ExemptPods
from makeway.planner.plan.terminating import verdict_of
from makeway.planner.plan.who_preempts import WhoPreempts, preemptor_facts
from makeway.planner.snapshot.columns import Flags
from makeway.planner.snapshot.pod_groups import POD_GROUP
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

HARD_BUDGET = "hard-budget"
"""The rule that keeps a pod under a budget that may not be violated and allows nothing more."""

REFUSED = Verdict(False, DELETE_REFUSED, "the API server refused to delete it for this pod a moment ago")
"""Of a pod whose deletion was refused for good."""

MOST_PODS = 8
"""Pods of one node that a record names."""


def exempt_mask(found: Evaluation) -> Flags:
    """Return bool[slots, M]: the pods of lower priority that the policy or their class exempts."""
    return np.asarray(
        found.lower & ~found.removable & ~found.under_budget & ~found.guaranteed & ~found.grouped
    )


def exempt_pods_of(
    snapshot: Snapshot,
    batch: NodeBatch,
    found: Evaluation,
    place: int,
    *,
    question: Question,
    rules: WhoPreempts,
    now: datetime,
) -> ExemptPods:
    """Name the least important few of the pods that rules exempt on one node, with each one's verdict."""
    stays = found.lower[:, place] & ~found.removable[:, place]
    if not stays.any():
        return ExemptPods()
    kept = batch.pods(place, stays)
    budgeted = found.under_budget[:, place]
    pods = []
    for slot, pod in kept[: -MOST_PODS - 1 : -1]:
        if pod.terminating:
            verdict = verdict_of(pod, now)
        elif pod.uid in question.refused:
            verdict = REFUSED
        elif budgeted[slot]:
            verdict = Verdict(False, HARD_BUDGET, budget_detail(snapshot, pod))
        elif found.guaranteed[slot, place]:
            verdict = Verdict(False, QUEUE_GUARANTEED, guarantee_of(snapshot, pod, question))
        elif found.groups is not None and found.grouped[slot, place]:
            verdict = Verdict(False, POD_GROUP, found.groups.why(slot, place, pod))
        elif found.groups is not None and (exempting := found.groups.exempting(slot, place)) is not None:
            verdict = exempting
        elif batch.columns.is_kept(slot, place):
            verdict = rules.verdict(batch.columns.rule_bits.item(slot, place), pod.start_micros)
        else:
            preemptor, party = preemptor_facts(snapshot, question), snapshot.exemptions.party_of(pod)
            pair = PreemptionPair(preemptor, pod.facts, now, party, rules.reclaimed(pod))
            verdict = judge(snapshot.exemptions.rules, pair)
        pods.append(ExemptPod(pod, verdict))
    return ExemptPods(len(kept), tuple(pods))


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
        f"{counted(number, 'pod')} spared by {rule}{first if rule in timed[-1:] else ''}"
        for rule, number in sorted(counts.items())
    )
