"""What a planner says of its queues: limits, usage, timers, processes and their ends. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from makeway.bus.messages import API_VERSION
from makeway.bus.queue_report import (
    QueueReport,
    QueueState,
    QuotaProcess,
    QuotaTimer,
    QuotaWaiting,
)
from makeway.core.k8s.resources import PODS
from makeway.core.queues.amounts import Amounts, written
from makeway.core.queues.reclaim import reclaims_in
from makeway.core.queues.tree import Queue, QueueTree
from makeway.planner.quota.processes import QuotaProcesses, RunningQuota
from makeway.planner.snapshot.queue_usage import QueueUsage

_MOST_OTHERS: Final = 32
"""Resources in a queue's usage besides those that the tree counts. Pods' authors name them, and NATS carries
no answer beyond its limit."""


def report_of(
    queues: QueueUsage, control: QuotaProcesses, *, queue: str, planner: str, now: datetime
) -> QueueReport:
    """Tell of one queue by its path, or of all where that is empty. O(queues told of)."""
    tree = queues.tree
    return QueueReport(
        api_version=API_VERSION,
        planner=planner,
        at=now,
        revision=queues.revision if tree is not None else "",
        quota_preemption=tree is not None and tree.quota_preemption,
        misplaced=len(queues.misplaced),
        unknown=bool(queue) and (tree is None or tree.find(queue) is None),
        queues=()
        if tree is None
        else tuple(_state(queues, tree, control, one) for one in tree if queue in ("", one.path)),
    )


def _state(queues: QueueUsage, tree: QueueTree, control: QuotaProcesses, queue: Queue) -> QueueState:
    held = _few(queues.held.of(queue.number), tree) if queues.held is not None else {}
    staying = queues.staying.of(queue.number) if queues.staying is not None else {}
    leaving = {name: amount - staying.get(name, 0) for name, amount in held.items()}
    timer = control.timers.timer(queue.path)
    process = control.processes.get(queue.path)
    back = reclaims_in(tree, queue)
    return QueueState(
        path=queue.path,
        leaf=queue.is_leaf,
        pods=held.get(PODS, 0),
        usage=written(held),
        leaving=written({name: amount for name, amount in leaving.items() if amount}),
        guaranteed=dict(queue.guaranteed),
        reclaims_in="" if back is None else back.path,
        max=dict(queue.maximum),
        namespaces=tuple(sorted(queue.namespaces)),
        delay_seconds=int(queue.delay.total_seconds()),
        miss_percent=queue.miss_percent,
        timer=None if timer is None else QuotaTimer(since=timer.since, fires_at=timer.fires_at),
        process=None
        if process is None
        else _process(process, control.waits_for(queue.path), control.waits().get(queue.path)),
        last=control.ended.get(queue.path),
    )


def _few(held: Amounts, tree: QueueTree) -> dict[str, int]:
    """Return what a queue holds, of few enough resources for a message."""
    others = sorted(held.keys() - tree.counted)
    left_out = frozenset(others[_MOST_OTHERS:])
    return {name: amount for name, amount in held.items() if name not in left_out}


def _process(process: RunningQuota, below: tuple[str, ...], wait: QuotaWaiting | None) -> QuotaProcess:
    return QuotaProcess(
        since=process.began_at,
        order_id=process.order.order_id if process.order is not None else "",
        victims=len(process.victims),
        evicted=process.evicted,
        waits_for=below if process.order is None else (),
        waiting=wait,
    )
