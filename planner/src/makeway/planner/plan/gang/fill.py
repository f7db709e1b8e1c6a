"""A first plan: the cheapest steps first, where a step is so many members on one node.

What steps cost is known from the stairs. The one that costs least a member is taken, the node is priced
again, and so on. What other nodes' prices depend on besides is looked at again when their turn comes: budgets
and rules grow tighter with every step, so a price that is out of date is too low, never too high. A unit that
goes makes room on all its nodes, and these are priced again at once.

Steps that an uneven spread keeps from coming wait until others have made it even. Where none is left that can
come, pods go for an even spread, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest

import numpy as np

from makeway.planner.plan.gang.draft import Draft, Slot, gone, places_of, slots_of, victims_of
from makeway.planner.plan.gang.model import Model, Work
from makeway.planner.plan.gang.stairs import Stairs
from makeway.planner.snapshot.columns import MOST, Ints

MOST_A_STEP = 32
"""Members that one step puts onto a node at the most; more are more steps."""

STEPS_A_CHUNK = 8
ELEMENTS_A_CHUNK = 500_000
"""Steps between two pauses, and elements that are looked at: some 10 ms."""

LOOKS_A_CHUNK = 256
"""Steps that turn out to be out of date, or closed, between two pauses: some 5 ms."""

ROUNDS = 4
"""Times that all nodes are priced where room in a large domain grew meanwhile."""

SLOTS_A_CHUNK = 2**21
"""Slots that are priced between two pauses at first, each as often as members come to a node, and once for
each resource and rule: some 10 ms."""

AHEAD = 64
"""Nodes that are priced side by side as they will be after their next step."""

Entry = tuple[tuple[float, ...], int, int, int, int, int, int, bool]
"""Price a member, with when its first pod started, rank of the node's name, class, node's place, members, how
old it is, and whether pods go for an even spread, too."""


@dataclass(frozen=True, slots=True)
class Filled:
    """`draft`: with `missing` members for which there was no room. `next_best`: nodes that come next.

    `bounded`: they are missing since more pods would have to go than one order may have.
    """

    draft: Draft
    missing: int
    next_best: tuple[int, ...]
    bounded: bool = False


def fill(
    model: Model,
    base: Draft,
    level: int,
    work: Work,
    *,
    strict: bool,
    turns: tuple[tuple[int, ...], ...] = (),
) -> Generator[None, None, Filled]:
    """Place as many members as have to be; no victim beside those of a base has a priority above `level`.

    `strict`: no budget is violated. `turns`: classes that are placed together, in this order; none: all.
    Pauses now and then. O(nodes · slots · members of a node) and O(slots · members of a node) a step.
    """
    few = _with_few(model, level, base)
    yield
    filling = _Filling(few, level, strict=strict)
    filling.go_on(base)
    for classes in turns or (tuple(range(len(model.counts))),):
        yield from filling.run(classes)
    work.spend(filling.elements)
    next_best = tuple(dict.fromkeys(entry[3] for entry in nsmallest(64, filling.heap)))
    return Filled(filling.found(), filling.missing, next_best, filling.bounded)


def extra(model: Model, draft: Draft) -> Generator[None, None, Draft]:
    """Place members beyond those that have to be, where no pod has to go for them."""
    more = sum(model.counts) - draft.placed
    if not more:
        return draft
    filling = _Filling(_with_few(model, -MOST, draft), -MOST, strict=True)
    filling.go_on(draft)
    filling.missing = more
    yield from filling.run(tuple(range(len(model.counts))))
    return filling.found()


def _with_few(model: Model, level: int, base: Draft) -> Model:
    """Return the question without pods that neither may go at a level, nor are a base's or a unit's."""
    kept = model.removable & (model.priority <= level)
    if len(model.units) > 1:
        kept |= model.unit > 0
    kept[places_of(base.singles)] = True
    return model.of_pods(kept)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What was seen ahead of a step of a node, as long as no other step changes its price.

    `step`: class, members, the node's stamp, and what the stairs share. `victims`: slots. `same`: rules of
    wider domains leave the same room after it. `entry`: the next step then.
    """

    step: tuple[int, int, int, int]
    victims: list[int]
    same: bool
    entry: Entry | None


