"""What following every preemption costs the planner: `make bench BENCH=past`.

    PYTHONPATH=tests .venv/bin/python -m bench.short_past --nodes 5000 --pods 150000 --rounds 3

The planner keeps a short past of its snapshot and plans for preemptions that no scheduler asked about. Two
processes have the same snapshot, full nodes with budgets, and are told of the same: changed pods, and then
preemptions of three pods each by kube-scheduler, which leave, and whose places others take. One of them
follows preemptions. Given are the resident memory at the end, and the CPU time of a changed pod and of a
preemption; of several rounds the medians.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from bench.api_server import pod
from bench.full_cluster import CPU, MEMORY, full_cluster
from bench.options import read_options
from bench.warmup import warm_up
from makeway.bus.comparison import Comparison
from makeway.core.k8s.disruption import preemption_message
from makeway.core.k8s.objects import Pod
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe.loop import ObserveLoop
from makeway.planner.observe.past import ShortPast
from makeway.planner.orders.ledger import Ledger
from makeway.planner.snapshot.changes import Change, PutBudget, PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord, pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, make_budget

_APPS = 500
_BUDGETS = 200
_VICTIMS = 3
_SCHEDULER = "default-scheduler"
_decode = msgspec.json.Decoder(Pod).decode
_MARK: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": preemption_message(_SCHEDULER),
}


class Written:
    """Takes comparisons, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    async def publish_comparison(self, comparison: Comparison) -> None:
        """Count it."""
        self.count += 1


class Planner:
    """The part of a planner that is told of pods, with or without following preemptions."""

    def __init__(self, snapshot: Snapshot, *, follows: bool) -> None:
        self.snapshot = snapshot
        self.now = NOW
        self.written = Written()
        self.past = ShortPast() if follows else None
        self.observing: ObserveLoop | None = None
        if self.past is not None:
            self.observing = ObserveLoop(
                "planner-1",
                snapshot=snapshot,
                bus=self.written,
                metrics=PlannerMetrics(CollectorRegistry()),
                ledger=Ledger(),
                past=self.past,
                cluster_uid="cluster-1",
                now=lambda: self.now,
            )
            self.observing.following = True

    def apply(self, change: Change) -> None:
        """Change the snapshot, and tell the past of it."""
        self.snapshot.apply(change)
        if self.past is not None:
            self.past.note(change, self.snapshot.revision)

    def see(self, item: Pod) -> None:
        """Let the list-watch tell of a pod."""
        if self.observing is not None:
            self.observing.put(item)

    def lose(self, record: PodRecord) -> None:
        """Let a pod leave."""
        self.apply(RemovePod(record.uid))
        if self.observing is not None:
            self.observing.drop(_object(record))


def _object(record: PodRecord, **status: Any) -> Pod:
    """Give a pod as the list-watch has it."""
    metadata = {
        "namespace": record.namespace,
        "name": record.name,
        "uid": record.uid,
        "labels": dict(record.labels),
        "ownerReferences": [{"uid": f"owner-of-{record.labels.get('app', record.name)}"}],
    }
    requests = {"cpu": f"{CPU}m", "memory": str(MEMORY)}
    spec = {
        "nodeName": record.node,
        "schedulerName": _SCHEDULER,
        "priority": record.priority,
        "containers": [{"name": "main", "resources": {"requests": requests}}],
    }
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def _raw(record: PodRecord, number: int) -> bytes:
    """Give a pod of the snapshot as large as the API server sends it."""
    found = pod(number, 0, number)
    found["metadata"] |= {"namespace": record.namespace, "name": record.name, "uid": record.uid}
    found["metadata"]["labels"] = dict(record.labels)
    found["spec"] |= {"nodeName": record.node, "priority": record.priority, "schedulerName": _SCHEDULER}
    return msgspec.json.encode(found)


