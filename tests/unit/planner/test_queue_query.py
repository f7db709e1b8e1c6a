"""What the planner answers to questions about queues."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from makeway.bus.queue_report import QueueReport
from makeway.planner.service.queue_query import answer_queue_query
from makeway.planner.snapshot.changes import Adopt, PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import S, make_pod, settle


async def test_usage_is_told_once_every_pod_is_counted() -> None:
    snapshot = Snapshot(chunk=1)
    for uid in "ab":
        snapshot.apply(PutPod(make_pod(uid, "n1", namespace="team", requests={"cpu": S})))
    snapshot.apply(Adopt(tree(queue("team")), "r"))
    quotas: Any = SimpleNamespace(control=None)

    answering = asyncio.create_task(answer_queue_query("planner-1", snapshot, quotas, b"{}"))
    await asyncio.sleep(0.1)
    assert not answering.done()
    settle(snapshot)

    report = msgspec.json.decode(await answering, type=QueueReport)
    assert {one.path: one.pods for one in report.queues}["root.team"] == 2
