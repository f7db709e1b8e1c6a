"""Why nothing helps, said with numbers, and what it depends on besides pods and nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from makeway.core.k8s.importance import moment_of
from makeway.core.k8s.resources import CPU, PODS
from makeway.core.k8s.times import api_time
from makeway.core.policy.exemption import DELETE_REFUSED, MIRROR_POD, PREEMPTION_RULE, PREEMPTION_TOLERATION
from makeway.core.policy.preemption import asks_for_namespaces, asks_for_queues
from makeway.core.queues.amounts import text_of
from makeway.core.queues.reclaim import beyond_guarantees
from makeway.core.queues.tree import Queue
from makeway.core.text import counted
from makeway.planner.plan.candidates import EvaluatedBatch
from makeway.planner.plan.constraints.layers import NO_AFFINITY
from makeway.planner.plan.constraints.queues import (
    QUEUE_GUARANTEED,
    QueueConstraints,
    QueueMaximum,
)
from makeway.planner.plan.evaluate import PlanInputs
from makeway.planner.plan.naming import full_name, named_for
from makeway.planner.plan.refusal.domains import domain_texts, kept_by_domain
from makeway.planner.plan.refusal.exempt import HARD_BUDGET, exempt_text
from makeway.planner.plan.refusal.statistics import (
    ALL_EXEMPT,
    NO_LOWER,
    OVER_BUDGET,
    OVER_LIMIT,
    RefusalStats,
    resource_names,
)
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import NearestNode, PlanCandidate, PlanRefusal, Scope
from makeway.planner.plan.terminating import overdue_text
from makeway.planner.plan.who_preempts import WhoPreempts
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.pod_groups import POD_GROUP
from makeway.planner.snapshot.state import Snapshot

NEVER = "PreemptionPolicyNever"
NO_NODES = "NoPotentialNodes"
NOT_OFFERED = "ResourceNotOffered"
NOTHING_REMOVABLE = "NoLowerPriorityPods"
PODS_EXEMPT = "PodsSpared"
NO_ROOM = "NotEnoughRoom"
FORBIDDEN = "ForbiddenByPolicy"
NOT_FOUND = "PlacesNotFound"
QUEUE_ROOM = "QueueRoomOnItsWay"

UNKNOWN_NODE = "Not known to the planner"
NEAREST = 3
"""Nodes that a refusal names."""
MARGIN = timedelta(milliseconds=1)
"""A toleration holds up to and including its last moment."""
REFUSED_AGAIN = timedelta(minutes=1)
"""When a refusal that pods stay for whose deletion was refused is to be made again."""
GROUP_AGAIN = timedelta(seconds=15)
"""The same where pods stay because of their groups."""
NAMESPACE_AGAIN = timedelta(minutes=1)
"""The same where a rule keeps them that asks for labels of namespaces."""
GUARANTEE_AGAIN = timedelta(minutes=1)
"""The same where a guarantee keeps them, or the preemptor's queue may take back what its own guarantees."""
_WAITS = {DELETE_REFUSED: REFUSED_AGAIN, POD_GROUP: GROUP_AGAIN, QUEUE_GUARANTEED: GUARANTEE_AGAIN}
_MEBI = 2**20

_MOST_OBJECTS = 60
"""Objects that a refusal may name; the plugin remembers 64 for each pod that waits."""

_BUDGETS = 30


def never(scope: Scope, question: Question) -> PlanRefusal:
    """Refuse a pod whose preemptionPolicy is Never."""
    return PlanRefusal(scope, NEVER, f"{subject(question)} has preemptionPolicy Never")


def no_nodes(
    scope: Scope, question: Question, unknown: int, excluded: Mapping[str, int] | None = None
) -> PlanRefusal:
    """Refuse where preemption would not help on any node. `excluded`: nodes it cannot use, by reason."""
    reasons = {UNKNOWN_NODE: unknown} if unknown else {}
    told = f"; {unknown} named nodes are not known to the planner" if unknown else ""
    reasons |= excluded or {}
    told += _told(excluded or {})
    message = f"{subject(question)}: preemption would not help on any of {scope.nodes_total} nodes{told}"
    return PlanRefusal(scope, NO_NODES, message, reasons)


