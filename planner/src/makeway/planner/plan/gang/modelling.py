"""From the cluster and a question to a model, some nodes at a time.

What members ask besides resources becomes a rule here: layers of single pods' constraints, and the maxima of
their queues.

Which room a group has in its queues: as for single pods (`constraints.queues`), but for all members and all
victims of a plan together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import compress, islice
from typing import Final

import numpy as np

from makeway.bus.messages import ClosingRule
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.queues.queue_exempt import is_queue_exempt
from makeway.core.queues.tree import Queue
from makeway.planner.plan.batch import overlay
from makeway.planner.plan.constraints.budgets import debits_before
from makeway.planner.plan.constraints.counting import layers_of_each
from makeway.planner.plan.constraints.layers import ANTI_AFFINITY, OTHERS_ANTI_AFFINITY, Layer, Layers
from makeway.planner.plan.constraints.queues import margins_of, numbers_of
from makeway.planner.plan.constraints.tally import Tallies, Weights
from makeway.planner.plan.gang.model import AffinityRule, Model, NodePods, RoomRule, SpreadRule
from makeway.planner.plan.gang.parts import Part, joined, part_of
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.groups import PlanGroups
from makeway.planner.plan.lost_work import largest_of, lost_work_of
from makeway.planner.plan.who_preempts import who_preempts
from makeway.planner.snapshot.columns import MOST, Flags, Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

NODES_A_CHUNK: Final = 512
"""Nodes that are looked at between two pauses."""

_CLOSING: Final[dict[str, ClosingRule]] = {
    ANTI_AFFINITY: "podAntiAffinity",
    OTHERS_ANTI_AFFINITY: "existingPodAntiAffinity",
}

MOST_VICTIMS: Final = 3000
"""Pods that can be victims of one group: an order with so many is near the 1 MiB that NATS carries."""


_Uses = tuple[Ints, Ints]
"""What the pods on the nodes count, int64[D, N], and what members do, int64[C]."""


def modelling(
    snapshot: Snapshot,
    gang: GangQuestion,
    needs: Sequence[Mapping[str, int]],
    rows_of: Sequence[Ints],
    *,
    now: datetime,
    tallies: Tallies,
) -> Generator[None, None, Model]:
    """Look at the cluster once for a question. O(slots · nodes · (asked resources + rules)).

    `needs`: of each class, what it asks of what has a column; `rows_of`: the nodes that it can use.
    Where lost work counts it does by the measure of a member that asks for as much as the largest do. Pauses
    now and then; what changes there is not seen, or in part: a plan is to be looked at again.

    Raises:
        AllowanceUsedUp: the tallies' allowance did not suffice; only before the first pause.
        KeyError: the snapshot does not know a class's pod.
    """
    questions, policy, now_micros = gang.each, snapshot.exemptions.policy, microseconds(now)
    objective, first = policy.groups.objective, questions[0]
    ranked = "lostWork" in objective
    lost_work = lost_work_of(policy.lost_work, largest_of(needs), now_micros) if ranked else None
    rows = np.unique(np.concatenate(rows_of)) if rows_of else np.zeros(0, np.int64)
    over = overlay(snapshot, first)
    layers = layers_of_each(snapshot, [one.constraints for one in questions], over.placed, tallies)
    weights = [one for of_class in layers for one in of_class.weights]
    members = [one.preemptor for one in questions]
    takes = [np.array([one.total(snapshot, (pod,)) for pod in members], np.int64) for one in weights]
    rows = _with_closed(snapshot, rows, layers)
    taken = debits_before(snapshot, (*first.in_flight, *first.leaving), first.allowed_before)
    namespace, _, name = gang.name.partition("/")
    group = GroupKey(namespace, name)
    preempting = who_preempts(
        snapshot, first, now_micros, members=members, counts=[one.count for one in gang.classes], group=group
    )
    planning = PlanGroups(snapshot, first, preempting, taken, lost_work=lost_work)
    columns = snapshot.columns
    vectors = np.array([columns.amounts(one) for one in needs], np.int64)
    asked = np.flatnonzero((vectors > 0).any(axis=0))
    devices = snapshot.served_by_devices({name for one in needs for name in one})
    served = np.isin(asked, [columns.resources[name] for name in devices])
    maxima = maxima_of(snapshot, gang, [pod for _, pod in over.placed])
    margins = margins_of(snapshot, first, members=members, of_group=True)
    queues = numbers_of(snapshot, tallies) if maxima or margins else None
    labelled = numbers_of(snapshot, tallies, labelled=True) if preempting.reclaim else None
    counted = tuple(dict.fromkeys(one.resource for one in maxima))
    # What is in flight stands for this moment alone.
    touched = np.isin(rows, list(over.in_flight_pods))
    parts = []
    for chunk in _chunks(rows, touched):
        batch = over.batch(chunk)
        parts.append(
            part_of(
                batch,
                planning=planning,
                asked=asked,
                served=served,
                counted=counted,
                queues=queues,
                labelled=labelled,
                weights=weights,
            )
        )
        yield
    whole = yield from joined(parts)
    if whole.rows.size > NODES_A_CHUNK:
        yield
    allowed = np.zeros((len(questions), whole.rows.size), np.bool_)
    for number, usable in enumerate(rows_of):
        allowed[number] = np.isin(whole.rows, usable)
    rules = []
    uses = zip(whole.weighed, takes, strict=True)
    for number, one in enumerate(layers):
        found = _rules(number, one, whole, list(islice(uses, len(one.weights))))
        allowed[number] &= ~found[3]
        rules.append(found)
        if len(layers) > 1:
            yield
    return Model(
        **{one.name: getattr(whole, one.name) for one in fields(NodePods)},
        rank=np.argsort(np.argsort(snapshot.name_rank()[whole.rows])),
        need=vectors[:, asked],
        allowed=allowed,
        counts=tuple(one.count for one in gang.classes),
        must=gang.must_place,
        debits=taken,
        rooms=(
            *(rule for found in rules for rule in found[0]),
            *_queue_rules(maxima, gang, whole),
        ),
        spreads=tuple(rule for found in rules for rule in found[1]),
        affinities=tuple(rule for found in rules for rule in found[2]),
        margins=margins,
        most_victims=min(policy.limits.victims_per_order, MOST_VICTIMS),
        asked=asked,
        left_out=tuple(dict.fromkeys(name for one in layers for name in one.left_out)),
        objective=objective,
        preempting=preempting,
        depth=whole.removable.shape[0],
    )


def _with_closed(snapshot: Snapshot, rows: Ints, layers: Sequence[Layers]) -> Ints:
    """Return rows with all those of domains that pods keep closed by anti-affinity. O(layers · nodes).

    These pods are removable for the group, or leave by themselves.
    """
    found = [rows]
    for layer in (layer for one in layers for layer in one.layers):
        if layer.domains is not None and layer.topology_key and layer.spread is None:
            closed = np.unique(layer.domains[rows[layer.room[rows] < 0]])
            found.append(np.flatnonzero(np.isin(layer.domains, closed[closed >= 0])))
    together = np.unique(np.concatenate(found))
    there = [snapshot.names[row] in snapshot.nodes for row in together.tolist()] if len(found) > 1 else None
    return together if there is None else together[np.array(there, np.bool_)]


def _chunks(rows: Ints, touched: Flags) -> Iterator[Ints]:
    """Yield rows in pieces, those that the request touches first and together."""
    yield rows[touched]
    others = rows[~touched]
    for first in range(0, others.size, NODES_A_CHUNK):
        yield others[first : first + NODES_A_CHUNK]


def _rules(
    cls: int, layers: Layers, part: Part, uses: Sequence[_Uses]
) -> tuple[list[RoomRule], list[SpreadRule], list[AffinityRule], Flags]:
    """Return what a class asks besides resources, and bool[N], the nodes that it rules out whoever goes.

    `uses`: of each of the layers' weights.
    """
    rooms: list[RoomRule] = []
    spreads: list[SpreadRule] = []
    affinities: list[AffinityRule] = []
    barred = np.zeros(part.rows.size, np.bool_)
    for layer, (use, take) in zip(layers.layers, uses, strict=False):
        room = layer.room[part.rows]
        barred |= room <= -MOST
        domains = np.arange(part.rows.size) if layer.domains is None else layer.domains[part.rows]
        domains = np.where(np.abs(room) >= MOST, -1, domains) if layer.spread is None else domains
        if layer.spread is not None:
            totals = layer.spread.totals.copy()
            _in_flight(layer.use, part, domains, totals)
            counts = layer.spread
            leaving = _leaving(layer.use, part, domains)
            spreads.append(
                SpreadRule(cls, domains, totals, counts.exists, counts.slack, counts.few, use, take, leaving)
            )
            continue
        rooms.append(_room_rule(cls, layer, part, domains, use=use, take=take))
    affinity = layers.required_affinity
    if affinity is not None:
        domains = affinity.domains[:, part.rows]
        totals_of = []
        for term, there in enumerate(affinity.there):
            whole = affinity.domains[term]
            totals = np.zeros(max(1, int(whole.max(initial=-1)) + 1), np.int64)
            labelled = whole >= 0
            totals[whole[labelled]] = there[labelled]
            _in_flight(affinity.use, part, domains[term], totals)
            totals_of.append(totals)
        use, take = uses[-1]
        may_come = affinity.may_come[part.rows]
        affinities.append(AffinityRule(cls, domains, tuple(totals_of), may_come, use, take))
    return rooms, spreads, affinities, barred


def _room_rule(cls: int, layer: Layer, part: Part, domains: Ints, *, use: Ints, take: Ints) -> RoomRule:
    room = layer.room[part.rows]
    inside = domains >= 0
    of_domain = np.full(max(1, int(domains.max(initial=-1)) + 1), MOST, np.int64)
    of_domain[domains[inside]] = room[inside]
    leaving = _leaving(layer.use, part, domains)
    for _, domain, taken in leaving:
        of_domain[domain] += taken
    alone = bool(np.unique(domains[inside]).size == int(inside.sum()))
    most = np.zeros_like(of_domain)
    for place, pods in part.nominated.items():
        if domains[place] >= 0:
            most[domains[place]] -= sum(_use_of(layer.use, part, pod) for pod in pods)
    of_domain += most
    key = layer.topology_key
    closing = _CLOSING.get(layer.reason.removesuffix(f" by {key}")) if key else None
    return RoomRule(cls, layer.reason, domains, of_domain, most, use, take, 0, alone, closing, key, leaving)


def _leaving(use: Weights, part: Part, domains: Ints) -> list[tuple[PodRecord, int, int]]:
    """Return the awaited pods that a rule counts, with domain and what they take. O(pods in flight)."""
    return [
        (pod, int(domains[place]), taken)
        for place, pods in part.awaited.items()
        for pod in pods
        if domains[place] >= 0 and (taken := _use_of(use, part, pod))
    ]


def _in_flight(use: Weights, part: Part, domains: Ints, totals: Ints) -> None:
    """Count the awaited as gone and the nominated as there, in totals by domain. O(pods in flight)."""
    for sign, pods_of in ((-1, part.awaited), (1, part.nominated)):
        for place, pods in pods_of.items():
            if domains[place] >= 0:
                totals[domains[place]] += sign * sum(_use_of(use, part, pod) for pod in pods)


def _use_of(use: Weights, part: Part, pod: PodRecord) -> int:
    """Return what a pod in flight uses; nothing where it left meanwhile, or its signature came."""
    try:
        return int(use.as_known(np.array(part.snapshot.signature(pod.uid))))
    except KeyError:
        return 0


def _queue_rules(maxima: Sequence[GangMaximum], gang: GangQuestion, part: Part) -> Iterator[RoomRule]:
    """Yield, for each class, the maxima of its queues as rules over all nodes."""
    everywhere = np.zeros(part.rows.size, np.int64)
    for maximum in maxima:
        use = np.zeros(part.queue.shape, np.int64)
        if maximum.resource in part.requests:
            inside = (part.queue >= maximum.queue.number) & (part.queue < maximum.queue.below)
            use = np.where(inside, part.requests[maximum.resource], 0)
        take = np.array([one.question.preemptor.requests.get(maximum.resource, 0) for one in gang.classes])
        for cls, inside_queue in enumerate(maximum.classes):
            if inside_queue:
                room = np.array([maximum.room], np.int64)
                taken = np.where(maximum.classes, take, 0)
                most = np.array([maximum.most], np.int64)
                reason = _at_max(maximum.queue, maximum.resource)
                leaving = [(pod, 0, pod.requests.get(maximum.resource, 0)) for pod in maximum.leaving]
                rule = RoomRule(cls, reason, everywhere, room, most, use, taken, int(take[cls]), alone=False)
                yield replace(rule, leaving=leaving)


@dataclass(frozen=True, slots=True)
class GangMaximum:
    """What is left of a queue's maximum; `most`: what would be, were none of the pods there that hold it.

    `classes`: for each class of members, it is in the queue. `leaving`: its pods that leave anyway, which
    `room` does not count.
    """

    queue: Queue
    resource: str
    room: int
    most: int
    classes: tuple[bool, ...]
    leaving: tuple[PodRecord, ...]


def maxima_of(
    snapshot: Snapshot, gang: GangQuestion, assumed: Sequence[PodRecord]
) -> tuple[GangMaximum, ...]:
    """Return the maxima that the group could go over now. O(maxima of its queues · pods in flight).

    Nominated pods count as there, whatever their priority: the queue gate keeps the places of those that live
    orders make room for, and looks at the members of a group one by one.
    """
    queues = snapshot.queues
    if queues.held is None:
        return ()
    first = gang.classes[0].question
    nominated = [snapshot.pods.get(one.uid) for one in gang.classes[0].question.nominations]
    coming_pods = {one.uid: one for one in (*assumed, *nominated) if one is not None and not one.node}
    ordered = (snapshot.pods.get(uid) for uid in first.in_flight)
    awaited = [pod for pod in ordered if pod is not None and pod.node and not pod.terminating]
    awaited += first.terminating.pods()
    numbers = [queues.number_of(one) for one in awaited]
    found = []
    for queue, name, most, classes in _own_maxima(snapshot, gang):
        coming = _held(snapshot, coming_pods.values(), queue, name)
        left = most - queues.held.of(queue.number).get(name, 0) - coming
        asked = sum(
            one.count * one.question.preemptor.requests.get(name, 0)
            for one, inside in zip(gang.classes, classes, strict=True)
            if inside
        )
        if asked and left < asked:
            within = (queue.number <= number < queue.below for number in numbers)
            leaving = tuple(compress(awaited, within))
            room = left + sum(one.requests.get(name, 0) for one in leaving)
            found.append(GangMaximum(queue, name, max(room, -MOST), most - coming, classes, leaving))
    return tuple(found)


def most_by_queues(snapshot: Snapshot, gang: GangQuestion) -> tuple[int, str]:
    """Return for how many members there is room at the most in queues without other pods, and why no more.

    O(maxima of their queues · members): whatever runs, no group comes to more beside its members that stay.
    """
    gone = gang.classes[0].question.in_flight.keys()
    known = (snapshot.pods.get(one.uid) for one in gang.placed if one.uid not in gone)
    placed = [pod for pod in known if pod is not None and not pod.terminating]
    counts, found = [one.count for one in gang.classes], [(gang.total, "")]
    for queue, name, most, classes in _own_maxima(snapshot, gang):
        asked = [one.question.preemptor.requests.get(name, 0) for one in gang.classes]
        least = np.cumsum(np.sort(np.repeat(np.where(classes, asked, 0), counts)))
        room = most - _held(snapshot, placed, queue, name)
        found.append((int(((least <= room) | (least == 0)).sum()), _at_max(queue, name)))
    return min(found, key=lambda one: one[0])


def _own_maxima(snapshot: Snapshot, gang: GangQuestion) -> Iterator[tuple[Queue, str, int, tuple[bool, ...]]]:
    """Yield what bounds members: a queue, a resource, its maximum, and whether each class is in the queue."""
    queues = snapshot.queues
    if queues.tree is None:
        return
    pods = [one.question.preemptor for one in gang.classes]
    exempt = snapshot.exemptions.queue_exempt_namespaces
    own = [
        None if is_queue_exempt(pod.namespace, pod.priority, exempt) else queues.queue_of(pod) for pod in pods
    ]
    lines = {line.number: line for mine in own if mine is not None for line in queues.tree.line(mine.number)}
    for queue in lines.values():
        classes = tuple(mine is not None and queue.number <= mine.number < queue.below for mine in own)
        for name, most in sorted(queue.maximum.items()):
            yield queue, name, most, classes


def _held(snapshot: Snapshot, pods: Iterable[PodRecord], queue: Queue, resource: str) -> int:
    """Return what some pods request of a resource within a queue."""
    number = snapshot.queues.number_of
    return sum(pod.requests.get(resource, 0) for pod in pods if queue.number <= number(pod) < queue.below)


def _at_max(queue: Queue, resource: str) -> str:
    return f"queue {queue.path} at max: {resource}"
