"""Pods one after the other on a cluster that was read once: which fit, preempt others or are refused.

It plans with the planner's own code and then lets happen what was planned: victims are gone, the pod is on
its node, budgets have been used up. Pure but for the world, which it owns and changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from makeway.bus.plan import PlanRequest
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import Selector, SelectorError
from makeway.planner.offline.admission import Admitted, admit, stand_in_uid
from makeway.planner.offline.admission_objects import AdmissionObjects
from makeway.planner.offline.asking import (
    CANDIDATES,
    as_asked,
    gated,
    not_admitted,
    request_about,
    unseen,
)
from makeway.planner.offline.describing import described
from makeway.planner.offline.gangs import (
    admit_group,
    at_priority,
    described_group,
    gang_question,
    held,
    policies_are_kept,
)
from makeway.planner.offline.manifests import Manifest, ManifestError, NewPod
from makeway.planner.offline.results import SimulatedGroup, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.request import MOST_PODS, NamelessPodError, Question, question_of
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.plan.unfiltered import judge_pod
from makeway.planner.snapshot.changes import KnowPodGroups, PutDaemonSet, PutPod, PutPodGroup, RemovePod
from makeway.planner.snapshot.records import PodRecord


class Simulation:
    """A world in which pods come one after the other at one moment.

    `all_candidates`: name every node that would do, not only the best few.
    """

    def __init__(self, world: World, now: datetime, *, namespace: str, all_candidates: bool = False) -> None:
        self._world = world
        self._cache = PlanCache()
        self._now = now
        self._namespace = namespace
        self._all = all_candidates
        self._leaving: frozenset[str] = frozenset()
        self._policies_are_kept = policies_are_kept(world.snapshot.groups.records.values())

    def admit(self, new: NewPod) -> Admitted:
        """Let a pod in, as the API server would; a pending pod of that name is the same pod.

        Raises ManifestError.
        """
        snapshot, manifest = self._world.snapshot, new.manifest
        admitted = self._admit(new)
        meta = admitted.pod.metadata
        uid = snapshot.uid_of(meta.namespace, meta.name)
        there = snapshot.pods.get(uid or "")
        if there is None and meta.uid not in snapshot.pods:
            return admitted
        if there is not None and there.node:
            raise ManifestError(
                f"{new.source}: pod {meta.namespace}/{meta.name} is there already, on node {there.node}; "
                "give it another name"
            )
        # With the UID of another pod it would stand in that one's place.
        known = there.uid if there is not None else stand_in_uid(meta.namespace, meta.name)
        named = {**manifest, "metadata": {**manifest.get("metadata", {}), "uid": known}}
        return self._admit(replace(new, manifest=named))

    def _admit(self, new: NewPod) -> Admitted:
        classes = self._world.snapshot.priority_classes
        # What these add has been added to a pod as it is stored.
        objects: AdmissionObjects = {} if new.stored else self._world.admission
        found = admit(new.manifest, classes, objects, namespace=self._namespace, source=new.source)
        return replace(found, warnings=(*found.warnings, new.note)) if new.note else found

    def run(self, new: NewPod) -> SimulatedPod:
        """Decide what becomes of one pod, and let it happen. Raises ManifestError. O(slots · nodes)."""
        admitted = self.admit(new)
        where = f"{new.source}: pod {admitted.pod.metadata.namespace}/{admitted.pod.metadata.name}"
        if admitted.pod.spec.node_name:
            raise ManifestError(f"{where}: it has spec.nodeName, so no scheduler places it; leave it out")
        request = self._request(admitted)
        question = self._question(request, where)
        snapshot, warnings = self._world.snapshot, list(admitted.warnings)
        question = as_asked(snapshot, question, admitted.pod)
        if new.refusal:
            refusal = not_admitted(snapshot, new.refusal)
            return described(snapshot, request, question, refusal, now=self._now, warnings=warnings)
        question = self._with_known_claims(question, warnings)
        warnings += unseen(snapshot, admitted.raw, question)
        if question.daemonset_node:
            delay = snapshot.exemptions.policy.daemon_sets.preemption_start_delay
            question = replace(question, unfit_since=question.unfit_since or self._now - delay)
            self._put_daemonset(question.preemptor)
        snapshot.apply(PutPod(question.preemptor))
        if admitted.gates:
            refusal = gated(snapshot, question, admitted.gates)
            return described(snapshot, request, question, refusal, now=self._now, warnings=warnings)
        judged = judge_pod(snapshot, self._widened(question), self._now, self._cache)
        answer = described(snapshot, request, question, judged, now=self._now, warnings=warnings)
        if judged.best is not None:
            self._let_go(judged.best.gone)
        if answer.node is not None:
            self._place(question.preemptor, answer.node)
        return answer

    def run_group(self, manifest: Manifest, members: Sequence[NewPod], source: str) -> SimulatedGroup:
        """Decide what becomes of a PodGroup and its pods, and let it happen. Raises ManifestError."""
        snapshot = self._world.snapshot
        group = admit_group(
            manifest,
            snapshot.priority_classes,
            namespace=self._namespace,
            source=source,
            policies=self._policies_are_kept,
        )
        if not members:
            raise ManifestError(f"{source}: no pod names PodGroup {group.name} in spec.schedulingGroup")
        snapshot.apply(KnowPodGroups(True, True, True))
        snapshot.apply(PutPodGroup(group.record))
        questions: list[Question] = []
        warnings: dict[str, None] = {}
        refusal = next((new.refusal for new in members if new.refusal), "")
        for new in members:
            admitted = self.admit(new)
            name = f"{new.source}: pod {admitted.pod.metadata.namespace}/{admitted.pod.metadata.name}"
            if admitted.pod.spec.node_name or admitted.gates:
                raise ManifestError(f"{name}: leave spec.nodeName and spec.schedulingGates out")
            question = self._question(self._request(admitted), name)
            told = list(admitted.warnings)
            question = self._with_known_claims(question, told)
            warnings.update(dict.fromkeys([*told, *unseen(snapshot, admitted.raw, question)]))
            snapshot.apply(PutPod(question.preemptor))
            if question.preemptor.priority != group.record.priority:
                warnings[
                    f"pods of it have another priority; that of the group, {group.record.priority}, holds"
                ] = None
            questions.append(at_priority(question, group.record.priority))
        asked, classes = gang_question(snapshot, group, questions)
        planned: GangPlan | PlanRefusal
        if refusal:
            planned = not_admitted(snapshot, refusal)
        else:
            planned = plan_gang(snapshot, asked, self._now, self._cache)
        found = held(planned, group, snapshot.exemptions.policy.groups.preemptors)
        nodes: dict[str, str] = {}
        if isinstance(found, GangPlan):
            self._let_go(found.gone)
            left = [iter(alike) for alike in classes]
            for placement in found.placements:
                for _ in range(placement.count):
                    member = next(left[placement.member_class]).preemptor
                    nodes[member.uid] = placement.node
                    self._place(member, placement.node)
        return described_group(snapshot, group, questions, found, nodes=nodes, warnings=tuple(warnings))

    def _request(self, admitted: Admitted) -> PlanRequest:
        count = self._world.snapshot.node_count if self._all else CANDIDATES
        return request_about(self._world, admitted.pod, admitted.raw, count)

    def _question(self, request: PlanRequest, where: str) -> Question:
        try:
            return question_of(request, {}, self._leaving)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            raise ManifestError(f"{where}: {error}") from error

    def _with_known_claims(self, question: Question, warnings: list[str]) -> Question:
        """Leave out the claims that are not known, where none were read; else they are not there."""
        constraints, claims = question.constraints, self._world.snapshot.volumes.claims
        if self._world.claims_known:
            return question
        unknown = [one for one in constraints.binds if (constraints.namespace, one) not in claims]
        if not unknown:
            return question
        warnings.append(f"not judged: PersistentVolumeClaims {', '.join(unknown)}: none are in the dump")
        known = tuple(one for one in constraints.binds if one not in unknown)
        return replace(question, constraints=replace(constraints, claims=known, binds=known, zoned=known))

    def _let_go(self, pods: Sequence[PodRecord]) -> None:
        """Remove pods; the budgets of those that do not leave anyway have lost them."""
        for pod in pods:
            self._world.snapshot.apply(RemovePod(pod.uid))
        self._leaving |= {pod.uid for pod in pods if not pod.terminating}

    def _put_daemonset(self, pod: PodRecord) -> None:
        """Let the DaemonSet that a simulated pod names control it, where the cluster has none of that UID."""
        name, uid = pod.facts.daemonset_name, pod.facts.daemonset_uid
        if uid not in self._world.snapshot.daemonsets.items:
            owner = DaemonSetOwner(namespace=pod.namespace, name=name, uid=uid, selector=Selector(()))
            self._world.snapshot.apply(PutDaemonSet(owner))

    def _widened(self, question: Question) -> Question:
        """Let every candidate be named, where that is asked for."""
        if not self._all:
            return question
        return replace(question, most_pods=max(len(self._world.snapshot.pods), MOST_PODS))

    def _place(self, pod: PodRecord, node: str) -> None:
        """Put the pod on its node; nominations of lower priority there are cleared, as the scheduler does."""
        snapshot, nominations = self._world.snapshot, self._world.nominations
        start = microseconds(self._now)
        snapshot.apply(PutPod(msgspec.structs.replace(pod, node=node, start_micros=start)))
        nominations.pop(pod.uid, None)
        for uid, nomination in list(nominations.items()):
            other = snapshot.pods.get(uid)
            if nomination.node == node and (other is None or other.priority < pod.priority):
                del nominations[uid]
