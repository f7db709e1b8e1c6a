"""May this order be stored? By the snapshot and the same rules as a plan. Pure.

A bridge names a pod, a node and victims, and none of it is believed: the victims have to be among those that
a plan offered, and removable for this pod by the rules as they are now. What the order says of pods comes
from the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from makeway.bus.commit import NOTHING, CommitRequest, Offer, named_order
from makeway.bus.messages import (
    MOST_NOMINATIONS,
    Awaited,
    EvictionOrder,
    NominationToClear,
    Placement,
    Victim,
    VictimFacts,
    Void,
)
from makeway.bus.plan import NodeSelection
from makeway.core.k8s.importance import moment_of
from makeway.core.k8s.pod_groups import GroupKey, came_lately
from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.facts import NOT_SCHEDULED
from makeway.core.policy.mode import Mode
from makeway.planner.commit.removable import chosen_for_daemonset, removable_pods
from makeway.planner.orders.pledges import LASTS
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.plan.naming import as_placement, as_victim
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import Question
from makeway.planner.plan.terminating import overdue_at
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

LONGEST_WAIT: Final = timedelta(seconds=125)
"""How far ahead of the planner's clock a commit's `store_by` may be: what a large group takes, and 5 s."""

UNKNOWN_SCHEDULER: Final = "unknown"
"""In a void for a pod that the planner does not see."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What a commit is judged by besides the snapshot.

    `now`: the time, UTC. `mode`: for the preemptor's namespace.
    `in_flight`: the pods that other preemptors' live orders remove,
    each with its order; `pledged`: those that their plans take, for which commits may come; `unstored`: those
    orders and pledges that are not stored yet. `leaving`: victims that have left
    so lately that budgets may not show it. `nominated`: nodes of nominated pods, by UID. `versions`: the
    resourceVersions of the snapshot's pods, by UID, where they are known. `busy`: another live
    order of the same preemptor. `limit`: why it may have no order now.
    """

    now: datetime
    mode: Mode
    brake: Brake = RELEASED
    in_flight: Mapping[str, str] = field(default_factory=dict)
    pledged: Mapping[str, str] = field(default_factory=dict)
    unstored: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    nominated: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    busy: str = ""
    limit: Void | None = None


@dataclass(frozen=True)
class Accepted:
    """The order as it may be stored now; not before `waits_for` has come about, where that is not empty."""

    order: EvictionOrder
    waits_for: str = ""


def refused_by_itself(commit: CommitRequest, offer: Offer, cluster_uid: str, now: datetime) -> Void | None:
    """Return why a commit is refused whoever judges it: nothing is stored then; None where it is not."""
    if {commit.cluster_uid, offer.cluster_uid} != {cluster_uid}:
        return Void(reason="other-cluster", message=f"this planner stores orders for cluster {cluster_uid}")
    if offer.preemptor_uid != commit.preemptor.uid:
        return Void(reason="not-offered", message=f"the offer is for pod {offer.preemptor_uid}")
    if commit.store_by > now + LONGEST_WAIT:
        return Void(
            reason="store-by-too-far", message=f"storeBy {commit.store_by.isoformat()} is too far ahead"
        )
    if lacking := offer.lacks(commit.node, (*commit.victims, *commit.in_memory)):
        where = f"for node {commit.node}" if commit.node else "for the group"
        message = f"pod {lacking} was not offered {where} in decision {offer.decision_id}"
        return Void(reason="not-offered", message=message)
    members = tuple(one.uid for one in commit.placements)
    named = (*members, *commit.victims, *commit.in_memory, *(one.uid for one in commit.awaited))
    if len(set(named)) < len(named):
        return Void(reason="named-twice", message="a commit names each pod once")
    if commit.group is not None and not 1 <= commit.group.must_place <= len(commit.placements):
        must = commit.group.must_place
        return Void(
            reason="too-few-members", message=f"mustPlace is {must}, of {len(commit.placements)} members"
        )
    return None


def draft(
    commit: CommitRequest, decision_id: str, preemptor: PodRecord | None, now: datetime
) -> EvictionOrder:
    """Return an order of a commit's names, without pods to evict."""
    return named_order(
        commit,
        decision_id=decision_id,
        priority=preemptor.priority if preemptor is not None else 0,
        scheduler_name=(preemptor.scheduler_name if preemptor is not None else "") or UNKNOWN_SCHEDULER,
        now=now,
    )


