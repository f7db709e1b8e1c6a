"""What a refusal depends on besides the pods and nodes that the scheduler watches itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from makeway.core.policy.exemption import DELETE_REFUSED, MIRROR_POD, PREEMPTION_RULE, PREEMPTION_TOLERATION
from makeway.core.policy.preemption import asks_for_queues
from makeway.planner.plan.constraints.queues import QUEUE_GUARANTEED, QueueMaximum
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.state import Snapshot

MOST = 60
"""Objects that a refusal may name; the plugin remembers 64 for each pod that waits."""

_BUDGETS = 30


def dependencies(
    snapshot: Snapshot,
    question: Question,
    budgets: Iterable[Key],
    *,
    limited: bool,
    exempt: Mapping[str, int],
    maxima: Collection[QueueMaximum],
) -> tuple[tuple[str, str, str], ...]:
    """Return the objects whose change may help, as (kind, namespace, name), at most MOST.

    `budgets`: hard ones that keep pods; `limited`: a bound forbids victims. The policy where it keeps pods
    or forbids victims; the configuration of queues where they do, a rule asks for queues, or queues take
    back their guarantees; the queues that are at their maximum; the budgets that forbid victims, where they
    are hard; the PriorityClasses by which pods are exempt from this preemptor; the pods that the API server
    refused to delete. O(classes in use).
    """
    found: list[tuple[str, str, str]] = []
    source = snapshot.exemptions.source
    others = {PREEMPTION_TOLERATION, MIRROR_POD, QUEUE_GUARANTEED, DELETE_REFUSED}
    if source is not None and (limited or exempt.keys() - others):
        found.append(source)
    by_queue = PREEMPTION_RULE in exempt and asks_for_queues(snapshot.exemptions.table)
    queues, tree = snapshot.queues.source, snapshot.queues.tree
    reclaim = tree is not None and tree.reclaim
    if queues is not None and (maxima or QUEUE_GUARANTEED in exempt or by_queue or reclaim):
        found.append(queues)
    found += [("Queue", "", path) for path in dict.fromkeys(limit.queue.path for limit in maxima)]
    if HARD_BUDGET in exempt:
        keys = sorted(budgets)[:_BUDGETS]
        found += [("PodDisruptionBudget", namespace, name) for namespace, name in keys]
    if PREEMPTION_TOLERATION in exempt:
        found += snapshot.exemptions.exempting_classes(question.preemptor.priority)
    if DELETE_REFUSED in exempt:
        found += refused_pods(snapshot, question)
    return tuple(found[:MOST])


def refused_pods(snapshot: Snapshot, question: Question) -> list[tuple[str, str, str]]:
    """Return the pods whose deletion was refused and that are still there, as (kind, namespace, name)."""
    pods = (snapshot.pods[uid] for uid in sorted(question.refused) if uid in snapshot.pods)
    return [("Pod", pod.namespace, pod.name) for pod in pods]
