"""The evictor's judgement: may this order, and each of its victims, be carried out? Pure.

The evictor trusts no message. Everything that can be read from the API server is: the order only
says what to look at. `admit` judges an order by itself, `still_wanted` against the objects it names,
`judge` one victim. The service calls `still_wanted` and `judge` again before later deletes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias, TypeGuard

from makeway.bus.messages import LONGEST_NOT_AFTER, EvictionOrder, NominationToClear, Victim
from makeway.bus.subjects import Subjects
from makeway.core.daemonset.binding import bound_node
from makeway.core.daemonset.rule import HIGHER_PRIORITY, KEEPS_EQUALS
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.disruption import disruption_target
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import ENDED_PHASES, Node, Pod, PriorityClass
from makeway.core.k8s.pod_groups import Membership, group_of
from makeway.core.policy import external
from makeway.core.policy.document import Protection
from makeway.core.policy.facts import (
    SYSTEM_CRITICAL_PRIORITY,
    PodFacts,
    at_priority_of,
    facts_of,
    is_controlled,
    proven_facts,
)
from makeway.core.policy.preemption import UNREAD, Party
from makeway.core.policy.rules import (
    LOWER_PRIORITY,
    SYSTEM_CRITICAL,
    PreemptionPair,
    PreemptorFacts,
    Rule,
)
from makeway.core.policy.rules import judge as ask
from makeway.core.queues.quota_exemption import QuotaExemption, quota_exemption_of
from makeway.evictor.judge import gang
from makeway.evictor.judge.contest import basis_of
from makeway.evictor.judge.fences import LEASE, Fences
from makeway.evictor.judge.groups import POD_GROUP, exempt_by_group
from makeway.evictor.judge.verdicts import (
    Cancelled,
    Delete,
    Epoch,
    Exempt,
    Expired,
    Gone,
    Proceed,
    Refused,
    Stop,
    Terminating,
    VictimVerdict,
)

KnownDaemonSets: TypeAlias = Mapping[tuple[str, str], DaemonSetOwner | None]
"""DaemonSets that were read just now, by namespace and name; None where there is none of that name."""

NO_DAEMONSETS: Final[KnownDaemonSets] = {}

CHART_FENCES: Final = Fences.of()

_BY_PRIORITY: Final = frozenset({LOWER_PRIORITY, HIGHER_PRIORITY, SYSTEM_CRITICAL})
"""Rules whose answer changes where the owner of a group makes it anew at another priority."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A DNS-1123 subdomain, which covers namespaces, pods, nodes and leases."""


def expired(order: EvictionOrder, now: datetime) -> Expired | None:
    """No effect of an order begins at or after its `not_after`."""
    if now < order.not_after:
        return None
    late = (now - order.not_after).total_seconds()
    return Expired(f"taken up {late:.1f} s after notAfter {order.not_after.isoformat()}")


def misrouted(order: EvictionOrder, subject: str, subjects: Subjects) -> str:
    """The subject that an order should have come on; empty where it did.

    One live order a preemptor, or a queue, holds by the subject alone, so an order elsewhere evades it. An
    order that names neither has no subject of its own, and `admit` refuses it.
    """
    expected = subjects.order(order)
    return "" if subject == expected else expected


def admit(
    order: EvictionOrder, *, cluster_uid: str, now: datetime, fences: Fences = CHART_FENCES
) -> Stop | None:
    """Judge an order before anything is read for it; None means: read on."""
    if order.cluster_uid != cluster_uid:
        return Refused(
            "other-cluster", f"the order is for cluster {order.cluster_uid}, this is {cluster_uid}"
        )
    if order.kind == "quota" and (not order.queue or order.preemptor is not None):
        return Refused("incomplete-order", "a quota order needs a queue, and has no preemptor")
    if order.kind == "quota" and len({bool(victim.unit) for victim in order.victims}) > 1:
        return Refused(
            "incomplete-order", "a quota order names either pods of groups that are evicted whole or others"
        )
    if order.kind == "group" and (missing := gang.incomplete(order)):
        return Refused("incomplete-order", missing)
    if order.kind != "group" and any(victim.closes is not None for victim in order.victims):
        return Refused("incomplete-order", "only an order for a group has victims for closed domains")
    if order.kind == "pod" and (order.preemptor is None or not order.node or not order.node_uid):
        return Refused("incomplete-order", "an order needs preemptor, node and nodeUid")
    if (name := _bad_name(order)) is not None:
        return Refused("invalid-name", f"{name!r} is no name of a Kubernetes object")
    if twice := order.named_twice:
        return Refused("named-twice", f"an order names each pod once: {twice}")
    if unknown := fences.refusal_of(order):
        return Refused("fence-unknown", unknown)
    if (late := expired(order, now)) is not None:
        return late
    if order.not_after - now > LONGEST_NOT_AFTER:
        return Refused(
            "not-after-too-far", f"notAfter {order.not_after.isoformat()} is not a time any scheduler sets"
        )
    return None


