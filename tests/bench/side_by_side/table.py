"""From rounds to a table: medians of both, and the ratio of the two within a round."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.side_by_side.round import BENCHMARK, DEFAULT, MAKEWAY, VARIANTS, Measured, Results
from makeway.core.text import counted
from makeway.dev.binaries import KUBERNETES_VERSION, NATS_SERVER

Value = Callable[[Measured], float | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what, in which unit, and how to read it from a round."""

    what: str
    unit: str
    value: Value


def _item(metric: str, bucket: str, **labels: str) -> Value:
    """Read one of scheduler_perf's own figures."""

    def value(measured: Measured) -> float | None:
        for item in measured.items:
            wanted = {"Metric": metric, **labels}
            if wanted.items() <= item["labels"].items():
                found: float | None = item["data"].get(bucket)
                return found
        return None

    return value


def _post_filter(
    reduce: Callable[[list[float]], float], *, meanwhile: bool = False, unplanned: bool = False
) -> Value:
    """Reduce the calls that looked at nodes, in milliseconds; `unplanned`: the others, too."""

    def value(measured: Measured) -> float | None:
        results, pods = measured.results, measured.measured
        if results is None:
            return None
        calls = [*(results.planned or ()), *((results.unplanned or ()) if unplanned else ())]
        seconds = sorted(
            took
            for at, took in calls
            if not meanwhile or (pods is not None and pods.first <= at <= pods.last)
        )
        return 1000 * reduce(seconds) if seconds else None

    return value


def _group_post_filter(reduce: Callable[[list[float]], float]) -> Value:
    """Reduce the calls of PodGroupPostFilter, in milliseconds."""
    return _result(lambda r: 1000 * reduce([took for _, took in r.groups]) if r.groups else None)


def _quantile(share: float) -> Callable[[list[float]], float]:
    """The smallest value that at least this share does not exceed; the values come in order."""
    return lambda values: values[min(len(values) - 1, int(share * len(values)))]


def _result(read: Callable[[Results], float | None]) -> Value:
    return lambda measured: read(measured.results) if measured.results is not None else None


def _victims_each(results: Results) -> float | None:
    return results.victims / results.preemptors.bound if results.preemptors.bound else None


def _bound_a_second(measured: Measured) -> float | None:
    pods = measured.measured
    return pods.bound / pods.seconds if pods is not None and pods.seconds else None


def _used(process: str, what: str, *, meanwhile: bool = False) -> Value:
    def value(measured: Measured) -> float | None:
        used = measured.used_meanwhile if meanwhile else measured.used
        return getattr(used.get(process), what, None)

    return value


_ATTEMPT = "scheduler_scheduling_attempt_duration_seconds"
_GROUP_ATTEMPT = "scheduler_podgroup_scheduling_attempt_duration_seconds"
_WAITING = "waiting_on_preemption"

ROWS = (
    Row("throughput of the measured pods", "pods/s", _item("SchedulingThroughput", "Average")),
    Row("the same, from the first one's creation until the last is bound", "pods/s", _bound_a_second),
    Row("PostFilter calls that planned", "", _result(lambda r: len(r.planned or ()) or None)),
    Row("PostFilter p50", "ms", _post_filter(_quantile(0.5))),
    Row("PostFilter p90", "ms", _post_filter(_quantile(0.9))),
    Row("PostFilter p99", "ms", _post_filter(_quantile(0.99))),
    Row("PostFilter mean", "ms", _post_filter(statistics.fmean)),
    Row("PostFilter mean, all calls", "ms", _post_filter(statistics.fmean, unplanned=True)),
    Row("PostFilter p50, meanwhile", "ms", _post_filter(_quantile(0.5), meanwhile=True)),
    Row("PostFilter p99, meanwhile", "ms", _post_filter(_quantile(0.99), meanwhile=True)),
    Row("PostFilter mean, meanwhile", "ms", _post_filter(statistics.fmean, meanwhile=True)),
    Row("PodGroupPostFilter calls", "", _result(lambda r: len(r.groups) if r.groups else None)),
    Row("PodGroupPostFilter mean", "ms", _group_post_filter(statistics.fmean)),
    Row("PodGroupPostFilter, longest", "ms", _group_post_filter(max)),
    Row("attempt of a group, scheduled, mean", "ms", _item(_GROUP_ATTEMPT, "Average", result="scheduled")),
    Row("attempt of a group, preempting, mean", "ms", _item(_GROUP_ATTEMPT, "Average", result=_WAITING)),
    Row("attempt, scheduled, mean", "ms", _item(_ATTEMPT, "Average", result="scheduled")),
    Row("attempt, scheduled, p99", "ms", _item(_ATTEMPT, "Perc99", result="scheduled")),
    Row("attempt, unschedulable, mean", "ms", _item(_ATTEMPT, "Average", result="unschedulable")),
    Row("attempt, unschedulable, p99", "ms", _item(_ATTEMPT, "Perc99", result="unschedulable")),
    Row("preemptors created", "", _result(lambda r: r.preemptors.created)),
    Row("preemptors bound at the end", "", _result(lambda r: r.preemptors.bound)),
    Row("first created to last bound", "s", _result(lambda r: r.preemptors.seconds)),
    Row("victims", "", _result(lambda r: r.victims)),
    Row("victims for each bound preemptor", "", _result(_victims_each)),
    Row("CPU, benchmark's process", "s", _used(BENCHMARK, "cpu_seconds")),
    Row("CPU, planner", "s", _used("planner", "cpu_seconds")),
    Row("CPU, evictor", "s", _used("evictor", "cpu_seconds")),
    Row("CPU, nats-server", "s", _used("nats", "cpu_seconds")),
    Row("CPU, benchmark's process, meanwhile", "s", _used(BENCHMARK, "cpu_seconds", meanwhile=True)),
    Row("CPU, planner, meanwhile", "s", _used("planner", "cpu_seconds", meanwhile=True)),
    Row("CPU, evictor, meanwhile", "s", _used("evictor", "cpu_seconds", meanwhile=True)),
    Row("CPU, nats-server, meanwhile", "s", _used("nats", "cpu_seconds", meanwhile=True)),
    Row("CPU kept from the machine by its host", "s", lambda m: m.stolen),
    Row("CPU kept from the machine by its host, meanwhile", "s", lambda m: m.stolen_meanwhile),
    Row("peak memory, benchmark's process", "MiB", _used(BENCHMARK, "peak_mib")),
    Row("peak memory, planner", "MiB", _used("planner", "peak_mib")),
    Row("peak memory, evictor", "MiB", _used("evictor", "peak_mib")),
)


