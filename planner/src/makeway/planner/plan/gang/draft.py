"""A plan in the making: which members go where, which pods go for them, whether it holds, and its price."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from makeway.core.k8s.importance import NOT_STARTED
from makeway.planner.plan.constraints.layers import least_of_others
from makeway.planner.plan.evaluate import reprieve
from makeway.planner.plan.gang.model import AffinityRule, Model, RoomRule, SpreadRule, members_at
from makeway.planner.plan.planned_unit import PlannedUnit
from makeway.planner.plan.price import NO_PRIORITY, SHIFT, Price
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import MOST, Ints

Slot = tuple[int, int]
"""A pod: its slot and its node's place."""

Step = tuple[int, int, int]
"""Class, node's place, and how many members are placed there one after the other."""


Taken = dict[int, Counter[str]]
"""What victims hold, by their queue and by resource."""

FEW: Final = 64
"""Victims up to which they are offered back one by one where there are rules."""


@dataclass(slots=True)
class Draft:
    """`members`: how many, by node's place and class. `singles`: pods that go alone. `units`: go whole."""

    members: dict[tuple[int, int], int] = field(default_factory=dict)
    singles: set[Slot] = field(default_factory=set)
    units: set[int] = field(default_factory=set)

    @property
    def placed(self) -> int:
        """Return how many members are placed."""
        return sum(self.members.values())

    def copy(self) -> Draft:
        """Return another one like it."""
        return Draft(dict(self.members), set(self.singles), set(self.units))


def slots_of(model: Model, units: Iterable[int]) -> Iterator[Slot]:
    """Yield the pods of units on the model's nodes. O(slots · nodes), nothing without units."""
    if numbers := [*units]:
        yield from map(tuple, np.argwhere(np.isin(model.unit, numbers)).tolist())


def gone(model: Model, draft: Draft) -> list[Slot]:
    """Return all pods that go on the model's nodes."""
    return [*draft.singles, *slots_of(model, draft.units)]


def price_of(model: Model, draft: Draft) -> Price:
    """Return what a draft costs. O(victims · log victims)."""
    at, whole = places_of(draft.singles), model.whole(draft.units)
    priorities: list[int] = model.priority[at].tolist()
    priorities += [pod.priority for unit in whole for pod in unit.members]
    highest = max(priorities, default=NO_PRIORITY)
    starts: list[int] = model.start[at][model.priority[at] == highest].tolist()
    starts += [unit.unit.start for unit in whole if members_at(unit, highest)]
    charges = [
        ((-int(model.priority[slot, node]), int(model.rank[node]), slot), {held: 1})
        for slot, node, held in _covered(model, draft.singles)
    ]
    for turn, unit in enumerate(whole):
        if unit.sets:
            priority = max(pod.priority for pod in unit.members)
            charges.append(((-priority, -1, turn), dict(unit.sets)))
    work = int(model.lost[at].sum()) + sum(unit.lost_work for unit in whole)
    lost = Counter(model.gang[at].tolist()) if model.spare else Counter[int]()
    broken = len(whole) + sum(
        left >= 0 and lost[gang] > left for gang, left in model.spare.items() if lost[gang]
    )
    charges.sort(key=lambda one: one[0])
    found = model.snapshot.budgets.violations([one for _, one in charges], model.debits) if charges else []
    return Price(
        violations=sum(found),
        highest=highest,
        broken=broken,
        highest_victims=priorities.count(highest),
        priority_sum=sum(priorities) + SHIFT * len(priorities),
        victims=len(priorities),
        start=min(starts, default=NOT_STARTED),
        lost_work=work,
    )


def places_of(slots: Collection[Slot]) -> tuple[Ints, Ints]:
    """Return slots and nodes of some pods, as an index of arrays that are by slot and node."""
    found = np.fromiter(chain.from_iterable(slots), np.int64, 2 * len(slots)).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _covered(model: Model, slots: Collection[Slot]) -> list[tuple[int, int, int]]:
    """Return slot, node and set of budgets of those pods that have one."""
    if not model.has_budgets:
        return []
    at = places_of(slots)
    sets = model.budgets[at]
    return [one for one in zip(*(each.tolist() for each in (*at, sets)), strict=True) if one[2]]


def victims_of(model: Model, draft: Draft) -> int:
    """Return how many pods go, also on other nodes."""
    return len(draft.singles) + sum(unit.size for unit in model.whole(draft.units))