def not_offered(scope: Scope, question: Question, resource: str) -> PlanRefusal:
    """Refuse a resource that no node offers."""
    wanted = amount_of(resource, question.needs[resource])
    message = f"{subject(question)} asks for {resource} {wanted}, which no node offers"
    return PlanRefusal(scope, NOT_OFFERED, message, {f"Insufficient {resource}": scope.nodes_potential})


def awaits_queue_room(
    scope: Scope, question: Question, snapshot: Snapshot, queues: QueueConstraints
) -> PlanRefusal:
    """Refuse while terminating pods, on whichever nodes, make the room that the preemptor's queue lacks.

    The queue gate lets the preemptor be tried again as they leave. There is no sample: it would pass with
    running pods of the queue gone.
    """
    coming = queues.on_its_way
    assert coming is not None  # noqa: S101 - the caller has looked
    named = named_for(
        question.preemptor.namespace, coming.pods, lambda pod: f"{full_name(pod)} on {pod.node}"
    )
    limits = "; ".join(limit.reason for limit in queues.maxima)
    message = (
        f"{subject(question)} waits: {limits}; terminating pods make the room, and are awaited until "
        f"{api_time(coming.until)}: {named}; no running pod is evicted for it"
    )
    found = dependencies(snapshot, question, (), limited=True, exempt={}, maxima=queues.maxima)
    reasons = {limit.reason: scope.nodes_potential for limit in queues.maxima}
    return PlanRefusal(scope, QUEUE_ROOM, message, reasons, retry_at=coming.until, depends_on=found)


def refusal(
    scope: Scope,
    inputs: PlanInputs,
    stats: RefusalStats,
    rows: Ints,
    *,
    near: Sequence[tuple[NearestNode, str]],
    excluded: Mapping[str, int],
    unknown: int,
    sample: PlanCandidate | None = None,
) -> PlanRefusal:
    """Refuse where removing every removable pod makes no room, with the statistics of the potential rows.

    `near`: the nodes that lack least; `excluded`: nodes that it cannot use at all, by reason; `unknown`: how
    many nodes the planner does not know; `sample`: one that the columns rule out.
    """
    snapshot, question, queues, now = inputs.snapshot, inputs.question, inputs.queues, inputs.now
    reasons, counts = stats.reasons(rows), stats.exempt(rows)
    if unknown:
        reasons[UNKNOWN_NODE] = unknown
    reasons.update(excluded)
    asked = ", ".join(
        f"{name} {amount_of(name, amount)}" for name, amount in sorted(question.needs.items()) if name != PODS
    )
    by_domain = int(stats.by_domain(rows).sum())
    lower, kept = (stats.but_by_domain(one, rows) for one in (NO_LOWER, ALL_EXEMPT))
    reason, why = _why(scope, reasons, lower=lower, kept=kept, by_domain=by_domain)
    priority = question.preemptor.priority
    message = f"{subject(question)} asks for {asked or 'a place'} at priority {priority}: {why}"
    message += _told(excluded)
    if queues.maxima:
        message += "; " + "; ".join(limit.reason for limit in queues.maxima)
    if counts:
        end = stats.first_end(rows)
        message += f"; {exempt_text(counts, '' if end is None else api_time(moment_of(end)))}"
    if lacking := [text for _, text in near if text]:
        message += "; nearest: " + "; ".join(lacking)
    message += guarantees_text(inputs.rules)
    nodes = {snapshot.names[row] for row in rows.tolist()}
    if late := overdue_text(snapshot, nodes, now, question.preemptor.namespace):
        message += f"; {late}"
    helps = stats.first_help(rows)
    retry_at = None if helps is None else moment_of(helps) + MARGIN
    return PlanRefusal(
        scope,
        reason,
        message,
        dict(sorted(reasons.items())),
        retry_at=tried_again(snapshot, retry_at, counts, now, reclaims=inputs.rules.reclaim is not None),
        depends_on=dependencies(
            snapshot,
            question,
            stats.budgets(snapshot, rows) if HARD_BUDGET in counts else (),
            limited=bool(reasons[OVER_LIMIT] or reasons[OVER_BUDGET]),
            exempt=counts,
            maxima=queues.maxima,
        ),
        exempt=dict(sorted(counts.items())),
        nearest=tuple(node for node, _ in near),
        sample=sample,
    )


