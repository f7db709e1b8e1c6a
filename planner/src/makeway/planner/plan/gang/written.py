"""From a draft to the plan that is told: whether it holds where the cluster has changed, and its names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from makeway.bus.plan import MemberPlacement
from makeway.core.policy.rules import lower_rule
from makeway.core.queues.victims import run_to_end
from makeway.planner.plan.constraints.tally import CHUNK_STEPS, Allowance, AllowanceUsedUp
from makeway.planner.plan.eligibility import eligible
from makeway.planner.plan.gang.blockers import closed_by
from makeway.planner.plan.gang.draft import (
    Draft,
    Placing,
    arrange,
    gone,
    holds,
    places_of,
    price_of,
    trimmed,
)
from makeway.planner.plan.gang.model import Model, RoomRule, SpreadRule
from makeway.planner.plan.gang.modelling import modelling
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.result import AwaitedPod, GangPlan, RemovablePod, Scope
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

VICTIMS_A_CHUNK: Final = 500
"""Victims that are written down between two pauses."""


@dataclass(frozen=True, slots=True)
class Found:
    """A draft that holds in its model, and what it was made from. `needs`: of each class."""

    model: Model
    draft: Draft
    domains: tuple[tuple[str, str], ...]
    needs: tuple[Mapping[str, int], ...]
    left_out: tuple[str, ...]


def seen_again(
    snapshot: Snapshot, gang: GangQuestion, found: Found, now: datetime, cache: PlanCache
) -> Generator[None, None, Found | None]:
    """Return what was found as it is in the cluster now, or None where it does not hold any more.

    Looks at its nodes alone. Pods that have left need not go any more. O(nodes of the draft · slots).
    """
    while True:
        try:
            return _seen_again(snapshot, gang, found, now, cache)
        except AllowanceUsedUp:
            yield


def _seen_again(
    snapshot: Snapshot, gang: GangQuestion, found: Found, now: datetime, cache: PlanCache
) -> Found | None:
    draft, names = found.draft, found.model.names
    by_class = [
        [names[node] for (node, one), count in draft.members.items() if one == cls and count]
        for cls in range(len(gang.classes))
    ]
    present = [name for of_class in by_class for name in of_class if name in snapshot.nodes]
    if len(present) < sum(map(len, by_class)) or not all(
        one.question.preemptor.uid in snapshot.pods for one in gang.classes
    ):
        return None
    if any(snapshot.nodes[name].labels.get(key) != value for name in present for key, value in found.domains):
        return None
    rows_of = [
        eligible(snapshot, one.question.constraints, np.sort(snapshot.rows_named(of_class)))
        for one, of_class in zip(gang.classes, by_class, strict=True)
    ]
    tallies = cache.tallies.within(Allowance(CHUNK_STEPS))
    model = run_to_end(modelling(snapshot, gang, found.needs, rows_of, now=now, tallies=tallies))
    again = _moved(found, model)
    if again is None:
        return None
    again = trimmed(model, again)
    if not holds(model, again):
        return None
    return Found(model, again, found.domains, found.needs, found.left_out)


def _moved(found: Found, model: Model) -> Draft | None:
    """Return the draft in terms of another model; None where one of its pods may not go any more."""
    before, places = found.model, {name: node for node, name in enumerate(model.names)}
    draft = Draft()
    for (node, cls), count in found.draft.members.items():
        if count and before.names[node] not in places:
            return None
        draft.members[places[before.names[node]], cls] = count
    slots = {pod.uid: (slot, node) for node, pods in enumerate(model.pods) for slot, pod in enumerate(pods)}
    for slot, node in found.draft.singles:
        there = slots.get(before.pod(slot, node).uid)
        if there is None:
            continue
        if not model.removable[there] or model.unit[there]:
            return None
        draft.singles.add(there)
    numbers = {unit.unit.key: number for number, unit in enumerate(model.units) if unit is not None}
    for number in found.draft.units:
        unit = before.units[number]
        now = numbers.get(unit.unit.key) if unit is not None else None
        if now is None:
            continue
        if not model.removable[model.unit == now].all():
            return None
        draft.units.add(now)
    return draft


def written(found: Found, gang: GangQuestion, scope: Scope) -> Generator[None, None, GangPlan]:
    """Name the nodes and the pods of a draft. Pauses now and then; it is as at the beginning."""
    model, draft = found.model, found.draft
    order = arrange(model, draft)
    assert order is not None  # noqa: S101 - it was arranged before, and free places only were added
    price = price_of(model, draft)
    yield
    awaited = tuple(_awaited(model, draft, gang))
    going = _victims(model, draft, gang)
    victims: list[RemovablePod] = []
    for turn, victim in enumerate(going, 1):
        victims.append(victim)
        if not turn % VICTIMS_A_CHUNK:
            yield
    return GangPlan(
        scope=scope,
        placements=tuple(
            MemberPlacement(member_class=cls, node=model.names[node], count=count)
            for cls, node, count in order
        ),
        victims=tuple(victims),
        awaited=awaited,
        price=price,
        domains=found.domains,
        left_out=found.left_out,
    )


def _victims(model: Model, draft: Draft, gang: GangQuestion) -> Iterator[RemovablePod]:
    preemptor = gang.classes[0].question.preemptor
    budgets = model.snapshot.budgets
    slots, nodes = places_of(draft.singles)
    order = np.lexsort((slots, model.rank[nodes]))
    slots, nodes = slots[order], nodes[order]
    singles = list(zip(slots.tolist(), nodes.tolist(), strict=True))
    whole = model.whole(draft.units)
    charges = [*({held: 1} for held in model.budgets[slots, nodes].tolist()), *(unit.sets for unit in whole)]
    found = budgets.violations(charges, model.debits)
    closed = closed_by(model, draft)
    for one, violating in zip(singles, found[: len(singles)], strict=True):
        pod = model.pod(*one)
        rule = lower_rule(pod.facts, preemptor.priority)
        yield RemovablePod(
            pod=pod, rule=rule, victim=True, pdb_violating=bool(violating), closes=closed.get(one)
        )
    for unit, many in zip(whole, found[len(singles) :], strict=True):
        for turn, pod in enumerate(unit.members):
            rule = lower_rule(pod.facts, preemptor.priority)
            yield RemovablePod(pod=pod, rule=rule, victim=True, pdb_violating=turn < many, unit=unit.name)


def _awaited(model: Model, draft: Draft, gang: GangQuestion) -> Iterator[AwaitedPod]:
    """Yield the pods that are leaving and that the plan counts on. With rules, all on its nodes."""
    question = gang.classes[0].question
    going: defaultdict[int, list[int]] = defaultdict(list)
    for slot, node in draft.singles:
        going[node].append(slot)
    members: defaultdict[int, Ints] = defaultdict(lambda: np.zeros(model.need.shape[1], np.int64))
    for (node, cls), count in draft.members.items():
        members[node] = members[node] + model.need[cls] * count
    for node in sorted(members, key=lambda one: int(model.rank[one])):
        left = model.room[:, node] + model.uses[:, going[node], node].sum(axis=1) - members[node]
        for pod in model.awaited.get(node, ()):
            takes = model.snapshot.columns.amounts(pod.requests)[model.asked]
            if not model.is_ruled and (takes <= left).all():
                left = left - takes
            else:
                yield from question.awaited((pod,))
    yield from question.awaited(_awaited_elsewhere(model, draft, {model.names[node] for node in members}))


def _awaited_elsewhere(model: Model, draft: Draft, names: Set[str]) -> Iterator[PodRecord]:
    """Yield pods that leave on other nodes than the members', without which a rule keeps members away.

    Of a queue or an even spread those that leave first. O(rules · (nodes + victims + members) + pods that
    leave).
    """
    if not any(rule.leaving for rule in model.rooms) and not any(one.leaving for one in model.spreads):
        return
    placing = Placing(model)
    placing.remove(gone(model, draft))
    for (node, cls), count in draft.members.items():
        placing.place(cls, node, count)
    left: list[tuple[RoomRule | SpreadRule, Ints]] = []
    for rule, room in zip(model.rooms, placing.rooms, strict=True):
        # A domain that pods close has no room to spare for any of them.
        left.append((rule, room if rule.need else 0 * room))
    for number, spread in enumerate(model.spreads):
        left.append((spread, placing.more(number) + spread.take[spread.cls]))
    found: dict[str, PodRecord] = {}
    for wide, more in left:
        places = (node for (node, cls), count in draft.members.items() if count and cls == wide.cls)
        spare = {int(wide.domains[node]): int(more[wide.domains[node]]) for node in places}
        for pod, domain, taken in sorted(wide.leaving, key=lambda one: (-one[0].ends_micros, one[0].uid)):
            if domain not in spare or not pod.node or pod.node in names:
                continue
            if taken <= spare[domain]:
                spare[domain] -= taken
            else:
                found[pod.uid] = pod
    yield from found.values()
