"""What the planner answers to questions about queues."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from makeway.bus.queue_report import QueueReport
from makeway.planner.quota.processes import QuotaProcesses
from makeway.planner.quota.report import report_of
from makeway.planner.service.queue_query import answer_queue_query
from makeway.planner.snapshot.changes import Adopt, PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import NOW, S, make_pod, settle


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


def test_the_report_says_within_which_queue_a_guarantee_is_taken_back() -> None:
    snapshot = Snapshot()
    snapshot.apply(Adopt(tree(queue("team", guaranteed={"cpu": S}), queue("other"), reclaim=True), "r"))

    report = report_of(snapshot.queues, QuotaProcesses(), queue="", planner="p", now=NOW)

    assert {one.path: one.reclaims_in for one in report.queues if one.reclaims_in} == {"root.team": "root"}