def _bad_name(order: EvictionOrder) -> str | None:
    """The first name that could not be one, and so could lead a URL elsewhere."""
    pods = (order.room_for, *order.victims, *order.nominations_to_clear, *order.members)
    names = [part for pod in pods if pod is not None for part in (pod.namespace, pod.name)]
    if order.kind == "pod":
        names.append(order.node)
    names += [member.node for member in order.members]
    if order.kind == "group":
        names += [victim.node for victim in order.victims]
    if order.fence.kind == "lease":
        names += [order.fence.namespace, order.fence.name]
    return next((name for name in names if not _NAME.fullmatch(name)), None)


def fenced(
    order: EvictionOrder, *, stored_at: datetime, epoch: Epoch | None, now: datetime
) -> Expired | Refused | None:
    """Judge an admitted order against the clock and its fence; None means: its writer may write it.

    `stored_at` is when the stream took the order, no later than its `store_by`; `epoch` is what the fence's
    object holds now, None where that object does not exist. An order of an earlier epoch is effective where
    it was stored before the present one began: its writer led then, and its successor has adopted it. A Lease
    was read after the order came, so no writer can have had a later epoch. A counter may be behind: NATS may
    have lost it. The two times are by two clocks, of NATS and of the new leader. Where the latter is ahead,
    orders of the leader before count for so long; each still needs the nomination that it names.
    """
    if (late := expired(order, now)) is not None:
        return late
    if order.store_by is not None and stored_at > order.store_by:
        seconds = (stored_at - order.store_by).total_seconds()
        return Refused("stored-late", f"stored {seconds:.1f} s after storeBy {order.store_by.isoformat()}")
    if epoch is None:
        fence = order.fence
        return Refused("fence-missing", f"{fence.kind} {fence.namespace}/{fence.name} does not exist")
    if order.fence.kind == LEASE and order.fence.epoch > epoch.number:
        message = f"written in epoch {order.fence.epoch}, the epoch is only {epoch.number}"
        return Refused("future-epoch", message)
    if order.fence.epoch < epoch.number and (epoch.since is None or stored_at >= epoch.since):
        return Refused("stale-epoch", f"written in epoch {order.fence.epoch}, the epoch is {epoch.number}")
    return None


def still_wanted(
    order: EvictionOrder,
    *,
    stored_at: datetime,
    epoch: Epoch | None,
    preemptor: Pod | None,
    node: Node | None,
    now: datetime,
    daemonsets: KnownDaemonSets = NO_DAEMONSETS,
    priority_class: PriorityClass | None = None,
) -> Proceed | Stop:
    """Judge an admitted order against its fence, its preemptor and its node as the API has them.

    `stored_at` and `epoch`: as for `fenced`. `daemonsets`: with the one that the preemptor claims; unless it
    proves that, the preemptor is a pod like any other. `priority_class`: the preemptor's, asked for where a
    nominator wrote the order, for which a class has to be opted in.
    """
    if (stop := fenced(order, stored_at=stored_at, epoch=epoch, now=now)) is not None:
        return stop
    if order.preemptor is None or preemptor is None or preemptor.metadata.uid != order.preemptor.uid:
        return Cancelled("preemptor-gone", "the preemptor does not exist any more")
    if preemptor.metadata.deletion_timestamp is not None:
        return Cancelled("preemptor-terminating", "the preemptor is being deleted")
    if preemptor.spec.node_name:
        return Cancelled("preemptor-bound", f"the preemptor is bound to {preemptor.spec.node_name}")
    if preemptor.status.phase in ENDED_PHASES:
        return Cancelled("preemptor-ended", f"the preemptor's phase is {preemptor.status.phase}")
    if (refused := _may_preempt(order, preemptor, priority_class)) is not None:
        return refused
    nominated = preemptor.status.nominated_node_name or ""
    if nominated != order.node:
        to = f"nominated to {nominated}" if nominated else "not nominated"
        return Cancelled("nomination-moved", f"the preemptor is {to}, the order is for {order.node}")
    if node is None or node.metadata.uid != order.node_uid:
        return Cancelled("node-gone", f"node {order.node} ({order.node_uid}) does not exist any more")
    if node.metadata.deletion_timestamp is not None:
        return Cancelled("node-gone", f"node {order.node} is being deleted")
    metadata = preemptor.metadata
    facts, labels = facts_of(preemptor), metadata.labels or {}
    proven = is_controlled(facts, labels, daemonsets.get((metadata.namespace, facts.daemonset_name)))
    bound_to = bound_node(preemptor) if proven else ""
    return Proceed(PreemptorFacts(facts.priority, metadata.namespace, bound_to))