def is_allowed(
    model: Model, draft: Draft, debits: Mapping[Key, int] | None = None, taken: Taken | None = None
) -> bool:
    """Report whether all victims together keep hard budgets and the guarantees of queues. O(victims).

    `debits`, `taken`: what others that go take from budgets, with pods in flight, and hold by their queue.
    """
    whole = model.whole(draft.units)
    budgets = model.snapshot.budgets
    charges = [{held: 1} for _, _, held in _covered(model, draft.singles)]
    charges += [dict(unit.sets) for unit in whole if unit.sets]
    hard = [one for one in charges if budgets.hard(np.array([*one])).any()]
    if hard and any(budgets.violations(hard, model.debits if debits is None else debits)):
        return False
    more = taken_of(model, draft.singles, whole) if model.margins else {}
    return all(
        not (asked := one.taken(more)) or one.taken(taken or {}) + asked <= one.spare for one in model.margins
    )


def taken_of(model: Model, singles: Iterable[Slot], units: Iterable[PlannedUnit]) -> Taken:
    """Return what victims hold, by queue and resource. O(victims)."""
    taken: Taken = defaultdict(Counter)
    queues = model.snapshot.queues
    for slot, node in singles:
        taken[int(model.queue[slot, node])].update(model.pod(slot, node).requests)
    for unit in units:
        for pod in unit.members:
            taken[queues.number_of(pod)].update(pod.requests)
    return taken


def holds(model: Model, draft: Draft) -> bool:
    """Report whether a draft keeps every rule and bound."""
    return (
        victims_of(model, draft) <= model.most_victims
        and is_allowed(model, draft)
        and arrange(model, draft) is not None
    )


def trimmed(model: Model, draft: Draft, base: Draft | None = None) -> Draft:
    """Return a draft without pods that need not go, but for a base's, the most important ones offered first.

    O(slots · nodes of the draft) where no rule but room of single nodes counts, else O(victims · members) for
    few victims.
    """
    if not draft.singles or (model.is_ruled and len(draft.singles) > FEW):
        return draft
    offered = draft.singles - base.singles if base is not None else draft.singles
    if not offered:
        return draft
    slots, nodes = places_of(offered)
    places = np.unique(nodes)
    candidates = np.zeros((model.removable.shape[0], places.size), np.bool_)
    candidates[slots, np.searchsorted(places, nodes)] = True
    uses = np.where(candidates, model.uses[:, :, places], 0)
    lack, none = uses.sum(axis=1) - _left(model, draft, places), np.zeros_like(candidates)
    needed = reprieve(uses, lack, candidates, none, np.arange(places.size))
    spared = np.argwhere(candidates & ~needed)
    draft = draft.copy()
    # Where there are rules each of them may need one of these gone.
    for slot, place in spared.tolist():
        one = slot, int(places[place])
        without = Draft(draft.members, draft.singles - {one}, draft.units) if model.is_ruled else None
        if without is None:
            draft.singles.discard(one)
        elif arrange(model, without) is not None:
            draft = without
    return draft


def _left(model: Model, draft: Draft, places: Ints) -> Ints:
    """Return int64[R, M], the room on some nodes without all victims, with the members; MOST if not asked."""
    asked = np.zeros((model.need.shape[1], places.size), np.int64)
    here = {node: at for at, node in enumerate(places.tolist())}
    for (node, cls), count in draft.members.items():
        if node in here:
            asked[:, here[node]] += model.need[cls] * count
    slots, nodes = places_of(gone(model, draft))
    among = np.isin(nodes, places)
    room = model.room[:, places].T
    np.add.at(room, np.searchsorted(places, nodes[among]), model.uses[:, slots[among], nodes[among]].T)
    room = room.T
    return np.where(asked > 0, room - asked, MOST)