def tried_again(
    snapshot: Snapshot,
    retry_at: datetime | None,
    exempt: Mapping[str, int],
    now: datetime,
    *,
    reclaims: bool = False,
) -> datetime | None:
    """Return when to try again, no later than what keeps pods without an event of its own may have ended.

    The API server may be asked once more for a delete that it refused, and a group may be another one: no
    scheduler follows groups for makeway, nor labels of namespaces, nor what queues use of their guarantees.
    `reclaims`: the preemptor's queue takes back.
    """
    waits = [wait for rule, wait in _WAITS.items() if rule in exempt]
    if PREEMPTION_RULE in exempt and asks_for_namespaces(snapshot.exemptions.table):
        waits.append(NAMESPACE_AGAIN)
    if reclaims:
        waits.append(GUARANTEE_AGAIN)
    if not waits:
        return retry_at
    again = now + min(waits)
    return again if retry_at is None else min(retry_at, again)


def _why(
    scope: Scope, reasons: Mapping[str, int], *, lower: int, kept: int, by_domain: int
) -> tuple[str, str]:
    """Return the refusal's reason and its sentence.

    `lower`: nodes without pods of lower priority; `kept`: those where all of them are exempt; `by_domain`:
    those that would have room, but for pods elsewhere in their topology domain.
    """
    potential = scope.nodes_potential
    if not potential:
        return NO_NODES, f"preemption would not help on any of {scope.nodes_total} nodes"
    forbidden = reasons.get(OVER_BUDGET, 0) + reasons.get(OVER_LIMIT, 0)
    if lower == potential:
        return NOTHING_REMOVABLE, f"none of {lower} potential nodes has a pod of lower priority"
    if kept == potential:
        return PODS_EXEMPT, f"on each of {potential} potential nodes all pods of lower priority are exempt"
    if by_domain == potential:
        return (
            NO_ROOM,
            f"each of {potential} potential nodes is kept by pods elsewhere in its topology domain",
        )
    parts = [f"{lower} have no pod of lower priority"] if lower or not by_domain else []
    if by_domain:
        parts.append(f"{by_domain} are kept by pods elsewhere in their domain")
    if kept:
        parts.append(f"on {kept} all of them are exempt")
    if forbidden:
        parts.append(f"on {forbidden} the victims would be against the policy")
    full = potential - lower - kept - forbidden - by_domain
    if full:
        parts.append(f"{full} have too little room even without {'them' if lower or kept else 'such pods'}")
    why = ", ".join(parts[:-1]) + f", and {parts[-1]}" if len(parts) > 1 else parts[0]
    why = f"of {potential} potential nodes {why}"
    if forbidden:
        return FORBIDDEN, why
    return (NO_ROOM if full or by_domain else PODS_EXEMPT), why


def _told(excluded: Mapping[str, int]) -> str:
    """Return how many nodes the pod cannot use at all, and why; nothing where there are none."""
    if not excluded:
        return ""
    parts = [f"{counted(number, 'node')} ({reason.lower()})" for reason, number in sorted(excluded.items())]
    return f"; it cannot use {', '.join(parts)}"


def amount_of(resource: str, amount: int) -> str:
    """Write an amount for people: cores or milli-cores, MiB where whole, else plain units."""
    if resource == CPU:
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if amount >= _MEBI and amount % _MEBI == 0:
        return f"{amount // _MEBI}Mi"
    return str(amount)


def subject(question: Question) -> str:
    """Name the pod of a question."""
    return f"pod {question.preemptor.namespace}/{question.preemptor.name}"


def near_node(evaluated: EvaluatedBatch, place: int) -> tuple[NearestNode, str]:
    """Write down what a node lacks without its removable pods; in words, too, where it has such pods.

    A queue's limit is lacking on no node; the refusal names it once.
    """
    batch, found = evaluated.batch, evaluated.found
    names = resource_names(batch, found)
    missing = {
        name: int(short) for name, short in zip(names, found.short[:, place], strict=False) if short > 0
    }
    lacking = [f"{name} {amount_of(name, amount)}" for name, amount in missing.items()]
    against = found.short[found.asked.size :, place] > 0
    at_maximum = {limit.reason for limit in evaluated.inputs.queues.maxima}
    told = zip(found.constraints, against, strict=True)
    lacking += [name for name, short in told if short and name not in at_maximum]
    if not lacking and found.breaks_affinity[place]:
        lacking = [NO_AFFINITY]
    node = evaluated.inputs.snapshot.names[int(batch.rows[place])]
    lower = int(found.removable[:, place].sum())
    text = f"{node} lacks {', '.join(lacking)} without its {lower} lower" if lacking and lower else ""
    if kept_by_domain(evaluated)[place]:
        text = f"{node} would have room, but {', '.join(domain_texts(evaluated, place))}"
    return NearestNode(node, missing, evaluated.exempt(place)), text


