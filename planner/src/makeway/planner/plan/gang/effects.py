"""What pods that go and members that come add up to over several nodes, by column.

Budgets that may be violated, gangs that may break, bounds that all victims together keep, rules of domains
wider than a node: each is a number to which victims and members add, and a cap. All else of a price is a sum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Final, Literal

import numpy as np

from makeway.planner.plan.gang.draft import Draft, places_of, slots_of, taken_of, victims_of
from makeway.planner.plan.gang.model import AffinityRule, Model, RoomRule, SpreadRule, unit_cost, unit_terms
from makeway.planner.plan.gang.pricing import Pricing
from makeway.planner.plan.gang.stairs import may_go
from makeway.planner.plan.planned_unit import PlannedUnit
from makeway.planner.plan.price import SHIFT
from makeway.planner.snapshot.columns import MOST, Flags, Ints

Kind = Literal["soft", "broken", "hard", "wide", "there", "even"]
"""What a column is for: what is beyond the cap of a `soft` one costs a violation, each; the first beyond the
cap of a `broken` one costs a group; a `hard` one may not pass its cap, and a `wide` one not where the column
after it, `there`, counts members. An `even` one is looked at once all is placed."""

MOST_LEASTS: Final = 16
"""Least numbers of a spread that are tried."""

PASSED: Final = -(2**40)
"""In a column whose cap counts no more."""


@dataclass(frozen=True, slots=True)
class _Column:
    kind: Kind
    cap: int
    key: object
    number: int = 0
    domain: int = 0


@dataclass(frozen=True, slots=True)
class SpreadBounds:
    """A domain of a spread: its column, before that of its members; what it holds now; bounds in the end."""

    place: int
    total: int
    least: int
    most: int


class Effects:
    """The columns of a search over some nodes, and what each victim and each member adds to them.

    No victim is above `level`.
    """

    def __init__(
        self,
        model: Model,
        level: int,
        nodes: Ints,
        *,
        base: Draft,
        least: tuple[int, ...],
    ) -> None:
        self.model = model
        self.rooms = (*model.rooms, *chain.from_iterable(map(_anchors, model.affinities)))
        self.level = level
        self.nodes = nodes
        going = may_go(model, level)
        self.may_go = going & (model.unit == 0)
        self.units = [
            number
            for number in np.unique(model.unit[:, nodes][going[:, nodes]]).tolist()
            if model.units[number] is not None
        ]
        numbers = {*self.units, *base.units}
        whole = model.whole(numbers)
        at = model.priority[:, nodes][self.may_go[:, nodes]] + SHIFT
        fixed = [int(model.priority[one]) + SHIFT for one in base.singles]
        costs = np.array([*at.tolist(), *fixed, *map(unit_cost, whole)], np.int64)
        lost = [*model.lost[:, nodes][self.may_go[:, nodes]].tolist(), *(unit.lost_work for unit in whole)]
        lost += [int(model.lost[one]) for one in base.singles]
        self.pricing = Pricing.of(
            model,
            level,
            victims=min(int(at.size) + len(fixed) + sum(unit.size for unit in whole), model.most_victims),
            groups=len(numbers) + len(model.spare),
            most=int(costs.max(initial=1)),
            lost=max(lost, default=0),
            grain=max(1, int(np.gcd.reduce(costs))) if costs.size else 1,
        )
        self.weights = self.pricing.weights
        self.columns = self._columns(base, whole)
        kinds = [one.kind for one in self.columns]
        self.cap = np.array([one.cap for one in self.columns], np.int64)
        self.soft = np.array([kind == "soft" for kind in kinds], np.bool_)
        self.breaking = np.array([kind == "broken" for kind in kinds], np.bool_)
        self.hard = np.array([kind == "hard" for kind in kinds], np.bool_)
        self.wide = np.array([kind == "wide" for kind in kinds], np.bool_)
        self.even = np.array([kind == "even" for kind in kinds], np.bool_)
        self.spreads = tuple(self._spreads(least))
        self._place = {one.key: place for place, one in enumerate(self.columns)}

    def base_cost(self, base: Draft) -> complex:
        """Return what those cost who go whatever is chosen, without what they violate or break."""
        model = self.model
        found = complex(self.pricing.pods(*places_of(base.singles)).sum())
        whole = model.whole(base.units)
        return found + sum(self.pricing.price(unit_terms(unit, self.level)) for unit in whole)

    # ------------------------------------------------------------------------------------ columns

    def _spreads(self, least: tuple[int, ...]) -> Iterator[SpreadBounds]:
        for place, one in enumerate(self.columns):
            if isinstance(one.key, tuple) and one.key[0] == "even":
                rule = self.model.spreads[one.number]
                lowest = least[one.number] if rule.exists[one.domain] and not rule.few else -MOST
                most = least[one.number] + rule.slack + int(rule.take[rule.cls])
                yield SpreadBounds(place, int(rule.totals[one.domain]), lowest, most)

    def _columns(self, base: Draft, whole: list[PlannedUnit]) -> list[_Column]:
        model, nodes = self.model, self.nodes
        found: list[_Column] = []
        alone = self.may_go.copy()
        alone[:, np.setdiff1d(np.arange(model.nodes), nodes)] = False
        for one in base.singles:
            alone[one] = True
        charged: Counter[tuple[str, str]] = Counter()
        hard: set[tuple[str, str]] = set()
        budgets = model.snapshot.budgets
        for number, count in _sets(model.budgets[alone], whole):
            for key in budgets.charged(number):
                charged[key] += count
                if budgets.hard(np.array([number])).any():
                    hard.add(key)
        for key, count in sorted(charged.items()):
            allowed = max(budgets.allows(key) - model.debits.get(key, 0), 0)
            if count > allowed:
                found.append(_Column("hard" if key in hard else "soft", allowed, ("budget", key)))
        gangs = Counter(model.gang[alone].tolist())
        for gang, spare in sorted(model.spare.items()):
            if gangs[gang] > spare:
                found.append(_Column("broken", spare, ("gang", gang)))
        found += [
            _Column("hard", margin.spare, ("margin", number), number)
            for number, margin in enumerate(model.margins)
        ]
        if int(alone.sum()) + sum(unit.size for unit in whole) > model.most_victims:
            found.append(_Column("hard", model.most_victims, "victims"))
        for number, rule in enumerate(self.rooms):
            if rule.alone:
                continue
            for domain in np.unique(rule.domains[nodes]).tolist():
                if domain >= 0 and rule.room[domain] < MOST:
                    cap = int(rule.room[domain]) + int(rule.take[rule.cls]) - rule.need
                    found.append(_Column("wide", min(cap, MOST), ("wide", number, domain), number, domain))
                    found.append(_Column("there", MOST, ("there", number, domain), number, domain))
        for number, spread in enumerate(model.spreads):
            for domain in np.unique(spread.domains[nodes]).tolist():
                if domain >= 0:
                    found.append(_Column("even", MOST, ("even", number, domain), number, domain))
                    found.append(_Column("even", MOST, ("evened", number, domain), number, domain))
        return found

    def start(self, base: Draft) -> Ints:
        """Return int64[A], the columns once some pods have gone and some members are there."""
        model = self.model
        at = places_of(base.singles)
        found = np.zeros(len(self.columns), np.int64)
        whole = model.whole(base.units)
        taken = taken_of(model, base.singles, whole) if model.margins else {}
        for number, count in _sets(model.budgets[at], whole):
            for key in model.snapshot.budgets.charged(number):
                self._add(found, ("budget", key), count)
        for gang, count in Counter(model.gang[at].tolist()).items():
            self._add(found, ("gang", gang), count)
        for number, margin in enumerate(model.margins):
            self._add(found, ("margin", number), margin.taken(taken))
        self._add(found, "victims", victims_of(model, base))
        by_node: defaultdict[int, list[int]] = defaultdict(list)
        if self.wide.any() or self.even.any():
            for slot, node in (*base.singles, *slots_of(model, base.units)):
                by_node[node].append(slot)
        for node, slots in by_node.items():
            found += self._of_rules(node, np.array(slots, np.int64)).sum(axis=0)
        counts: defaultdict[int, Ints] = defaultdict(lambda: np.zeros(len(model.counts), np.int64))
        for (node, cls), count in base.members.items():
            counts[node][cls] += count
        for node, members in counts.items():
            found += self.of_members(node, members[None])[0]
        return found

    def _add(self, found: Ints, key: object, amount: int | Ints | Flags) -> None:
        """Add to a column, if there is one. `found`: int64[A], or int64[pods, A]."""
        place = self._place.get(key)
        if place is not None:
            found.T[place] += amount

    def of_pods(self, node: int, slots: Ints) -> Ints:
        """Return int64[pods, A], what each of a node's pods adds by going alone."""
        model = self.model
        found = self._of_rules(node, slots)
        budgets, queues = model.snapshot.budgets, model.snapshot.queues
        held, gangs = model.budgets[slots, node], model.gang[slots, node]
        for number in set(held.tolist()) - {0}:
            for key in budgets.charged(number):
                self._add(found, ("budget", key), held == number)
        for gang in set(gangs.tolist()):
            self._add(found, ("gang", gang), gangs == gang)
        for turn, slot in enumerate(slots.tolist() if model.margins else ()):
            pod = model.pod(slot, node)
            taken = {queues.number_of(pod): pod.requests}
            for number, margin in enumerate(model.margins):
                self._add(found[turn], ("margin", number), margin.taken(taken))
        self._add(found, "victims", 1)
        return found

    def _of_rules(self, node: int, slots: Ints) -> Ints:
        found = np.zeros((slots.size, len(self.columns)), np.int64)
        for number, rule in enumerate(self.rooms):
            self._add(found, ("wide", number, int(rule.domains[node])), -rule.use[slots, node])
        for number, spread in enumerate(self.model.spreads):
            self._add(found, ("even", number, int(spread.domains[node])), -spread.use[slots, node])
        return found

    def of_members(self, node: int, members: Ints) -> Ints:
        """Return int64[M, A], what some members of each class add on a node. `members`: int64[M, C]."""
        found = np.zeros((members.shape[0], len(self.columns)), np.int64)
        for number, rule in enumerate(self.rooms):
            domain = int(rule.domains[node])
            self._add(found, ("wide", number, domain), members @ rule.take)
            self._add(found, ("there", number, domain), members[:, rule.cls])
        for number, spread in enumerate(self.model.spreads):
            domain = int(spread.domains[node])
            self._add(found, ("even", number, domain), members @ spread.take)
            self._add(found, ("evened", number, domain), members[:, spread.cls])
        return found