class Placing:
    """The rules of one model while members are placed one after the other."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rooms = [rule.room.copy() for rule in model.rooms]
        self.there = [np.zeros((rule.room.size, len(model.counts)), np.int64) for rule in model.rooms]
        self.spreads = [rule.totals.copy() for rule in model.spreads]
        self.affinities = [[one.copy() for one in rule.totals] for rule in model.affinities]

    def remove(self, slots: Collection[Slot], sign: int = 1) -> None:
        """Let pods go; with a `sign` of -1 they are back. O(rules · pods)."""
        if self.model.is_ruled and slots:
            at = places_of(slots)
            for rule, of_nodes, totals, more in self._counted():
                domains = of_nodes[at[1]]
                inside = domains >= 0
                np.subtract.at(totals, domains[inside], more * sign * rule.use[at][inside])

    def may_come(self, cls: int, node: int, count: int = 1) -> bool:
        """Report whether the rules let so many more members of a class onto a node.

        Spread and affinity are asked for the first of them alone.
        """
        model = self.model
        if not model.allowed[cls, node]:
            return False
        return self.is_open(cls, node) and all(
            self._has_room(number, rule, cls, node, count) for number, rule in enumerate(model.rooms)
        )

    def come(self, cls: int, node: int, count: int) -> int:
        """Put members onto a node, as many of some as the rules let come; return how many."""
        if not (self.spreads or self.affinities) and self.may_come(cls, node, count):
            self.place(cls, node, count)
            return count
        placed = 0
        while placed < count and self.may_come(cls, node):
            self.place(cls, node)
            placed += 1
        return placed

    def is_open(self, cls: int, node: int) -> bool:
        """Report whether spread and affinity let one more member come."""
        even = all(
            rule.cls != cls or rule.domains[node] < 0 or totals[rule.domains[node]] <= _most_in(rule, totals)
            for rule, totals in zip(self.model.spreads, self.spreads, strict=True)
        )
        return even and self.is_near(cls, node)

    def is_near(self, cls: int, node: int) -> bool:
        """Report whether affinity lets one more member come, which no victim changes."""
        return all(
            rule.cls != cls or self._near(rule, of_terms, node)
            for rule, of_terms in zip(self.model.affinities, self.affinities, strict=True)
        )

    def evenness(self, number: int, nodes: Ints) -> Ints:
        """Return int64[M], how many more pods than now the domains of some nodes may hold by a spread rule.

        A member may come onto a node where it is not negative.
        """
        domains = self.model.spreads[number].domains[nodes]
        return np.where(domains < 0, MOST, self.more(number)[domains])

    def more(self, number: int) -> Ints:
        """Return int64[domains], how many more pods than now each may hold by a spread rule.

        A domain that holds the least does not lower what it may hold.
        """
        rule, totals = self.model.spreads[number], self.spreads[number]
        least = np.zeros_like(totals) if rule.few else least_of_others(totals, rule.exists)
        return np.asarray(np.minimum(least + rule.slack - totals, MOST))

    def gate(self, cls: int, node: int) -> tuple[int, ...]:
        """Return what decides whether spread and affinity let a class onto a node: its domains."""
        model = self.model
        spreads = (int(rule.domains[node]) for rule in model.spreads if rule.cls == cls)
        near = (
            int(domain)
            for rule in model.affinities
            if rule.cls == cls
            for domain in (*rule.domains[:, node], rule.may_come[node])
        )
        return cls, *spreads, *near

    def opens(self) -> tuple[bytes, ...]:
        """Return what the answers of `is_open` depend on beside a node's own numbers. O(domains)."""
        even = (
            totals <= _most_in(rule, totals)
            for rule, totals in zip(self.model.spreads, self.spreads, strict=True)
        )
        near = (held > 0 for of_terms in self.affinities for held in of_terms)
        return tuple(one.tobytes() for one in (*even, *near))

    def all_may_come(self, draft: Draft) -> bool:
        """Report whether rules of room let all members of a draft come: in whichever order is no matter.

        The last one of a rule's class that comes finds what the others of its domain have left.
        O(rules · (members + domains)).
        """
        classes = np.array([cls for (_, cls), count in draft.members.items() if count], np.int64)
        nodes = np.array([node for (node, _), count in draft.members.items() if count], np.int64)
        counts = np.array([count for count in draft.members.values() if count], np.int64)
        for rule, room in zip(self.model.rooms, self.rooms, strict=True):
            domains, left = rule.domains[nodes], room.copy()
            inside = domains >= 0
            np.subtract.at(left, domains[inside], (rule.take[classes] * counts)[inside])
            mine = domains[inside & (classes == rule.cls)]
            if (left[mine] + rule.take[rule.cls] < rule.need).any():
                return False
        return True

    def _has_room(self, number: int, rule: RoomRule, cls: int, node: int, count: int) -> bool:
        """Report whether a rule of a class, or of members that are there already, lets so many more come."""
        domain = int(rule.domains[node])
        if domain < 0:
            return True
        room = int(self.rooms[number][domain]) - (count - 1) * int(rule.take[cls])
        if rule.cls == cls:
            return room >= rule.need
        if not rule.take[cls] or not self.there[number][domain, rule.cls]:
            return True
        return room - int(rule.take[cls]) + int(rule.take[rule.cls]) >= rule.need

    @staticmethod
    def _near(rule: AffinityRule, of_terms: list[Ints], node: int) -> bool:
        near = all(
            rule.domains[term, node] >= 0 and held[rule.domains[term, node]] > 0
            for term, held in enumerate(of_terms)
        )
        return near or (bool(rule.may_come[node]) and sum(int(held.sum()) for held in of_terms) <= 0)

    def place(self, cls: int, node: int, count: int = 1) -> None:
        """Put members onto a node."""
        for rule, domains, totals, more in self._counted():
            if domains[node] >= 0:
                totals[domains[node]] += more * count * rule.take[cls]
        for room, there in zip(self.model.rooms, self.there, strict=True):
            if room.domains[node] >= 0:
                there[room.domains[node], cls] += count

    def _counted(self) -> Iterator[tuple[RoomRule | SpreadRule | AffinityRule, Ints, Ints, int]]:
        """Yield rules with the domains of nodes, what these hold, and what a pod more adds to it: 1 or -1."""
        model = self.model
        for rule, room in zip(model.rooms, self.rooms, strict=True):
            yield rule, rule.domains, room, -1
        for spread, totals in zip(model.spreads, self.spreads, strict=True):
            yield spread, spread.domains, totals, 1
        for affinity, of_terms in zip(model.affinities, self.affinities, strict=True):
            for domains, held in zip(affinity.domains, of_terms, strict=True):
                yield affinity, domains, held, 1


