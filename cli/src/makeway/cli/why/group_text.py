"""What was decided for a pod group, as a person reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from makeway.bus.decisions import DecisionRecord, GroupDecision
from makeway.bus.plan import GroupPrice, TopologyDomain
from makeway.cli.units import awaited_lines
from makeway.core.config.duration import as_text
from makeway.core.text import counted

_SHOWN = 5
"""Nodes and domains that are shown."""


def decided(record: DecisionRecord, plan: GroupDecision) -> Iterator[str]:
    """Say where members go, what that costs by which terms, and what other domains would have cost."""
    yield from awaited_lines(plan.awaited)
    if record.status != "refused":
        nodes = {one.node for one in plan.placements}
        placed = sum(one.count for one in plan.placements)
        where = f" within {_domains(plan.domains)}" if plan.domains else ""
        where += f": {', '.join(sorted(nodes))}" if len(nodes) <= _SHOWN else ""
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


def _domains(domains: tuple[TopologyDomain, ...]) -> str:
    return ", ".join(f"{one.key}={one.value}" for one in domains)


def _price(price: GroupPrice | None) -> str:
    if price is None or not price.victims:
        return "no pod has to be evicted"
    parts = [f"{counted(price.victims, 'victim')} of priority {price.highest_priority} at most"]
    if 0 < price.highest_victims < price.victims:
        parts.append(f"{price.highest_victims} of that priority")
    if price.pdb_violations:
        parts.append(f"{price.pdb_violations} beyond their budgets")
    if price.groups_broken:
        parts.append(f"{counted(price.groups_broken, 'group')} broken")
    if price.lost_work_seconds:
        parts.append(f"{as_text(timedelta(seconds=price.lost_work_seconds))} of a member's work lost")
    return ", ".join(parts)
