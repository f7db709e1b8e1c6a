"""Telling of quota processes: their results, what they wait for, and a success that did not last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, TypeAlias

import structlog

from makeway.bus.queue_report import QUOTA_WAITS, QuotaWaiting
from makeway.core.k8s.event import EventType
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.quota.processes import EndedQuota, QuotaProcesses, RunningQuota
from makeway.planner.quota.undone import LOOK_AGAIN, Success, undone
from makeway.planner.snapshot.state import Snapshot

_EVENTS: Final[dict[str, tuple[EventType, str]]] = {
    "success": ("Normal", "QuotaEnforced"),
    "bestEffort": ("Warning", "QuotaPartlyEnforced"),
    "unsuccessful": ("Warning", "QuotaNotEnforced"),
    "observed": ("Normal", "QuotaObserved"),
    "cancelled": ("Normal", "QuotaCancelled"),
    "undone": ("Warning", "QuotaUndone"),
}

_log = structlog.get_logger()


Tell: TypeAlias = Callable[[EventType, str, str], None]
"""Reports a result by an Event on the ConfigMap of the queues: its type, reason and note. Never waits."""


class QuotaTelling:
    """Tells in metrics, logs and Events on the ConfigMap of the queues, for one planner that leads."""

    def __init__(self, snapshot: Snapshot, metrics: PlannerMetrics, tell: Tell) -> None:
        self._snapshot = snapshot
        self._metrics = metrics
        self._tell = tell
        self._waits: dict[str, str] = {}
        self._successes: dict[str, Success] = {}

    def begin(self) -> None:
        """This planner begins to lead: nothing has been told."""
        self._waits.clear()
        self._successes.clear()

    def end(self) -> None:
        """This planner leads no more: another one tells."""
        self._count(())

    def _count(self, waits: Iterable[QuotaWaiting]) -> None:
        reasons = Counter(wait.reason for wait in waits)
        for reason in QUOTA_WAITS:
            self._metrics.quota_waiting.labels(reason).set(reasons[reason])

    def ended(self, path: str, process: RunningQuota, ended: EndedQuota) -> None:
        """Report how a process ended; look again where it came down."""
        self._successes.pop(path, None)
        if ended.result == "success" and process.maximum is not None:
            self._successes[path] = Success(ended, process.maximum, process.began_at)
        self._report(path, ended)

    def look_again(self, control: QuotaProcesses, now: datetime) -> None:
        """Look whether what came down a minute ago is up again. No process begins for it."""
        for path, success in list(self._successes.items()):
            if path in control.processes:
                del self._successes[path]
            elif now >= success.ended.at + LOOK_AGAIN:
                del self._successes[path]
                if (ended := undone(self._snapshot, path, success, now)) is not None:
                    control.ended[path] = ended
                    self._report(path, ended)

    def tell_of_waits(self, control: QuotaProcesses) -> None:
        """Tell of each wait that has begun: an Event where its reason is another, and a gauge."""
        waits = control.waits()
        self._count(waits.values())
        for path in self._waits.keys() - control.processes.keys():
            del self._waits[path]
        for path, wait in waits.items():
            if self._waits.get(path) != wait.reason:
                self._waits[path] = wait.reason
                evicted = control.processes[path].evicted
                _log.info("quota_process_waits", queue=path, reason=wait.reason, message=wait.message)
                note = f"{path} waits ({wait.reason}), {evicted} evicted so far: {wait.message}"
                self._tell("Warning", "QuotaWaits", note)

    def _report(self, path: str, ended: EndedQuota) -> None:
        """Tell of a result: metric, log, and an Event unless nothing had to be done."""
        self._metrics.quota_processes.labels(ended.result).inc()
        _log.info(
            "quota_process_ended",
            queue=path,
            result=ended.result,
            message=ended.message,
            evicted=ended.evicted,
            blocked=[obstacle.reason for obstacle in ended.blocked],
        )
        if ended.result in _EVENTS:
            event_type, reason = _EVENTS[ended.result]
            note = ended.message if not ended.evicted else f"{ended.message}; evicted {ended.evicted} in all"
            self._tell(event_type, reason, note)
