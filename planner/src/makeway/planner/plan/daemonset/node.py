"""One node as the simple preemptor sees it: what it lacks for a pod, and the pods on it.

Built from the same overlay as every other plan, so that nominated, assumed and awaited pods count alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from makeway.core.daemonset.occupant import Occupant, PodClass
from makeway.core.daemonset.rule import HIGHER_PRIORITY, rules_for
from makeway.core.daemonset.selection import strategy_names
from makeway.core.policy.document import DaemonSets
from makeway.core.policy.rules import PreemptionPair, Verdict, judge
from makeway.core.unit import Unit
from makeway.planner.plan.batch import NodeBatch, overlay
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.plan.constraints.counting import layers_of
from makeway.planner.plan.constraints.layers import BatchLayers
from makeway.planner.plan.constraints.queues import (
    QUEUE_GUARANTEED,
    QueueConstraints,
    QueueMaximum,
    guarantee_of,
    queue_constraints_of,
)
from makeway.planner.plan.constraints.tally import Tallies
from makeway.planner.plan.refusal.exempt import HARD_BUDGET, MOST_EXEMPT, REFUSED, budget_detail
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import ExemptPod, ExemptPods
from makeway.planner.plan.terminating import verdict_of
from makeway.planner.plan.who_preempts import preemptor_facts
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import Flags
from makeway.planner.snapshot.pod_groups import POD_GROUP
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class DaemonSetNode:
    """The node of a daemonset pod, and all that choosing victims on it needs. Pods are known by their slot.

    * `request`: what the pod asks for, by resource, and 1 of each of its `constraints`, such as a host
      port; `free`: what is free of that now.
    * `maxima`: those of the constraints that are maxima of the pod's own queues; what is asked and free of
      them are amounts of their resources.
    * `queues`: what the maxima are from; where their room is on its way, no occupant makes some.
    * `occupants`: the pods on it by slot; `awaited`: those that leave anyway, which are in no slot.
    * `allowance`: how many pods each budget of the node's pods lets go; empty where budgets are soft.
    * `may_go`: pods that every rule lets go, and the guarantees of queues all of them together. `stay`: the
      others, the least important first, each with what keeps it.
    """

    snapshot: Snapshot
    question: Question
    debits: Mapping[Key, int]
    now: datetime
    batch: NodeBatch
    allowance: Mapping[Key, int]
    request: Mapping[str, int]
    free: Mapping[str, int]
    constraints: frozenset[str]
    maxima: Mapping[str, QueueMaximum]
    queues: QueueConstraints
    occupants: list[Occupant]
    awaited: list[Occupant]
    may_go: frozenset[int]
    stay: tuple[ExemptPod, ...]
    slots: Mapping[str, int]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.question.daemonset_node

    @property
    def settings(self) -> DaemonSets:
        """The policy's section."""
        return self.snapshot.exemptions.policy.daemon_sets

    @property
    def most_victims(self) -> int:
        """How many may go: what the strategies allow, and what an order may have."""
        several = self.settings.multiple_max_victims if "multiple" in strategy_names(self.settings) else 1
        return min(several, self.snapshot.exemptions.policy.limits.victims_per_order)

    @property
    def pods(self) -> list[PodRecord]:
        """The pods by slot."""
        return self.batch.records(0)

    @property
    def exempt(self) -> ExemptPods:
        """The least important few of the pods that rules keep though their priority would not."""
        kept = [one for one in self.stay if one.verdict.rule != HIGHER_PRIORITY]
        return ExemptPods(len(kept), tuple(kept[:MOST_EXEMPT]))

    @property
    def scarce(self) -> Counter[Key]:
        """How many removable pods hard budgets do not let go beside the others, by budget."""
        charged = Counter(key for slot in self.may_go for key in self.occupants[slot].budgets)
        return +Counter({key: charged[key] - max(most, 0) for key, most in self.allowance.items()})

    def of(self, slots: Iterable[int]) -> list[Occupant]:
        """Return the pods of some slots, the most important by priority first."""
        return [self.occupants[slot] for slot in sorted(slots)]

    def lacking(self, *leaving: Iterable[Occupant]) -> dict[str, int]:
        """Return what is still missing once some pods have left, by resource and constraint, above 0 each."""
        gone = [pod for pods in leaving for pod in pods]
        missing = {}
        for name, amount in self.request.items():
            room = self.free[name] + sum(pod.amounts[name] for pod in gone)
            if amount > room:
                missing[name] = amount - room
        return missing


