"""What queues mean for one preemptor: which pods it may evict, and from where it has to.

Two rules, as numbers over the columns:

* `queue-max`: where the preemptor's queue, or a queue above it, would be over its maximum, only pods of
  that same queue make room in it. That is one more layer: its room is what is left of the maximum, and a
  pod of the subtree uses what it requests. Pods that the queue gate never holds are exempt. Where awaited
  terminating pods, on whichever nodes, make all the room that is missing, running pods make none.
* `queue-guaranteed`: a queue that is not the preemptor's own or above it never falls below its guarantee,
  whatever is removed on a node together. Pods that would take it there are kept, the most important first.

Pods that live orders remove count as gone, and so do those of orders that ended a moment ago, which the
watch may not show. A plan where no queue is that near to a limit costs nothing more than finding that out,
O(queues with a guarantee). Where one is, preemptors are of one class as long as they meet the same limits:
of a queue that is below its guarantee, however far.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from makeway.core.queues.amounts import text_of
from makeway.core.queues.placement import place
from makeway.core.queues.queue_exempt import is_queue_exempt
from makeway.core.queues.tree import Queue, QueueTree
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.layers import Placed
from makeway.planner.plan.constraints.tally import Tallies, Weights
from makeway.planner.plan.request import Question
from makeway.planner.plan.terminating import overdue_at
from makeway.planner.snapshot.columns import MOST, Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

_PYTHON = 300
"""Steps of a tally for a signature that is placed by itself, without numpy."""

QUEUE_GUARANTEED = "queue-guaranteed"
"""The rule that keeps a pod since its queue would be below its guarantee."""


@dataclass(frozen=True, slots=True)
class QueueMaximum:
    """A maximum that the preemptor would go over by `-room`."""

    queue: Queue
    resource: str
    room: int
    reason: str

    def used_by(self, pod: PodRecord, number: int) -> int:
        """Return what a pod uses of it; `number`: of its queue."""
        inside = self.queue.number <= number < self.queue.below
        return pod.requests.get(self.resource, 0) if inside else 0


@dataclass(frozen=True, slots=True)
class QueueRoomOnItsWay:
    """The terminating pods whose leaving meets every maximum that the preemptor would go over.

    `pods`: all that use some of those maxima, the first to end first. `until`: when so many of them are
    overdue that the others no longer make the room.
    """

    pods: tuple[PodRecord, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class GuaranteeMargin:
    """A guarantee that victims could break; `spare`: what they may take together before it is."""

    queue: Queue
    resource: str
    spare: int

    def taken(self, by_queue: Mapping[int, Mapping[str, int]]) -> int:
        """Return how much of it is taken; `by_queue`: what victims hold, by their queue and by resource."""
        return sum(
            amounts.get(self.resource, 0)
            for number, amounts in by_queue.items()
            if self.queue.number <= number < self.queue.below
        )


@dataclass(frozen=True, slots=True)
class QueueConstraints:
    """What is near enough to a limit to matter; most often nothing.

    `on_its_way`: what makes the room in the maxima without a victim; running pods make none there then.
    `revision`: of the queues. `numbers`: the pods' queues plus 1; `size`: how many queues
    there are.
    """

    maxima: tuple[QueueMaximum, ...] = ()
    margins: tuple[GuaranteeMargin, ...] = ()
    revision: str = ""
    numbers: Weights | None = None
    size: int = 0
    on_its_way: QueueRoomOnItsWay | None = None

    @property
    def key(self) -> Hashable:
        """What a node's scores depend on here, besides its own pods: the same for plans of one class."""
        return (
            self.revision,
            tuple((one.queue.number, one.resource, one.room, one.reason) for one in self.maxima),
            tuple((one.queue.number, one.resource, one.spare) for one in self.margins),
            self.on_its_way is not None,
        )

    def queue_numbers(self, columns: NodeSlots) -> Ints:
        """Return int64[slots, M], the numbers of the pods' queues; -1 in empty slots."""
        if self.numbers is None:
            return np.full(columns.signature.shape, -1, np.int64)
        return self.numbers.of(columns.signature) - 1

    def kept(self, batch: NodeBatch, removable: Flags) -> Flags:
        """Return bool[slots, M]: removable pods that guarantees keep.

        On every node the least important pods are let go as long as the queue stays at or above its
        guarantee, so that all that is left as removable may go together. O(slots · nodes), and again for
        each guarantee that lets some of its pods go.
        """
        keep = np.zeros_like(removable)
        if not self.margins:
            return keep
        columns = batch.columns
        queues = self.queue_numbers(columns)
        for resource in dict.fromkeys(margin.resource for margin in self.margins):
            layer = columns.resources.get(resource)
            if layer is None:
                continue
            # What a pod may use at the most, by its queue: of all guarantees above it the strictest.
            most = np.full(self.size + 1, MOST, np.int64)
            margins = [margin for margin in self.margins if margin.resource == resource]
            for margin in margins:
                subtree = most[margin.queue.number : margin.queue.below]
                np.minimum(subtree, margin.spare, out=subtree)
            uses = np.where(removable & ~keep, columns.request(layer), 0)
            keep |= uses > most[queues]
            uses[keep] = 0
            for margin in margins:
                if margin.spare == 0:
                    continue
                inside = (uses > 0) & (queues >= margin.queue.number) & (queues < margin.queue.below)
                places = np.flatnonzero(inside.sum(axis=0) > 1)
                if places.size:
                    these = np.where(inside[:, places], uses[:, places], 0)
                    keep[:, places] |= _beyond(these, margin.spare)
                    uses[keep] = 0
        return keep

    def layers(self, snapshot: Snapshot, batch: NodeBatch) -> tuple[Ints, Ints, Ints]:
        """Return what pods use of each limit, its room, and what the awaited use: as in `BatchLayers`."""
        columns = batch.columns
        uses = np.zeros((len(self.maxima), columns.depth, batch.rows.size), np.int64)
        room = np.zeros((len(self.maxima), batch.rows.size), np.int64)
        leaving = np.zeros_like(room)
        if not self.maxima:
            return uses, room, leaving
        queues = self.queue_numbers(columns)
        for number, maximum in enumerate(self.maxima):
            layer = columns.resources.get(maximum.resource)
            if layer is not None and self.on_its_way is None:
                inside = (queues >= maximum.queue.number) & (queues < maximum.queue.below)
                uses[number] = np.where(inside, columns.request(layer), 0)
            room[number] = maximum.room
            for at, pods in batch.awaited.items():
                used = sum(maximum.used_by(pod, snapshot.queues.number_of(pod)) for pod in pods)
                leaving[number, at] = min(used, MOST)
                room[number, at] += leaving[number, at]
        return uses, room, leaving