def _preemptor(number: int, node: str) -> Pod:
    requests = {"cpu": f"{_VICTIMS * CPU}m", "memory": str(_VICTIMS * MEMORY)}
    name = f"urgent-{number}"
    return msgspec.convert(
        {
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "spec": {
                "schedulerName": _SCHEDULER,
                "priority": 1000,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
            "status": {"nominatedNodeName": node},
        },
        Pod,
    )


def _rounds(snapshot: Snapshot, count: int) -> Iterator[tuple[str, list[PodRecord]]]:
    """Return nodes, and of each the pods that are preempted there."""
    for number in range(count):
        node = f"n{number * 7 % snapshot.node_count:05}"
        yield node, [snapshot.pods[f"p{node[1:]}-{slot}"] for slot in range(_VICTIMS)]


async def measure(nodes: int, pods: int, events: int, preemptions: int, *, follows: bool) -> dict[str, float]:
    """Give memory and CPU time of one process."""
    warm_up()
    planner = Planner(full_cluster(nodes, pods // nodes, _APPS, range(_BUDGETS)), follows=follows)
    gc.collect()
    gc.freeze()
    snapshot = planner.snapshot
    records = [snapshot.pods[f"p{number % nodes:05}-{number // nodes % 30}"] for number in range(events)]
    changed = 0.0
    for number, record in enumerate(records):
        raw = _raw(record, number)
        began = time.process_time()
        item = _decode(raw)
        planner.apply(PutPod(pod_record(item)))
        planner.see(item)
        changed += time.process_time() - began
    del records

    running = []
    if planner.observing is not None:
        loops = (
            planner.observing.plan_forever,
            planner.observing.poll_forever,
            planner.observing.write_forever,
        )
        running = [asyncio.create_task(loop()) for loop in loops]
    spent = 0.0
    for number, (node, victims) in enumerate(_rounds(snapshot, preemptions)):
        began = time.process_time()
        for record in victims:
            planner.see(_object(record, conditions=[_MARK]))
        planner.apply(
            PutBudget(make_budget(f"budget-{number}", {"app": f"app-{number}"}, allowed=number % 2))
        )
        planner.see(_preemptor(number, node))
        for record in victims:
            planner.lose(record)
        for record in victims:
            planner.apply(PutPod(record))
        for _ in range(50):
            await asyncio.sleep(0)
        planner.now += timedelta(seconds=5)
        spent += time.process_time() - began
    await asyncio.sleep(1.0)
    for task in running:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    if follows and planner.written.count != preemptions:
        raise RuntimeError(f"{planner.written.count} of {preemptions} preemptions were compared")
    return {
        "resident": _resident_mib(),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "changed": changed / events * 1e6,
        "preemption": spent / preemptions * 1e3,
    }


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


_ROWS: Final = {
    "resident memory at the end, MiB": ("resident", 0),
    "its peak, MiB": ("peak", 0),
    "CPU of a changed pod, us": ("changed", 1),
    "CPU of a preemption, ms": ("preemption", 1),
}


def report(without: list[dict[str, float]], follows: list[dict[str, float]]) -> str:
    """Return a table of both, medians of the rounds."""
    lines = ["| | without | with | ratio |", "|---|---:|---:|---:|"]
    for what, (key, digits) in _ROWS.items():
        a, b = (median(one[key] for one in found) for found in (without, follows))
        lines.append(f"| {what} | {a:.{digits}f} | {b:.{digits}f} | {b / a:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Run both in processes of their own, in turn."""
    given = read_options(__doc__, nodes=5_000, pods=150_000, events=50_000, preemptions=60, rounds=3, one="")
    sizes = (given.nodes, given.pods, given.events, given.preemptions)
    if given.one:
        print(json.dumps(asyncio.run(measure(*sizes, follows=given.one == "with"))))
        return
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for number in range(given.rounds):
        for one in list(found)[:: -1 if number % 2 else 1]:
            command = [sys.executable, "-m", "bench.short_past", f"--one={one}"]
            command += [f"--{name}={size}" for name, size in zip(_SIZES, sizes, strict=True)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[one].append(json.loads(output.splitlines()[-1]))
    print(report(found["without"], found["with"]))


_SIZES: Final = ("nodes", "pods", "events", "preemptions")

if __name__ == "__main__":
    main()