class _Filling:
    """The state of one run.

    `open`: bool[C, N], where classes may go. `stamp`: int64[N], how often a node has changed; an entry of the
    heap has it, and what the stairs share, as they were.
    """

    def __init__(self, model: Model, level: int, *, strict: bool) -> None:
        self.model = model
        self.draft = Draft()
        self.missing = model.must
        self.bounded = False
        self.heap: list[Entry] = []
        self._stairs = Stairs(model, level, strict=strict)
        self._placing = self._stairs.placing
        self._open = model.allowed.copy()
        self._left = list(model.counts)
        self._stamp = np.zeros(model.nodes, np.int64)
        self._parked: defaultdict[tuple[int, ...], list[Entry]] = defaultdict(list)
        self._freed_widely = False
        self._evening = False
        self._opens: tuple[bytes, ...] = ()
        self._ahead: dict[int, _Ahead] = {}
        tied = model.spreads or model.affinities or model.spare or model.margins
        self._apart = not (tied or model.budgets.any() or model.unit.any())

    @property
    def elements(self) -> int:
        """How much was looked at."""
        return self._stairs.elements

    def go_on(self, draft: Draft) -> None:
        """Begin with what a draft has placed, and without its victims."""
        model = self.model
        self.draft = draft = draft.copy()
        if model.slots is not None:
            draft.singles = {(int(model.slots[:, at].searchsorted(slot)), at) for slot, at in draft.singles}
        self._stairs.charge(Draft({}, draft.singles, draft.units))
        pods = gone(model, draft)
        self._placing.remove(pods)
        self._go(pods)
        for (node, cls), count in draft.members.items():
            self._stairs.place(cls, node, count)
            self._placing.place(cls, node, count)
            self._left[cls] -= count
        self.missing = model.must - draft.placed

    def found(self) -> Draft:
        """Return the draft, by the slots that pods have where none is left out."""
        draft, slots = self.draft, self.model.slots
        if slots is None:
            return draft
        at = places_of(draft.singles)
        return Draft(draft.members, set(zip(slots[at].tolist(), at[1].tolist(), strict=True)), draft.units)

    def run(self, classes: tuple[int, ...]) -> Generator[None, None, None]:
        """Take steps for some classes until all that have to be are placed, or no step is left."""
        for _ in range(ROUNDS):
            self._freed_widely = False
            self.heap = []
            self._parked.clear()
            for cls in classes:
                most = self._most(cls)
                each = max(most, 1) * max(self.model.depth, 1) * self._stairs.asked(cls)
                many = SLOTS_A_CHUNK // each + 1
                for first in range(0, self.model.nodes, many):
                    nodes = np.arange(first, min(first + many, self.model.nodes))
                    self.heap += self._entries(cls, nodes, most)
                    yield
            heapify(self.heap)
            yield from self._take_steps(classes)
            if not self.missing or not self._freed_widely:
                return

    def _take_steps(self, classes: tuple[int, ...]) -> Generator[None, None, None]:
        steps, looks, limit = 0, 0, self.elements + ELEMENTS_A_CHUNK
        while self.missing and not self.bounded and (self.heap or self._make_even()):
            looks += 1
            if not looks % LOOKS_A_CHUNK:
                yield
            entry = heappop(self.heap)
            key, _, cls, node, count, stamp, shared, evening = entry
            if stamp != self._stamp[node] or not self._left[cls]:
                continue
            if count > self._most(cls) or shared != self._stairs.shared:
                again = self._entries(cls, np.array([node]), self._most(cls), evening=evening)
                if not again or (again[0][0], again[0][4]) != (key, count):
                    self._push(again)
                    continue
            if not (self._placing.is_near if evening else self._placing.is_open)(cls, node):
                if not evening:
                    self._parked[self._placing.gate(cls, node)].append(entry)
                continue
            if self._apart and len(classes) == 1 and self._known(cls, node, count) is None:
                self._look_ahead(cls, node, count)
            whole = self._take(cls, node, count, evening=evening)
            seen = self._known(cls, node, count) if whole and len(classes) == 1 else None
            if seen is None or not seen.same:
                self._price_again(classes, [node])
            else:
                self._stamp[node] += 1
                if seen.entry is not None:
                    self._push([(*seen.entry[:5], int(self._stamp[node]), *seen.entry[6:])])
            self._unpark()
            steps += 1
            if not steps % STEPS_A_CHUNK or self.elements > limit:
                limit = self.elements + ELEMENTS_A_CHUNK
                yield
        yield

    def _look_ahead(self, cls: int, node: int, count: int) -> None:
        """Price the nodes whose turn comes next, side by side, as they will be after their step."""
        shared, steps = self._stairs.shared, {node: count}
        for _, _, _, other, many, stamp, known, evening in nsmallest(AHEAD, self.heap):
            if stamp == self._stamp[other] and known == shared and not evening:
                steps.setdefault(other, many)
        nodes = np.array([*steps], np.int64)
        with self._stairs.ahead(cls, nodes, np.array([*steps.values()], np.int64)) as (victims, same):
            entries = {entry[3]: entry for entry in self._entries(cls, nodes, self._most(cls))}
        for place, at in enumerate(steps):
            step = cls, steps[at], int(self._stamp[at]), shared
            going = np.flatnonzero(victims[:, place]).tolist()
            self._ahead[at] = _Ahead(step, going, bool(same[place]), entries.get(at))

    def _known(self, cls: int, node: int, count: int) -> _Ahead | None:
        """Return what was seen ahead of a step, if that is how it is now."""
        seen = self._ahead.get(node)
        now = cls, count, int(self._stamp[node]), self._stairs.shared
        return seen if seen is not None and seen.step == now else None

    def _most(self, cls: int) -> int:
        return min(self._left[cls], self.missing, MOST_A_STEP)

    def _push(self, entries: list[Entry]) -> None:
        for entry in entries:
            heappush(self.heap, entry)

    def _price_again(self, classes: tuple[int, ...], nodes: list[int]) -> None:
        self._stamp[nodes] += 1
        for cls in classes:
            if self._left[cls]:
                self._push(self._entries(cls, np.array(nodes), self._most(cls)))

    def _unpark(self) -> None:
        """Take up steps again that spread or affinity lets come now; looked at where these have changed."""
        if not self._parked or (state := self._placing.opens()) == self._opens:
            return
        self._opens = state
        for gate in list(self._parked):
            _, _, cls, node, *_ = self._parked[gate][0]
            if self._placing.is_open(cls, node):
                self._push(self._parked.pop(gate))

    def _make_even(self) -> bool:
        """Put in the steps that wait for an even spread, with the pods that would have to go for it.

        Returns whether there are any. O(waiting nodes · slots · members of a node).
        """
        waiting: defaultdict[int, set[int]] = defaultdict(set)
        for entries in self._parked.values():
            for _, _, cls, node, *_ in entries:
                if self._placing.is_near(cls, node):
                    waiting[cls].add(node)
        for cls, nodes in waiting.items():
            self._push(self._entries(cls, np.array(sorted(nodes)), self._most(cls), evening=True))
        self._evening |= bool(self.heap)
        return bool(self.heap)

    def _entries(self, cls: int, nodes: Ints, most: int, *, evening: bool = False) -> list[Entry]:
        """Return the cheapest step on each of some nodes where there is one."""
        nodes = nodes[self._open[cls, nodes] & self._stairs.may_fit(cls, nodes)]
        if not nodes.size or most <= 0:
            return []
        best, count, started = self._stairs.cheapest(cls, nodes, most, evening=evening)
        shared = self._stairs.shared
        there = (best.real, best.imag, -started, self.model.rank[nodes], nodes, count, self._stamp[nodes])
        return [
            (tuple(price), rank, cls, node, many, stamp, shared, evening)
            for *price, rank, node, many, stamp in zip(*(one.tolist() for one in there), strict=True)
            if many
        ]

    def _take(self, cls: int, node: int, count: int, *, evening: bool) -> bool:
        """Take a step, as far as the rules among members let it, or find that it cannot be taken.

        Returns whether it was taken whole.
        """
        model, stairs = self.model, self._stairs
        seen = self._known(cls, node, count)
        victims = stairs.victims(cls, node, count, evening=evening) if seen is None else seen.victims
        wide = [
            (rule, room, int(room[rule.domains[node]]))
            for rule, room in zip(model.rooms, self._placing.rooms, strict=True)
            if not rule.alone and rule.take[cls]
        ]
        units = {int(model.unit[slot, node]) for slot in victims} - {0}
        singles = {(slot, node) for slot in victims if not model.unit[slot, node]}
        more = Draft({}, singles, units)
        if victims and not stairs.is_allowed(more):
            stairs.keep(victims, node, units)
            return False
        if stairs.going + victims_of(model, more) > model.most_victims:
            self.bounded = True
            return False
        slots: list[Slot] = [*singles, *slots_of(model, units)]
        self._placing.remove(slots)
        placed = self._placing.come(cls, node, count)
        if not placed or (placed < count and slots):
            self._placing.remove(slots, -1)
        if not placed:
            self._open[cls, node] = False  # members that are there keep the class away
            return False
        if placed < count and slots:
            self._placing.place(cls, node, -placed)  # fewer pods go for fewer members
            return self._take(cls, node, placed, evening=evening)
        stairs.charge(more)
        self._go(slots)
        self.draft.singles |= singles
        self.draft.units |= units
        self.draft.members[node, cls] = self.draft.members.get((node, cls), 0) + placed
        stairs.place(cls, node, placed)
        self._left[cls] -= placed
        self.missing -= placed
        if self._evening or any(room[rule.domains[node]] != before for rule, room, before in wide):
            stairs.shared += 1
        return placed == count

    def _go(self, slots: list[Slot]) -> None:
        """Let pods go, and price the other nodes that this makes room on."""
        touched, widely = self._stairs.go(slots)
        self._freed_widely |= widely
        if len(touched) > 1:
            self._price_again(tuple(range(len(self.model.counts))), sorted(touched))
