"""Pods one after the other on a cluster that was read once: which fit, preempt others or are refused.

It plans with the planner's own code and then lets happen what was planned: victims are gone, the pod is on
its node, budgets have been used up. Pure but for the world, which it owns and changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.messages import API_VERSION, NodeSelection, PlanRequest, Profile
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import Selector, SelectorError
from makeway.planner.offline.admission import Admitted, admit, stand_in_uid
from makeway.planner.offline.describing import OFFLINE, PodQuery, described
from makeway.planner.offline.gangs import admit_group, at_priority, described_group, gang_question, held
from makeway.planner.offline.judging import gated, judge_pod
from makeway.planner.offline.manifests import Manifest, ManifestError
from makeway.planner.offline.opted_in import as_nominator_asks
from makeway.planner.offline.results import SimulatedGroup, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.request import MOST_PODS, NamelessPodError, Question, question_of
from makeway.planner.snapshot.changes import KnowPodGroups, PutDaemonSet, PutPod, PutPodGroup, RemovePod
from makeway.planner.snapshot.records import PodRecord

CANDIDATES: Final = 16
"""Nodes that an answer names, as many as the plugin asks for."""


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

    def admit(self, manifest: Manifest, source: str) -> Admitted:
        """Let a pod in, as the API server would; a pending pod of that name is the same pod.

        Raises ManifestError.
        """
        snapshot = self._world.snapshot
        admitted = admit(manifest, snapshot.priority_classes, namespace=self._namespace, source=source)
        meta = admitted.pod.metadata
        uid = snapshot.uid_of(meta.namespace, meta.name)
        there = snapshot.pods.get(uid or "")
        if there is None and meta.uid not in snapshot.pods:
            return admitted
        if there is not None and there.node:
            raise ManifestError(
                f"{source}: pod {meta.namespace}/{meta.name} is there already, on node {there.node}; "
                "give it another name"
            )
        # With the UID of another pod it would stand in that one's place.
        known = there.uid if there is not None else stand_in_uid(meta.namespace, meta.name)
        return admit(
            {**manifest, "metadata": {**manifest.get("metadata", {}), "uid": known}},
            snapshot.priority_classes,
            namespace=self._namespace,
            source=source,
        )

    def run(self, manifest: Manifest, source: str) -> SimulatedPod:
        """Decide what becomes of one pod, and let it happen. Raises ManifestError. O(slots · nodes)."""
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
        question = as_nominator_asks(snapshot, question, admitted.pod)
        if question.daemonset_node:
            delay = snapshot.exemptions.policy.daemon_sets.preemption_start_delay
            question = replace(question, unfit_since=question.unfit_since or self._now - delay)
            self._put_daemonset(question.preemptor)
        snapshot.apply(PutPod(question.preemptor))
        asked = PodQuery(snapshot, request, question, self._now, admitted.warnings)
        if admitted.gates:
            return described(asked, gated(snapshot, question, admitted.gates))
        judged = judge_pod(snapshot, self._widened(question), self._now, self._cache)
        answer = described(asked, judged.result, judged.found, node=judged.node)
        if judged.best is not None:
            for victim in judged.best.victims:
                snapshot.apply(RemovePod(victim.pod.uid))
            self._leaving |= {victim.pod.uid for victim in judged.best.victims}
        if answer.node is not None:
            self._place(question.preemptor, answer.node)
        return answer

    def run_group(
        self, manifest: Manifest, members: Sequence[tuple[Manifest, str]], source: str
    ) -> SimulatedGroup:
        """Decide what becomes of a PodGroup and its pods, and let it happen. Raises ManifestError."""
        snapshot = self._world.snapshot
        group = admit_group(manifest, snapshot.priority_classes, namespace=self._namespace, source=source)
        if not members:
            raise ManifestError(f"{source}: no pod names PodGroup {group.name} in spec.schedulingGroup")
        snapshot.apply(KnowPodGroups(True, True, True))
        snapshot.apply(PutPodGroup(group.record))
        questions: list[Question] = []
        warnings: dict[str, None] = {}
        for pod, where in members:
            admitted = self.admit(pod, where)
            name = f"{where}: pod {admitted.pod.metadata.namespace}/{admitted.pod.metadata.name}"
            if admitted.pod.spec.node_name or admitted.gates:
                raise ManifestError(f"{name}: leave spec.nodeName and spec.schedulingGates out")
            try:
                question = question_of(self._request(admitted), {}, self._leaving)
            except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
                raise ManifestError(f"{name}: {error}") from error
            warnings.update(dict.fromkeys(admitted.warnings))
            snapshot.apply(PutPod(question.preemptor))
            if question.preemptor.priority != group.record.priority:
                warnings[
                    f"pods of it have another priority; that of the group, {group.record.priority}, holds"
                ] = None
            questions.append(at_priority(question, group.record.priority))
        asked, classes = gang_question(snapshot, group, questions)
        planned = plan_gang(snapshot, asked, self._now, self._cache)
        found = held(planned, group, snapshot.exemptions.policy.groups.preemptors)
        nodes: dict[str, str] = {}
        if isinstance(found, GangPlan):
            for victim in found.victims:
                snapshot.apply(RemovePod(victim.pod.uid))
            self._leaving |= {victim.pod.uid for victim in found.victims}
            left = [iter(alike) for alike in classes]
            for placement in found.placements:
                for _ in range(placement.count):
                    member = next(left[placement.member_class]).preemptor
                    nodes[member.uid] = placement.node
                    self._place(member, placement.node)
        return described_group(snapshot, group, questions, found, nodes=nodes, warnings=tuple(warnings))

    def _request(self, admitted: Admitted) -> PlanRequest:
        count = self._world.snapshot.node_count if self._all else CANDIDATES
        uid = admitted.pod.metadata.uid
        return PlanRequest(
            api_version=API_VERSION,
            request_id=OFFLINE,
            cluster_uid=OFFLINE,
            mode=self._world.snapshot.exemptions.policy.mode_for(admitted.pod.metadata.namespace),
            timeout_milliseconds=0,
            max_candidates=max(count, 1),
            profile=Profile(name=admitted.pod.spec.scheduler_name or OFFLINE),
            pod=msgspec.Raw(admitted.raw),
            nodes=NodeSelection(),
            nominations=tuple(one for one in self._world.nominations.values() if one.uid != uid),
        )

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
