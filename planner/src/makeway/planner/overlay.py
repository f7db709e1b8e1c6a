"""What one request knows beyond the snapshot, laid over copies of the nodes it touches.

Pods that are nominated, assumed or already being removed change few nodes; those are copied out of the
columns and changed in the copy. The snapshot itself is never planned upon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from makeway.planner.columns import Columns, Flags, Ints
from makeway.planner.question import Question
from makeway.planner.records import PodRecord
from makeway.planner.snapshot import Snapshot


@dataclass(slots=True)
class Block:
    """Nodes to be looked at together: their columns, and what the request adds to them.

    * `nodes`: int64[M], which columns; `rows`: int64[M], the same nodes' rows in the snapshot.
    * `reserved`: int64[resources, M], what nominated pods will take.
    * `leaving`: int64[resources, M], what awaited pods take as long as they are there; they are no
      longer in the columns. `awaited`: those pods, most important first, by place in `nodes`.
    * `nominated`: the pods that are to come, by place.
    * `slots`: the pods of a node, as its columns have them, by column; an awaited pod keeps its slot, which
      the columns show empty.
    """

    columns: Columns
    nodes: Ints
    rows: Ints
    slots: list[list[PodRecord]]
    reserved: Ints
    leaving: Ints
    awaited: dict[int, list[PodRecord]] = field(default_factory=dict)
    nominated: dict[int, list[PodRecord]] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """How many slots are in use on the fullest of the nodes."""
        return int(self.columns.count[self.nodes].max()) if self.nodes.size else 0

    def close_up(self) -> None:
        """Move pods up into the slots that awaited pods have left empty. O(slots) a pod that leaves."""
        for place, pods in self.awaited.items():
            node = int(self.nodes[place])
            here = self.slots[node]
            left = sorted((here.index(pod) for pod in pods if pod.node), reverse=True)
            for slot in left:
                self.columns.remove(node, slot)
            self.slots[node] = [pod for slot, pod in enumerate(here) if slot not in left]

    def pods(self, place: int, chosen: Flags) -> list[tuple[int, PodRecord]]:
        """Give (slot, pod) of the chosen slots of the node at `place`. `chosen`: bool[slots]."""
        pods = self.slots[int(self.nodes[place])]
        return [(int(slot), pods[int(slot)]) for slot in np.flatnonzero(chosen)]


_NONE: Ints = np.zeros(0, np.int64)


def plain(snapshot: Snapshot, rows: Ints) -> Block:
    """Give nodes as the snapshot has them. O(1)."""
    nothing = np.zeros((len(snapshot.columns.resources), 1), np.int64)
    return Block(snapshot.columns, rows, rows, snapshot.slots, nothing, nothing)


@dataclass(frozen=True, slots=True)
class Touched:
    """The nodes that a request touches: their rows, and its pods there, by row."""

    snapshot: Snapshot
    rows: Ints
    nominated: dict[int, list[PodRecord]]
    assumed: dict[int, list[PodRecord]]
    awaited: dict[int, list[PodRecord]]

    def placed(self) -> list[tuple[int, PodRecord]]:
        """As the function of that name."""
        both = (*self.assumed.items(), *self.awaited.items())
        return [(row, pod) for row, pods in both for pod in pods if not pod.node]

    def block(self, others: Ints = _NONE) -> Block:
        """Give these nodes as the request changes them, and behind them the rows of others as they are.

        To look at nodes costs hardly more for some than for one, so what has to be looked at goes together.
        O(nodes · slots), O(1) where the request touches none.
        """
        if not self.rows.size:
            return plain(self.snapshot, others)
        return _overlay(self, others)


def touched(snapshot: Snapshot, question: Question, potential: Ints) -> tuple[Ints, Touched]:
    """Split the potential nodes: rows that are as the snapshot has them, and those that the request touches.

    Pods of the request that the snapshot does not know are left out: looser, never stricter.
    O(nodes + nodes the request touches · slots).
    """
    nominated, assumed, awaited = _by_row(snapshot, question)
    rows = np.array(sorted({*nominated, *assumed, *awaited}), np.int64)
    if not rows.size:
        return potential, Touched(snapshot, rows, nominated, assumed, awaited)
    among = np.zeros(snapshot.columns.nodes, np.bool_)
    among[potential] = True
    concerned = rows[among[rows]]
    among[rows] = False
    return np.flatnonzero(among), Touched(snapshot, concerned, nominated, assumed, awaited)


def placed(snapshot: Snapshot, question: Question) -> list[tuple[int, PodRecord]]:
    """Give row and record of each pod that the scheduler has placed and the API does not show as bound."""
    return touched(snapshot, question, _NONE)[1].placed()


def _overlay(given: Touched, others: Ints) -> Block:
    """Copy the touched nodes and others out of the columns, and change the touched ones in the copy."""
    snapshot = given.snapshot
    nodes = np.concatenate([given.rows, others]) if others.size else given.rows
    places = {row: place for place, row in enumerate(given.rows.tolist())}
    for by_row in (given.assumed, given.awaited, given.nominated):
        for pods in by_row.values():
            for pod in pods:
                snapshot.columns.vector(pod.requests)  # now there is a layer for all that they ask for
    columns = snapshot.columns.pick(nodes, max(map(len, given.assumed.values()), default=0))
    slots = [snapshot.slots[row] for row in nodes.tolist()]
    reserved = np.zeros((len(columns.resources), nodes.size), np.int64)
    leaving = np.zeros_like(reserved)
    for place, pods in _placed(given.assumed, places):
        slots[place] = list(slots[place])
        for pod in pods:
            slot = bisect_left(slots[place], pod.importance, key=_importance)
            slots[place].insert(slot, pod)
            columns.insert(
                place,
                slot,
                priority=pod.priority,
                start=pod.start_micros,
                budgets=snapshot.budget_set(pod.uid),
                kind=snapshot.kind(pod.uid),
                requests=pod.requests,
                barrier=snapshot.shields.of(pod.facts),
            )
    gone: list[tuple[int, int]] = []
    waiting = {place: sorted(pods, key=_importance) for place, pods in _placed(given.awaited, places)}
    for place, pods in waiting.items():
        for pod in pods:
            if pod.node:
                gone.append((place, slots[place].index(pod)))
            else:
                leaving[:, place] += snapshot.columns.vector(pod.requests)
    coming = dict(_placed(given.nominated, places))
    for place, pods in coming.items():
        for pod in pods:
            reserved[:, place] += snapshot.columns.vector(pod.requests)
    if gone:
        from_places, gone_slots = np.array(gone, np.int64).T
        for layer, amounts in enumerate(columns.vacate(from_places, gone_slots)):
            np.add.at(leaving[layer], from_places, amounts)
    return Block(columns, np.arange(nodes.size), nodes, slots, reserved, leaving, waiting, coming)


def _placed(
    by_row: Mapping[int, list[PodRecord]], places: Mapping[int, int]
) -> Iterator[tuple[int, list[PodRecord]]]:
    """Give place and pods of those rows that have a place."""
    return ((places[row], pods) for row, pods in by_row.items() if row in places)


def _by_row(
    snapshot: Snapshot, question: Question
) -> tuple[dict[int, list[PodRecord]], dict[int, list[PodRecord]], dict[int, list[PodRecord]]]:
    """Give the pods that are nominated, assumed and awaited, by row of their node.

    A nomination counts where its pod has at least the preemptor's priority, as in kube-scheduler's
    filters with nominated pods; a pod that is bound or assumed is not counted a second time.
    """
    preemptor = question.preemptor
    assumed: dict[int, list[PodRecord]] = {}
    awaited: dict[int, list[PodRecord]] = {}
    placed: set[str] = {preemptor.uid}
    for placement in question.assumed:
        pod = snapshot.pods.get(placement.uid)
        row = snapshot.rows.get(placement.node)
        if pod is None or row is None or pod.node or pod.uid in placed:
            continue
        placed.add(pod.uid)
        by_row = awaited if pod.uid in question.in_flight else assumed
        by_row.setdefault(row, []).append(pod)
    nominated: dict[int, list[PodRecord]] = {}
    for placement in question.nominations:
        pod = snapshot.pods.get(placement.uid)
        row = snapshot.rows.get(placement.node)
        if pod is None or row is None or pod.node or pod.uid in placed:
            continue
        if pod.priority >= preemptor.priority:
            placed.add(pod.uid)
            nominated.setdefault(row, []).append(pod)
    for uid in sorted(question.in_flight):
        pod = snapshot.pods.get(uid)
        if pod is not None and pod.node:
            awaited.setdefault(snapshot.rows[pod.node], []).append(pod)
    return nominated, assumed, awaited


def _importance(pod: PodRecord) -> tuple[int, int, str]:
    return pod.importance
