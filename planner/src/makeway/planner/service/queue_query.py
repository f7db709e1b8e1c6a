"""Between the queues' configuration, the snapshot, and clients that ask about queues."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import structlog

from makeway.bus.queue_report import QueueQuery
from makeway.core.queues.parsing import Queues
from makeway.planner.quota.loop import QuotaLoop
from makeway.planner.quota.processes import QuotaProcesses
from makeway.planner.quota.report import report_of
from makeway.planner.service.pending_updates import until_applied
from makeway.planner.snapshot.changes import Adopt
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.config import Config

_log = structlog.get_logger()
_decode = msgspec.json.Decoder(QueueQuery).decode


def follow_queues(config: Config[Queues | None], snapshot: Snapshot) -> None:
    """Keep the snapshot to the tree in force; one that has not changed is left as it is."""

    def adopt() -> None:
        if config.revision == snapshot.queues.revision:
            return
        found, verdict = config.current, config.verdict
        about = verdict.about if verdict is not None else None
        source = (about.kind, about.namespace, about.name) if about is not None else None
        snapshot.apply(Adopt(found.tree if found is not None else None, config.revision, source))
        _log.info(
            "queues_in_force",
            revision=config.revision,
            queues=len(found.tree) if found is not None else 0,
        )

    config.subscribe(adopt)


async def answer_queue_query(identity: str, snapshot: Snapshot, quotas: QuotaLoop, data: bytes) -> bytes:
    """Answer `makeway queues`; a question that is not understood is answered as if it asked for all."""
    try:
        query = _decode(data)
    except msgspec.DecodeError:
        query = QueueQuery()
    await until_applied(snapshot.pending_updates)
    report = report_of(
        snapshot.queues,
        quotas.control or QuotaProcesses(),
        queue=query.queue,
        planner=identity,
        now=datetime.now(UTC),
    )
    return msgspec.json.encode(report)
