"""What budgets, queues and nodes could be otherwise. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from makeway.core.k8s.budget import Budget
from makeway.core.k8s.nodes import UNSCHEDULABLE
from makeway.core.queues.amounts import text_of
from makeway.core.queues.tree import Queue, QueueTree
from makeway.planner.offline.counterfactuals.changes import Case, Found, helps, least
from makeway.planner.offline.results import Change
from makeway.planner.plan.batch import overlay
from makeway.planner.plan.constraints.queues import QueueMaximum, queue_constraints_of
from makeway.planner.plan.constraints.tally import Allowance
from makeway.planner.plan.refusal.exempt import HARD_BUDGET
from makeway.planner.plan.unfiltered import PodVerdict
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.changes import Adopt, PutBudget, PutNode
from makeway.planner.snapshot.records import NodeRecord

NEW: Final = "a-further-node"
_MOST_BUDGETS: Final = 8
_MOST_NODES: Final = 5


def more_disruptions(case: Case, judged: PodVerdict) -> Found:
    """Hard budgets that would have to allow more: each alone, by as little as helps."""
    keys = _budgets(case, judged)
    if not keys:
        return
    vary = case.varied()
    budgets = [budget for key in keys if (budget := case.snapshot.budgets.get(key))]
    for budget in budgets:
        covered = sum(budget.key in _covering(case, uid) for uid in case.snapshot.pods)

        def with_(more: int, budget: Budget = budget) -> Case:
            # The others allow again what they did.
            higher = replace(budget, allowed=budget.allowed + more)
            return vary(*map(PutBudget, budgets), PutBudget(higher))

        if found := least(range(1, covered + 1), with_):
            yield _disruptions(budget.key, budget.allowed, found[0]), found[1]


def _covering(case: Case, uid: str) -> tuple[Key, ...]:
    return case.snapshot.budgets.members(case.snapshot.budget_set(uid))


def _budgets(case: Case, judged: PodVerdict) -> list[Key]:
    """Return the budgets that keep pods which the pod could otherwise have, if they are hard."""
    refusal = judged.refusal
    policy = case.snapshot.exemptions.policy
    if refusal is None or not policy.hard_budgets:
        return []
    named = [
        (namespace, name)
        for kind, namespace, name in refusal.depends_on
        if kind == "PodDisruptionBudget" and policy.has_hard_budgets(namespace)
    ]
    if HARD_BUDGET not in refusal.exempt and not named:
        return []
    return named[:_MOST_BUDGETS]


def _disruptions(key: Key, allowed: int, more: int) -> Change:
    name = "/".join(key)
    amount = "one more disruption" if more == 1 else f"{more} more disruptions"
    return Change(
        kind="disruption-budget",
        text=f"PDB {name}: {amount} (it allows {allowed})",
        object=f"PodDisruptionBudget {name}",
        field="status.disruptionsAllowed",
        now=allowed,
        then=allowed + more,
    )


def more_of_queues(case: Case, judged: PodVerdict) -> Found:
    """The maximum that the pod would go over, where it is one alone."""
    maxima = _limits(case)
    tree = case.snapshot.queues.tree
    if len(maxima) != 1 or tree is None:
        return
    (maximum,) = maxima
    vary = case.varied()

    def with_(more: int) -> Case:
        queues = case.snapshot.queues
        return vary(Adopt(_raised(tree, maximum, more), queues.revision, queues.source))

    if found := least(range(1, -maximum.room + 1), with_):
        yield _maximum(maximum, found[0]), found[1]


def _limits(case: Case) -> tuple[QueueMaximum, ...]:
    case.cache.bind(case.snapshot)
    placed = overlay(case.snapshot, case.question).placed
    return queue_constraints_of(
        case.snapshot, case.question, placed, case.cache.tallies.within(Allowance())
    ).maxima


def _raised(tree: QueueTree, maximum: QueueMaximum, more: int) -> QueueTree:
    """Return a tree in which one maximum is higher."""

    def raised(queue: Queue) -> Queue:
        if queue.path != maximum.queue.path:
            return queue
        most = queue.maximum[maximum.resource] + more
        return replace(queue, maximum={**queue.maximum, maximum.resource: most})

    return replace(tree, queues=tuple(raised(queue) for queue in tree))


def _maximum(maximum: QueueMaximum, more: int) -> Change:
    path, name = maximum.queue.path, maximum.resource
    now = maximum.queue.maximum[name]
    return Change(
        kind="queue-max",
        text=f"queue {path}: max +{text_of(name, more)} {name} (it is {text_of(name, now)})",
        object=f"queue {path}",
        field=f"max.{name}",
        now=now,
        then=now + more,
    )


def uncordoned(case: Case, judged: PodVerdict) -> Found:
    """A cordoned node that would do."""
    cordoned = [
        node
        for _, node in sorted(case.nodes.items())
        if (node.unschedulable or any(taint.key == UNSCHEDULABLE.key for taint in node.taints))
        and case.question.constraints.nodes.match(node.name, node.labels)
    ]
    for node in cordoned[:_MOST_NODES]:
        taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE.key)
        open_again = msgspec.structs.replace(node, taints=taints, unschedulable=False)
        there = case.varied()(PutNode(open_again))
        if helps(there):
            change = Change(
                kind="uncordon",
                text=f"uncordon node {node.name}",
                object=f"node {node.name}",
                field="spec.unschedulable",
                now=True,
                then=False,
            )
            yield change, there
            return


def further_node(case: Case, judged: PodVerdict) -> Found:
    """One more node, of a sort that is there already: the smallest that would do."""
    seen: set[object] = set()
    for node in sorted(case.nodes.values(), key=lambda one: (sorted(one.allocatable.items()), one.name)):
        labels = {name: text for name, text in node.labels.items() if name != "kubernetes.io/hostname"}
        sort = (tuple(sorted(node.allocatable.items())), tuple(sorted(labels.items())), node.taints)
        if sort in seen or len(seen) >= _MOST_NODES:
            continue
        seen.add(sort)
        further = NodeRecord(
            name=NEW,
            allocatable=node.allocatable,
            labels={**labels, "kubernetes.io/hostname": NEW},
            taints=tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE.key),
        )
        there = case.varied()(PutNode(further))
        if helps(there):
            amounts = ", ".join(
                f"{name} {text_of(name, node.allocatable[name])}"
                for name in ("cpu", "memory")
                if name in node.allocatable
            )
            change = Change(
                kind="node",
                text=f"one more node like {node.name} ({amounts})",
                object=f"node {node.name}",
                field="",
                now=None,
                then=node.name,
            )
            yield change, there
            return