def _most_in(rule: SpreadRule, totals: Ints) -> int:
    """Return how many pods a domain may hold for one more to come."""
    least = 0 if rule.few or not rule.exists.any() else int(totals[rule.exists].min())
    return least + rule.slack


def arrange(model: Model, draft: Draft) -> list[Step] | None:
    """Return an order in which the members can be placed once the victims are gone; None where there is none.

    Looks at resources and rules. O(members · nodes that get any), O(members) without rules.
    """
    if not _fits(model, draft):
        return None
    left = [
        (cls, node, count)
        for (node, cls), count in sorted(
            draft.members.items(), key=lambda one: (int(model.rank[one[0][0]]), one[0][1])
        )
        if count
    ]
    if not all(model.allowed[cls, node] for cls, node, _ in left):
        return None
    if not model.is_ruled:
        return left
    placing = Placing(model)
    placing.remove(gone(model, draft))
    if not (model.spreads or model.affinities):
        return _joined(_in_turns(left)) if placing.all_may_come(draft) else None
    gates: dict[tuple[int, ...], deque[Step]] = {}
    for step in left:
        gates.setdefault(placing.gate(step[0], step[1]), deque()).append(step)
    order: list[Step] = []
    while gates:
        before = len(order)
        for gate, waiting in list(gates.items()):
            _place_all(placing, waiting, order)
            if not waiting:
                del gates[gate]
        if len(order) == before:
            return None
    return _joined(order)


def _in_turns(left: list[Step]) -> list[Step]:
    """Return members one at a time, those of one class after the other, and of each in turns of the nodes."""
    order: list[Step] = []
    for of in dict.fromkeys(cls for cls, _, _ in left):
        waiting = [one for one in left if one[0] == of]
        while waiting:
            order += [(cls, node, 1) for cls, node, _ in waiting]
            waiting = [(cls, node, count - 1) for cls, node, count in waiting if count > 1]
    return order


def _place_all(placing: Placing, waiting: deque[Step], order: list[Step]) -> None:
    """Place members of one gate until it closes, one at a time and in turns; put down which.

    A member for which a node has no room now is left for later. O(members).
    """
    held_back = 0
    while waiting and held_back < len(waiting):
        cls, node, count = waiting.popleft()
        if not placing.is_open(cls, node):
            waiting.appendleft((cls, node, count))
            return
        if placing.may_come(cls, node):
            placing.place(cls, node)
            order.append((cls, node, 1))
            held_back, count = 0, count - 1
        else:
            held_back += 1
        if count:
            waiting.append((cls, node, count))


def _joined(order: list[Step]) -> list[Step]:
    joined: list[Step] = []
    for cls, node, count in order:
        if joined and joined[-1][:2] == (cls, node):
            joined[-1] = (cls, node, joined[-1][2] + count)
        else:
            joined.append((cls, node, count))
    return joined


def _fits(model: Model, draft: Draft) -> bool:
    """Report whether the nodes have room for the members once the victims are gone. O(members + victims)."""
    nodes = sorted({node for (node, _), count in draft.members.items() if count})
    return bool((_left(model, draft, np.array(nodes, np.int64)) >= 0).all())
