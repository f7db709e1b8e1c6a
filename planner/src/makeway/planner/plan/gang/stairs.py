"""What the next members on a node would cost, with all that is placed and all that has gone so far.

Of every node it is known what it costs to host 1, 2 … members of a class, by kube-scheduler's reprieve with
all nodes side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from makeway.core.k8s.importance import NOT_STARTED
from makeway.planner.plan.evaluate import reprieve
from makeway.planner.plan.gang.draft import Draft, Placing, Slot, Taken, is_allowed, taken_of, victims_of
from makeway.planner.plan.gang.model import CALLS, Model, RoomRule, SpreadRule, unit_terms
from makeway.planner.plan.gang.pricing import NEVER, Costs, Pricing
from makeway.planner.plan.price import SHIFT
from makeway.planner.snapshot.columns import MOST, Flags, Ints

TOUCHED: Final = 64
"""Nodes of a domain that are priced again at once where a pod that goes makes room in all of it; nodes of
larger ones when their turn comes."""


COLUMNS: Final = 2048
"""Nodes times counts of members times resources that are priced side by side."""


class Stairs:
    """The prices of one run.

    `room`: int64[R, N]; `_emptied_room`, without all that is removable. `placing`: what members ask of one
    another. `shared` counts what changes nodes' prices from elsewhere. `going`: victims so far. `elements`:
    how much was looked at. No victim has a priority above `level`; `strict`: no budget is violated.
    """

    def __init__(self, model: Model, level: int, *, strict: bool) -> None:
        self.model = model
        self.room = model.room.copy()
        self.placing = Placing(model)
        self.shared = 0
        self.going = 0
        self.elements = 8 * model.depth * model.nodes
        self._strict = strict
        self._level = level
        self._gone = np.zeros_like(model.removable)
        self._debits = dict(model.debits)
        self._lost: Counter[int] = Counter()
        self._removable = may_go(model, level)
        self._emptied_room = model.emptied(self._removable)
        self._lead = model.unit > 0
        self._lead &= ~model.follows
        self._has_units = bool(self._lead.any())
        units = model.whole(range(len(model.units)))
        pricing = Pricing.of(
            model,
            level,
            victims=min(model.depth + max((unit.size for unit in units), default=0), model.most_victims),
            groups=len(units) + len(model.spare),
            most=level + SHIFT,
            lost=int(model.lost.max(initial=0)),
        )
        self._weights = pricing.weights
        self._each = pricing.pods(slice(None), slice(None))
        if self._has_units:
            of_units = np.array(
                [0, *(pricing.price(unit_terms(unit, level)) for unit in units)], np.complex128
            )
            self._each = np.where(model.unit == 0, self._each, np.where(self._lead, of_units[model.unit], 0))
        self._has_budgets = bool(model.budgets.any())
        self._has_gangs = bool(model.spare)
        self._taken: Taken = defaultdict(Counter)

    def asked(self, cls: int) -> int:
        """Return how many resources and rules a class asks for, 4 at the least."""
        model = self.model
        rules = [rule.cls for rule in model.rooms] + [rule.cls for rule in model.spreads]
        return max(4, int((model.need[cls] > 0).sum()) + rules.count(cls))

    def cheapest(
        self, cls: int, nodes: Ints, most: int, *, evening: bool = False
    ) -> tuple[Costs, Ints, Ints]:
        """Return what the cheapest step on each of some nodes costs a member, complex[M], and its members.

        int64[M], 0 where there is no step. And when the first of its victims of the level started,
        int64[M]. `most`: members at the most. `evening`: pods go for an even spread, too.
        O(slots · nodes · most).
        """
        model = self.model
        need, lacks, uses, candidates, violating = self._asked_of(cls, nodes, evening=evening)
        behind = _Behind.of(uses, candidates, violating)
        spare = behind.together[:, 0] - lacks
        costs = self._costs(candidates, violating, nodes)
        sums = _from_each_on(costs)
        self.elements += 4 * CALLS + 4 * len(uses) * self.model.depth * nodes.size
        best = np.full(nodes.size, NEVER)
        count, slots = np.zeros((2, nodes.size), np.int64)
        # As many counts side by side as make no array too large.
        width = max(1, COLUMNS // max(1, nodes.size * max(1, need.size)))
        for first in range(1, most + 1, width):
            counts = np.repeat(np.arange(first, min(first + width, most + 1)), nodes.size)
            fits = np.asarray((need * counts <= np.tile(spare, counts.size // nodes.size)).all(axis=0))
            if not fits.any():
                break
            wide = np.flatnonzero(fits)
            at = wide % nodes.size
            self.elements += self.model.depth * (CALLS // 4 + counts.size + 4 * need.size * wide.size)
            lacking = lacks[:, at] + need * counts[wide]
            start, sure = behind.starts(lacking, at)
            prices = np.full(fits.size, NEVER)
            prices[wide] = sums[start, at] / counts[wide]
            begins = np.zeros(fits.size, np.int64)
            begins[wide] = start
            if not sure.all():
                others = np.flatnonzero(~sure)
                victims = behind.victims(lacking[:, others], at[others], start[others])
                paid = (victims * costs[:, at[others]]).sum(axis=0)
                prices[wide[others]] = paid / counts[wide[others]]
            rows = (
                *(one.reshape(-1, nodes.size) for one in (prices, begins)),
                counts[:: nodes.size].tolist(),
            )
            for price, begin, many in zip(*rows, strict=True):
                better = (price <= best) & (price < NEVER)
                best, count = np.where(better, price, best), np.where(better, many, count)
                slots = np.where(better, begin, slots)
        highest = candidates & (model.priority[:, nodes] == self._level)
        started = np.full((len(candidates) + 1, nodes.size), NOT_STARTED)
        starts = np.where(highest, model.start[:, nodes], NOT_STARTED)
        np.minimum.accumulate(starts[::-1], axis=0, out=started[-2::-1])
        return best, count, started[slots, np.arange(nodes.size)]

    def victims(self, cls: int, node: int, count: int, *, evening: bool = False) -> list[int]:
        """Return the slots of the pods that go where so many members come, by kube-scheduler's reprieve."""
        found = self._victims(cls, np.array([node]), np.array([count]), evening=evening)
        return np.flatnonzero(found[:, 0]).tolist()

    def _victims(self, cls: int, nodes: Ints, counts: Ints, *, evening: bool = False) -> Flags:
        """Return bool[D, M], the pods that go where so many members come to each of some nodes."""
        need, lacks, uses, candidates, violating = self._asked_of(cls, nodes, evening=evening)
        self.elements += self.model.depth * (CALLS // 4 + 8 * len(uses) * nodes.size)
        at, lacking = np.arange(nodes.size), need * counts + lacks
        behind = _Behind.of(uses, candidates, violating)
        start, sure = behind.starts(lacking, at)
        victims: Flags = candidates & (np.arange(len(candidates))[:, None] >= start)
        if not sure.all():
            victims[:, ~sure] = behind.victims(lacking[:, ~sure], at[~sure], start[~sure])
        return victims

    @contextmanager
    def ahead(self, cls: int, nodes: Ints, counts: Ints) -> Iterator[tuple[Flags, Flags]]:
        """Have some nodes meanwhile as they are once so many members have come to each.

        Gives bool[D, M], the pods that go for them, and bool[M], rules of wider domains leave the same room.
        """
        model, alone = self.model, []
        victims = self._victims(cls, nodes, counts)
        uses = np.where(victims, model.uses[:, :, nodes], 0).sum(axis=1)
        room, emptied = self.room[:, nodes], self._emptied_room[:, nodes]
        need = model.need[cls][:, None] * counts
        same = np.ones(nodes.size, np.bool_)
        for rule, rooms in zip(model.rooms, self.placing.rooms, strict=True):
            more = np.where(victims, rule.use[:, nodes], 0).sum(axis=0) - rule.take[cls] * counts
            inside = rule.domains[nodes] >= 0
            if rule.alone:
                alone.append((rooms, rule.domains[nodes][inside], more[inside]))
            else:
                same &= ~inside | (more == 0)
        self.room[:, nodes], self._emptied_room[:, nodes] = room + uses - need, emptied - need
        self._gone[:, nodes] |= victims
        for rooms, domains, more in alone:
            rooms[domains] += more
        yield victims, same
        self.room[:, nodes], self._emptied_room[:, nodes] = room, emptied
        self._gone[:, nodes] &= ~victims
        for rooms, domains, more in alone:
            rooms[domains] -= more

    def may_fit(self, cls: int, nodes: Ints) -> Flags:
        """Report on which nodes a member more has the resources without all that is removable; bool[M].

        A bound: rules and budgets are not looked at. O(resources · nodes).
        """
        need = self.model.need[cls][:, None]
        return np.asarray(((need == 0) | (self._emptied_room[:, nodes] >= need)).all(axis=0))

    def keep(self, slots: list[int], node: int, units: set[int]) -> None:
        """Let some pods of a node, and units, go in no step any more."""
        self._removable[slots, node] = False
        for unit in units:
            self._removable &= self.model.unit != unit

    def place(self, cls: int, node: int, count: int) -> None:
        """Take room for members. What they ask of one another is `placing`'s."""
        need = self.model.need[cls] * count
        self.room[:, node] -= need
        self._emptied_room[:, node] -= need

    def go(self, slots: Iterable[Slot]) -> tuple[set[int], bool]:
        """Let pods go; return the nodes that this makes room on, and whether it does in a large domain."""
        model = self.model
        touched, widely = set(), False
        for slot, node in slots:
            self._gone[slot, node] = True
            self.room[:, node] += model.uses[:, slot, node]
            if not self._removable[slot, node]:
                self._emptied_room[:, node] += model.uses[:, slot, node]
            touched.add(node)
            gang = int(model.gang[slot, node])
            if gang:
                self._lost[gang] += 1
                self.shared += 1
            for rule in model.rooms:
                if not rule.alone and rule.use[slot, node] and rule.domains[node] >= 0:
                    there = rule.domains == rule.domains[node]
                    if np.count_nonzero(there) <= TOUCHED:
                        touched.update(np.flatnonzero(there).tolist())
                    else:
                        widely = True
        return touched, widely

    def is_allowed(self, more: Draft) -> bool:
        """Report whether hard budgets and guarantees of queues let pods be evicted beside those that are."""
        return is_allowed(self.model, more, self._debits, self._taken)

    def charge(self, more: Draft) -> None:
        """Count what goes against budgets, queues and the bound of an order."""
        model, budgets = self.model, self.model.snapshot.budgets
        self.going += victims_of(model, more)
        whole = model.whole(more.units)
        charges = [(held, 1) for slot in more.singles if (held := int(model.budgets[slot]))]
        charges += [one for unit in whole for one in unit.sets.items()]
        for held, count in charges:
            self.shared += 1
            for key in budgets.charged(held):
                self._debits[key] = self._debits.get(key, 0) + count
        if model.margins:
            for number, amounts in taken_of(model, more.singles, whole).items():
                self._taken[number].update(amounts)

    def _asked_of(self, cls: int, nodes: Ints, *, evening: bool) -> tuple[Ints, Ints, Ints, Flags, Flags]:
        """Return what each member takes, and what is lacking were they none but for what is asked for once.

        And what each removable pod frees, which they are, and which violate a budget. int64[Q, 1],
        int64[Q, M], int64[Q, D, M], bool[D, M] twice; Q: resources that the class asks for, then its rules,
        those of spread where these are to be made even. Of a unit all stands at the first of its pods.
        """
        model, budgets = self.model, self.model.snapshot.budgets
        asked = np.flatnonzero(model.need[cls] > 0)
        candidates = self._removable[:, nodes] & ~self._gone[:, nodes]
        violating = np.zeros_like(candidates)
        if self._has_budgets:
            sets = np.where(candidates, model.budgets[:, nodes], 0)
            if sets.any():
                # Where none may be violated, budgets are charged for the least important first.
                turn = slice(None, None, -1) if self._strict else slice(None)
                violating = budgets.violating(sets[turn], self._debits)[turn]
        if self._has_units:
            violating = self._violating_units(candidates, violating, nodes)
        if self._strict:
            candidates &= ~violating
            violating = np.zeros_like(candidates)
        rules = [rule for rule in model.rooms if rule.cls == cls]
        use = [model.uses[:, :, nodes][asked]]
        take, lacks = [model.need[cls, asked]], [-self.room[asked[:, None], nodes]]

        def ask(rule: RoomRule | SpreadRule, once: int, room: Ints) -> None:
            use.append(rule.use[:, nodes][None])
            take.append(rule.take[cls : cls + 1])
            lacks.append((once - rule.take[cls] - room)[None])

        for number, rule in enumerate(model.rooms):
            if rule.cls == cls:
                domains = rule.domains[nodes]
                ask(rule, rule.need, np.where(domains < 0, MOST, self.placing.rooms[number][domains]))
        for at, spread in enumerate(model.spreads):
            if evening and spread.cls == cls:
                ask(spread, 0, self.placing.evenness(at, nodes))
        uses = np.where(candidates, np.concatenate(use), 0)
        if self._has_units:
            follows = model.follows[:, nodes] & candidates
            for slot in range(uses.shape[1] - 1, 0, -1):
                uses[:, slot - 1] += np.where(follows[slot], uses[:, slot], 0)
                uses[:, slot][:, follows[slot]] = 0
            candidates &= ~follows
            lead = candidates & (model.unit[:, nodes] > 0)
            for at, rule in enumerate(rules, asked.size):
                if not rule.alone:
                    domains = np.broadcast_to(np.maximum(rule.domains[nodes], 0), lead.shape)
                    freed = _freed_by_units(model, rule)[model.unit[:, nodes], domains]
                    np.copyto(uses[at], freed, where=lead & (rule.domains[nodes] >= 0))
        need = np.concatenate(take)[:, None]
        return need, np.concatenate(lacks), uses, candidates, violating & candidates

    def _violating_units(self, candidates: Flags, violating: Flags, nodes: Ints) -> Flags:
        """Flag all pods of units of which one violates a budget, wherever it runs."""
        model = self.model
        units = model.unit[:, nodes]
        for number in np.unique(units[candidates]).tolist():
            unit = model.units[number]
            if unit is not None:
                bad = any(model.snapshot.budgets.violations([unit.sets], self._debits))
                violating = np.where(units == number, bad, violating)
        return violating

    def _costs(self, candidates: Flags, violating: Flags, nodes: Ints) -> Costs:
        """Return complex[D, M], what each pod costs by going."""
        each = self._each[:, nodes] + self._weights.get("budgets", 0j) * violating
        if self._has_gangs:
            each += self._weights.get("groups", 0j) * self._breaking(nodes)
        return np.where(candidates, each, 0)

    def _breaking(self, nodes: Ints) -> Flags:
        """Return bool[D, M]: pods of gangs that can lose none more, and have not fallen below yet."""
        last = [gang for gang, spare in self.model.spare.items() if self._lost[gang] == spare]
        return np.isin(self.model.gang[:, nodes], last)


def _freed_by_units(model: Model, rule: RoomRule) -> Ints:
    """Return int64[units, domains], what each unit takes of a rule on all nodes. O(slots · nodes)."""
    freed = np.zeros((len(model.units), rule.room.size), np.int64)
    slots, nodes = np.nonzero((model.unit > 0) & (rule.domains >= 0))
    np.add.at(freed, (model.unit[slots, nodes], rule.domains[nodes]), rule.use[slots, nodes])
    return freed


def may_go(model: Model, level: int) -> Flags:
    """Return bool[D, N], the pods up to a level."""
    found = model.removable & (model.priority <= level)
    if len(model.units) == 1:
        return found
    highest = [-MOST if unit is None else max(pod.priority for pod in unit.members) for unit in model.units]
    stays = np.array(highest, np.int64) > level
    stays[model.unit[~found]] = True
    stays[0] = False
    return np.asarray(found & ~stays[model.unit])


def _from_each_on(amounts: Any) -> Any:
    """Return […, D + 1, M], the sums from each slot on. `amounts`: […, D, M]."""
    found = np.zeros((*amounts.shape[:-2], amounts.shape[-2] + 1, amounts.shape[-1]), amounts.dtype)
    np.cumsum(amounts[..., ::-1, :], axis=-2, out=found[..., -2::-1, :])
    return found


@dataclass(frozen=True, slots=True)
class _Behind:
    """What candidates free from each slot on. `uses`, `candidates`, `violating`: as `reprieve` takes them.

    `together`: int64[Q, D + 1, M]. `least`: int64[Q, D + 2, M], the least that one of them does; MOST where
    there is none. `in_order`: those in front are reprieved first.
    """

    uses: Ints
    candidates: Flags
    violating: Flags
    together: Ints
    least: Ints
    in_order: bool

    @classmethod
    def of(cls, uses: Ints, candidates: Flags, violating: Flags) -> _Behind:
        """Look at candidates of some nodes."""
        least = np.full((len(uses), len(candidates) + 2, candidates.shape[1]), MOST, np.int64)
        np.minimum.accumulate(np.where(candidates, uses, MOST)[:, ::-1], axis=1, out=least[:, -3::-1])
        return cls(uses, candidates, violating, _from_each_on(uses), least, not violating.any())

    def starts(self, lacking: Ints, at: Ints) -> tuple[Ints, Flags]:
        """Return int64[K], up to which slot all are reprieved, and bool[K], it is certain that no others are.

        None of those behind has room then. `lacking`: int64[Q, K]; `at`: int64[K], places of nodes.
        """
        slots = self.together.shape[1] - 1
        start, end = np.zeros(at.size, np.int64), np.full(at.size, slots)
        for _ in range(slots.bit_length()):
            middle = (start + end + 1) // 2
            enough = (self.together[:, middle, at] >= lacking).all(axis=0)
            start, end = np.where(enough, middle, start), np.where(enough, end, middle - 1)
        none = (self.together[:, start, at] - lacking < self.least[:, start + 1, at]).any(axis=0)
        return start, (none | (start == slots)) & self.in_order

    def victims(self, lacking: Ints, at: Ints, start: Ints) -> Flags:
        """Return bool[D, K], who goes. As `starts`, which says from where on to look."""
        behind = slice(int(start.min()) if self.in_order else 0, None)
        found = np.zeros((len(self.candidates), at.size), np.bool_)
        uses, candidates, violating = self.uses[:, behind], self.candidates[behind], self.violating[behind]
        found[behind] = reprieve(uses, lacking, candidates, violating, at)
        return found