def _may_preempt(
    order: EvictionOrder, preemptor: Pod, priority_class: PriorityClass | None
) -> Refused | None:
    """Return why no room is made for a pod: by its preemptionPolicy, and by who preempts for its class."""
    never = preemptor.spec.preemption_policy == external.NEVER
    if order.is_external:
        if never and external.is_external(priority_class):
            return None
        name = preemptor.spec.priority_class_name or "without a name"
        return Refused("not-opted-in", f"PriorityClass {name} is not opted in for preemption from outside")
    if never:
        return Refused("preemption-policy-never", "the preemptor's preemptionPolicy is Never")
    return None


def judge(
    order: EvictionOrder,
    victim: Victim,
    pod: Pod | None,
    *,
    preemptor: PreemptorFacts,
    rules: Sequence[Rule],
    now: datetime,
    daemonsets: KnownDaemonSets = NO_DAEMONSETS,
    group: Membership | None = None,
    party: Party = UNREAD,
    reclaimed: Callable[[Pod, PodFacts], str] | None = None,
) -> VictimVerdict:
    """Judge one victim by the pod that the API server shows under its name now.

    `rules`: those in force for this preemptor, over PriorityClasses that were read just now. `daemonsets`:
    with the one that the pod claims. `group`: what its groups, read just now, mean for it; None once a pod of
    its unit has been deleted. `party`: the pod as rules of who may preempt whom look at it. `reclaimed`: what
    the preemptor's queue takes back with a pod of its priority. A victim of a unit, and of an order for a
    group, may run on another node than the order's.
    """
    node = victim.node if victim.unit or order.kind == "group" else order.node
    if order.preemptor is not None and victim.uid == order.preemptor.uid:
        return Exempt("is-preemptor", "the order names its preemptor as a victim")
    if isinstance(there := _there(victim, pod), Gone):
        return there
    bound_to = there.spec.node_name or ""
    if victim.assumed and bound_to not in ("", node):
        return Gone("elsewhere")
    if there.metadata.deletion_timestamp is not None:
        return Terminating(there.metadata.deletion_grace_period_seconds or 0)
    if not bound_to and not victim.assumed:
        return Exempt("not-bound", "the pod is bound to no node")
    if bound_to not in ("", node):
        return Exempt("on-another-node", f"the pod runs on {bound_to}, the order is for {node}")
    facts = known_facts(there, daemonsets)
    if group is not None:
        if (kept := exempt_by_group(victim, group)) is not None:
            return kept
        facts = at_priority_of(facts, group.priority)
    equal = facts.priority == preemptor.priority
    back = reclaimed(there, facts) if equal and reclaimed is not None else ""
    allowed = ask(rules, PreemptionPair(preemptor, facts, now, party, back))
    if not allowed.removable:
        rule = allowed.rule
        if rule in _BY_PRIORITY and _goes_by_group(order, preemptor, there):
            rule = POD_GROUP
        elif rule == LOWER_PRIORITY and equal and victim.rule in KEEPS_EQUALS:
            rule = KEEPS_EQUALS[victim.rule]
        return Exempt(rule, f"{allowed.rule}: {allowed.detail}")
    return _delete(there, facts, group, party)


def judge_as_written(
    order: EvictionOrder, victim: Victim, *, preemptor: PreemptorFacts, rules: Sequence[Rule], now: datetime
) -> Delete | None:
    """Judge a victim by its order's word, for a mark, whose answer is judged anew; None: read it first."""
    told = victim.facts
    named = victim.uid == order.preemptor_uid
    if told is None or named or victim.unit or victim.assumed or victim.node != order.node:
        return None
    facts = PodFacts(
        namespace=victim.namespace,
        priority=victim.priority,
        priority_class=told.priority_class,
        scheduled_micros=microseconds(told.scheduled_at),
        never_evict=told.never_evict,
    )
    allowed = ask(rules, PreemptionPair(preemptor, facts, now))
    return Delete(True, told.resource_version, victim.grace_period_seconds) if allowed.removable else None


