"""Pods that keep a domain closed to members by anti-affinity, wherever in the domain they run.

Not only pods on the members' own nodes are victims then. The nodes of a class are sorted by the domains that
are closed to it there, of all rules together; what keeps these closed is one set of pods. With such a set
gone, or several, the same question is solved on what is left, and the cheapest plan of all counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

import numpy as np

from makeway.bus.messages import ClosedDomain
from makeway.planner.plan.gang.draft import Draft, Slot, gone, holds, places_of, price_of, trimmed, victims_of
from makeway.planner.plan.gang.levels import fewest_victims, most_alone
from makeway.planner.plan.gang.model import CALLS, Model, RoomRule, Work
from makeway.planner.plan.gang.search import Rank, rank_of
from makeway.planner.plan.gang.solving import Beginning, beginning, bettering, is_least
from makeway.planner.plan.price import NO_PRIORITY
from makeway.planner.snapshot.columns import Flags, Ints

MOST_SETS: Final = 64
"""Sets of blockers by themselves, the cheapest of all, and so many of several of them together."""

MOST_SEARCHED: Final = 16
"""Sets that are searched: those of the cheapest plans."""

MOST_OPEN: Final = 128
"""Nodes up to which all are looked at once a set has gone; of more, so many that it opens, and of others."""

BASES_A_CHUNK: Final = 8
"""Sets that are priced between two pauses."""


def closes(model: Model) -> bool:
    """Report whether sets of blockers can go."""
    return bool(model.snapshot.exemptions.policy.cross_node.most_victims) and any(
        rule.closes for rule in model.rooms
    )


def with_blockers(model: Model, draft: Draft | None, work: Work) -> Generator[None, None, Draft | None]:
    """Return a plan that costs less than a draft, or any without one, with blockers gone; else None.

    Each set of blockers that costs less is first tried without a search, and then those are searched of which
    the cheapest plans came, as far as `work` reaches. None is tried where the draft is as cheap as any by all
    terms. Pauses now and then.
    """
    if not closes(model) or (draft is not None and not draft.singles and not draft.units):
        return None
    each = most_alone(model)
    if draft is not None and is_least(model, each, price_of(model, draft)):
        return None
    yield
    bases = yield from blockers(model)
    opening = yield from _openings(model, each, draft)
    most = model.snapshot.exemptions.policy.cross_node.most_victims
    found, best = None, None if draft is None else rank_of(model, draft)
    begun: list[_Begun] = []
    cheaper: list[tuple[Draft, ...]] = []
    singles = most + model.must * model.removable.shape[0]
    for turn, sets in enumerate(_together(bases, singles, cheaper)):
        base = _union(sets)
        work.spend(4 * CALLS + len(model.rooms) * model.nodes)
        if work.left <= 0:
            break
        if not turn % BASES_A_CHUNK:
            yield
        if best is not None and price_of(model, base).key(model.objective) >= best[0]:
            continue
        if (opened := opening.part(base)) is None:
            continue
        part, places, inner = opened
        work.spend(16 * part.removable.size)
        yield
        if fewest_victims(part, most_alone(part)) > model.most_victims:
            continue
        first = yield from beginning(part, inner, work)
        whole = yield from _whole(model, first.draft, places, most)
        for brought in _brought(part, inner, most, ~opening.open[places]) if whole is None else ():
            first = yield from beginning(brought, inner, work)
            whole = yield from _whole(model, first.draft, places, most)
            if whole is not None:
                break
        rank = None if whole is None else rank_of(model, whole)
        begun.append(_Begun(first, rank, places))
        begun.sort(key=lambda one: (one.rank is None, one.rank))
        del begun[MOST_SEARCHED:]
        if whole is not None and rank is not None and (best is None or rank < best):
            found, best = whole, rank
            cheaper.append(sets)
            yield
            if is_least(model, each, price_of(model, whole)):
                return found
    for one in begun:
        if work.left <= 0:
            break
        least = price_of(one.first.model, one.first.base).key(model.objective)
        if best is not None and least >= best[0]:
            continue
        searched = yield from bettering(one.first, work.part())
        whole = yield from _whole(model, searched, one.places, most)
        rank = None if whole is None else rank_of(model, whole)
        if rank is not None and (best is None or rank < best):
            found, best = whole, rank
    return found


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a set came to without a search; `rank`: of the plan over the model's nodes, None without one."""

    first: Beginning
    rank: Rank | None
    places: Ints


