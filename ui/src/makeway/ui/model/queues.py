"""The tree of queues as bars: how much of each resource is used, guaranteed, and at most allowed. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.queue_report import QueueReport, QueueState
from makeway.cli.policy.queues_text import lines, summary
from makeway.core.queues.amounts import text_of

MOST_QUEUES: Final = 2_000
_MOST_RESOURCES: Final = 16
_ALWAYS: Final = ("cpu", "memory")


class Bar(msgspec.Struct, frozen=True, rename="camel"):
    """One resource of a queue.

    used, guaranteed, max: as people write them; max is empty where there is no limit, guaranteed where there
    is no guarantee. state: full, above where more than max is used, or empty. used_share, guaranteed_share:
    of max, from 0 to 1; 0 where there is no max, and so no bar.
    """

    resource: str
    used: str
    guaranteed: str
    max: str
    state: str
    used_share: float
    guaranteed_share: float


class QueueRow(msgspec.Struct, frozen=True, rename="camel"):
    """A queue, its depth in the tree, and all that is known of it in lines."""

    path: str
    name: str
    depth: int
    pods: int
    bars: tuple[Bar, ...]
    lines: tuple[str, ...]


class QueueTreeView(msgspec.Struct, frozen=True, rename="camel"):
    """All queues, parents before children. note: what the bars do not say. total: also those left out."""

    at: datetime
    planner: str
    queues: tuple[QueueRow, ...]
    total: int
    note: str


def tree_of(report: QueueReport) -> QueueTreeView:
    """Return the view of a planner's report. O(queues · resources)."""
    return QueueTreeView(
        at=report.at,
        planner=report.planner,
        queues=tuple(_row(queue, report.at) for queue in report.queues[:MOST_QUEUES]),
        total=len(report.queues),
        note=summary(report),
    )


def _row(queue: QueueState, now: datetime) -> QueueRow:
    names = sorted({*queue.max, *queue.guaranteed, *(name for name in _ALWAYS if name in queue.usage)})
    return QueueRow(
        path=queue.path,
        name=queue.path.rpartition(".")[2],
        depth=queue.path.count("."),
        pods=queue.pods,
        bars=tuple(_bar(name, queue) for name in names[:_MOST_RESOURCES]),
        lines=tuple(lines(queue, now)),
    )


def _bar(name: str, queue: QueueState) -> Bar:
    used, guaranteed, most = queue.usage.get(name, 0), queue.guaranteed.get(name, 0), queue.max.get(name)
    return Bar(
        resource=name,
        used=text_of(name, used),
        guaranteed=text_of(name, guaranteed) if name in queue.guaranteed else "",
        max="" if most is None else text_of(name, most),
        state="" if most is None or used < most or not used else "full" if used == most else "above",
        used_share=_share(used, most),
        guaranteed_share=_share(guaranteed, most),
    )


def _share(amount: int, most: int | None) -> float:
    if most is None:
        return 0.0
    return round(min(1.0, amount / most), 4) if most else float(amount > 0)