def _sets(held: Ints, units: list[PlannedUnit]) -> Iterator[tuple[int, int]]:
    """Yield the sets of budgets that pods and units hold, and how many pods hold each."""
    found = Counter(held.tolist())
    for unit in units:
        found.update(unit.sets)
    yield from ((number, count) for number, count in found.items() if number)


def _anchors(rule: AffinityRule) -> Iterator[RoomRule]:
    """Yield what required affinity asks as rules of room: so many pods may go, and one stays."""
    for domains, totals in zip(rule.domains, rule.totals, strict=True):
        room = np.where(totals > 0, totals, MOST)
        yield RoomRule(rule.cls, "", domains, room, room, -rule.use, 0 * rule.take, 1, alone=False)


def leasts_of(model: Model, nodes: Ints) -> list[tuple[int, ...]]:
    """Return what each spread's domains could all hold in the end, of which some are left out where many.

    With the least of all domains given a spread is a bound for each domain by itself.
    """
    leasts = [_leasts(model, rule, nodes) for rule in model.spreads]
    return list(islice(product(*leasts), MOST_LEASTS))


def _leasts(model: Model, rule: SpreadRule, nodes: Ints) -> list[int]:
    """Return how much the domain that holds least could hold in the end, the most first."""
    if rule.few or not rule.exists.any():
        return [0]
    here = np.zeros(rule.totals.size, np.bool_)
    here[rule.domains[nodes][rule.domains[nodes] >= 0]] = True
    least = rule.totals.copy()
    inside = rule.domains >= 0
    use = np.where(model.removable, rule.use, 0).sum(axis=0)
    np.subtract.at(least, rule.domains[inside], use[inside])
    of_all, elsewhere = rule.totals[rule.exists], rule.totals[rule.exists & ~here]
    most = (int(of_all.sum()) + model.must * int(rule.take.max())) // of_all.size
    most = min([most, *elsewhere.tolist()])
    lowest = max(0, min(most, int(least[rule.exists].min())))
    return list(range(most, lowest - 1, -1))[:MOST_LEASTS]