COLUMNS = (
    ("throughput of the measured pods", "the same, from the first one's creation until the last is bound"),
    ("PostFilter mean", "PodGroupPostFilter mean", "PostFilter mean, all calls"),
    ("PostFilter p99", "PodGroupPostFilter, longest"),
    ("preemptors bound at the end",),
    ("first created to last bound",),
    ("victims for each bound preemptor",),
    ("CPU, benchmark's process",),
)
"""Columns of the document: of each the first row that has a figure, of both variants."""

OWN = (("CPU, planner", "CPU, evictor", "CPU, nats-server"), ("peak memory, planner", "peak memory, evictor"))
"""Columns of the document of the processes that MakeWay brings."""


def table(workload: str, measured: Sequence[Measured]) -> str:
    """Give the section of one workload. The rounds of both variants come in the order in which they ran."""
    rounds = {variant: [one for one in measured if one.variant == variant] for variant in VARIANTS}
    lines = [
        f"### {workload}",
        "",
        f"{_counted(rounds)}, {machine()}. {_finished(rounds)}",
        "",
        f"| | {DEFAULT} | {MAKEWAY} | ratio (least to greatest) |",
        "|---|---:|---:|---:|",
    ]
    for row in ROWS:
        left, right = ([row.value(one) for one in rounds[variant]] for variant in VARIANTS)
        if all(value is None for value in (*left, *right)):
            continue
        name = f"{row.what}, {row.unit}" if row.unit else row.what
        lines.append(f"| {name} | {_median(left)} | {_median(right)} | {_ratio(left, right)} |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Name processor, memory, system and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores of {_processor()}, {memory:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, Kubernetes {KUBERNETES_VERSION}, "
        f"nats-server {NATS_SERVER.version}"
    )


def _processor() -> str:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return cpu[1] if cpu else platform.machine()


def _known(both: Sequence[Sequence[float | None]]) -> bool:
    return any(value is not None for values in both for value in values)


def summary(workload: str, measured: Sequence[Measured]) -> str:
    """Give a workload's line of the document: both variants, and the median ratio within a round."""
    rounds = {variant: [one for one in measured if one.variant == variant] for variant in VARIANTS}
    read = {row.what: [[row.value(one) for one in rounds[variant]] for variant in VARIANTS] for row in ROWS}
    cells = [
        workload,
        f"{max(len(one) for one in rounds.values())}, {_processor()}, {KUBERNETES_VERSION[1:]}",
    ]
    for names in COLUMNS:
        left, right = next((read[name] for name in names if _known(read[name])), ([], []))
        ratio = _ratio(left, right).partition(" ")[0]
        both = f"{_median(left)}, {_median(right)}" if _known([left, right]) else "-"
        cells.append(f"{both} ({ratio})" if ratio else both)
    cells += [", ".join(_median(read[name][1]) for name in names) for names in OWN]
    return f"| {' | '.join(cells)} |\n"


def put(document: Path, line: str) -> None:
    """Put a workload's line into the table of the document, in the place of an older one or at its end."""
    text, end = document.read_text(), "<!-- end of the workloads -->\n"
    name = line.split("|")[1]
    text = re.sub(rf"^\|{re.escape(name)}\|.*\n", "", text, flags=re.MULTILINE)
    document.write_text(text.replace(end, line + end))


def _counted(rounds: dict[str, list[Measured]]) -> str:
    counts = {variant: len(measured) for variant, measured in rounds.items() if measured}
    if len(counts) == 1:
        ((variant, count),) = counts.items()
        return f"{counted(count, 'round')} of {variant}"
    return f"{counted(max(counts.values()), 'round')} of each, alternating"


def _finished(rounds: dict[str, list[Measured]]) -> str:
    failed = {variant: sum(not one.finished for one in measured) for variant, measured in rounds.items()}
    told = [f"{count} of {variant} did not end well" for variant, count in failed.items() if count]
    return "; ".join(told) + "." if told else "All ended well."


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(statistics.median(known)) if known else "-"


def _ratio(left: Sequence[float | None], right: Sequence[float | None]) -> str:
    ratios = [b / a for a, b in zip(left, right, strict=False) if a and b is not None]
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
