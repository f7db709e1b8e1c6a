"""Which pods of lower priority rules keep, by which rule, and when the first of them may go.

Everything here explains: a plan does not need it. It is asked for the nodes that a decision record
shows, and for all nodes only where nothing helps.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import numpy as np

from makeway.core.barrier import EVERYBODY, FOR_EVER, PREEMPTION_TOLERATION, RULES
from makeway.core.rules import Pair, PreemptorFacts, Verdict, judge
from makeway.core.text import counted
from makeway.planner.answer import Spared, SparedPod
from makeway.planner.columns import Flags
from makeway.planner.overlay import Block
from makeway.planner.question import Question
from makeway.planner.queue_terms import QUEUE_GUARANTEED, guarantee_of
from makeway.planner.snapshot import Snapshot
from makeway.planner.victims import Evaluation

HARD_BUDGET = "hard-budget"
"""The rule that keeps a pod under a budget that may not be violated and allows nothing more."""

MOST_PODS = 8
"""Pods of one node that a record names."""


def barred(block: Block, found: Evaluation, preemptor_priority: int) -> Flags:
    """Give bool[slots, M]: the pods of lower priority that a barrier keeps."""
    slots = found.removable.shape[0]
    lower = block.columns.priority[:slots, block.nodes] < preemptor_priority
    return np.asarray(lower & ~found.removable & ~found.budgeted & ~found.guarded)


def count(block: Block, found: Evaluation, preemptor_priority: int) -> Counter[str]:
    """Count the pods that rules keep on the nodes of a block, by rule. O(slots · nodes)."""
    counts: Counter[str] = Counter()
    kept = barred(block, found, preemptor_priority)
    if kept.any():
        below = block.columns.immune_below[: kept.shape[0], block.nodes][kept]
        numbers = np.bincount(np.maximum(below - EVERYBODY, 0), minlength=len(RULES))
        counts.update({rule: int(n) for rule, n in zip(RULES, numbers, strict=True) if n})
    for rule, flags in ((HARD_BUDGET, found.budgeted), (QUEUE_GUARANTEED, found.guarded)):
        if flags.any():
            counts[rule] = int(flags.sum())
    return counts


def first_end(block: Block, found: Evaluation, preemptor_priority: int) -> int | None:
    """Give the first microsecond after which a toleration no longer keeps a pod of these nodes."""
    kept = barred(block, found, preemptor_priority)
    ends = block.columns.immune_until[: kept.shape[0], block.nodes][kept]
    ends = ends[ends < FOR_EVER]
    return int(ends.min()) if ends.size else None


def first_help(block: Block, found: Evaluation, preemptor_priority: int) -> int | None:
    """Give the microsecond after which tolerations have ended whose pods make enough room on a node.

    On each node the tolerations end one after the other; the pods freed so far are added up until
    nothing is short. O(slots · nodes · asked resources), more for sorting.
    """
    columns = block.columns
    slots = found.removable.shape[0]
    kept = barred(block, found, preemptor_priority)
    until = np.where(kept, columns.immune_until[:slots, block.nodes], FOR_EVER)
    places = np.flatnonzero((until < FOR_EVER).any(axis=0) & ~found.alone)
    if not places.size:
        return None
    until = until[:, places]
    order = np.argsort(until, axis=0, kind="stable")
    until = np.take_along_axis(until, order, axis=0)
    enough = until < FOR_EVER
    for use, short in zip(found.uses[:, :, places], found.short[:, places], strict=True):
        freed = np.where(until < FOR_EVER, np.take_along_axis(use, order, axis=0), 0).cumsum(axis=0)
        enough &= freed >= short
    ends = until[enough]
    return int(ends.min()) if ends.size else None


def of_node(
    snapshot: Snapshot, block: Block, found: Evaluation, place: int, *, question: Question, now: datetime
) -> Spared:
    """Name the least important few of the pods that rules keep on one node, with each one's verdict."""
    priority = question.preemptor.priority
    slots = found.removable.shape[0]
    lower = block.columns.priority[:slots, int(block.nodes[place])] < priority
    kept = block.pods(place, lower & ~found.removable[:, place])
    budgeted = found.budgeted[:, place]
    preemptor = PreemptorFacts(priority=priority, namespace=question.preemptor.namespace)
    pods = []
    for slot, pod in kept[: -MOST_PODS - 1 : -1]:
        if budgeted[slot]:
            names = snapshot.budgets.members(snapshot.budget_set(pod.uid))
            budgets = ", ".join(f"{namespace}/{name}" for namespace, name in names)
            verdict = Verdict(False, HARD_BUDGET, f"PodDisruptionBudget {budgets} allows no more")
        elif found.guarded[slot, place]:
            verdict = Verdict(False, QUEUE_GUARANTEED, guarantee_of(snapshot, pod, question))
        else:
            verdict = judge(snapshot.shields.rules, Pair(preemptor, pod.facts, now))
        pods.append(SparedPod(pod, verdict))
    return Spared(len(kept), tuple(pods))


def text(counts: Counter[str], ends: str) -> str:
    """Say how many pods of lower priority stay, by rule; nothing where none does."""
    parts = []
    for rule, number in sorted(counts.items()):
        until = f", the first until {ends}" if ends and rule == PREEMPTION_TOLERATION else ""
        parts.append(f"{counted(number, 'pod')} spared by {rule}{until}")
    return ", ".join(parts)
