"""The plan for a gang that costs least, by an integer program: the terms of the price one after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from differential.gang_case import Case
from differential.gang_program import Alike, GangProgram
from differential.gang_rules import Terms, terms_of
from differential.integer_program import UnprovenError

SECONDS = 10.0
"""For one case; what is not proven by then is not judged."""


@dataclass(frozen=True)
class Exact:
    """The best plan: its price, members by class and node, and victims' UIDs."""

    terms: Terms
    placed: dict[tuple[int, int], int]
    victims: frozenset[str]


def cheapest(case: Case, seconds: float = SECONDS) -> Exact | None:
    """Return the best plan; None where there is none.

    Raises:
        UnprovenError: the time did not suffice.
    """
    until = time.monotonic() + seconds
    model = GangProgram(case)
    found = _least(model, _violations_and_highest(model), until)
    if found is None:
        return None
    if going := [one for gone, one in _removable(model) if found[gone]]:
        highest = max(one.first.priority for one in going)
        _least(model, _broken_and_highest_victims(model, highest), until)
        found = _least(model, _sum_of_priorities(model), until)
        assert found is not None
    gone = [pod for name, one in _removable(model) for pod in one.pods[: found[name] * one.each]]
    placed = {place: found[name] for place, name in model.members.items() if found[name]}
    return Exact(terms_of(case, gone), placed, frozenset(pod.uid for pod in gone))


def _least(model: GangProgram, goal: dict[int, float], until: float) -> list[int] | None:
    """Minimize a goal and hold it there."""
    found = model.program.least(goal, until)
    if found is not None and goal:
        model.program.at_most(goal, sum(count * found[name] for name, count in goal.items()))
    return found


def _removable(model: GangProgram) -> list[tuple[int, Alike]]:
    """Return the pods that may go, with the variable that says how many do."""
    return [(one.gone, one) for one in model.groups if one.gone is not None]


def _pods_gone(removable: Iterable[tuple[int, Alike]]) -> Counter[int]:
    """Return how many pods go, as a sum."""
    total: Counter[int] = Counter()
    for gone, one in removable:
        total[gone] += one.each
    return total


def _violations_and_highest(model: GangProgram) -> dict[int, float]:
    """Return the violations, and then the number of priorities up to the highest of a victim."""
    program, removable = model.program, _removable(model)
    priorities = sorted({one.first.priority for _, one in removable})
    levels = {priority: program.variable() for priority in priorities}
    for lower, higher in pairwise(priorities):
        program.at_most({levels[higher]: 1, levels[lower]: -1}, 0)
    for gone, one in removable:
        program.at_most({gone: 1, levels[one.first.priority]: -float(1 if one.whole else one.count)}, 0)
    goal = dict.fromkeys(levels.values(), 1.0)
    for name, allowed in model.case.budgets.items():
        taken = _pods_gone((gone, one) for gone, one in removable if one.first.budget == name)
        if sum(pod.budget == name for pod in model.case.pods) > allowed:
            over = program.variable(len(model.case.pods))
            program.at_most({**taken, over: -1}, allowed)
            goal[over] = float(len(levels) + 1)
    return goal


def _broken_and_highest_victims(model: GangProgram, highest: int) -> dict[int, float]:
    """Return the groups broken, and then the victims of the highest priority."""
    case, program, removable = model.case, model.program, _removable(model)
    goal = _pods_gone((gone, one) for gone, one in removable if one.first.priority == highest)
    weight = len(case.pods) + 1
    for unit in model.units.values():
        goal[unit] += weight
    for gang, least in case.gangs.items():
        lost = _pods_gone((gone, one) for gone, one in removable if one.first.group == gang)
        bound = sum(pod.group == gang for pod in case.pods)
        if lost and bound >= least:
            breaks = program.variable()
            program.at_most({**lost, breaks: -bound}, bound - least)
            goal[breaks] += weight
    return {name: float(count) for name, count in goal.items()}


def _sum_of_priorities(model: GangProgram) -> dict[int, float]:
    """Return the sum of priorities, in which one victim more counts more than all of them."""
    shift = 1 + sum(abs(pod.priority) for pod in model.case.pods)
    goal: Counter[int] = Counter()
    for gone, one in _removable(model):
        goal[gone] += (one.first.priority + shift) * one.each
    return {name: float(count) for name, count in goal.items()}


__all__ = ["SECONDS", "Exact", "UnprovenError", "cheapest"]
