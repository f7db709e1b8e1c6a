"""What a side would do for a gang, whether that makes room, and which of two evicts less. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.gpu_trace.trace import MOST_PODS, PRIORITIES, TraceNode, TracePod

Counts = tuple[int, ...]
"""Victims by priority, the highest first: the less, the better, by the first that differs."""


Took = tuple[float, float]
"""Seconds by the clock, and of the cores, which work of other processes makes little longer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One side's answer. `nodes`: how many members go to each; none where it refuses. `took`: its time."""

    victims: frozenset[str]
    nodes: Mapping[str, int]
    took: Took

    @property
    def refused(self) -> bool:
        """Report whether no room is made."""
        return not self.nodes


def counts_of(victims: Iterable[str], pods: Iterable[TracePod]) -> Counts:
    """Return the victims by priority. Raises KeyError for one that is not there."""
    priority = {pod.name: pod.priority for pod in pods}
    found = Counter(priority[name] for name in victims)
    return tuple(found[level] for level in sorted(PRIORITIES.values(), reverse=True))


def broken_rule(
    outcome: Outcome,
    nodes: Iterable[TraceNode],
    pods: Iterable[tuple[TracePod, str]],
    *,
    member: TracePod,
    count: int,
) -> str:
    """Return why an outcome does not make room for all members; empty where it does."""
    if sum(outcome.nodes.values()) != count:
        return f"{sum(outcome.nodes.values())} members of {count} have a node"
    used: defaultdict[str, list[TracePod]] = defaultdict(list)
    for pod, place in pods:
        if pod.name not in outcome.victims:
            used[place].append(pod)
        elif pod.priority >= member.priority:
            return f"victim {pod.name} is not of lower priority"
    for node in nodes:
        there = [*used[node.name], *[member] * outcome.nodes.get(node.name, 0)]
        if (
            sum(pod.cpu_milli for pod in there) > node.cpu_milli
            or sum(pod.memory_mib for pod in there) > node.memory_mib
            or sum(pod.gpus for pod in there) > node.gpus
            or len(there) > MOST_PODS
        ):
            return f"node {node.name} has too little room"
    return ""


@dataclass(frozen=True, slots=True)
class Row:
    """A gang and both sides. `counts` and `theirs`: None where the side refuses; one of theirs a round."""

    gang: str
    level: str
    counts: Counts | None
    took: Took
    theirs: tuple[Counts | None, ...]
    they_took: Took

    @property
    def worse(self) -> str:
        """Say in which way makeway evicts more than a run of the other side; empty where it does not."""
        best = min((one for one in self.theirs if one is not None), default=None)
        if best is None:
            return ""
        if self.counts is None:
            return f"{self.gang}, {self.level}: refused, and kube-scheduler has a plan {best}"
        if self.counts > best:
            return f"{self.gang}, {self.level}: victims {self.counts}, and kube-scheduler's {best}"
        return ""


def median_of(times: Iterable[Took]) -> Took:
    """Return the medians of both. Raises statistics.StatisticsError without any."""
    clock, cores = zip(*times, strict=True)
    return median(clock), median(cores)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown: victims in all, and by priority from the highest down."""
    names = "/".join(sorted(PRIORITIES, key=lambda name: -PRIORITIES[name]))
    lines = [
        f"| gang (members x GPUs) | may evict | makeway: victims ({names}) | plan, ms (CPU) "
        f"| kube-scheduler: victims ({names}) | PodGroupPostFilter, ms (CPU) |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        theirs = "; ".join(dict.fromkeys(_victims(one) for one in sorted(row.theirs, key=_order)))
        lines.append(
            f"| {row.gang} | {row.level} | {_victims(row.counts)} | {_milliseconds(row.took)} "
            f"| {theirs} | {_milliseconds(row.they_took)} |"
        )
    return "\n".join(lines)


def _order(counts: Counts | None) -> Counts:
    return counts or ()


def _victims(counts: Counts | None) -> str:
    return "no room" if counts is None else f"{sum(counts)} ({'/'.join(str(count) for count in counts)})"


def _milliseconds(took: Took) -> str:
    return f"{took[0] * 1000:,.0f} ({took[1] * 1000:,.0f})"
