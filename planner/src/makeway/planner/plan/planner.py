"""The planner's core: which pods would have to go for a pod to fit, over all nodes at once.

Pure: no await, logger, clock or client. The same input leads to the same answer, to the last UID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.resources import is_extended
from makeway.planner.plan.batch import BATCH_NODES, NodeBatch, overlay, widest_first, without
from makeway.planner.plan.candidates import EvaluatedBatch, best_candidates
from makeway.planner.plan.constraints.budgets import debits_before
from makeway.planner.plan.constraints.counting import layers_of
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.constraints.queues import numbers_of, queue_constraints_of
from makeway.planner.plan.constraints.tally import CHUNK_STEPS, Allowance, AllowanceUsedUp
from makeway.planner.plan.daemonset.planner import plan_daemonset
from makeway.planner.plan.daemonset.text import NO_VICTIMS
from makeway.planner.plan.eligibility import eligible, potential_nodes, ruled_out
from makeway.planner.plan.evaluate import PlanInputs, evaluate, resource_room
from makeway.planner.plan.groups import PlanGroups
from makeway.planner.plan.last_pods import decided, last_pods
from makeway.planner.plan.lost_work import ranking_by
from makeway.planner.plan.node_scores import (
    CHUNK_NODES,
    NodeScoreCache,
    PlanCache,
    ScoreInputs,
    helped_places,
)
from makeway.planner.plan.refusal import text as diagnosis
from makeway.planner.plan.refusal.statistics import RefusalStats
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import NearestNode, Plan, PlanCandidate, PlanRefusal, Scope
from makeway.planner.plan.who_preempts import who_preempts
from makeway.planner.snapshot.bounds import RESOURCES
from makeway.planner.snapshot.columns import BASE_RESOURCES, Ints
from makeway.planner.snapshot.state import Snapshot

UNMODELLED_AT_LEAST = 100
UNMODELLED_PER_CENT = 10
"""As many nodes as kube-scheduler itself would try: the plugin verifies no more."""

GROUPED_CHUNK_NODES = 512
"""The same as CHUNK_NODES where there are pods of groups, whose units are looked at pod by pod."""

_CHUNKS = 1000
"""Pauses for tallies before the rest is worked out without a pause: more than the largest question ever
needs."""


def plan(
    snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache | None = None
) -> Plan | PlanRefusal:
    """Decide which nodes could be helped by removing which pods, best first.

    The snapshot holds the policy in force. `cache`: of plans on the same snapshot; without it this is the
    first plan on it. The first plan of a class of preemptors costs O(nodes · slots), a
    few milliseconds for 5,000 nodes; the next O(nodes), and O(slots) for each node that changed. Nothing is
    sorted but the candidates.
    """
    steps = planning(snapshot, question, now, PlanCache() if cache is None else cache)
    return next(found for found in steps if found is not None)


def planning(
    snapshot: Snapshot, question: Question, now: datetime, cache: PlanCache
) -> Iterator[Plan | PlanRefusal | None]:
    """Plan as `plan` does, and pause with None after every CHUNK_NODES nodes that have to be looked at.

    It pauses as well where what constraints come to has to be worked out for many pods.

    Called by the service for every plan request, on the event loop, which has its turn at each pause. The
    snapshot may change there; what was evaluated before and has changed is evaluated again, so that all that
    is decided on is seen without a pause.

    Raises:
        ValueError: the cache is of another snapshot.
    """
    cache.bind(snapshot)
    chunk = GROUPED_CHUNK_NODES if len(snapshot.groups) else CHUNK_NODES
    for _ in range(2 * snapshot.columns.nodes // chunk + _CHUNKS):
        found = _attempt(snapshot, question, now, cache, at_most=chunk, allowance=Allowance(CHUNK_STEPS))
        yield found
        if found is not None:
            return
    found = _attempt(snapshot, question, now, cache, at_most=snapshot.columns.nodes, allowance=Allowance())
    assert found is not None  # noqa: S101 - all nodes were looked at
    yield found


def _attempt(
    snapshot: Snapshot,
    question: Question,
    now: datetime,
    cache: PlanCache,
    *,
    at_most: int,
    allowance: Allowance,
) -> Plan | PlanRefusal | None:
    """Plan as `_decide` does; None also where the tallies' allowance did not suffice.

    The room of terminating pods with much of their grace period left counts only where there is no plan
    without it, and that does not wait for others already.
    """
    soon = cache.awaited.at(snapshot, now)
    try:
        found = _decide(
            snapshot, replace(question, terminating=soon), now, cache, at_most=at_most, allowance=allowance
        )
        if not isinstance(found, PlanRefusal) or soon.complete or found.reason == diagnosis.QUEUE_ROOM:
            return found
        room = cache.awaited.at(snapshot, now, patient=True)
        patient = replace(question, terminating=room, patient=True)
        later = _decide(snapshot, patient, now, cache, at_most=at_most, allowance=allowance)
    except AllowanceUsedUp:
        return None
    waits = not isinstance(later, PlanRefusal) or later.reason == diagnosis.QUEUE_ROOM
    return later if waits else found


def _decide(
    snapshot: Snapshot,
    question: Question,
    now: datetime,
    cache: PlanCache,
    *,
    at_most: int,
    allowance: Allowance,
) -> Plan | PlanRefusal | None:
    """Plan without a pause; None where more nodes than `at_most` have to be looked at, after so many were."""
    if question.ignore_columns:
        question = replace(question, needs={}, weighed=question.needs, constraints=Constraints())
    named, unknown = potential_nodes(snapshot, question)
    potential = eligible(snapshot, question.constraints, named)
    scope = Scope(snapshot.revision, snapshot.node_count, int(potential.size))
    if not question.may_preempt:
        return diagnosis.never(scope, question)
    if not named.size:
        return diagnosis.no_nodes(scope, question, unknown)
    needs, missing, uncounted = modelled(snapshot, question.needs)
    if missing:
        return diagnosis.not_offered(scope, question, missing)

    question = replace(question, needs=needs)
    if _of_daemonset(snapshot, question):
        if snapshot.rows.get(question.daemonset_node) not in potential:
            excluded = ruled_out(snapshot, question.constraints, named)
            return diagnosis.no_nodes(scope, question, unknown, excluded)
        found = plan_daemonset(snapshot, question, scope, now, cache.tallies.within(allowance))
        if isinstance(found, PlanRefusal) and found.reason == NO_VICTIMS:
            found = _with_units(snapshot, question, scope, now, cache=cache, allowance=allowance) or found
        return replace(found, left_out=(*question.constraints.left_out, *uncounted))

    evaluator = Evaluator(snapshot, question, now, cache, allowance)
    left_out = (*evaluator.left_out, *uncounted)
    nodes = evaluator.evaluate_few(potential, at_most)
    if nodes is None:
        return None
    batches = nodes.batches

    candidates, candidates_total = best_candidates(
        (evaluated.helped_candidates() for evaluated in batches),
        question.max_candidates,
        question.most_pods,
        nodes.beyond,
    )
    most = max(UNMODELLED_AT_LEAST, potential.size * UNMODELLED_PER_CENT // 100)
    unmodelled, unmodelled_total = best_candidates(
        (evaluated.unmodelled() for evaluated in batches), most, question.most_pods
    )
    if evaluator.queue_room_is_awaited(candidates, potential):
        return replace(
            diagnosis.awaits_queue_room(scope, question, snapshot, evaluator.inputs.queues), left_out=left_out
        )
    if candidates_total or unmodelled_total:
        return Plan(scope, candidates, candidates_total, unmodelled, unmodelled_total, left_out)
    stats = evaluator.refusal_stats(nodes, potential, at_most)
    if stats is None:
        return None
    near, sample = evaluator.nearest(stats, potential, np.setdiff1d(named, potential, assume_unique=True))
    refusal = diagnosis.refusal(
        scope,
        evaluator.inputs,
        stats,
        potential,
        near=near,
        excluded=ruled_out(snapshot, question.constraints, named),
        unknown=unknown,
        sample=sample,
    )
    return replace(refusal, left_out=left_out)


def _of_daemonset(snapshot: Snapshot, question: Question) -> bool:
    """Report whether the simple preemptor decides: a DaemonSet proves the pod, and the policy lists it."""
    exemptions, preemptor = snapshot.exemptions, question.preemptor
    return (
        bool(question.daemonset_node)
        and exemptions.policy.daemon_sets.may_preempt(preemptor.namespace, exemptions.own_namespace)
        and snapshot.daemonsets.controls(preemptor)
    )


def _with_units(
    snapshot: Snapshot,
    question: Question,
    scope: Scope,
    now: datetime,
    *,
    cache: PlanCache,
    allowance: Allowance,
) -> Plan | None:
    """Plan for a DaemonSet's pod as for any other, where units of lower priority take the room; else None.

    The simple preemptor chooses single pods. Pods that it never takes stay here as well.
    """
    row = snapshot.rows[question.daemonset_node]
    units = {unit.number: unit for pod in snapshot.slots[row] if (unit := snapshot.groups.unit_of_pod(pod))}
    if not units:
        return None
    there = [*snapshot.slots[row], *(pod for unit in units.values() for pod in unit.members())]
    daemons = {pod.uid for pod in there if snapshot.daemonsets.facts_of(pod).daemon}
    ordinary = replace(question, refused=question.refused | daemons)
    batches = Evaluator(snapshot, ordinary, now, cache, allowance).evaluate(np.array([row], np.int64))
    for kind in (EvaluatedBatch.helped_candidates, EvaluatedBatch.unmodelled):
        found, total = best_candidates((kind(one) for one in batches), 1, question.most_pods)
        chosen = found[0].removable if found else ()
        if any(pod.unit and (pod.victim or kind is EvaluatedBatch.unmodelled) for pod in chosen):
            helped = kind is EvaluatedBatch.helped_candidates
            return Plan(scope, found, total, (), 0) if helped else Plan(scope, (), 0, found, total)
    return None


@dataclass(frozen=True, slots=True)
class EvaluatedNodes:
    """What was looked at in full, how many other nodes are helped as well, and what is kept of all."""

    batches: list[EvaluatedBatch]
    beyond: int
    scores: NodeScoreCache


class Evaluator:
    """One question over one snapshot: what looking at nodes needs, worked out once."""

    def __init__(
        self,
        snapshot: Snapshot,
        question: Question,
        now: datetime,
        cache: PlanCache,
        allowance: Allowance,
    ) -> None:
        tallies = cache.tallies.within(allowance)
        policy, micros = snapshot.exemptions.policy, microseconds(now)
        self._overlay = overlay(snapshot, question)
        placed = self._overlay.placed
        self._score_caches = cache.scores
        going = (*question.in_flight, *question.leaving)
        debits = debits_before(snapshot, going, question.allowed_before)
        self._layers = layers_of(snapshot, question.constraints, placed, tallies)
        rules = who_preempts(snapshot, question, micros)
        self._labelled = None if rules.reclaim is None else numbers_of(snapshot, tallies, labelled=True)
        queues = queue_constraints_of(snapshot, question, placed, tallies)
        weighed = question.needs if question.weighed is None else question.weighed
        lost_work = ranking_by(policy.lost_work, weighed, micros)
        self._groups = PlanGroups(snapshot, question, rules, debits, queues.margins, lost_work)
        self.left_out = self._layers.left_out
        undecided = frozenset(one for one in snapshot.undecided if policy.has_hard_budgets(one))
        self._limits = policy.hard_budgets, policy.limits.victims_per_order, undecided
        self.inputs = PlanInputs(
            snapshot=snapshot,
            question=question,
            now=now,
            debits=debits,
            queues=replace(queues, maxima=(), on_its_way=None) if question.ignore_columns else queues,
            rules=rules,
            undecided=snapshot.signatures.of_namespaces(undecided) if undecided else None,
            devices=snapshot.served_by_devices(question.needs),
            lost_work=lost_work,
        )

    def evaluate_batch(self, batch: NodeBatch) -> EvaluatedBatch:
        """Look at the nodes of a batch in full. O(slots · nodes · asked resources and layers)."""
        batch, groups = self._groups.ordered(batch)
        snapshot, queues, rules = self.inputs.snapshot, self.inputs.queues, self.inputs.rules
        rules.exempt(batch.columns)
        required = self._layers.for_batch(snapshot, batch)
        if queues.maxima:
            reasons = tuple(limit.reason for limit in queues.maxima)
            required = required.with_more(reasons, *queues.layers(snapshot, batch))
        back = rules.reclaimable(snapshot, batch.columns, self._labelled)
        found = evaluate(batch, self.inputs, layers=required, groups=groups, reclaimable=back)
        return EvaluatedBatch(batch, found, required, self.inputs)

    def evaluate(self, rows: Ints) -> list[EvaluatedBatch]:
        """Look at some nodes as the request changes them."""
        return [self.evaluate_batch(batch) for batch in self._overlay.batches(rows)]

    def _score(self, scores: NodeScoreCache, rows: Ints) -> Ints:
        """Look at some nodes for their scores; return which are to be looked at in full nevertheless, if few.

        Together with the best ones they cost less than in a batch of their own.
        """
        inputs, snapshot = self.inputs, self.inputs.snapshot
        micros, needs = inputs.rules.now_micros, inputs.question.needs
        alone = not (len(snapshot.groups) or inputs.queues.margins or self._layers.required_affinity)
        if alone and (batch := last_pods(self._overlay, rows, needs, inputs.devices)).rows.size:
            evaluated = self.evaluate_batch(batch)
            scores.put(snapshot, batch, evaluated.found, micros)
            rows = without(snapshot, rows, batch.rows[decided(evaluated)])
            scores.forget(rows)
            if rows.size <= BATCH_NODES:
                return rows
        for evaluated in self.evaluate(rows):
            scores.put(snapshot, evaluated.batch, evaluated.found, micros)
        return rows[:0]

    def evaluate_few(self, rows: Ints, at_most: int) -> EvaluatedNodes | None:
        """Look at the nodes of some rows that matter: what has changed, what is open, and the best.

        The scores of the others for the preemptor's class are known from plans before. Looks at no more than
        `at_most` of the changed ones, and returns None where that was not enough.
        """
        inputs, snapshot = self.inputs, self.inputs.snapshot
        key = (
            inputs.question.preemptor.priority,
            tuple(sorted(inputs.question.needs.items())),
            self._layers.keys,
            self._limits,
            inputs.queues.key,
            inputs.devices,
            snapshot.exemptions.policy.groups.surplus_first,
            inputs.lost_work and inputs.lost_work.measure,
            inputs.rules.key,
            inputs.question.patient,
        )
        scores = self._score_caches.scores_of(key, snapshot.columns.nodes)
        micros = inputs.rules.now_micros
        in_flight, allowed = self._overlay.in_flight_pods, snapshot.budgets.state(inputs.debits)
        stale = scores.stale(snapshot, ScoreInputs(self._layers, in_flight, allowed, micros), rows)
        if stale.size > BATCH_NODES:
            chunk = min(CHUNK_NODES, at_most)
            if stale.size > chunk:
                stale = widest_first(snapshot, stale)
            firsts = range(0, min(stale.size, at_most), chunk)
            left = [self._score(scores, stale[first : first + chunk]) for first in firsts]
            if stale.size > at_most:
                return None
            stale = np.concatenate(left)
        known = without(snapshot, rows, stale)
        best = scores.best(snapshot, known, inputs.question.max_candidates + 1, inputs.lost_work)
        chosen = np.concatenate([stale, best])
        batches = self.evaluate(chosen)
        for evaluated in batches:
            scores.put(snapshot, evaluated.batch, evaluated.found, micros)
        beyond = int(scores.helps[rows].sum()) - sum(
            int(helped_places(evaluated.batch, evaluated.found).sum()) for evaluated in batches
        )
        return EvaluatedNodes(batches, beyond, scores)

    def queue_room_is_awaited(self, candidates: Sequence[PlanCandidate], rows: Ints) -> bool:
        """Report whether to wait for the room in the preemptor's queue, which terminating pods make.

        It is where there are no candidates, or where the best has victims though a node has the resources
        once the awaited have left. O(nodes · asked resources).
        """
        if self.inputs.queues.on_its_way is None or not rows.size:
            return False
        if not candidates:
            return True
        if not candidates[0].victims:
            return False
        vector = self.inputs.snapshot.columns.amounts(self.inputs.question.needs)
        asked = np.flatnonzero(vector > 0)
        need = vector[asked][:, None]
        rooms = (
            resource_room(batch, asked, need, self.inputs.devices) for batch in self._overlay.batches(rows)
        )
        return any(bool((room >= 0).all(axis=0).any()) for room in rooms)

    def refusal_stats(self, nodes: EvaluatedNodes, rows: Ints, at_most: int) -> RefusalStats | None:
        """Return the statistics for a refusal on some rows, none of which is helped.

        What is known from refusals of the class before is not evaluated again, beyond what was just looked
        at. Looks at no more nodes than `at_most`, and returns None where that was not enough.
        """
        stats = nodes.scores.refusal_stats = nodes.scores.refusal_stats or RefusalStats()
        for evaluated in nodes.batches:
            stats.put(evaluated)
        unknown = stats.unknown(self.inputs.snapshot, rows)
        chunk = min(CHUNK_NODES, at_most)
        for first in range(0, min(unknown.size, at_most), chunk):
            for evaluated in self.evaluate(unknown[first : first + chunk]):
                stats.put(evaluated)
        return None if unknown.size > at_most else stats

    def nearest(
        self, stats: RefusalStats, rows: Ints, others: Ints
    ) -> tuple[list[tuple[NearestNode, str]], PlanCandidate | None]:
        """Return what the nodes lack that lack least, and a sample of those that the columns rule out.

        `others`: nodes that were ruled out before any was looked at.
        """
        near = stats.nearest(self.inputs.snapshot, rows, diagnosis.NEAREST)
        sample = stats.sample(self.inputs.snapshot, rows, others, self.inputs.question.turn)
        looked_at = np.concatenate([near, sample])
        if not looked_at.size:
            return [], None
        evaluated = self.evaluate_batch(self._overlay.batch(looked_at))
        told = [diagnosis.near_node(evaluated, place) for place in range(near.size)]
        return told, evaluated.sample(near.size) if sample.size else None


def modelled(snapshot: Snapshot, needs: Mapping[str, int]) -> tuple[dict[str, int], str, tuple[str, ...]]:
    """Leave out resources that are not counted, and extended ones that no node offers; name another kind.

    Returns what plans look at, a resource that cannot be had, and what is left to verification.
    A scheduler that asks for room with an extended resource that no node offers has devices behind it (DRA),
    which have no column. Anything else that no node offers cannot be had by removing pods.
    """
    modelled: dict[str, int] = {}
    left_out: tuple[str, ...] = ()
    for name, amount in needs.items():
        if name in BASE_RESOURCES:
            modelled[name] = amount
        elif name not in snapshot.node_resources:
            if not is_extended(name):
                return {}, name, ()
        elif snapshot.count(name):
            modelled[name] = amount
        else:
            left_out = (RESOURCES,)
    return modelled, "", left_out