NO_QUEUE_CONSTRAINTS = QueueConstraints()


def queue_constraints_of(
    snapshot: Snapshot, question: Question, assumed: Iterable[Placed], tallies: Tallies
) -> QueueConstraints:
    """Work out what queues mean for a preemptor. O(1) without queues, else O(queues with a guarantee).

    Raises:
        AllowanceUsedUp: the tallies' allowance did not suffice.
    """
    queues = snapshot.queues
    tree = queues.tree
    own = queues.queue_of(question.preemptor)
    if tree is None or own is None or queues.held is None:
        return NO_QUEUE_CONSTRAINTS
    pod = question.preemptor
    maxima: tuple[QueueMaximum, ...] = ()
    coming = [other for _, other in assumed]
    if not is_queue_exempt(pod.namespace, pod.priority, snapshot.exemptions.queue_exempt_namespaces):
        maxima = tuple(_maxima(snapshot, tree, own, pod, coming))
    margins = margins_of(snapshot, question)
    if not maxima and not margins:
        return NO_QUEUE_CONSTRAINTS

    on_its_way = _on_its_way(snapshot, question, maxima, coming) if maxima else None
    return QueueConstraints(
        maxima, margins, queues.revision, numbers_of(snapshot, tallies), len(tree), on_its_way
    )


def numbers_of(snapshot: Snapshot, tallies: Tallies, *, labelled: bool = False) -> Weights | None:
    """Return the numbers of the pods' queues plus 1, None where there are no queues.

    Of those that they were placed in, or, `labelled`, that their labels name now.

    Raises:
        AllowanceUsedUp: the tallies' allowance did not suffice.
    """
    queues = snapshot.queues
    tree = queues.tree
    if tree is None:
        return None

    def numbered(namespace: str, asked: str) -> int:
        return place(tree, asked, namespace).queue.number + 1

    def weigh(signatures: Ints) -> Ints:
        return snapshot.signatures.of_queues(numbered, signatures, labelled=labelled)

    return tallies.get(snapshot, ("queue", labelled, queues.revision), weigh, cost=_PYTHON).use


def _maxima(
    snapshot: Snapshot, tree: QueueTree, own: Queue, preemptor: PodRecord, assumed: list[PodRecord]
) -> Iterable[QueueMaximum]:
    """Return the maxima that the preemptor would go over, nearest queue first."""
    queues = snapshot.queues
    for queue in tree.line(own.number):
        held = queues.held.of(queue.number) if queues.held is not None else {}
        for name, most in sorted(queue.maximum.items()):
            asked = preemptor.requests.get(name, 0)
            coming = sum(
                pod.requests.get(name, 0)
                for pod in assumed
                if not pod.node and queue.number <= queues.number_of(pod) < queue.below
            )
            room = most - held.get(name, 0) - coming - asked
            if asked and room < 0:
                used = f"{text_of(name, held.get(name, 0))} of {text_of(name, most)}"
                yield QueueMaximum(queue, name, max(room, -MOST), f"Queue {queue.path} at max: {name} {used}")


