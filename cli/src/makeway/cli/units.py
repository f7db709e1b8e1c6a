"""Pods that go as people read them: what goes together as one, with its size; what is awaited. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from makeway.bus.comparison import Choice, Comparison
from makeway.bus.decisions import DecisionRecord, RankedCandidate
from makeway.bus.messages import Awaited, EvictionOrder, Victim
from makeway.core.comparison import LEAST_LOST_WORK
from makeway.core.config.duration import as_text
from makeway.core.k8s.times import api_time
from makeway.core.text import counted, first_few
from makeway.planner.offline.results import QuotaVictim

_NAMED = 3
"""Terminating pods that are named."""


_Going = Victim | QuotaVictim
_V = TypeVar("_V", Victim, QuotaVictim)


def in_units(victims: Iterable[_V]) -> list[tuple[str, list[_V]]]:
    """Return victims by what goes together, in their order: each alone under an empty name, or a unit."""
    units: dict[str, list[_V]] = {}
    found: list[tuple[str, list[_V]]] = []
    for victim in victims:
        if victim.unit in units:
            units[victim.unit].append(victim)
            continue
        together = [victim]
        found.append((victim.unit, together))
        if victim.unit:
            units[victim.unit] = together
    return found


def decided_text(best: RankedCandidate, others: Sequence[RankedCandidate]) -> str:
    """Return by which rule the best candidate beats the next; of lost work also what both lose."""
    if best.decided_by != LEAST_LOST_WORK or not others:
        return best.decided_by
    mine, theirs = (as_text(timedelta(seconds=one.lost_work_seconds)) for one in (best, others[0]))
    return f"{best.decided_by} ({mine} of a pod of its size; {theirs} on {others[0].node})"


def unit_text(unit: str, pods: Sequence[_Going]) -> str:
    """Return a unit's name and size, such as `group batch/train-7: 16 pods on 4 nodes`."""
    nodes = len({pod.node for pod in pods})
    kind, _, name = unit.partition(" ")
    group = "composite group" if kind == "CompositePodGroup" else "group"
    return f"{group} {name}: {counted(len(pods), 'pod')} on {counted(nodes, 'node')}"


def who_text(about: EvictionOrder | DecisionRecord) -> str:
    """Name whom room is made for: `shop/web-1 (priority 5)`, a group, or the queue of a lowered quota."""
    pod = about.room_for
    if pod is None:
        return f"queue {about.queue}"
    if about.kind != "group":
        return f"{pod.namespace}/{pod.name} (priority {pod.priority})"
    members = f"{counted(len(about.members), 'member')}, " if isinstance(about, EvictionOrder) else ""
    return f"group {pod.namespace}/{pod.name} ({members}priority {pod.priority})"


def compared_text(comparison: Comparison) -> str:
    """Name what a comparison is about: `shop/web-1`, or `group shop/train-7 (8 members)`."""
    name = f"{comparison.preemptor.namespace}/{comparison.preemptor.name}"
    group = comparison.group
    return name if group is None else f"group {name} ({counted(group.members, 'member')})"


def place_text(choice: Choice) -> str:
    """Name the node of a choice, or say how many a group's members are on."""
    return counted(len(choice.nodes), "node") if len(choice.nodes) > 1 else choice.node


def names_of(victims: Iterable[Victim]) -> list[str]:
    """Return the names of victims, each unit as one."""
    return [
        unit_text(unit, pods) if unit else f"{pods[0].namespace}/{pods[0].name}"
        for unit, pods in in_units(victims)
    ]


def with_priorities(victims: Iterable[Victim]) -> str:
    """Name victims with their priorities, each unit as one."""
    return ", ".join(f"{names_of(pods)[0]} ({pods[0].priority})" for _, pods in in_units(victims))


def closed_text(victim: Victim) -> str:
    """Say, behind its rule, why a pod goes though no member comes to its node; empty for others."""
    return "" if victim.closes is None else f"; {victim.closes.text}"


def awaited_lines(awaited: Iterable[Awaited]) -> Iterator[str]:
    """Say, a line each, which terminating pods a plan waits for and until when, and pods of other orders."""
    pods = list(awaited)
    leaving = [pod for pod in pods if not pod.order_id]
    if until := [pod.until for pod in leaving if pod.until is not None]:
        named = first_few([f"{pod.namespace}/{pod.name}" for pod in leaving], _NAMED)
        which = "which is" if len(leaving) == 1 else "which are"
        yield f"  waits for {named}, {which} terminating, until {api_time(max(until))}"
    if ordered := len(pods) - len(leaving):
        yield f"  waits for {counted(ordered, 'pod')} that other orders remove"
