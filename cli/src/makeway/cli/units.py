"""Victims as people read them: what goes together as one, with its size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from makeway.bus.messages import Victim
from makeway.core.text import counted


def in_units(victims: Iterable[Victim]) -> list[tuple[str, list[Victim]]]:
    """Return victims by what goes together, in their order: each alone under an empty name, or a unit."""
    units: dict[str, list[Victim]] = {}
    found: list[tuple[str, list[Victim]]] = []
    for victim in victims:
        if victim.unit in units:
            units[victim.unit].append(victim)
            continue
        together = [victim]
        found.append((victim.unit, together))
        if victim.unit:
            units[victim.unit] = together
    return found


def unit_text(unit: str, pods: Sequence[Victim]) -> str:
    """Return a unit's name and size, such as `group batch/train-7: 16 pods on 4 nodes`."""
    nodes = len({pod.node for pod in pods})
    kind, _, name = unit.partition(" ")
    group = "composite group" if kind == "CompositePodGroup" else "group"
    return f"{group} {name}: {counted(len(pods), 'pod')} on {counted(nodes, 'node')}"


def names_of(victims: Iterable[Victim]) -> list[str]:
    """Return the names of victims, each unit as one."""
    return [
        unit_text(unit, pods) if unit else f"{pods[0].namespace}/{pods[0].name}"
        for unit, pods in in_units(victims)
    ]
