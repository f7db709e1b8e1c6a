"""Pods one after the other on a cluster that was read once: who fits, who would preempt whom, who is refused.

It plans with the planner's own code and then lets happen what was planned: victims are gone, the pod is on
its node, budgets have been used up. Pure but for the world, which it owns and changes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from makeway.bus.messages import API_VERSION, NodeSelection, PlanRequest, Profile
from makeway.core.importance import microseconds
from makeway.core.quantity import QuantityError
from makeway.core.selector import SelectorError
from makeway.planner.answer import Plan, Refusal, Scope
from makeway.planner.diagnosis import no_nodes
from makeway.planner.offline.admission import Admitted, admit
from makeway.planner.offline.feasibility import Feasibility, feasibility
from makeway.planner.offline.manifests import Manifest, ManifestError
from makeway.planner.offline.results import Result, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan import plan
from makeway.planner.question import MOST_PODS, NamelessPodError, Question, question_of
from makeway.planner.records import PodRecord
from makeway.planner.replies import Decision, preemptor_of, record_of

CANDIDATES: Final = 16
"""Nodes that an answer names, as many as the plugin asks for."""

GATED: Final = "SchedulingGated"
UNMODELLED: Final = "OnlyFiltersKnow"
NAMED: Final = 3
"""Nodes that such a refusal names."""

_OFFLINE: Final = "simulation"


class Simulation:
    """A world in which pods come one after the other at one moment.

    `all_candidates`: name every node that would do, not only the best few.
    """

    def __init__(self, world: World, now: datetime, *, namespace: str, all_candidates: bool = False) -> None:
        self._world = world
        self._now = now
        self._namespace = namespace
        self._all = all_candidates
        self._leaving: frozenset[str] = frozenset()

    def admit(self, manifest: Manifest, source: str) -> Admitted:
        """Let a pod in, as the API server would; a pending pod of that name is the same pod.

        Raises ManifestError.
        """
        snapshot = self._world.snapshot
        admitted = admit(manifest, snapshot.priority_classes, namespace=self._namespace, source=source)
        meta = admitted.pod.metadata
        uid = snapshot.uid_of(meta.namespace, meta.name)
        there = snapshot.pods.get(uid or "")
        if there is None:
            return admitted
        if there.node:
            raise ManifestError(
                f"{source}: pod {meta.namespace}/{meta.name} is there already, on node {there.node}; "
                "give it another name"
            )
        return admit(
            {**manifest, "metadata": {**manifest.get("metadata", {}), "uid": there.uid}},
            snapshot.priority_classes,
            namespace=self._namespace,
            source=source,
        )

    def run(self, manifest: Manifest, source: str) -> SimulatedPod:
        """Say what becomes of one pod, and let it happen. Raises ManifestError. O(slots · nodes)."""
        admitted = self.admit(manifest, source)
        where = f"{source}: pod {admitted.pod.metadata.namespace}/{admitted.pod.metadata.name}"
        if admitted.pod.spec.node_name:
            raise ManifestError(f"{where}: it has spec.nodeName, so no scheduler looks at it; leave it out")
        request = self._request(admitted)
        try:
            question = question_of(request, {}, self._leaving)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            raise ManifestError(f"{where}: {error}") from error
        snapshot = self._world.snapshot
        if question.pinned_to:
            delay = snapshot.shields.policy.daemon_sets.preemption_start_delay
            question = replace(question, unfit_since=question.unfit_since or self._now - delay)
        snapshot.put_pod(question.preemptor)
        told = partial(self._told, request, question, admitted.warnings)
        if admitted.gates:
            return told(self._gated(question, admitted.gates))
        found = feasibility(snapshot, question, self._now)
        if found.fits.size:
            node = found.roomiest(snapshot)
            self._place(question.preemptor, node)
            return told(None, found, node=node)
        result = self._planned(question, found)
        answer = told(result, found)
        if isinstance(result, Plan) and result.candidates:
            best = result.candidates[0]
            for victim in best.victims:
                snapshot.remove_pod(victim.pod.uid)
            self._leaving |= {victim.pod.uid for victim in best.victims}
            self._place(question.preemptor, best.node)
        return answer

    def _request(self, admitted: Admitted) -> PlanRequest:
        count = self._world.snapshot.node_count if self._all else CANDIDATES
        uid = admitted.pod.metadata.uid
        return PlanRequest(
            api_version=API_VERSION,
            request_id=_OFFLINE,
            cluster_uid=_OFFLINE,
            mode=self._world.snapshot.shields.policy.mode_for(admitted.pod.metadata.namespace),
            timeout_milliseconds=0,
            max_candidates=max(count, 1),
            profile=Profile(name=admitted.pod.spec.scheduler_name or _OFFLINE),
            pod=msgspec.Raw(admitted.raw),
            nodes=NodeSelection(),
            nominations=tuple(one for one in self._world.nominations.values() if one.uid != uid),
        )

    def _planned(self, question: Question, found: Feasibility) -> Plan | Refusal:
        snapshot = self._world.snapshot
        names = tuple(snapshot.names[row] for row in found.helpable.tolist())
        asked = replace(
            question,
            nodes=NodeSelection(names=names),
            most_pods=max(len(snapshot.pods), MOST_PODS) if self._all else MOST_PODS,
        )
        result = plan(snapshot, asked, self._now)
        if isinstance(result, Refusal) and not names:
            told = ", ".join(f"{count} {reason}" for reason, count in sorted(found.excluded.items()))
            message = f"{result.message}: {told}" if told else result.message
            return replace(result, message=message, node_reasons=found.excluded)
        if isinstance(result, Plan) and not result.candidates:
            nodes = ", ".join(proposal.node for proposal in result.unmodelled[:NAMED])
            pod = f"pod {question.preemptor.namespace}/{question.preemptor.name}"
            message = f"{pod} lacks nothing that removing pods would give on {nodes or 'any node'}: only the "
            message += "scheduler's own filters know who would have to go"
            return Refusal(result.scope, UNMODELLED, message)
        return result

    def _gated(self, question: Question, gates: tuple[str, ...]) -> Refusal:
        scope = Scope(self._world.snapshot.revision, self._world.snapshot.node_count, 0)
        refusal = no_nodes(scope, question, 0)
        pod = f"pod {question.preemptor.namespace}/{question.preemptor.name}"
        message = f"{pod} is held back by its scheduling gates: {', '.join(gates)}"
        return replace(refusal, reason=GATED, message=message)

    def _place(self, pod: PodRecord, node: str) -> None:
        """Put the pod on its node; nominations of lower priority there are cleared, as the scheduler does."""
        snapshot, nominations = self._world.snapshot, self._world.nominations
        start = microseconds(self._now)
        snapshot.put_pod(msgspec.structs.replace(pod, node=node, start_micros=start))
        nominations.pop(pod.uid, None)
        for uid, nomination in list(nominations.items()):
            other = snapshot.pods.get(uid)
            if nomination.node == node and (other is None or other.priority < pod.priority):
                del nominations[uid]

    def _told(
        self,
        request: PlanRequest,
        question: Question,
        warnings: tuple[str, ...],
        result: Plan | Refusal | None,
        found: Feasibility | None = None,
        *,
        node: str = "",
    ) -> SimulatedPod:
        """Write down what was found, in the words of a decision record. `result` None: it fits on `node`."""
        snapshot, pod = self._world.snapshot, question.preemptor
        scope = Scope(snapshot.revision, snapshot.node_count, int(found.helpable.size) if found else 0)
        record = record_of(
            Decision(
                decision_id=_OFFLINE,
                planner=_OFFLINE,
                at=self._now,
                request=request,
                question=question,
                result=result or Plan(scope, (), 0, (), 0),
                policy_revision=snapshot.shields.revision,
                duration_seconds=0.0,
            )
        )
        queue = snapshot.queues.queue_of(pod)
        outcome: Result = "fits" if result is None else "preempts" if record.nominated_node else "refused"
        return SimulatedPod(
            namespace=pod.namespace,
            name=pod.name,
            result=outcome,
            preemptor=preemptor_of(question),
            queue=queue.path if queue is not None else "",
            mode=request.mode,
            node=node or record.nominated_node or None,
            nominated_node=record.nominated_node or None,
            victims=record.victims,
            pdb_violations=record.pdb_violations,
            candidates=record.candidates,
            candidates_total=record.candidates_total,
            diagnosis=record.diagnosis,
            spared_by_rule=record.spared_by_rule,
            nearest=record.nearest,
            nodes_total=record.nodes_total,
            nodes_fitting=int(found.fits.size) if found else 0,
            nodes_potential=record.nodes_potential,
            nodes_excluded=found.excluded if found else {},
            warnings=warnings,
        )