def judge(
    snapshot: Snapshot,
    cache: PlanCache,
    commit: CommitRequest,
    offer: Offer,
    around: Circumstances,
) -> Accepted | Void:
    """Return the order that a commit comes to, or why there is none.

    A group is as important as its least important member. The cost is that of `removable_pods`, or of a plan
    for the pod of a DaemonSet; what costs next to nothing is looked at first.
    """
    members: list[PodRecord] = []
    for place in commit.placements:
        found = _wanted(place, commit, snapshot, around)
        if isinstance(found, Void):
            return found
        members += () if found is None else (found,)
    waits_for = _unseen(commit, snapshot, around)
    if len(members) < len(commit.placements):
        # Its bridge may have seen it first: a pod that has just been created.
        return Accepted(draft(commit, offer.decision_id, None, around.now), waits_for)
    going = _going(commit, snapshot, around)
    if isinstance(going, Void):
        return going
    most = snapshot.exemptions.policy.limits.victims_per_order
    if most and len(going.victims) > most:
        return Void(
            reason="too-many-victims",
            message=f"{len(going.victims)} victims; limits.victimsPerOrder is {most}",
        )
    if around.limit is not None:
        return around.limit
    preemptor = min(members, key=lambda one: one.priority)
    victims = _victims(snapshot, cache, commit, offer, around, going=going.victims, preemptor=preemptor)
    if isinstance(victims, Void):
        return victims
    order = replace(
        draft(commit, offer.decision_id, preemptor, around.now),
        victims=victims,
        awaited=going.awaited,
        nominations_to_clear=_to_clear(snapshot, preemptor, commit, around),
        pdb_violations=sum(one.pdb_violating for one in victims),
    )
    return Accepted(order, waits_for or _unstored(going.awaited, around) or going.unbound)


def still_waiting(
    snapshot: Snapshot, commit: CommitRequest, around: Circumstances, before: Accepted | None
) -> Accepted | None:
    """Return the verdict `before`, which holds while nominations do not show yet; None where one is due.

    O(members). Looks at nothing in flight, nor at limits.
    """
    if before is None or not before.order.victims:
        return None
    if any(isinstance(_wanted(place, commit, snapshot, around), Void) for place in commit.placements):
        return None
    waits_for = _unseen(commit, snapshot, around)
    return changed(before, waits_for=waits_for) if waits_for else None


@dataclass(frozen=True, slots=True)
class _Going:
    """What becomes of the pods that a commit names.

    `victims`: those that nothing removes yet. `awaited`: those that leave. `unbound`: what has to show of a
    victim that its scheduler has placed in memory; empty for none.
    """

    victims: tuple[PodRecord, ...]
    awaited: tuple[Awaited, ...]
    unbound: str


def _going(commit: CommitRequest, snapshot: Snapshot, around: Circumstances) -> _Going | Void:
    """Return what becomes of the pods that a commit names, or why there is no order. O(pods)."""
    victims: list[PodRecord] = []
    awaited: list[Awaited] = []
    unbound, named = "", set(commit.victims)
    for uid in (*commit.victims, *(one.uid for one in commit.awaited)):
        pod = snapshot.pods.get(uid)
        if pod is None:
            continue  # it has left
        if pod.terminating:
            awaited.append(Awaited(uid=uid, namespace=pod.namespace, name=pod.name, until=overdue_at([pod])))
        elif uid in around.in_flight:
            awaited.append(Awaited(uid=uid, order_id=around.in_flight[uid]))
        elif uid not in named and uid in around.pledged:
            awaited.append(Awaited(uid=uid, order_id=around.pledged[uid]))
        elif not pod.node:
            # It is bound in a moment, or its bridge stops it.
            if uid in named and not unbound:
                unbound = f"pod {_name(pod)} to be bound, which is a victim"
        elif uid not in named:
            message = f"pod {_name(pod)} was to leave, and no live order removes it any more"
            return Void(reason="awaited-order-failed", message=message)
        else:
            victims.append(pod)
    if not (victims or unbound or any(one.order_id for one in awaited)):
        return Void(reason=NOTHING, message="every pod whose room is wanted leaves anyway")
    return _Going(tuple(victims), tuple(awaited), unbound)


