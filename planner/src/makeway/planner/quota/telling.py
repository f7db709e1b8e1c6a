"""Telling of quota processes: their results, what they wait for, and a success that did not last.

Pods may be made anew past the queue gate, a minute after a success or while a process runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import structlog
from msgspec import structs

from makeway.bus.queue_report import QUOTA_WAITS, QuotaEnd, QuotaWaiting
from makeway.core.k8s.event import EventType
from makeway.core.queues.amounts import Amounts, looser, over, texts_of
from makeway.core.queues.quota import QuotaObstacle, QuotaPlan
from makeway.core.text import as_name, counted
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.quota.decide import obstacles_of
from makeway.planner.quota.processes import QuotaProcesses, RunningQuota
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

_EVENTS: Final[dict[str, tuple[EventType, str]]] = {
    "success": ("Normal", "QuotaEnforced"),
    "bestEffort": ("Warning", "QuotaPartlyEnforced"),
    "unsuccessful": ("Warning", "QuotaNotEnforced"),
    "observed": ("Normal", "QuotaObserved"),
    "cancelled": ("Normal", "QuotaCancelled"),
    "undone": ("Warning", "QuotaUndone"),
}

LOOK_AGAIN: Final = timedelta(seconds=60)
"""How long after a success usage is read again: by then what owners make anew is there."""

MADE_ANEW: Final = "made-anew"

_SHOWN: Final = 3

_log = structlog.get_logger()


Tell: TypeAlias = Callable[[EventType, str, str], None]
"""Reports a result by an Event on the ConfigMap of the queues: its type, reason and note. Never waits."""


@dataclass(frozen=True, slots=True)
class Success:
    """A process that ended well: what it brought its queue down to, and since when it ran."""

    ended: QuotaEnd
    maximum: Amounts
    began_at: datetime


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

    def ended(self, path: str, process: RunningQuota, ended: QuotaEnd) -> None:
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

    def _report(self, path: str, ended: QuotaEnd) -> None:
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


def undone(snapshot: Snapshot, path: str, success: Success, now: datetime) -> QuotaEnd | None:
    """Return how the process has ended after all, where usage is above its maximum; None where it is not.

    A maximum that was raised meanwhile counts, one that was lowered has a process of its own. O(pods below).
    """
    queues = snapshot.queues
    queue = queues.tree.find(path) if queues.tree is not None else None
    if queue is None or queues.staying is None:
        return None
    most = looser(success.maximum, queue.maximum)
    used = queues.staying.of(queue.number)
    if not (excess := over(used, most)):
        return None
    held = texts_of({name: used[name] for name in excess})
    message = (
        f"{path} came down to its max, and uses {held} of at most {texts_of(most)} again: "
        f"evicting {counted(success.ended.evicted, 'pod')} had no lasting effect"
    )
    makers = obstacles_of(_makers(_came(snapshot, path, success.began_at)))
    return structs.replace(success.ended, result="undone", at=now, message=message, blocked=makers)


def in_vain(
    snapshot: Snapshot, path: str, process: RunningQuota, plan: QuotaPlan
) -> tuple[str, Sequence[QuotaObstacle]] | None:
    """Return why a process ends that has evicted as many pods as it plans for, and has to free as much still.

    As much of a resource of which its victims had as much, and of which pods that came since have some: what
    was evicted has come again past the gate, which lets no pod into a queue above its maximum, and would for
    ever. None where it is not so. O(pods below).
    """
    if process.evicted < sum(unit.size for unit in plan.victims):
        return None
    unmet = (name for name, amount in process.need.items() if plan.need.get(name, 0) >= amount)
    freed = [name for name in unmet if process.freed.get(name, 0) >= plan.need[name]]
    came = _came(snapshot, path, process.began_at) if freed else []
    if not any(name in pod.requests for name in freed for pod in came):
        return None
    again = counted(process.evicted, "pod")
    message = f"{plan.message}, as when that began: evicting {again} had no lasting effect"
    return message, _makers(came)


def _came(snapshot: Snapshot, path: str, since: datetime) -> list[PodRecord]:
    """Return the pods in and below a queue that were bound since then. O(pods below)."""
    queues = snapshot.queues
    there = queues.staying_in(queues.tree.at(path)) if queues.tree is not None else ()
    began = since - timedelta(seconds=1)  # the times of pods are whole seconds
    return [pod for pod in there if (bound := pod.facts.bound_at) is not None and bound >= began]


def _makers(came: Iterable[PodRecord]) -> Sequence[QuotaObstacle]:
    """Name what made most of some pods."""
    pods = Counter(pod.controller or f"no owner in namespace {pod.namespace}" for pod in came)
    return [
        QuotaObstacle(MADE_ANEW, f"{counted(number, 'pod')} made anew by {as_name(maker)}")
        for maker, number in pods.most_common(_SHOWN)
    ]