def _on_its_way(
    snapshot: Snapshot, question: Question, maxima: tuple[QueueMaximum, ...], assumed: list[PodRecord]
) -> QueueRoomOnItsWay | None:
    """Return what makes the room in all of the maxima; None where awaited pods do not. O(terminating pods).

    Nominated pods take some of it first, whatever their priority: the queue gate keeps the places of those
    that live orders make room for.
    """
    numbers, counted = snapshot.queues.number_of, {question.preemptor.uid, *(pod.uid for pod in assumed)}
    named = {one.uid for one in question.nominations} - counted
    nominated = [pod for uid in named if (pod := snapshot.pods.get(uid)) is not None and not pod.node]
    short = [
        sum(maximum.used_by(pod, numbers(pod)) for pod in nominated) - maximum.room for maximum in maxima
    ]
    inside = [(pod, numbers(pod)) for pod in question.terminating.pods()]
    awaited = [
        (pod, uses)
        for pod, number in inside
        if any(uses := [maximum.used_by(pod, number) for maximum in maxima])
    ]
    awaited.sort(key=lambda one: (one[0].ends_micros, one[0].uid))
    for last, uses in reversed(awaited):
        short = [missing - use for missing, use in zip(short, uses, strict=True)]
        if max(short) <= 0:
            return QueueRoomOnItsWay(tuple(pod for pod, _ in awaited), overdue_at([last]))
    return None


def margins_of(
    snapshot: Snapshot, question: Question, *, members: Sequence[PodRecord] = (), of_group: bool = False
) -> tuple[GuaranteeMargin, ...]:
    """Return the guarantees, outside the preemptor's own queues, that victims could break.

    Those of one node, with what is evicted with them, or, `of_group`, those of any number of nodes.
    `members`: of the group that preempts, where it is one.
    """
    tree, own = snapshot.queues.tree, own_queues(snapshot, members or (question.preemptor,))
    if tree is None:
        return ()
    guaranteed = [queue for queue in tree if queue.guaranteed and queue.number not in own]
    if not guaranteed:
        return ()
    usage, _ = snapshot.queues.without(question.in_flight.keys() | question.leaving)
    columns, found = snapshot.columns, []
    fullest = {name: int(columns.requested[layer].max()) for name, layer in columns.resources.items()}
    for queue in guaranteed:
        held = usage.of(queue.number)
        for name, least in queue.guaranteed.items() if held else ():
            spare = held.get(name, 0) - least
            near = not of_group and spare < fullest.get(name, 0) + snapshot.groups.widest(name)
            if near or (of_group and held.get(name, 0)):
                found.append(GuaranteeMargin(queue, name, max(spare, 0)))
    return tuple(found)


def own_queues(snapshot: Snapshot, pods: Iterable[PodRecord]) -> frozenset[int]:
    """Return the numbers of the queues that all of some pods are in or below; none without queues.

    No pod of a group takes another queue's guarantee because a member is in that queue.
    """
    lines = {found.line for pod in pods if (found := snapshot.queues.queue_of(pod)) is not None}
    return frozenset.intersection(*map(frozenset, lines)) if lines else frozenset()


def _beyond(uses: Ints, spare: int) -> Flags:
    """Return which pods are too much, from the last slot on, of at most `spare` in all. O(slots · nodes)."""
    left, beyond = np.full(uses.shape[1], spare), np.zeros(uses.shape, np.bool_)
    for slot in range(len(uses) - 1, -1, -1):
        beyond[slot] = uses[slot] > left
        np.subtract(left, uses[slot], out=left, where=~beyond[slot])
    return beyond


def guarantee_of(snapshot: Snapshot, pod: PodRecord, question: Question) -> str:
    """Return which guarantee keeps a pod, with the numbers."""
    queues = snapshot.queues
    tree, number = queues.tree, queues.number_of(pod)
    own = queues.queue_of(question.preemptor)
    if tree is None or own is None:
        return ""
    usage, _ = queues.without(question.in_flight.keys() | question.leaving)
    for queue in tree.line(number):
        if queue.number in own.line:
            break
        for name, least in sorted(queue.guaranteed.items()):
            held = usage.of(queue.number).get(name, 0)
            if held - least < pod.requests.get(name, 0):
                used = f"it uses {text_of(name, held)}"
                return f"queue {queue.path} is guaranteed {name} {text_of(name, least)}, {used}"
    return "the pods of its queue on this node would together go below a guarantee"