def daemonset_node_of(
    snapshot: Snapshot, question: Question, now: datetime, tallies: Tallies
) -> DaemonSetNode:
    """Look at the node that the pod is bound to, which has to be there. O(pods of the node)."""
    row = np.array([snapshot.rows[question.daemonset_node]], np.int64)
    request_overlay = overlay(snapshot, question)
    batch = request_overlay.batch(row)
    batch.close_gaps()
    layers = layers_of(snapshot, question.constraints, request_overlay.placed, tallies)
    columns = batch.columns
    required = layers.for_batch(snapshot, batch)
    resources = {name: columns.resources[name] for name, amount in question.needs.items() if amount > 0}
    for name in snapshot.served_by_devices(resources):
        if not columns.allocatable[resources[name], 0]:
            del resources[name]
    constraints = _named(required)
    queues = queue_constraints_of(snapshot, question, request_overlay.placed, tallies)
    maxima = {} if question.ignore_columns else {limit.reason: limit for limit in queues.maxima}

    def occupant(pod: PodRecord, *, leaves: bool = False) -> Occupant:
        amounts, uses = columns.amounts(pod.requests), required.used_by(snapshot, pod)
        unit, number = snapshot.units.of(pod), snapshot.queues.number_of(pod)
        makes_room = leaves or queues.on_its_way is None
        return Occupant(
            uid=pod.uid,
            pod_class=_class_of(unit),
            priority=unit.priority,
            created_micros=unit.created_micros,
            amounts={name: int(amounts[layer]) for name, layer in resources.items()}
            | {name: int(uses[layer]) for name, layer in constraints.items()}
            | {name: one.used_by(pod, number) if makes_room else 0 for name, one in maxima.items()},
            budgets=tuple(key for held in unit.budgets for key in snapshot.budgets.charged(held)),
        )

    taken = columns.requested[:, 0] + batch.reserved[:, 0] + batch.leaving[:, 0]
    free = columns.allocatable[:, 0] - taken
    # A layer's room is what is left with the pod there: 0 is as good as 1 asked for and 1 free.
    left = required.room[:, 0] - required.leaving[:, 0] + 1
    pods = batch.records(0)
    taken_off = debits(snapshot, (*question.in_flight, *question.leaving))
    allowance = _allowance(snapshot, pods, taken_off)
    stay = _kept(snapshot, question, pods, allowance, now)
    if queues.margins:
        going = set(range(len(pods))) - stay.keys()
        stay |= _guaranteed(queues, snapshot, question, batch, going)
    return DaemonSetNode(
        snapshot=snapshot,
        question=question,
        debits=taken_off,
        now=now,
        batch=batch,
        allowance=allowance,
        request={name: question.needs[name] for name in resources}
        | dict.fromkeys(constraints, 1)
        | {name: question.preemptor.requests[one.resource] for name, one in maxima.items()},
        free={name: int(free[layer]) for name, layer in resources.items()}
        | {name: int(left[layer]) for name, layer in constraints.items()}
        | {name: one.room + question.preemptor.requests[one.resource] for name, one in maxima.items()},
        constraints=frozenset([*constraints, *maxima]),
        maxima=maxima,
        queues=queues,
        occupants=[occupant(pod) for pod in pods],
        awaited=[occupant(pod, leaves=True) for pod in batch.awaited.get(0, ())],
        may_go=frozenset(range(len(pods))) - stay.keys(),
        stay=tuple(stay[slot] for slot in sorted(stay, reverse=True)),
        slots={pod.uid: slot for slot, pod in enumerate(pods)},
    )


def _named(required: BatchLayers) -> dict[str, int]:
    """Return the layers by what stands in the way; of two with one reason, the second is numbered."""
    names: dict[str, int] = {}
    for layer, reason in enumerate(required.names):
        names[f"{reason} (constraint {layer + 1})" if reason in names else reason] = layer
    return names


def _class_of(unit: Unit) -> PodClass:
    if unit.opted_out:
        return PodClass.OPTED_OUT
    return PodClass.OWNER if unit.owner else PodClass.REGULAR


def _allowance(snapshot: Snapshot, pods: list[PodRecord], taken: Mapping[Key, int]) -> dict[Key, int]:
    policy = snapshot.exemptions.policy
    keys = {
        key
        for pod in pods
        if policy.has_hard_budgets(pod.namespace)
        for key in snapshot.budgets.members(snapshot.budget_set(pod.uid))
    }
    return {key: snapshot.budgets.allows(key) - taken.get(key, 0) for key in sorted(keys)}


def _kept(
    snapshot: Snapshot,
    question: Question,
    pods: list[PodRecord],
    allowance: Mapping[Key, int],
    now: datetime,
) -> dict[int, ExemptPod]:
    """Ask every rule about every pod: which stay, by slot, and what keeps it."""
    node = question.daemonset_node
    preemptor = preemptor_facts(snapshot, question, node)
    known = snapshot.exemptions
    policy, own = known.policy, known.own_namespace
    rules = rules_for(preemptor, node, policy, known.classes, known.record, own_namespace=own)
    kept = {}
    for slot, pod in enumerate(pods):
        facts, party = snapshot.daemonsets.facts_of(pod), known.party_of(pod)
        verdict = judge(rules, PreemptionPair(preemptor, facts, now, party))
        if pod.terminating:
            verdict = verdict_of(pod, now)
        if verdict.removable and pod.uid in question.refused:
            verdict = REFUSED
        if verdict.removable and (grouped := snapshot.units.of(pod).kept):
            verdict = Verdict(False, POD_GROUP, grouped)
        spent = [
            f"{namespace}/{name}"
            for namespace, name in snapshot.budgets.kept(snapshot.budget_set(pod.uid), allowance)
        ]
        undecided = pod.namespace in snapshot.undecided and policy.has_hard_budgets(pod.namespace)
        if verdict.removable and (spent or undecided):
            detail = f"PodDisruptionBudget {', '.join(spent)} allows no more"
            verdict = Verdict(False, HARD_BUDGET, budget_detail(snapshot, pod) if undecided else detail)
        if not verdict.removable:
            kept[slot] = ExemptPod(pod, verdict)
    return kept


def _guaranteed(
    queues: QueueConstraints, snapshot: Snapshot, question: Question, batch: NodeBatch, going: set[int]
) -> dict[int, ExemptPod]:
    """Return which of the pods that might go their queues' guarantees keep, as in every other plan."""
    pods = batch.records(0)
    mask: Flags = np.zeros((len(pods), 1), np.bool_)
    mask[sorted(going)] = True
    kept = {}
    for slot in np.flatnonzero(queues.kept(batch, mask)[:, 0]).tolist():
        verdict = Verdict(False, QUEUE_GUARANTEED, guarantee_of(snapshot, pods[slot], question))
        kept[slot] = ExemptPod(pods[slot], verdict)
    return kept