def dependencies(
    snapshot: Snapshot,
    question: Question,
    budgets: Iterable[Key],
    *,
    limited: bool,
    exempt: Mapping[str, int],
    maxima: Collection[QueueMaximum],
) -> tuple[tuple[str, str, str], ...]:
    """Return the objects whose change may help, as (kind, namespace, name), at most _MOST_OBJECTS.

    `budgets`: hard ones that keep pods; `limited`: a bound forbids victims. The policy where it keeps pods
    or forbids victims; the configuration of queues where they do, a rule asks for queues, or queues take
    back their guarantees; the queues that are at their maximum; the budgets that forbid victims, where they
    are hard; the PriorityClasses by which pods are exempt from this preemptor; the pods that the API server
    refused to delete. O(classes in use).
    """
    found: list[tuple[str, str, str]] = []
    source = snapshot.exemptions.source
    others = {PREEMPTION_TOLERATION, MIRROR_POD, QUEUE_GUARANTEED, DELETE_REFUSED}
    if source is not None and (limited or exempt.keys() - others):
        found.append(source)
    by_queue = PREEMPTION_RULE in exempt and asks_for_queues(snapshot.exemptions.table)
    queues, tree = snapshot.queues.source, snapshot.queues.tree
    reclaim = tree is not None and tree.reclaim
    if queues is not None and (maxima or QUEUE_GUARANTEED in exempt or by_queue or reclaim):
        found.append(queues)
    found += [("Queue", "", path) for path in dict.fromkeys(limit.queue.path for limit in maxima)]
    if HARD_BUDGET in exempt:
        keys = sorted(budgets)[:_BUDGETS]
        found += [("PodDisruptionBudget", namespace, name) for namespace, name in keys]
    if PREEMPTION_TOLERATION in exempt:
        found += snapshot.exemptions.exempting_classes(question.preemptor.priority)
    if DELETE_REFUSED in exempt:
        found += refused_pods(snapshot, question)
    return tuple(found[:_MOST_OBJECTS])


def refused_pods(snapshot: Snapshot, question: Question) -> list[tuple[str, str, str]]:
    """Return the pods whose deletion was refused and that are still there, as (kind, namespace, name)."""
    pods = (snapshot.pods[uid] for uid in sorted(question.refused) if uid in snapshot.pods)
    return [("Pod", pod.namespace, pod.name) for pod in pods]


def guarantees_text(preempting: WhoPreempts) -> str:
    """Return what the queue of a pod or a group takes back of others', or why nothing; else nothing.

    Where queues take nothing back at all only one below its guarantee is named: schedulers that reclaim evict
    pods of queues above their guarantee for it.
    """
    claim, reclaim = preempting.claim, preempting.reclaim
    if claim is None:
        return ""
    if reclaim is not None:
        queue, name = reclaim.queue, reclaim.resources[0]
        return (
            f"; {_uses(queue, name, claim.held(queue.number).get(name, 0))}, and takes back only from queues "
            "above theirs, with pods of equal priority"
        )
    beyond = beyond_guarantees(claim.tree, claim.queue.number, claim.asked, claim.held)
    if claim.tree.reclaim and (named := [_uses(*one) for one in beyond]):
        return f"; {', and '.join(named)}, too much to take anything back for it"
    for queue in claim.tree.line(claim.queue.number):
        held = claim.held(queue.number)
        for name, least in sorted(queue.guaranteed.items()):
            asked, used = claim.asked.get(name, 0), held.get(name, 0)
            if asked and used + asked <= least:
                return (
                    f"; {_uses(queue, name, used)}, which keeps its own pods and reclaims nothing from "
                    "queues above theirs: of those only pods of lower priority go"
                )
    return ""


def _uses(queue: Queue, name: str, used: int) -> str:
    least = queue.guaranteed[name]
    return f"queue {queue.path} uses {name} {text_of(name, used)} of its guaranteed {text_of(name, least)}"
