"""Pods one after the other on a cluster that was read once: which fit, preempt others or are refused.

It plans with the planner's own code and then lets happen what was planned: victims are gone, the pod is on
its node, budgets have been used up. Pure but for the world, which it owns and changes.

Of a PodGroup of a file, with its pods: whether all that must run together have room, and for whom it is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from makeway.bus.messages import MOST_MEMBERS
from makeway.bus.plan import MOST_MEMBER_CLASSES, NodeSelection, PlanRequest, Refusal
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.pod_groups import ONE_BY_ONE, GroupRecord, PodGroup, group_record
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import Selector, SelectorError
from makeway.core.policy.document import GroupPreemptors
from makeway.core.policy.external import NEVER
from makeway.planner.offline.admission import Admitted, admit, global_default, stand_in_uid
from makeway.planner.offline.admission_objects import AdmissionObjects
from makeway.planner.offline.asking import CANDIDATES, as_asked, gated, not_admitted, request_about, unseen
from makeway.planner.offline.describing import described
from makeway.planner.offline.manifests import Manifest, ManifestError, NewPod
from makeway.planner.offline.results import Result, SimulatedGroup, SimulatedMember, SimulatedPod
from makeway.planner.offline.world import World
from makeway.planner.plan.decision import awaited_of, price_of, victim_of
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion, alike, labels_named
from makeway.planner.plan.naming import as_placement
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import MOST_PODS, NamelessPodError, Question, question_of
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.plan.unfiltered import PodVerdict, judge_pod
from makeway.planner.snapshot.changes import KnowPodGroups, PutDaemonSet, PutPod, PutPodGroup, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

GROUPS_HELD: Final = "GroupsHeld"


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

        def told(answer: PodVerdict | PlanRefusal) -> SimulatedPod:
            return described(snapshot, request, question, answer, now=self._now, warnings=warnings)

        if new.refusal:
            return told(not_admitted(snapshot, new.refusal))
        question = self._with_known_claims(question, warnings)
        warnings += unseen(snapshot, admitted.raw, question)
        if question.daemonset_node:
            delay = snapshot.exemptions.policy.daemon_sets.preemption_start_delay
            question = replace(question, unfit_since=question.unfit_since or self._now - delay)
            self._put_daemonset(question.preemptor)
        snapshot.apply(PutPod(question.preemptor))
        if admitted.gates:
            return told(gated(snapshot, question, admitted.gates))
        judged = judge_pod(snapshot, self._widened(question), self._now, self._cache)
        answer = told(judged)
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
        # A plan replaces those of its own members, whom a scheduler asks about all at once.
        own = {one.preemptor.uid for one in questions}
        asked = asked.of_all(
            nominations=tuple(one for one in self._world.nominations.values() if one.uid not in own)
        )
        planned: GangPlan | PlanRefusal
        if refusal:
            planned = not_admitted(snapshot, refusal)
        else:
            planned = plan_gang(snapshot, asked, self._now, self._cache)
        found = held(planned, group, asked, snapshot.exemptions.policy.groups.preemptors)
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


@dataclass(frozen=True, slots=True)
class AdmittedGroup:
    """A PodGroup as the API server would store it.

    `topology`: keys of its topology constraints. `version`: of the API that its manifest is of.
    """

    record: GroupRecord
    topology: tuple[str, ...]
    version: str = ""

    @property
    def name(self) -> str:
        """Return its namespace and name."""
        return f"{self.record.key.namespace}/{self.record.key.name}"


def policies_are_kept(groups: Iterable[GroupRecord]) -> bool | None:
    """Report whether the API server keeps preemptionPolicy of groups; None where there is no group to tell.

    It fills the field in, from the class, where the feature gate PodGroupPreemptionPolicy is on, and else
    drops it.
    """
    told = [bool(group.preemption_policy) for group in groups]
    return any(told) if told else None


def admit_group(
    manifest: Manifest,
    classes: Mapping[str, PriorityClass],
    *,
    namespace: str,
    source: str,
    policies: bool | None = None,
) -> AdmittedGroup:
    """Fill in what the API server would. Raises ManifestError.

    `policies`: what `policies_are_kept` says; where that is not known, a class fills in Never alone.
    """
    meta = manifest.get("metadata") or {}
    if not isinstance(meta, dict):
        raise ManifestError(f"{source}: a PodGroup's metadata must be an object")
    meta = {**meta}
    where = f"{source}: PodGroup {meta.get('name') or '?'}"
    if not meta.get("name"):
        raise ManifestError(f"{where}: it has no metadata.name")
    meta["namespace"] = meta.get("namespace") or namespace
    meta["uid"] = meta.get("uid") or stand_in_uid(meta["namespace"], f"PodGroup {meta['name']}")
    spec = manifest.get("spec") or {}
    try:
        group = msgspec.convert({"metadata": meta, "spec": spec}, PodGroup)
        constraints = (spec.get("schedulingConstraints") or {}).get("topology") or ()
        topology = tuple(str(one["key"]) for one in constraints)
        name = spec.get("priorityClassName")
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise ManifestError(f"{where}: {error}") from error
    if group.spec.parent_composite_pod_group_name:
        raise ManifestError(f"{where}: it is part of a CompositePodGroup, for which no room is made")
    record = group_record(group)
    chosen = classes.get(name) if name else global_default(classes)
    if group.spec.priority is None:
        if name and chosen is None:
            raise ManifestError(f"{where}: there is no PriorityClass {name}")
        record = msgspec.structs.replace(record, priority=chosen.value if chosen is not None else 0)
    of_class = (chosen.preemption_policy or "") if chosen is not None else ""
    if policies is False:
        record = msgspec.structs.replace(record, preemption_policy="")
    if record.preemption_policy and of_class not in ("", record.preemption_policy):
        raise ManifestError(
            f"{where}: spec.preemptionPolicy is {record.preemption_policy}, and its PriorityClass says "
            f"{of_class}; leave one out"
        )
    if policies or (policies is None and of_class == NEVER):
        record = msgspec.structs.replace(record, preemption_policy=record.preemption_policy or of_class)
    return AdmittedGroup(record, topology, str(manifest.get("apiVersion") or "").rpartition("/")[2])


def gang_question(
    snapshot: Snapshot, group: AdmittedGroup, members: Sequence[Question]
) -> tuple[GangQuestion, list[list[Question]]]:
    """Put members that are equal into classes; return the question, and the members of each class."""
    classes: defaultdict[Hashable, list[Question]] = defaultdict(list)
    named = frozenset[str]().union(*map(labels_named, members))
    for one in members:
        classes[alike(one, named)].append(one)
    placed = tuple(
        as_placement(pod, pod.node)
        for uid in snapshot.groups.uids(group.name)
        if (pod := snapshot.pods.get(uid)) is not None and pod.node and not pod.terminating
    )
    found = list(classes.values())
    question = GangQuestion(
        name=group.name,
        classes=tuple(GangClass(alike[0], len(alike)) for alike in found),
        must_place=max(1, group.record.min_count - len(placed)),
        topology=group.topology,
        placed=placed,
    )
    return question, found


def held(
    found: GangPlan | PlanRefusal, group: AdmittedGroup, asked: GangQuestion, preemptors: GroupPreemptors
) -> GangPlan | PlanRefusal:
    """Return a refusal where makeway makes no room for the group: by the policy, by its size, or in 1.36."""
    if isinstance(found, PlanRefusal) or not found.victims:
        return found
    if preemptors == "hold":
        why = "groups.preemptors of the policy is hold: nothing is evicted for pod groups"
    elif group.version == ONE_BY_ONE:
        why = (
            f"{ONE_BY_ONE} is of Kubernetes 1.36, where makeway makes no room for groups; kube-scheduler may "
            "preempt for its pods one by one"
        )
    elif asked.total > MOST_MEMBERS or len(asked.classes) > MOST_MEMBER_CLASSES:
        why = f"no plan is made for more than {MOST_MEMBERS} pods or {MOST_MEMBER_CLASSES} kinds of them"
    else:
        return found
    return found.refused(GROUPS_HELD, why)


def at_priority(question: Question, priority: int) -> Question:
    """Return the question at a group's priority, about all nodes."""
    preemptor = msgspec.structs.replace(question.preemptor, priority=priority)
    return replace(question, preemptor=preemptor, nodes=NodeSelection(all_but=True))


