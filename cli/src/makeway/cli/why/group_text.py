"""What was decided for a pod group, as a person reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from makeway.bus.messages import DecisionRecord, GroupDecision, GroupPrice, TopologyDomain
from makeway.cli.units import awaited_lines, closed_text, in_units, names_of, unit_text
from makeway.core.comparison import PRIORITY_SHIFT
from makeway.core.k8s.times import api_time
from makeway.core.text import counted
from makeway.planner.offline.results import OtherOrders

_SHOWN = 5
"""Victims and domains that are shown."""

_BEGINNINGS = 8
"""Orders of terms that are shown, by their beginnings."""


def of_group(record: DecisionRecord) -> Iterator[str]:
    """Say what was decided for a group, and that no order came of it."""
    group = record.group
    if group is None:
        return
    who = f"PodGroup {group.namespace}/{group.name} (priority {group.priority})"
    said = "refused" if record.status == "refused" else "no order came of it"
    if record.mode == "observe":
        said = "mode observe: it was not to be carried out"
    yield f"decision {record.decision_id} of {api_time(record.at)}: for {who}: {said}"
    if record.diagnosis is not None:
        yield f"  {record.diagnosis.reason}: {record.diagnosis.message}"
        if record.diagnosis.retry_at is not None:
            yield f"  planned again {api_time(record.diagnosis.retry_at)}"
    units = list(in_units(record.victims))
    for unit, pods in units[:_SHOWN]:
        what = unit_text(unit, pods) if unit else names_of(pods)[0]
        on = f"{what} on {pods[0].node} (priority {pods[0].priority})"
        yield f"  - {on}: {pods[0].rule}{closed_text(pods[0])}"
    if len(units) > _SHOWN:
        yield f"  and {len(units) - _SHOWN} more"
    if record.group_plan is not None:
        yield from awaited_lines(record.group_plan.awaited)
        yield from decided(record, record.group_plan)


def decided(record: DecisionRecord, plan: GroupDecision) -> Iterator[str]:
    """Say where members go, what that costs by which terms, and what other domains would have cost."""
    if record.status != "refused":
        nodes = {one.node for one in plan.placements}
        placed = sum(one.count for one in plan.placements)
        where = f" within {_domains(plan.domains)}" if plan.domains else ""
        yield f"  members: {placed} of {plan.members} that wait, on {counted(len(nodes), 'node')}{where}"
        yield f"  price: {_price(plan.price)}"
        if plan.objective:
            yield f"  terms, the first counts most: {', '.join(plan.objective)}"
    others = [one for one in plan.priced if one.domains != plan.domains]
    for one in others[:_SHOWN]:
        room = f"room for {counted(one.placeable, 'member')}" if one.price is None else _price(one.price)
        yield f"  instead: {_domains(one.domains)}: {room}"
    if len(others) > _SHOWN:
        yield f"  and {counted(len(others) - _SHOWN, 'domain')} more"


def with_other_orders(plan: GroupDecision, orders: OtherOrders) -> Iterator[str]:
    """Say what the plan would have cost with other orders of the terms. Nothing where there are none."""
    if len(plan.objective) < 2:
        return
    found = sorted(
        ((len(terms), ", ".join(terms), one.price) for one in orders.priced for terms in one.first),
        key=lambda one: one[:2],
    )
    if not found and orders.complete:
        yield "  every other order of the terms leads to the same price"
        return
    yield "  other orders of the terms, by those that count most:"
    for _, first, price in found[:_BEGINNINGS]:
        yield f"    {first}: {_other_price(price, plan.price)}"
    if len(found) > _BEGINNINGS:
        yield f"    and {len(found) - _BEGINNINGS} more"
    yield f"    all others{'' if orders.complete else ' that were looked at, not all'}: the same price"


def _other_price(price: GroupPrice, decided: GroupPrice | None) -> str:
    """Say what another plan costs; with the sum of priorities where it would read like the one decided."""
    text = _price(price)
    if text != _price(decided) or not price.victims:
        return text
    return f"{text}, {price.priority_sum - price.victims * PRIORITY_SHIFT} in all"


def _domains(domains: tuple[TopologyDomain, ...]) -> str:
    return ", ".join(f"{one.key}={one.value}" for one in domains)


def _price(price: GroupPrice | None) -> str:
    if price is None or not price.victims:
        return "no pod has to go"
    parts = [f"{counted(price.victims, 'victim')} of priority {price.highest_priority} at most"]
    if 0 < price.highest_victims < price.victims:
        parts.append(f"{price.highest_victims} of that priority")
    if price.pdb_violations:
        parts.append(f"{price.pdb_violations} beyond their budgets")
    if price.groups_broken:
        parts.append(f"{counted(price.groups_broken, 'group')} broken")
    return ", ".join(parts)