def _wanted(
    place: Placement, commit: CommitRequest, snapshot: Snapshot, around: Circumstances
) -> PodRecord | Void | None:
    """Return the pod of a placement, or why there is no order for it; None where it is not seen yet."""
    pod, group = snapshot.pods.get(place.uid), commit.group
    what = "preemptor" if group is None else "member"
    if pod is None and place.uid in snapshot.departures:
        return Void(reason=f"{what}-gone", message=f"pod {place.namespace}/{place.name} is gone")
    if pod is None:
        return None
    if (pod.namespace, pod.name) != (place.namespace, place.name):
        message = f"no pod {place.namespace}/{place.name} of that UID is there"
        return Void(reason=f"{what}-gone", message=message)
    if pod.node:
        return Void(reason=f"{what}-bound", message=f"{_name(pod)} is bound to {pod.node}")
    if pod.terminating:
        return Void(reason=f"{what}-terminating", message=f"{_name(pod)} is being deleted")
    if group is not None and (pod.namespace, pod.group) != (group.namespace, group.name):
        return Void(reason="no-member", message=f"{_name(pod)} is no member of {_preemptor(commit)}")
    if around.brake.holds(pod.namespace):
        return Void(reason="braked", message=around.brake.describe())
    if around.mode != "enforce":
        message = f"the mode for namespace {pod.namespace} is {around.mode}"
        return Void(reason=f"mode-{around.mode}", message=message)
    if place.node not in snapshot.rows:
        return Void(reason="node-gone", message=f"node {place.node} does not exist")
    return pod


def _victims(
    snapshot: Snapshot,
    cache: PlanCache,
    commit: CommitRequest,
    offer: Offer,
    around: Circumstances,
    *,
    going: tuple[PodRecord, ...],
    preemptor: PodRecord,
) -> tuple[Victim, ...] | Void:
    """Return pods as the victims of an order, or which of them may not be evicted, or not without others.

    What the pod asks of the nodes is no matter: the bridge's filters have verified that, or the plan's
    columns. A DaemonSet's pod has rules of its own, which choose victims by what it needs. A victim for a
    pod is on the order's node, or of a unit that has a pod there, which is not terminating. Once a plan is
    pledged no more, others may have used up the budgets that it counted on: a new plan may violate none.
    """
    node, uids = commit.node, {one.uid for one in going}
    of_daemonset = bool(node) and offer.daemonset_node == node
    others = {one.uid for one in snapshot.pods_of(node)} - uids if of_daemonset else ()
    question = Question(
        preemptor=preemptor,
        needs=preemptor.requests,
        may_preempt=True,
        scheduler_name=preemptor.scheduler_name,
        nodes=NodeSelection(names=(node,)),
        max_candidates=1,
        in_flight=around.in_flight,
        leaving=around.leaving,
        daemonset_node=offer.daemonset_node,
        unfit_since=offer.unfit_since,
        refused=frozenset(others),
        nominations=() if of_daemonset else _nominations(commit, snapshot, around),
    )
    if of_daemonset:
        removable = chosen_for_daemonset(snapshot, cache, question, uids, around.now)
    else:
        group = None if commit.group is None else GroupKey(commit.group.namespace, commit.group.name)
        members = [snapshot.pods[one.uid] for one in commit.placements if one.uid in snapshot.pods]
        removable = removable_pods(snapshot, question, going, around.now, members=members, preempting=group)
    versions = around.versions if commit.group is None else {}
    unit_of, here = snapshot.groups.unit_of_pod, snapshot.pods_of(node) if node else ()
    there = {unit.number for pod in here if not pod.terminating and (unit := unit_of(pod))}
    victims = []
    for pod in going:
        unit = unit_of(pod)
        on_node = pod.node == node or (unit is not None and unit.number in there)
        if pod.uid not in removable or not (on_node if node else pod.node in snapshot.rows):
            message = f"pod {_name(pod)} may not be evicted for {_preemptor(commit)} now"
            return Void(reason="victim-spared", message=message)
        one = removable[pod.uid]
        facts, closes = facts_for_evictors(pod, versions.get(pod.uid, "")), offer.closing.get(pod.uid)
        found = as_victim(pod, one.rule, pdb_violating=one.pdb_violating, unit=one.unit)
        victims.append(replace(found, facts=facts, closes=closes))
    if offer.at + LASTS < around.now and (newly := _newly_violating(snapshot, commit, offer, around, going)):
        message = f"a budget that the plan left whole has no room for pod {newly} any more"
        return Void(reason="budget-spent", message=message)
    for unit in {unit.number: unit for pod in going if (unit := unit_of(pod))}.values():
        for other in unit.members():
            # What has come since the plan evictors decide over.
            if other.uid not in uids and not came_lately(other.facts.bound_at, around.now):
                message = f"pod {_name(other)} belongs to {unit.key}, which is evicted whole or not at all"
                return Void(reason="unit-incomplete", message=message)
    return tuple(victims)