def described_group(
    snapshot: Snapshot,
    group: AdmittedGroup,
    members: Sequence[Question],
    result: GangPlan | PlanRefusal,
    *,
    nodes: Mapping[str, str],
    warnings: tuple[str, ...],
) -> SimulatedGroup:
    """Write down what was found. `nodes`: of each member's UID that gets one."""
    key = group.record.key
    outcome: Result = "refused"
    found: dict[str, Any] = {"victims": (), "awaited": (), "price": None, "domains": {}, "diagnosis": None}
    if isinstance(result, GangPlan):
        outcome = "preempts" if result.victims else "waits" if result.awaited else "fits"
        found["victims"] = tuple(victim_of(one.pod.node, one) for one in result.victims)
        found["awaited"] = awaited_of(result.awaited)
        found["price"] = price_of(result.price)
        found["domains"] = dict(result.domains)
    else:
        found["diagnosis"] = Refusal(reason=result.reason, message=result.message)
    return SimulatedGroup(
        namespace=key.namespace,
        name=key.name,
        result=outcome,
        priority=group.record.priority,
        min_count=group.record.min_count,
        mode=snapshot.exemptions.policy.mode_for(key.namespace),
        members=tuple(
            SimulatedMember(name=one.preemptor.name, node=nodes.get(one.preemptor.uid)) for one in members
        ),
        **found,
        nodes_total=result.scope.nodes_total,
        nodes_potential=result.scope.nodes_potential,
        left_to_verification=result.left_out,
        warnings=warnings,
    )