def _whole(model: Model, found: Draft | None, places: Ints, most: int) -> Generator[None, None, Draft | None]:
    """Return a plan over some nodes as one over all, without pods that need not go; None where it fails.

    `places`: int64[nodes of the plan], those of the model. `most`: victims on nodes without members.
    """
    if found is None:
        return None
    at = places.tolist()
    whole = Draft(
        {(at[node], cls): count for (node, cls), count in found.members.items()},
        {(slot, at[node]) for slot, node in found.singles},
        set(found.units),
    )
    whole = trimmed(model, _of_members(model, whole), Draft())
    yield
    stands = len(closed_by(model, whole)) <= most and holds(model, whole)
    yield
    return whole if stands else None


def _brought(model: Model, base: Draft, most: int, opened: Flags) -> Iterator[Model]:
    """Yield the question so that members come where a set goes: at least one to the nodes that it opens.

    Where it has more pods than `most`, so many nodes get members that no more of the pods are on others: only
    nodes with most of them are left, and then none gets so many members that others get too few.
    `opened`: bool[N]. O(pods + nodes).
    """
    if len(base.singles) <= most:
        yield _at_most(model, np.where(opened, -1, 0), model.must - 1)
        return
    count = np.bincount(places_of(base.singles)[1], minlength=model.nodes)
    held = np.sort(count)[::-1]
    few = int(np.searchsorted(np.cumsum(held), len(base.singles) - most))
    crowded = replace(model, allowed=model.allowed & (count >= held[few]))
    yield crowded
    yield (
        _at_most(crowded, np.arange(model.nodes), (model.must - 1) // few)
        if few
        else _at_most(model, np.where(count >= held[0], -1, 0), model.must - 1)
    )


def _at_most(model: Model, domains: Ints, most: int) -> Model:
    """Return the question with at most so many members in each of some domains. `domains`: int64[N]."""
    alone = bool(domains.max(initial=-1) > 0)
    room = np.full(int(domains.max(initial=0)) + 1, most, np.int64)
    take, use = np.ones(len(model.counts), np.int64), np.zeros_like(model.priority)
    rules = (RoomRule(cls, "", domains, room, room, use, take, 1, alone) for cls in range(len(model.counts)))
    return replace(model, rooms=(*model.rooms, *rules))


def blockers(model: Model) -> Generator[None, None, list[Draft]]:
    """Return the sets of pods that keep nodes closed to a class, cheapest first, at most MOST_SETS.

    A set with a pod that is not removable is left out. Of many sets only those of low priority and few pods
    are priced. O(rules · slots · nodes).
    """
    sets: dict[tuple[frozenset[Slot], frozenset[int]], Draft] = {}
    for cls in range(len(model.counts)):
        rules = [rule for rule in model.rooms if rule.cls == cls and rule.closes]
        nodes = np.flatnonzero(model.allowed[cls])
        if not rules or not nodes.size:
            continue
        closed = np.array([np.where(rule.closed, rule.domains, -1)[nodes] for rule in rules])
        domains = np.unique(closed, axis=1)
        keepers = []
        for rule in rules:
            keepers.append(_Keepers.of(model, rule))
            yield
        can = np.array([keeper.opens[at] for keeper, at in zip(keepers, domains, strict=True)]).all(axis=0)
        highest = np.max([one.highest[at] for one, at in zip(keepers, domains, strict=True)], axis=0)
        count = np.sum([np.diff(one.first)[at] for one, at in zip(keepers, domains, strict=True)], axis=0)
        can &= count > 0
        order = np.lexsort((count[can], highest[can]))
        for turn, at in enumerate(domains.T[can][order[: 2 * MOST_SETS]].tolist()):
            base = Draft()
            for keeper, domain in zip(keepers, at, strict=True):
                for slot, node in keeper.pods_of(domain) if domain >= 0 else ():
                    if unit := int(model.unit[slot, node]):
                        base.units.add(unit)
                    else:
                        base.singles.add((slot, node))
            sets.setdefault((frozenset(base.singles), frozenset(base.units)), base)
            if not turn % BASES_A_CHUNK:
                yield
    priced = []
    for turn, one in enumerate(sets.values()):
        if victims_of(model, one) <= model.most_victims:
            key = price_of(model, one).key(model.objective), sorted(one.singles), sorted(one.units)
            priced.append((key, one))
        if not turn % BASES_A_CHUNK:
            yield
    priced.sort(key=lambda pair: pair[0])
    return [one for _, one in priced][:MOST_SETS]


@dataclass(frozen=True, slots=True)
class _Keepers:
    """Pods that count against a rule, by domain, the last entry for no domain: nothing there.

    `pods`: (slot, node), those of a domain from `first` of it on. `highest`: the highest priority of one.
    `opens`: bool, members may come once they have gone.
    """

    pods: Ints
    first: Ints
    highest: Ints
    opens: Flags

    @classmethod
    def of(cls, model: Model, rule: RoomRule) -> _Keepers:
        """Sort the pods of a rule. O(slots · nodes)."""
        slots, nodes = np.nonzero((rule.use > 0) & model.removable & (rule.domains >= 0))
        domains = rule.domains[nodes]
        order = np.argsort(domains, kind="stable")
        slots, nodes, domains = slots[order], nodes[order], domains[order]
        many = rule.room.size + 1
        highest, room = np.full(many, NO_PRIORITY, np.int64), np.append(rule.room, rule.need)
        np.maximum.at(highest, domains, model.priority[slots, nodes])
        np.add.at(room, domains, rule.use[slots, nodes])
        first = np.searchsorted(domains, np.arange(many + 1))
        return cls(np.column_stack([slots, nodes]), first, highest, room >= rule.need)

    def pods_of(self, domain: int) -> list[list[int]]:
        """Return slot and node of each pod of a domain."""
        found: list[list[int]] = self.pods[self.first[domain] : self.first[domain + 1]].tolist()
        return found


@dataclass(frozen=True, slots=True)
class _Openings:
    """What is the same for all sets.

    `own`: of each rule int64[N], what pods on the node itself free of it. `each`: int64[C, N], the members
    that a node holds. `open`: bool[N], without a set. `order`: int64[N], the nodes that are looked at first.
    """

    model: Model
    own: dict[int, Ints]
    each: Ints
    open: Flags
    order: Ints

    def part(self, base: Draft) -> tuple[Model, Ints, Draft] | None:
        """Return the question with a set gone, over some nodes, their places, and the set there.

        None where those have not room for all members. O(rules · nodes + slots · nodes that are looked at).
        """
        model = self.model
        pods = gone(model, base)
        allowed = _allowed(model, self.own, pods)
        each = np.where(allowed, self.each, 0)
        if min(int(each.sum()), sum(model.counts)) < model.must:
            return None
        slots, nodes = places_of(pods)
        if model.nodes <= MOST_OPEN:
            part, places = replace(model, allowed=allowed), np.arange(model.nodes)
        else:
            usable = allowed.any(axis=0)
            chosen = [self._first(usable & which, each.max(axis=0)) for which in (~self.open, self.open)]
            places = np.unique(np.concatenate([*chosen, nodes]))
            part = model.within(places)
            part = replace(part, allowed=allowed[:, places])
        here = np.searchsorted(places, nodes)
        alone = model.unit[slots, nodes] == 0
        singles = set(zip(slots[alone].tolist(), here[alone].tolist(), strict=True))
        return part, places, Draft({}, singles, set(base.units))

    def _first(self, usable: Flags, each: Ints) -> Ints:
        """Return the first nodes of some, and more where these hold few members."""
        nodes = self.order[usable[self.order]]
        enough = int(np.searchsorted(np.cumsum(each[nodes]), 2 * self.model.must)) + 1
        return nodes[: max(MOST_OPEN, enough)]


def _openings(model: Model, each: Ints, draft: Draft | None) -> Generator[None, None, _Openings]:
    """Prepare for all sets. `each`: as of `most_alone`. O(rules · slots · nodes)."""
    own = {}
    for number, rule in enumerate(model.rooms):
        if rule.closes:
            own[number] = np.where(model.removable, rule.use, 0).sum(axis=0)
            yield
    asked = np.maximum(model.need.max(axis=0), 1)[:, None]
    room = (model.room / asked).min(axis=0, initial=np.inf)
    used = np.zeros(model.nodes, np.bool_)
    if draft is not None:
        used[[node for (node, _), count in draft.members.items() if count]] = True
    order = np.lexsort((model.rank, -room, ~used))
    yield
    return _Openings(model, own, each, np.asarray(_allowed(model, own, []).any(axis=0)), order)


def _allowed(model: Model, own: dict[int, Ints], pods: list[Slot]) -> Flags:
    """Return bool[C, N]: not the nodes that stay closed to a class though some pods and their own go."""
    slots, nodes = places_of(pods)
    allowed = model.allowed.copy()
    for number, of_nodes in own.items():
        rule = model.rooms[number]
        room, left = rule.room.copy(), of_nodes.copy()
        domains, use = rule.domains[nodes], rule.use[slots, nodes]
        inside = domains >= 0
        np.add.at(room, domains[inside], use[inside])
        np.subtract.at(left, nodes, np.where(model.removable[slots, nodes], use, 0))
        allowed[rule.cls] &= (rule.domains < 0) | (room[rule.domains] + left >= rule.need)
    return allowed


def closed_by(model: Model, draft: Draft) -> dict[Slot, ClosedDomain]:
    """Return, of victims by themselves on nodes that need get no member, which domain they keep closed.

    One to which a member comes; none of a pod that keeps none closed. A node needs none where enough members
    come without those that it gets: these may be gone before the victim is. O(rules · victims).
    """
    members: Counter[int] = Counter()
    for (place, _), count in draft.members.items():
        members[place] += count
    spare = draft.placed - model.must
    needed = {place for place, count in members.items() if count > max(spare, 0)}
    beside = [slot for slot in draft.singles if slot[1] not in needed]
    found: dict[Slot, ClosedDomain] = {}
    for rule in model.rooms if beside else ():
        if not rule.closes or rule.closing is None:
            continue
        wanted = {
            int(rule.domains[node])
            for (node, cls), count in draft.members.items()
            if count and cls == rule.cls
        }
        for slot in beside:
            if rule.use[slot] > 0 and rule.domains[slot[1]] >= 0 and int(rule.domains[slot[1]]) in wanted:
                node = model.snapshot.nodes.get(model.names[slot[1]])
                if node is not None and rule.key in node.labels:
                    closed = ClosedDomain(rule=rule.closing, key=rule.key, value=node.labels[rule.key])
                    found.setdefault(slot, closed)
    return found


def _of_members(model: Model, draft: Draft) -> Draft:
    """Return a draft without pods that neither run beside a member nor keep its domain closed."""
    members = {node for (node, _), count in draft.members.items() if count}
    closed = closed_by(model, draft)
    return Draft(
        draft.members, {one for one in draft.singles if one[1] in members or one in closed}, draft.units
    )


def _together(sets: list[Draft], most: int, cheaper: list[tuple[Draft, ...]]) -> Iterator[tuple[Draft, ...]]:
    """Yield each set by itself, the cheapest two, three and so on, and of the best of these all but one.

    `most`: pods by themselves. `cheaper`: of which plans came that cost less than all before; the caller adds
    to it.
    """
    yield from zip(sets)
    singles = set[Slot]()
    for count, one in enumerate(sets, 1):
        singles |= one.singles
        if len(singles) > most:
            break
        if count > 1:
            yield tuple(sets[:count])
    while cheaper:
        best = cheaper.pop()
        cheaper.clear()
        # Without the last they were tried before.
        yield from islice(combinations(best, max(len(best) - 1, 2)), 1, None)


def _union(sets: tuple[Draft, ...]) -> Draft:
    """Return several sets as one."""
    singles = set[Slot]().union(*(one.singles for one in sets))
    return Draft({}, singles, set[int]().union(*(one.units for one in sets)))