def _newly_violating(
    snapshot: Snapshot, commit: CommitRequest, offer: Offer, around: Circumstances, going: Iterable[PodRecord]
) -> str:
    """Return the UID of a victim that violates a budget which the plan left whole; empty for none.

    Those that were said to violate none are counted by themselves: with the others, which ones are beyond a
    budget depends on the order, and a plan counts node by node, and a unit at once.
    """
    kept = offer.keeping_budgets(commit.node, (one.uid for one in going))
    charges = [{number: 1} if (number := snapshot.budget_set(uid)) else {} for uid in kept]
    taken = debits(snapshot, (*around.in_flight, *around.leaving))
    violations = snapshot.budgets.violations(charges, taken)
    return next((uid for uid, many in zip(kept, violations, strict=True) if many), "")


def _nominations(commit: CommitRequest, snapshot: Snapshot, around: Circumstances) -> tuple[Placement, ...]:
    """Return which pods are nominated where, of those that are known; none where no queue takes back.

    Of the group itself, whose last order may have placed more members, none. O(nominated pods).
    """
    group = None if commit.group is None else (commit.group.namespace, commit.group.name)
    tree = snapshot.queues.tree
    if tree is None or not tree.reclaim:
        return ()
    named = ((snapshot.pods.get(uid), node) for uid, node in around.nominated.items())
    return tuple(
        as_placement(pod, node)
        for pod, node in named
        if pod is not None and (pod.namespace, pod.group) != group
    )


def facts_for_evictors(pod: PodRecord, version: str) -> VictimFacts | None:
    """Return what an evictor may judge a victim by; None where it has to read more than the pod for that."""
    facts = pod.facts
    if not version or pod.group or facts.daemonset_uid or facts.mirror:
        return None
    return VictimFacts(
        resource_version=version,
        priority_class=facts.priority_class,
        scheduled_at=None if facts.scheduled_micros == NOT_SCHEDULED else moment_of(facts.scheduled_micros),
        never_evict=facts.never_evict,
    )


def _to_clear(
    snapshot: Snapshot, preemptor: PodRecord, commit: CommitRequest, around: Circumstances
) -> tuple[NominationToClear, ...]:
    """Return the pods of lower priority that are nominated to the nodes.

    Pods that are being bound are nominated too; of those that the bridge stops this is for it to clear.
    """
    nodes = {place.node for place in commit.placements}
    nominated = ((uid, node) for uid, node in sorted(around.nominated.items()) if node in nodes)
    pods = ((snapshot.pods.get(uid), node) for uid, node in nominated if uid not in commit.in_memory)
    lower = [(one, node) for one, node in pods if one is not None and one.priority < preemptor.priority]
    return tuple(
        NominationToClear(
            namespace=one.namespace, name=one.name, uid=one.uid, node=node if commit.group is not None else ""
        )
        for one, node in lower[:MOST_NOMINATIONS]
    )


def _unseen(commit: CommitRequest, snapshot: Snapshot, around: Circumstances) -> str:
    """Return what has to show before an order is judged for good; empty for nothing."""
    if around.busy:
        return f"the end of order {around.busy} for the same pod or group"
    for place in commit.placements:
        name = f"pod {place.namespace}/{place.name}"
        if place.uid not in snapshot.pods:
            return f"{name} to be seen"
        if around.nominated.get(place.uid) != place.node:
            return f"the nomination of {name} to node {place.node}"
    return ""


def _unstored(awaited: Iterable[Awaited], around: Circumstances) -> str:
    """Return that an order which is counted on is not stored yet; empty where all are."""
    unstored = next((one.order_id for one in awaited if one.order_id in around.unstored), "")
    return f"order {unstored}, which it counts on, in the stream" if unstored else ""


def _preemptor(commit: CommitRequest) -> str:
    about = commit.preemptor
    return f"{'' if commit.group is None else 'group '}{about.namespace}/{about.name}"


def _name(pod: PodRecord) -> str:
    return f"{pod.namespace}/{pod.name}"
