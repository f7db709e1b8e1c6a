"""What one request knows beyond the snapshot, put over copies of the nodes it touches.

Pods that are nominated, assumed or already being removed change few nodes; those that are looked at are
copied out of the columns and changed in the copy. The snapshot itself is never planned upon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from makeway.core.policy.exemption import DELETE_REFUSED, exempt_from_all
from makeway.planner.plan.request import Question
from makeway.planner.plan.terminating import InFlightPods
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

BATCH_NODES = 512
"""So many nodes that have changed are looked at together with the best ones: about 1 ms with 30 pods each."""

_EMPTY_SLOTS = 2**14
"""So many empty slots are looked at rather than a batch more is made: both take about as long."""

_MOST_UINT16 = 2**16 - 1


@dataclass(slots=True)
class NodeBatch:
    """Nodes to be looked at together: their columns, and what the request adds to them.

    * `rows`: int64[M], the nodes' rows in the snapshot. `of_rows`: the pods of each row there, as its columns
      have them; `moved`: by place, where the request changes which there are. An awaited pod keeps its
      slot, which the columns show empty.
    * `reserved`: int64[resources, M], what nominated pods will take.
    * `leaving`: int64[resources, M], what awaited pods take as long as they are there; they are no
      longer in the columns. `awaited`: those pods, most important first, by place in `nodes`.
    * `nominated`: the pods that are to come, by place.
    * `order`: int64[slots, M], where the columns are in another order than the pods: each pod's place there.
    """

    columns: NodeSlots
    rows: Ints
    of_rows: list[list[PodRecord]]
    reserved: Ints
    leaving: Ints
    awaited: dict[int, list[PodRecord]] = field(default_factory=dict)
    nominated: dict[int, list[PodRecord]] = field(default_factory=dict)
    moved: dict[int, list[PodRecord]] = field(default_factory=dict)
    order: Ints | None = None

    @property
    def depth(self) -> int:
        """How many slots are in use on the fullest of the nodes."""
        return self.columns.depth

    def records(self, place: int) -> list[PodRecord]:
        """Return the pods of the node at `place`."""
        moved = self.moved.get(place)
        return self.of_rows[int(self.rows[place])] if moved is None else moved

    @property
    def awaits(self) -> Flags:
        """Return bool[M], whether pods of the node are awaited to go."""
        return self._places(self.awaited)

    @property
    def awaits_orders(self) -> Flags:
        """Return bool[M], whether orders remove pods of the node: unlike terminating ones these cost."""
        return self._places(at for at, pods in self.awaited.items() if not all(p.terminating for p in pods))

    def _places(self, places: Iterable[int]) -> Flags:
        flags = np.zeros(self.rows.size, np.bool_)
        flags[list(places)] = True
        return flags

    def close_gaps(self) -> None:
        """Move pods up into the slots that awaited pods have left empty. O(slots) a pod that leaves."""
        for place, pods in self.awaited.items():
            here = self.records(place)
            left = sorted((here.index(pod) for pod in pods if pod.node), reverse=True)
            for slot in left:
                self.columns.remove(place, slot)
            self.moved[place] = [pod for slot, pod in enumerate(here) if slot not in left]

    def pods(self, place: int, chosen: Flags) -> list[tuple[int, PodRecord]]:
        """Return (slot, pod) of the chosen slots of the node at `place`. `chosen`: bool[slots]."""
        pods = self.records(place)
        at = range(len(pods)) if self.order is None else self.order[:, place].tolist()
        return [(slot, pods[at[slot]]) for slot in np.flatnonzero(chosen).tolist()]


def plain_batch(snapshot: Snapshot, rows: Ints) -> NodeBatch:
    """Return nodes as the snapshot has them. O(slots · nodes)."""
    nothing = np.zeros((len(snapshot.columns.resources), 1), np.int64)
    return NodeBatch(NodeSlots.of(snapshot.columns, rows), rows, snapshot.slots, nothing, nothing)


_REFUSED = exempt_from_all(DELETE_REFUSED)


@dataclass(frozen=True, slots=True)
class Overlay:
    """All that a request adds to the snapshot, by row. `snapshot` is as it was when `overlay` looked.

    `placed`: row and record of each pod that the scheduler has placed though the API does not show it, and of
    each restored pod.
    """

    snapshot: Snapshot
    in_flight_pods: Mapping[int, InFlightPods]
    placed: Sequence[tuple[int, PodRecord]]

    def batch(self, rows: Ints) -> NodeBatch:
        """Return nodes as the request changes them. O(nodes · slots)."""
        places = np.flatnonzero(np.isin(rows, [*self.in_flight_pods])) if self.in_flight_pods else ()
        touched = [(int(place), self.in_flight_pods[int(rows[place])]) for place in places]
        return _changed(self.snapshot, rows, touched) if touched else plain_batch(self.snapshot, rows)

    def batches(self, rows: Ints) -> Iterator[NodeBatch]:
        """Return nodes as `batch` does, those with about as many pods together.

        To look at nodes costs by the batch and by its slots, empty ones too.
        """
        if not rows.size:
            return
        count = self.snapshot.columns.count[rows]
        if (count[1:] > count[:-1]).any():
            order = np.argsort(-count, kind="stable")
            rows, count = rows[order], count[order]
        for start, end in pairwise([*_starts(count, 0), rows.size]):
            yield self.batch(rows[start:end])


def widest_first(snapshot: Snapshot, rows: Ints) -> Ints:
    """Return rows in the order of their pods, most first: alike ones together have few empty slots."""
    count = np.minimum(snapshot.columns.count[rows], _MOST_UINT16)
    # Whole numbers of 16 bits are sorted in O(rows).
    return rows[np.argsort((_MOST_UINT16 - count).astype(np.uint16), kind="stable")]


def without(snapshot: Snapshot, rows: Ints, others: Ints) -> Ints:
    """Return rows without some others, in their order. O(nodes)."""
    if not others.size:
        return rows
    left = np.ones(snapshot.columns.nodes, np.bool_)
    left[others] = False
    return rows[left[rows]]


def _starts(count: Ints, start: int) -> list[int]:
    """Return where batches begin of nodes with ever fewer pods, the first of which is number `start`."""
    spared = np.arange(count.size, 0, -1) * (count[0] - count)
    at = int(spared.argmax())
    if spared[at] <= _EMPTY_SLOTS:
        return [start]
    return [*_starts(count[:at], start), *_starts(count[at:], start + at)]


def overlay(snapshot: Snapshot, question: Question) -> Overlay:
    """Find the node of each pod that the request names. O(pods that it names).

    A nomination counts where its pod has at least the preemptor's priority, as in kube-scheduler's
    filters with nominated pods; a pod that is bound or assumed is not counted a second time. Pods that the
    snapshot does not know are left out: looser, never stricter.
    """
    preemptor, pods, rows = question.preemptor, snapshot.pods, snapshot.rows
    in_flight = dict(question.terminating.seen(snapshot))
    own: dict[int, InFlightPods] = {}

    def on(row: int) -> InFlightPods:
        """Return what the request adds to a node; what terminating pods are there is shared until then."""
        found = own.get(row)
        if found is None:
            there = in_flight.get(row)
            found = InFlightPods(awaited=[] if there is None else [*there.awaited])
            own[row] = in_flight[row] = found
        return found

    placed: list[tuple[int, PodRecord]] = []
    counted = {preemptor.uid}
    for placement in question.assumed:
        pod, row = pods.get(placement.uid), rows.get(placement.node)
        if pod is None or row is None or pod.node or pod.uid in counted:
            continue
        counted.add(pod.uid)
        placed.append((row, pod))
        if pod.uid in question.in_flight:
            on(row).awaited.append(pod)
            continue
        on(row).assumed.append(pod)
        if pod.uid in question.refused:
            on(row).refused.append(pod)
    for gone in question.restored:
        row = rows.get(gone.node)
        if row is not None and gone.uid not in pods and gone.uid not in counted:
            counted.add(gone.uid)
            placed.append((row, gone))
            on(row).assumed.append(gone)
    for placement in question.nominations:
        pod, row = pods.get(placement.uid), rows.get(placement.node)
        if pod is None or row is None or pod.node or pod.uid in counted:
            continue
        if pod.priority >= preemptor.priority:
            counted.add(pod.uid)
            on(row).nominated.append(pod)
    for uid in question.in_flight:
        known = pods.get(uid)
        if known is not None and known.node in rows and not known.terminating:
            on(rows[known.node]).awaited.append(known)
    for uid in question.refused - question.in_flight.keys():
        known = pods.get(uid)
        if known is not None and known.node in rows:
            on(rows[known.node]).refused.append(known)
    for row, apart in _apart(snapshot, question):
        on(row).apart.append(apart)
    return Overlay(snapshot, in_flight, placed)


def _apart(snapshot: Snapshot, question: Question) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """Yield by row the units and gangs with pods in flight: that decides over their pods elsewhere."""
    if not len(snapshot.groups):
        return
    losing = snapshot.groups.losing(snapshot.pods.get(uid) for uid in question.in_flight)
    for gang, leaving in sorted(losing.items()):
        for row in snapshot.groups.by_number(gang).rows:
            yield row, (-gang, leaving, 0, 0)
    counts: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    assumed = (placement.uid for placement in question.assumed)
    for kind, uids in enumerate((question.in_flight, question.refused, assumed)):
        for uid in uids:
            pod = snapshot.pods.get(uid)
            unit = None if pod is None else snapshot.groups.unit_of_pod(pod)
            if unit is not None:
                counts[unit.number][kind] += 1
    for number, (leaving, refused, coming) in sorted(counts.items()):
        for row in snapshot.groups.unit(number).rows:
            yield row, (number, leaving, refused, coming)


def _changed(snapshot: Snapshot, rows: Ints, touched: list[tuple[int, InFlightPods]]) -> NodeBatch:
    """Copy nodes out of the columns and change the touched ones, named by place in `rows`, in the copy."""
    columns, moved = NodeSlots.of(snapshot.columns, rows), {}
    reserved = np.zeros((len(columns.resources), rows.size), np.int64)
    leaving = np.zeros_like(reserved)
    gone: list[tuple[int, int]] = []
    for place, in_flight in touched:
        order = snapshot.order[int(rows[place])]
        if in_flight.assumed:
            order, moved[place] = list(order), list(snapshot.slots[int(rows[place])])
        for pod in in_flight.assumed:
            slot = bisect_left(order, pod.importance)
            order.insert(slot, pod.importance)
            moved[place].insert(slot, pod)
            group = snapshot.groups.of(pod)
            columns.insert(place, slot, snapshot.cell_of(pod, 0 if group is None else group.number))
        for pod in in_flight.refused:
            columns.set_exemption(place, bisect_left(order, pod.importance), _REFUSED)
        for pod in in_flight.awaited:
            if pod.node:
                gone.append((place, bisect_left(order, pod.importance)))
            else:
                leaving[:, place] += snapshot.columns.vector(pod.requests)
        for pod in in_flight.nominated:
            reserved[:, place] += snapshot.columns.vector(pod.requests)
    if gone:
        from_places, gone_slots = np.array(gone, np.int64).T
        for layer, amounts in enumerate(columns.vacate(from_places, gone_slots)):
            np.add.at(leaving[layer], from_places, amounts)
    awaited = {
        place: sorted(in_flight.awaited, key=_importance) for place, in_flight in touched if in_flight.awaited
    }
    nominated = {place: in_flight.nominated for place, in_flight in touched if in_flight.nominated}
    return NodeBatch(columns, rows, snapshot.slots, reserved, leaving, awaited, nominated, moved)


def _importance(pod: PodRecord) -> tuple[int, int, str]:
    return pod.importance