def _goes_by_group(order: EvictionOrder, preemptor: PreemptorFacts, pod: Pod) -> bool:
    """Report whether a group that its owner may have made anew says one of the two priorities.

    A victim's own counts as soon as its group is gone, or not served. A group that preempts has that of its
    highest ancestor, which is another object than the one that the order names.
    """
    moved = order.group is not None and order.group.priority != preemptor.priority
    return moved or bool(group_of(pod))


def known_facts(pod: Pod, daemonsets: KnownDaemonSets) -> PodFacts:
    """Return a pod's facts, without a claim to a DaemonSet that was read and does not prove it."""
    facts = facts_of(pod)
    key = (facts.namespace, facts.daemonset_name)
    if not facts.daemon or key not in daemonsets:
        return facts
    return proven_facts(facts, pod.metadata.labels or {}, daemonsets[key])


def staying(victim: Victim, pod: Pod | None) -> Pod | Gone | Terminating:
    """The victim's pod, where it stays; else why it holds no room any more or soon will not."""
    there = _there(victim, pod)
    if isinstance(there, Pod) and there.metadata.deletion_timestamp is not None:
        return Terminating(there.metadata.deletion_grace_period_seconds or 0)
    return there


def _there(victim: Victim, pod: Pod | None) -> Pod | Gone:
    """The victim's pod, where it is there and uses anything."""
    if pod is None:
        return Gone("not-found")
    if pod.metadata.uid != victim.uid:
        return Gone("other-uid")
    if pod.status.phase in ENDED_PHASES:
        return Gone("ended")
    return pod


def judge_for_quota(
    victim: Victim,
    pod: Pod | None,
    protection: Protection,
    bar: Callable[[Pod], QuotaExemption | None],
    daemonsets: KnownDaemonSets = NO_DAEMONSETS,
    *,
    group: Membership | None = None,
) -> VictimVerdict:
    """Judge one victim of a quota order; there is no preemptor to be less important than.

    `bar`: what the queues keep it by. Whether its queue is above its maximum still, and above its guarantee,
    is the planner's to say: that takes all pods of the queue.
    """
    if isinstance(stays := staying(victim, pod), Gone | Terminating):
        return stays
    if not stays.spec.node_name:
        return Exempt("not-bound", "the pod is bound to no node, and so not counted")
    if group is not None and (grouped := exempt_by_group(victim, group)) is not None:
        return grouped
    facts = at_priority_of(known_facts(stays, daemonsets), None if group is None else group.priority)
    kept = quota_exemption_of(facts, protection) or bar(stays)
    if kept is None:
        return _delete(stays, facts, group)
    regrouped = kept.rule == SYSTEM_CRITICAL and facts.by_itself < SYSTEM_CRITICAL_PRIORITY
    return Exempt(POD_GROUP if regrouped else kept.rule, kept.detail)


def _delete(pod: Pod, facts: PodFacts, group: Membership | None, party: Party = UNREAD) -> Delete:
    """The verdict on a pod that may go. A pod without a node has no grace period at the API server."""
    bound = bool(pod.spec.node_name)
    grace = pod.spec.termination_grace_period_seconds or 0 if bound else 0
    version, basis = pod.metadata.resource_version, basis_of(pod, facts, group, party)
    return Delete(disruption_target(pod) is None, version, grace, bound, basis)


def has_ended_elsewhere(stop: Stop) -> bool:
    """Report whether an order was stopped since another evictor has ended it."""
    return isinstance(stop, Cancelled) and stop.reason == "ended-elsewhere"


def first_exempt(verdicts: Mapping[str, VictimVerdict]) -> Refused | None:
    """An order with a victim that must stay cannot make its room: refuse it before anything is done."""
    for uid, verdict in verdicts.items():
        if isinstance(verdict, Exempt):
            return Refused("victim-spared", f"victim {uid}: {verdict.message}")
    return None


def is_nominated(pod: Pod | None, uid: str, node: str) -> TypeGuard[Pod]:
    """Whether this incarnation of a pod waits for that node, and its nomination can be cleared."""
    return (
        pod is not None and pod.metadata.uid == uid and _waits(pod) and pod.status.nominated_node_name == node
    )


def nomination_yields(
    order: EvictionOrder, listed: NominationToClear, pod: Pod | None, preemptor_priority: int
) -> bool:
    """Whether a listed nomination is to be cleared: that pod, unbound, still there, and less important."""
    return (
        is_nominated(pod, listed.uid, listed.node or order.node)
        and (pod.spec.priority or 0) < preemptor_priority
    )


def _waits(pod: Pod) -> bool:
    """Whether a pod is bound to no node and will be there a moment later; `patches` says why that matters."""
    return not pod.spec.node_name and (
        pod.metadata.deletion_timestamp is None or bool(pod.metadata.finalizers)
    )
