"""First plans at the lowest priority of victims at which the members have room, with budgets kept or not."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from makeway.planner.plan.gang.draft import Draft, price_of
from makeway.planner.plan.gang.fill import Filled, fill
from makeway.planner.plan.gang.model import Model, RoomRule, Work
from makeway.planner.plan.gang.options import MIXERS
from makeway.planner.snapshot.columns import MOST, Ints

MOST_COUNTED = 32
"""Members of a node up to which the fewest victims for them are counted; for more it is a bound."""

MOST_SORTED = 2**16
"""Pods and resources up to which each pod's own size counts where victims are counted."""


def fillings(
    model: Model, base: Draft, each: Ints, work: Work
) -> Generator[None, None, tuple[list[Filled], int]]:
    """Return first plans: at the least level without a violated budget, or else with.

    And below which priority no plan has all its victims, MOST where there is no plan.

    Where the objective has another order, both, and those at the highest level. Where all of them take more
    victims than an order may have, one with few. `base`: who goes in each. `each`: as of `most_alone`.
    """
    room = min(int(each.sum()), sum(model.counts))
    if room < model.must:
        return [Filled(Draft(), model.must - room, ())], MOST
    everywhere = np.zeros(model.nodes, np.int64)
    (level_of_all,) = yield from least_levels(model, list(range(len(model.counts))), everywhere, 1)
    lowest = max(int(level_of_all), price_of(model, base).highest)
    levels = [-MOST, *_priorities(model)]
    levels = [one for one in levels if one >= lowest] or levels[-1:]
    found: list[Filled] = []
    budgets_first = model.objective[:2] == ("budgets", "highestPriority")
    for strict in (True, False):
        if not strict and not model.budgets.any():
            break
        level, least = yield from _at_least_level(model, base, levels, work, strict=strict)
        found.append(least)
        if least.missing:
            continue
        for turns in _orders(model):
            again = yield from fill(model, base, level, work, strict=strict, turns=turns)
            found.append(again)
        if budgets_first:
            break
        found.append((yield from _at(model, base, levels[-1], work, strict=strict)))
    if all(one.missing for one in found) and any(one.bounded for one in found):
        fewest = replace(model, objective=("victims",))
        found.append((yield from _at_least_level(fewest, base, levels, work, strict=False))[1])
    return found, levels[0]


def most_alone(model: Model) -> Ints:
    """Return int64[C, N], the members of each class that a node without removable pods holds."""
    return _each_alone(model, None)


def least_levels(model: Model, classes: list[int], domains: Ints, count: int) -> Generator[None, None, Ints]:
    """Return int64[count], below which priority of victims there is no room with some classes in one domain.

    A bound: members are looked at one class by itself, and by resources alone. MOST for a domain without
    room. `domains`: int64[N], negative for a node in none. O(slots · nodes · log priorities).
    """
    others = [cls for cls in range(len(model.counts)) if cls not in classes]
    counts = np.array(model.counts, np.int64)
    beside = int(np.minimum(most_alone(model)[others].sum(axis=1), counts[others]).sum())
    levels = np.array([-MOST, *_priorities(model), MOST], np.int64)
    low, high = np.zeros(count, np.int64), np.full(count, levels.size - 1, np.int64)
    inside = domains >= 0
    while (low < high).any():
        yield
        middle = (low + high) // 2
        level = np.where(inside, levels[middle][domains], -MOST)
        room = np.zeros((len(classes), count), np.int64)
        for at, each in enumerate(_each_alone(model, level)[classes]):
            np.add.at(room[at], domains[inside], each[inside])
        enough = np.minimum(room, counts[classes][:, None]).sum(axis=0) + beside >= model.must
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return levels[low]


def bound_of(model: Model) -> tuple[int, str]:
    """Return for how many members there is room at the most with all removable pods gone, and why no more.

    No plan has more. The cause is a rule's, or empty for resources. Pods that are on none of the model's
    nodes count as gone. O(slots · nodes · rules).
    """
    each = most_alone(model)
    total = sum(model.counts)
    beside = total - np.array(model.counts)
    found = [(min(total, int((each.sum(axis=1) + beside).min())), "")]
    allowed = model.allowed.any(axis=0)
    room = np.maximum(model.emptied(), 0)[:, allowed].sum(axis=1)
    least = np.cumsum(np.sort(np.repeat(model.need, model.counts, axis=0), axis=0), axis=0)
    found += [(int((least[:, at] <= room[at]).sum()), "") for at in np.flatnonzero(least[-1] > 0).tolist()]
    for rule in model.rooms:
        found.append((_most_by(model, rule, each[rule.cls]) + int(beside[rule.cls]), rule.reason))
    return min(found, key=lambda one: one[0])


