"""A PodGroup of a file with its pods: whether all that must run together have room, and for whom it is made.

Pure but for the world of the simulation, which it changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from makeway.bus.plan import NodeSelection, Refusal
from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.pod_groups import ONE_BY_ONE, GroupRecord, PodGroup, group_record
from makeway.core.policy.document import GroupPreemptors
from makeway.core.policy.external import NEVER
from makeway.planner.offline.admission import global_default, stand_in_uid
from makeway.planner.offline.manifests import Manifest, ManifestError
from makeway.planner.offline.results import Result, SimulatedGroup, SimulatedMember
from makeway.planner.plan.decision import awaited_of, price_of, victim_of
from makeway.planner.plan.gang.question import GangClass, GangQuestion, alike
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.naming import as_placement
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.snapshot.state import Snapshot

GROUPS_HELD: Final = "GroupsHeld"


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
    for one in members:
        classes[alike(one)].append(one)
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
    found: GangPlan | PlanRefusal, group: AdmittedGroup, preemptors: GroupPreemptors
) -> GangPlan | PlanRefusal:
    """Return a refusal where makeway makes no room for the group: by the policy, or in 1.36."""
    if isinstance(found, PlanRefusal) or not found.victims:
        return found
    if preemptors == "hold":
        why = "groups.preemptors of the policy is hold: nothing is evicted for pod groups"
    elif group.version == ONE_BY_ONE:
        why = (
            f"{ONE_BY_ONE} is of Kubernetes 1.36, where makeway makes no room for groups; kube-scheduler may "
            "preempt for its pods one by one"
        )
    else:
        return found
    return PlanRefusal(found.scope, GROUPS_HELD, why, left_out=found.left_out)


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
    key, planned = group.record.key, isinstance(result, GangPlan)
    victims = (
        tuple(victim_of(one.pod.node, one) for one in result.victims) if isinstance(result, GangPlan) else ()
    )
    awaited = awaited_of(result.awaited) if isinstance(result, GangPlan) else ()
    outcome: Result = "fits" if planned else "refused"
    if victims or awaited:
        outcome = "preempts" if victims else "waits"
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
        victims=victims,
        awaited=awaited,
        price=price_of(result.price) if isinstance(result, GangPlan) else None,
        domains=dict(result.domains) if isinstance(result, GangPlan) else {},
        diagnosis=Refusal(reason=result.reason, message=result.message)
        if isinstance(result, PlanRefusal)
        else None,
        nodes_total=result.scope.nodes_total,
        nodes_potential=result.scope.nodes_potential,
        left_to_verification=result.left_out,
        warnings=warnings,
    )
