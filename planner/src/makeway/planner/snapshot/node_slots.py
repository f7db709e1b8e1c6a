"""The slots of some nodes side by side, read out of the columns, to be looked at and changed at will."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from makeway.core.policy.exemption import FOREVER, NO_PREEMPTOR, NOT_EXEMPT, Exemption
from makeway.planner.snapshot.columns import (
    BUDGETS,
    EXEMPT_BELOW,
    EXEMPT_UNTIL,
    GROUP,
    PRIORITY,
    RESOURCES,
    RULE_BITS,
    SIGNATURE,
    START,
    VACANT_CELL,
    Columns,
    Flags,
    Ints,
    PodCell,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Pods that stay for one preemptor alone.

    `always`: bool[D, M]. `timed`: int64[n] twice, of others their places among all slots, one row behind the
    other, and the last microsecond for which each stays; the same pod may be there again.
    """

    always: Flags
    timed: tuple[tuple[Ints, Ints], ...] = ()

    def together(self, other: Kept) -> Kept:
        """Return what stays by one of both, for as long as by the one that keeps it longest."""
        return Kept(self.always | other.always, self.timed + other.timed)


class NodeSlots:
    """Columns of some nodes as they are now: M nodes, D slots, which are those in use on the fullest of them.

    * `resources`, and by node `allocatable`, `requested`, `count`, `exempt_count`: as in `Columns`.
    * `priority`: int64[D, M]; VACANT in empty slots. `start`: int64[D, M], microseconds since 1970 or
      NOT_STARTED. `budgets`: int64[D, M], the set of disruption budgets that cover the pod; 0 for none.
    * `exempt_below`, `exempt_until`: int64[D, M], the pod's exemption: preemptors of lower priority may not
      remove it up to that microsecond.
    * `rule_bits`: int64[D, M], of which rules of the policy's `preemption` the pod may be the victim.
    * `signature`: int64[D, M], what others' constraints see of the pod; 0 in empty slots. `group`:
      int64[D, M], the number of the pod's PodGroup; 0 for none.

    A layer is read, and kept, when it is asked for first: while the columns do not change. What is changed
    here is where slots read their numbers, so that to put all slots into another order is one array.
    """

    def __init__(
        self,
        columns: Columns,
        cells: Ints,
        *,
        allocatable: Ints,
        requested: Ints,
        count: Ints,
        exempt_count: Ints,
        own: Iterable[Ints] = (),
    ) -> None:
        self.resources = columns.resources
        self.allocatable, self.requested = allocatable, requested
        self.count, self.exempt_count = count, exempt_count
        self._columns = columns
        self._cells = cells
        """int64[D, M], where each slot reads; below 0 in `_own`, from -1 down."""
        self._own = list(own)
        self._known: dict[int, Ints] = {}
        self._kept: tuple[int, Kept] | None = None

    @classmethod
    def of(cls, columns: Columns, nodes: Ints, last: int | None = None) -> NodeSlots:
        """Return the slots of some nodes. O(slots · nodes).

        `last`: no more than so many of each, its last; these are the lowest, and empty ones above them.
        """
        count = columns.count[nodes]
        depth = int(count.max(initial=0))
        least = int(count.min(initial=depth))
        if last is None:
            slots = np.arange(depth)[:, None]
            cells = columns.first[nodes] + slots
            if least < depth:
                np.copyto(cells[least:], VACANT_CELL, where=slots[least:] >= count)
        else:
            back = np.arange(min(last, depth), 0, -1)[:, None]
            cells = columns.first[nodes] + count - back
            if least < back.size:
                np.copyto(cells, VACANT_CELL, where=back > count)
        return cls(
            columns,
            cells,
            allocatable=columns.allocatable.take(nodes, axis=1),
            requested=columns.requested.take(nodes, axis=1),
            count=count,
            exempt_count=columns.exempt_count[nodes],
        )

    @property
    def depth(self) -> int:
        """How many slots are in use on the fullest of the nodes."""
        return int(self._cells.shape[0])

    @property
    def priority(self) -> Ints:
        """The pods' priorities."""
        return self._layer(PRIORITY)

    @property
    def start(self) -> Ints:
        """When the pods started."""
        return self._layer(START)

    @property
    def budgets(self) -> Ints:
        """The sets of budgets that cover the pods."""
        return self._layer(BUDGETS)

    @property
    def signature(self) -> Ints:
        """The pods' signatures."""
        return self._layer(SIGNATURE)

    @property
    def exempt_below(self) -> Ints:
        """Below which priority preemptors may not remove the pods."""
        layer = self._layer(EXEMPT_BELOW)
        return layer if self._kept is None else np.where(self._kept[1].always, self._kept[0], layer)

    @property
    def exempt_until(self) -> Ints:
        """How long they may not."""
        layer = self._layer(EXEMPT_UNTIL)
        if self._kept is None:
            return layer
        kept = self._kept[1]
        until = np.where(kept.always, FOREVER, layer)
        for at, _ in kept.timed:
            until.ravel()[at] = 0
        for at, last in kept.timed:
            np.maximum.at(until.ravel(), at, last)
        return until

    @property
    def rule_bits(self) -> Ints:
        """Of which rules the pods may be victims, bit by bit."""
        return self._layer(RULE_BITS)

    @property
    def group(self) -> Ints:
        """The numbers of the pods' groups."""
        return self._layer(GROUP)

    def request(self, layer: int) -> Ints:
        """Return int64[D, M], what pods request of one resource; 0 in empty slots."""
        return self._layer(RESOURCES + layer)

    def requests(self, layers: Ints) -> Ints:
        """Return int64[len(layers), D, M], what pods request of some resources."""
        found = np.empty((layers.size, *self._cells.shape), np.int64)
        for place, layer in enumerate(layers.tolist()):
            self._known[RESOURCES + layer] = self._read(RESOURCES + layer, self._cells, found[place])
        return found

    def amounts(self, requests: Mapping[str, int]) -> Ints:
        """Return requests as `Columns.amounts` does."""
        return self._columns.amounts(requests)

    def at(self, layer: int, places: Ints) -> Ints:
        """Return int64[D, len(places)], a layer of some of the nodes, which ascend."""
        if places.size == self.count.size:
            return self._layer(layer)
        known = self._known.get(layer)
        if known is None:
            return self._read(layer, self._cells.take(places, axis=1))
        return known.take(places, axis=1)

    def of_pods(self, layer: int, slots: Ints, places: Ints) -> Ints:
        """Return int64[n], what a layer has in some slots. O(n)."""
        known = self._known.get(layer)
        return self._read(layer, self._cells[slots, places]) if known is None else known[slots, places]

    def of_places(self, layer: int, places: Ints) -> Ints:
        """Return int64[n], what a layer has at some places among all slots, as those of `Kept`. O(n)."""
        return self._read(layer, self._cells.ravel().take(places))

    def of_each(self, layers: Iterable[int], slots: Ints, places: Ints) -> list[Ints]:
        """Return what several layers have in some slots, as `of_pods`. O(n) each."""
        cells = self._cells[slots, places]
        return [self._read(layer, cells) for layer in layers]

    def reordered(self, order: Ints) -> NodeSlots:
        """Return them with the slots of every node in another order: of each slot, which slot its pod was in.

        `order`: int64[D, M]. Not for pods to be put into. O(slots · nodes).
        """
        return NodeSlots(
            self._columns,
            np.take_along_axis(self._cells, order, axis=0),
            allocatable=self.allocatable,
            requested=self.requested,
            count=self.count,
            exempt_count=self.exempt_count.copy(),
            own=self._own,
        )

    # --------------------------------------------------------------------------------- changing

    def insert(self, place: int, slot: int, pod: PodCell) -> None:
        """Put a pod into a slot; the pods from there on move up by one."""
        amounts = self._columns.vector(pod.requests)
        used = self.count.item(place)
        if used == self.depth:
            more = np.full((1, self._cells.shape[1]), VACANT_CELL, np.int64)
            self._cells = np.concatenate([self._cells, more])
        self._cells[slot + 1 : used + 1, place] = self._cells[slot:used, place].copy()
        self._put(place, slot, np.concatenate([np.array(pod.numbers, np.int64), amounts]))
        self.exempt_count[place] += pod.exemption != NOT_EXEMPT
        self.requested[:, place] += amounts
        self.count[place] = used + 1

    def remove(self, place: int, slot: int) -> None:
        """Take the pod out of a slot; the pods behind it move down by one."""
        self.vacate(np.array([place]), np.array([slot]))
        used = self.count.item(place)
        self._cells[slot : used - 1, place] = self._cells[slot + 1 : used, place].copy()
        self._cells[used - 1, place] = VACANT_CELL
        self.count[place] = used - 1
        self._cells = self._cells[: int(self.count.max())]

    def vacate(self, places: Ints, slots: Ints) -> Ints:
        """Empty some slots where they are; return int64[resources, n], what their pods took.

        The pods behind them do not move up. O(slots emptied).
        """
        cells = self._cells[slots, places]
        taken = np.array([self._read(RESOURCES + layer, cells) for layer in range(len(self.resources))])
        for layer, amounts in enumerate(taken):
            np.subtract.at(self.requested[layer], places, amounts)
        exempt = self._read(EXEMPT_BELOW, cells) != NO_PREEMPTOR
        np.subtract.at(self.exempt_count, places, exempt.astype(np.int64))
        self._cells[slots, places] = VACANT_CELL
        self._known.clear()
        return taken

    def set_exemption(self, place: int, slot: int, exemption: Exemption) -> None:
        """Put down which preemptors may not remove the pod in a slot. O(layers)."""
        cell = self._cells[slot : slot + 1, place]
        layers = RESOURCES + len(self.resources)
        numbers = np.array([int(self._read(layer, cell)[0]) for layer in range(layers)], np.int64)
        self.exempt_count[place] += (exemption != NOT_EXEMPT) - int(numbers[EXEMPT_BELOW] != NO_PREEMPTOR)
        numbers[[EXEMPT_BELOW, EXEMPT_UNTIL]] = exemption
        self._put(place, slot, numbers)

    def exempt(self, kept: Kept, below: int, *, preemptor_priority: int, now_micros: int) -> None:
        """Exempt pods from one preemptor now, but those that are exempt from it anyway. The last change.

        `below`: as in their exemptions.
        """
        anyway = self.exempted(preemptor_priority, now_micros)
        stays = kept.always if anyway is None else kept.always & ~anyway
        known = kept.always if anyway is None else kept.always | anyway
        timed = []
        for at, until in kept.timed:
            live = np.flatnonzero((until >= now_micros) & ~known.ravel().take(at))
            if live.size:
                timed.append((at.take(live), until.take(live)))
        for at, _ in timed:
            stays.ravel()[at] = True
        self._kept = below, Kept(stays, tuple(timed))

    def exempted(self, preemptor_priority: int, now_micros: int) -> Flags | None:
        """Return bool[D, M], the pods that are exempt from a preemptor now; None where none is. O(D · M)."""
        found = self._kept and self._kept[1].always
        if not self.exempt_count.any():
            return found
        own = self._layer(EXEMPT_BELOW) > preemptor_priority
        own &= self._layer(EXEMPT_UNTIL) >= now_micros
        return own if found is None else own | found

    def is_kept(self, slot: int, place: int) -> bool:
        """Report whether a pod is exempt by what `exempt` has put there."""
        return self._kept is not None and bool(self._kept[1].always.item(slot, place))

    def exempt_ends(self, now_micros: int) -> Ints:
        """Return int64[M], until when the exemptions of each node hold for all its pods; FOREVER mostly."""
        ends = np.full(self.count.size, FOREVER, np.int64)
        some = self.exempt_count > 0
        if some.any():
            until = self._layer(EXEMPT_UNTIL)[:, some]
            ends[some] = np.where(until >= now_micros, until, FOREVER).min(axis=0, initial=FOREVER)
        for at, until in () if self._kept is None else self._kept[1].timed:
            np.minimum.at(ends, at % ends.size, until)
        return ends

    # -------------------------------------------------------------------------------- inner work

    def _put(self, place: int, slot: int, numbers: Ints) -> None:
        self._own.append(numbers)
        self._cells[slot, place] = -len(self._own)
        self._known.clear()

    def _layer(self, layer: int) -> Ints:
        known = self._known.get(layer)
        if known is None:
            known = self._known[layer] = self._read(layer, self._cells)
        return known

    def _read(self, layer: int, cells: Ints, into: Ints | None = None) -> Ints:
        """Return what a layer has in some cells. Cells of its own are cut to VACANT_CELL first."""
        found: Ints = self._columns.cells[layer].take(cells, mode="clip", out=into)
        if self._own:
            own: Flags = cells < 0
            found[own] = np.array([numbers[layer] for numbers in self._own], np.int64)[-1 - cells[own]]
        return found