def _most_by(model: Model, rule: RoomRule, each: Ints) -> int:
    """Return how many members of its class a rule lets come at most. `each`: int64[N], as resources do."""
    inside = rule.domains >= 0
    stays = np.where(model.removable, 0, rule.use).sum(axis=0)
    room = rule.most.copy()
    np.subtract.at(room, rule.domains[inside], stays[inside])
    most = np.zeros_like(room)
    np.add.at(most, rule.domains[inside], each[inside])
    comes, take = room >= rule.need, int(rule.take[rule.cls])
    by_rule = np.where(comes, (room - rule.need) // take + 1 if take else most, 0)
    return int(np.minimum(most, by_rule).sum() + each[~inside].sum())


def fewest_victims(model: Model, each: Ints) -> int:
    """Return how many pods go at the least in any plan for members of one class: a bound.

    As if members came as cheaply as they ever do on each node, and where there are more pods than MOST_SORTED
    all removable ones as large as the largest. 0 for several classes. `each`: as of `most_alone`.
    O(slots · nodes + MOST_COUNTED · nodes).
    """
    if len(model.counts) > 1 or not each.any():
        return 0
    usable = np.flatnonzero(each[0])
    asked, most = np.flatnonzero(model.need[0] > 0), each[0][usable]
    fine = asked.size * model.removable.size <= MOST_SORTED and _differ(model, asked)
    alike = np.ones(usable.size, np.int64)
    if not fine:  # nodes with as much room are alike then
        rows = np.vstack([model.room[asked][:, usable], most]).T
        _, first, alike = np.unique(rows @ MIXERS[: rows.shape[1]], return_index=True, return_counts=True)
        usable, most = usable[first], most[first]
    need, room = model.need[0][asked][:, None], model.room[asked][:, usable]
    counts = np.arange(1, min(int(most.max()), MOST_COUNTED) + 1)
    lack = np.maximum(counts[:, None, None] * need - room, 0)
    largest = np.maximum(model.uses.max(axis=(1, 2), initial=0), 1)[asked, None]
    victims = -(-lack // largest)
    if fine:
        freed = np.cumsum(-np.sort(-model.uses[asked][:, :, usable], axis=1), axis=1)
        victims = (lack > 0) + np.array([(freed < one[:, None]).sum(axis=1) for one in lack])
    fewest = np.where(most >= counts[:, None], victims.max(axis=1, initial=0), MOST)
    of_member = (fewest / counts[:, None]).min(axis=0)
    more = most > MOST_COUNTED
    spared = np.maximum(room[:, more], 0) / (MOST_COUNTED + 1)
    beyond = np.maximum((need - spared) / largest, 0).max(axis=0, initial=0)
    of_member[more] = np.minimum(of_member[more], beyond)
    cheapest = np.argsort(of_member)
    come = np.minimum(np.cumsum((most * alike)[cheapest]), model.must)
    return math.ceil(float((of_member[cheapest] * np.diff(come, prepend=0)).sum()) - 1e-6)


def _priorities(model: Model) -> list[int]:
    """Return the priorities of removable pods, the lowest first. O(slots · nodes)."""
    priority, first = model.priority, model.removable.copy()
    # Most pods have the priority of the one before: a look at all of them takes less time than to sort them.
    first[1:] &= ~model.removable[:-1] | (priority[1:] != priority[:-1])
    found: list[int] = np.unique(priority[first]).tolist()
    return found


def _differ(model: Model, asked: Ints) -> bool:
    """Report whether removable pods free different amounts of some resources."""
    each = (model.uses[one][model.removable] for one in asked.tolist())
    return any(amounts.size and amounts.max() > amounts.min() for amounts in each)


def _each_alone(model: Model, level: int | Ints | None) -> Ints:
    """Return int64[C, N], how many members of each class a node has room for, were they the only ones.

    `level`: of the pods that are gone; None for all that are removable.
    """
    emptied = model.emptied(None if level is None else model.priority <= level)
    most = np.zeros((len(model.counts), model.nodes), np.int64)
    for cls, count in enumerate(model.counts):
        asked = model.need[cls] > 0
        room = np.full(model.nodes, count, np.int64)
        if asked.any():
            each = (np.maximum(emptied[asked], 0) // model.need[cls][asked][:, None]).min(axis=0)
            room = np.minimum(room, each)
        most[cls] = np.where(model.allowed[cls], room, 0)
    return most


def _at_least_level(
    model: Model,
    base: Draft,
    levels: list[int],
    work: Work,
    *,
    strict: bool,
) -> Generator[None, None, tuple[int, Filled]]:
    """Return the lowest of some levels with a first plan, and that, or what comes nearest to one."""
    first = yield from _at(model, base, levels[0], work, strict=strict)
    if not first.missing or len(levels) == 1:
        return levels[0], first
    least = yield from _at(model, base, levels[-1], work, strict=strict)
    low, high = 1, len(levels) - 1
    while low < high and not least.missing:
        middle = (low + high) // 2
        tried = yield from _at(model, base, levels[middle], work, strict=strict)
        if tried.missing:
            low = middle + 1
        else:
            high, least = middle, tried
    return levels[high], least


def _at(model: Model, base: Draft, level: int, work: Work, *, strict: bool) -> Generator[None, None, Filled]:
    """Return a first plan at one level: all classes at once, else one after the other."""
    filled = yield from fill(model, base, level, work, strict=strict)
    for turns in _orders(model) if filled.missing else ():
        again = yield from fill(model, base, level, work, strict=strict, turns=turns)
        filled = min(filled, again, key=lambda one: one.missing)
    return filled


def _orders(model: Model) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return two orders in which classes are placed one after the other: the largest first, and last."""
    size = model.need.sum(axis=1)
    turns = tuple((cls,) for cls in sorted(range(len(model.counts)), key=lambda cls: -int(size[cls])))
    return (turns, turns[::-1]) if len(turns) > 1 else ()
