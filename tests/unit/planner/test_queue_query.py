"""What the planner answers to questions about queues."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from makeway.bus.queue_report import QueueReport
from makeway.core.k8s.quantity import MAX_INT64
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


def test_of_thousands_of_resources_a_report_has_few_and_all_that_a_queue_limits() -> None:
    named = {f"example.com/{number:04}": 1 for number in range(5000)}
    snapshot = Snapshot()
    snapshot.apply(Adopt(tree(queue("team", maximum={"example.com/4000": 9})), "r"))
    snapshot.apply(PutPod(make_pod("a", "n1", namespace="team", requests={"cpu": S, "pods": 1, **named})))

    report = report_of(snapshot.queues, QuotaProcesses(), queue="root.team", planner="p", now=NOW)

    [team] = report.queues
    assert {"cpu", "pods", "example.com/0000", "example.com/4000"} <= team.usage.keys()
    assert len(team.usage) < 100


def test_a_report_of_pods_that_request_more_than_64_bits_hold_together_can_be_read() -> None:
    snapshot = Snapshot()
    snapshot.apply(Adopt(tree(queue("team")), "r"))
    for uid in "ab":
        requests = {"memory": MAX_INT64, "pods": 1}
        snapshot.apply(PutPod(make_pod(uid, "n1", namespace="team", requests=requests, terminating=True)))

    report = report_of(snapshot.queues, QuotaProcesses(), queue="root.team", planner="p", now=NOW)

    [team] = msgspec.json.decode(msgspec.json.encode(report), type=QueueReport).queues
    assert (team.usage["memory"], team.leaving["memory"]) == (MAX_INT64, MAX_INT64)
