"""A simulation as a person reads it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from makeway.bus.decisions import RankedCandidate, Spared
from makeway.bus.messages import Victim
from makeway.cli.units import awaited_lines, closed_text, decided_text, in_units, unit_text, with_priorities
from makeway.core.config.duration import as_text
from makeway.core.text import counted
from makeway.planner.offline.results import SimulatedGroup, SimulatedPod, SimulatedQuota, SimulationReport

_SHOWN = 3
"""Other candidates that are shown where not all are asked for."""


def lines(report: SimulationReport, *, of_quotas: bool = False, all_candidates: bool) -> Iterator[str]:
    """Return a paragraph for each pod, or each lowered quota, and a last line that sums up."""
    if of_quotas:
        yield from _quotas(report.quotas)
        return
    for group in report.groups:
        yield from _group(group)
    for pod in report.pods:
        yield from pod_lines(pod, all_candidates=all_candidates)
    simulated: list[SimulatedGroup | SimulatedPod] = [*report.groups, *report.pods]
    results = (
        ("fits", "fit"),
        ("waits", "would wait"),
        ("preempts", "would preempt"),
        ("refused", "refused"),
    )
    counts = [(sum(one.result == result for one in simulated), text) for result, text in results]
    victims = sum(len(one.victims) for one in simulated)
    told = ", ".join(f"{number} {text}" for number, text in counts if number)
    pods, nodes = counted(len(report.pods), "pod"), counted(report.nodes, "node")
    if report.groups:
        groups = counted(len(report.groups), "group")
        pods = f"{groups} and {pods}" if report.pods else groups
    yield f"{pods} on {nodes}{f': {told}' if told else ''}; {counted(victims, 'victim')}"


def _quotas(quotas: Sequence[SimulatedQuota]) -> Iterator[str]:
    for one in quotas:
        after = as_text(timedelta(seconds=one.after_seconds))
        yield f"{one.queue} after {after}: {one.message}"
        for number, (unit, victims) in enumerate(in_units(one.victims), 1):
            victim = victims[0]
            name = unit_text(unit, victims) if unit else f"{victim.namespace}/{victim.name}"
            told = f"{name} (priority {victim.priority})" + ("" if unit else f" on {victim.node}")
            queues = ", ".join(sorted({pod.queue for pod in victims}))
            violates = ", violates a PDB" if any(pod.pdb_violating for pod in victims) else ""
            yield f"  {number}. {told}, in {queues}{violates}"
        for note in one.notes:
            yield f"  {note}"
        if one.mode != "enforce" and one.victims:
            yield f"  mode {one.mode}: makeway would not do it by itself"
    total = sum(len(one.victims) for one in quotas)
    yield f"{counted(len(quotas), 'quota')} to enforce; {counted(total, 'victim')}"


def _group(group: SimulatedGroup) -> Iterator[str]:
    name = f"PodGroup {group.namespace}/{group.name} (priority {group.priority})"
    placed = [member for member in group.members if member.node is not None]
    within = "".join(f", within {key} {value}" for key, value in group.domains.items())
    of_all = f"{len(placed)} of {counted(len(group.members), 'pod')}"
    if group.result == "fits":
        yield f"{name} fits without preemption: {of_all}{within}"
    elif group.result == "waits":
        yield f"{name} would wait for {of_all}{within}"
    elif group.result == "preempts":
        violating = group.price.pdb_violations if group.price is not None else 0
        violations = f", {counted(violating, 'PDB violation')}" if violating else ""
        leaving = counted(len(group.victims), "pod")
        yield f"{name} would preempt for {of_all}{within}: {leaving} would leave{violations}"
    else:
        yield f"{name} stays pending"
        if group.diagnosis is not None:
            yield f"  {group.diagnosis.reason}: {group.diagnosis.message}"
    nodes = Counter(member.node for member in placed if member.node is not None)
    if nodes:
        yield f"  on {', '.join(f'{node} {count}' for node, count in sorted(nodes.items()))}"
    yield from awaited_lines(group.awaited)
    for unit, pods in in_units(group.victims):
        yield f"  - {_unit(unit, pods) if unit else _victim(pods[0], f' on {pods[0].node}')}"
    if group.mode != "enforce" and group.result == "preempts":
        yield f"  mode {group.mode}: makeway would not do it by itself"
    yield from (f"  note: {warning}" for warning in group.warnings)


def pod_lines(pod: SimulatedPod, *, all_candidates: bool = False) -> Iterator[str]:
    """Say what would become of a pod, and why."""
    name = f"{pod.namespace}/{pod.name} (priority {pod.preemptor.priority})"
    if pod.result == "fits":
        others = f", one of {pod.nodes_fitting} that have room" if pod.nodes_fitting > 1 else ""
        yield f"{name} fits without preemption: on {pod.node}{others}"
    elif pod.result == "waits":
        yield f"{name} would wait for {pod.nominated_node}: no running pod would leave"
        yield from _candidates(pod, all_candidates=all_candidates)
    elif pod.result == "preempts":
        violations = f", {counted(pod.pdb_violations, 'PDB violation')}" if pod.pdb_violations else ""
        leaving = counted(len(pod.victims), "pod")
        yield f"{name} would preempt on {pod.nominated_node}: {leaving} would leave{violations}"
        for unit, pods in in_units(pod.victims):
            yield f"  - {_unit(unit, pods) if unit else _victim(pods[0])}"
        yield from _candidates(pod, all_candidates=all_candidates)
    else:
        yield f"{name} stays pending"
        if pod.diagnosis is not None:
            yield f"  {pod.diagnosis.reason}: {pod.diagnosis.message}"
            if pod.diagnosis.node_reasons and pod.nodes_potential:
                yield f"  nodes: {by_number(pod.diagnosis.node_reasons)}"
        for near in pod.nearest:
            yield from (f"  {near.node} keeps {text}" for text in map(spared, near.spared))
    if pod.nodes_excluded and pod.nodes_potential and pod.result != "fits":
        yield f"  not on: {by_number(pod.nodes_excluded)}"
    if pod.mode != "enforce" and pod.result == "preempts":
        yield f"  mode {pod.mode}: makeway would not do it by itself"
    yield from (f"  note: {warning}" for warning in pod.warnings)


def _candidates(pod: SimulatedPod, *, all_candidates: bool) -> Iterator[str]:
    """Say why this node, and which others there are."""
    best, *rest = pod.candidates
    yield from awaited_lines(best.awaited)
    if pod.candidates_total == 1:
        yield "  the only node on which that helps"
    elif best.decided_by:
        yield f"  best of {pod.candidates_total} nodes by {decided_text(best, rest)}"
    yield from (f"  {best.node} keeps {text}" for text in map(spared, best.spared))
    shown = rest if all_candidates else rest[:_SHOWN]
    for number, one in enumerate(shown, 2):
        yield f"  {number}. {one.node}: {_other(one)}"
    if len(shown) + 1 < pod.candidates_total:
        yield f"  and {pod.candidates_total - 1 - len(shown)} more: --all-candidates"


def _other(one: RankedCandidate) -> str:
    violations = f"; {counted(one.pdb_violations, 'PDB violation')}" if one.pdb_violations else ""
    return f"{with_priorities(one.victims) or 'no running pod'}{violations}"


def _unit(unit: str, pods: Sequence[Victim]) -> str:
    violating = sum(pod.pdb_violating for pod in pods)
    violates = f", {counted(violating, 'PDB violation')}" if violating else ""
    return f"{unit_text(unit, pods)} (priority {pods[0].priority}): {pods[0].rule}{violates}"


def _victim(victim: Victim, on: str = "") -> str:
    told = f"{victim.namespace}/{victim.name}{on} (priority {victim.priority}): {victim.rule}"
    violates = ", violates a PDB" if victim.pdb_violating else ""
    return f"{told}{violates}{closed_text(victim)}{f'; {victim.detail}' if victim.detail else ''}"


def spared(one: Spared) -> str:
    """Write whom a rule keeps, which rule, and why."""
    return f"{one.namespace}/{one.name} (priority {one.priority}): {one.rule}; {one.detail}"


def by_number(reasons: Mapping[str, int]) -> str:
    """Write counts of reasons, the greatest first."""
    most: Iterable[tuple[str, int]] = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {reason}" for reason, count in most)
