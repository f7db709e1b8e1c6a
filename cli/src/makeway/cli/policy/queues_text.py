"""Queues as a person reads them: the tree as a table, one queue in full. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from makeway.bus.queue_report import QueueReport, QueueState
from makeway.cli.tables import Column
from makeway.core.k8s.times import api_time
from makeway.core.queues.amounts import text_of, texts_of

COLUMNS: Final = (
    Column("QUEUE"),
    Column("PODS", rank=2),
    Column("USED / MAX", kind="text"),
    Column("GUARANTEED", kind="text", rank=1),
    Column("RECLAIMS IN", kind="text", sparse=True),
    Column("QUOTA", kind="text"),
    Column("NAMESPACES", wide=True),
)

_RESULTS = {
    "notNeeded": "was not above its max",
    "success": "enforced",
    "bestEffort": "partly enforced",
    "unsuccessful": "not enforced",
    "observed": "observed only",
    "cancelled": "called off",
    "undone": "undone: above its max again",
}


def rows(report: QueueReport) -> Iterator[tuple[str, ...]]:
    """Return a table's row for each queue, children indented below their parent."""
    for queue in report.queues:
        depth = queue.path.count(".")
        name = queue.path if depth == 0 else "  " * depth + queue.path.rpartition(".")[2]
        yield (
            name,
            str(queue.pods),
            _used(queue),
            texts_of(queue.guaranteed) if queue.guaranteed else "",
            queue.reclaims_in,
            _quota(queue, report.at),
            ", ".join(queue.namespaces) or "all",
        )


def lines(queue: QueueState, now: datetime) -> Iterator[str]:
    """Return all that is known of one queue, a line a fact."""
    yield f"Queue:       {queue.path}" + ("" if queue.leaf else " (pods run in the queues below it)")
    yield f"Pods:        {queue.pods}"
    yield f"Used:        {texts_of(queue.usage)}"
    if queue.leaving:
        yield f"Leaving:     {texts_of(queue.leaving)}"
    yield f"Guaranteed:  {texts_of(queue.guaranteed)}"
    if queue.reclaims_in:
        yield f"Reclaims:    up to its guarantee, from queues in {queue.reclaims_in}"
    yield f"Max:         {texts_of(queue.max) if queue.max else 'no limit'}"
    yield f"Namespaces:  {', '.join(queue.namespaces) or 'all'}"
    yield f"Delay:       {_delay(queue)}"
    if (timer := queue.timer) is not None:
        left = (timer.fires_at - now).total_seconds()
        fires = f"{api_time(timer.fires_at)} (in {left:.0f} s)"
        yield f"Timer:       since {api_time(timer.since)}, fires {fires}"
    if (process := queue.process) is not None:
        order = f", order {process.order_id} with {process.victims} pods" if process.order_id else ""
        waits = f", waits for {', '.join(process.waits_for)}" if process.waits_for else ""
        yield f"Process:     since {api_time(process.since)}, {process.evicted} evicted so far{order}{waits}"
        if (waiting := process.waiting) is not None:
            again = f"since {api_time(waiting.since)}, tries again {api_time(waiting.until)}"
            yield f"Waits:       {waiting.reason}, {again}"
            yield f"             {waiting.message}"
    if (last := queue.last) is not None:
        yield f"Last quota:  {_RESULTS[last.result]} {api_time(last.at)}, {last.evicted} evicted"
        yield f"             {last.message}"
        for blocked in last.blocked:
            yield f"Blocked by:  {blocked.reason}: {blocked.message}"


def summary(report: QueueReport) -> str:
    """Say what the table does not: how pods are misplaced, whether quotas are enforced at all."""
    parts = []
    if not report.quota_preemption:
        parts.append("quota preemption is off: a lowered max evicts no pod")
    if report.misplaced:
        pods = "1 pod is" if report.misplaced == 1 else f"{report.misplaced} pods are"
        parts.append(f"{pods} unplaced: the Event QueueNotUsed of each says why")
    return "; ".join(parts)


def _used(queue: QueueState) -> str:
    names = sorted({*queue.max, *(name for name in queue.usage if name in ("cpu", "memory"))})
    return ", ".join(f"{name} {_of(name, queue.usage, queue.max)}" for name in names)


def _of(name: str, usage: Mapping[str, int], maximum: Mapping[str, int]) -> str:
    used = text_of(name, usage.get(name, 0))
    return f"{used} / {text_of(name, maximum[name])}" if name in maximum else used


def _quota(queue: QueueState, now: datetime) -> str:
    if queue.process is not None:
        if queue.process.waits_for:
            return "enforced after the queues below"
        if (waiting := queue.process.waiting) is not None:
            left = max(0.0, (waiting.until - now).total_seconds())
            return f"waits ({waiting.reason}), tries again in {left:.0f} s"
        return f"enforcing, {queue.process.victims} leaving"
    if queue.timer is not None:
        return f"enforced in {max(0.0, (queue.timer.fires_at - now).total_seconds()):.0f} s"
    return _RESULTS[queue.last.result] if queue.last is not None else ""


def _delay(queue: QueueState) -> str:
    if not queue.delay_seconds:
        return "0: a lowered max evicts no pod"
    return f"{queue.delay_seconds} s after max was lowered; at most {queue.miss_percent} % may be left over"
