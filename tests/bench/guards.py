"""What signatures and admission policies cost a preemption: `make bench BENCH=guards`.

    PYTHONPATH=tests .venv/bin/python -m bench.guards --preemptions 100

Two clusters run at the same time: one with neither, one with both. Each has one node, which a pod of low
priority fills; a pod of high priority is created, and the time is taken until the victim is deleted and until
the preemptor is bound. The clusters take turns, so that what else the machine does falls on both alike. No
victim has a grace period.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import Any

from makeway.dev import nodes
from makeway.dev.cluster import DevCluster
from makeway.dev.errors import DevError
from makeway.dev.options import LIFTED_RATES, ClusterOptions

_PODS = "/api/v1/namespaces/default/pods"
_WARM_UP = 5
_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 60.0

BARE = ClusterOptions(limits=LIFTED_RATES, signatures="off")
GUARDED = replace(BARE, admission_policies=True, signatures="require")


@dataclass
class Times:
    """Of the preemptions in one cluster, in seconds since the preemptor was created."""

    deleted: list[float] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)


def prepare(cluster: DevCluster) -> None:
    """Make the node and the PriorityClass."""
    nodes.create(cluster.api, 1)
    cluster.api.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )


def preempt(cluster: DevCluster, number: int, times: Times) -> None:
    """Fill the node, preempt, take the times, and leave the node empty."""
    victim, preemptor = f"low-{number}", f"high-{number}"
    _create(cluster, victim, "")
    _until(lambda: _bound(_pod(cluster, victim)))
    _create(cluster, preemptor, "high")
    began = time.monotonic()
    _until(lambda: _pod(cluster, victim) is None)
    times.deleted.append(time.monotonic() - began)
    _until(lambda: _bound(_pod(cluster, preemptor)))
    times.bound.append(time.monotonic() - began)
    cluster.api.request("DELETE", f"{_PODS}/{preemptor}", {"gracePeriodSeconds": 0})
    _until(lambda: _pod(cluster, preemptor) is None)


def _create(cluster: DevCluster, name: str, priority_class: str) -> None:
    requests = {"cpu": "3", "memory": "1Gi"}
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
        ],
        "priorityClassName": priority_class,
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.api.request("POST", _PODS, body)


def _pod(cluster: DevCluster, name: str) -> dict[str, Any] | None:
    try:
        return cluster.api.request("GET", f"{_PODS}/{name}")
    except DevError as error:
        if "answered 404" not in str(error):
            raise
        return None


def _bound(pod: dict[str, Any] | None) -> bool:
    return bool(pod and pod["spec"].get("nodeName"))


def _until(condition: Any) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the preemption did not end")
        time.sleep(_POLL_SECONDS)


def report(bare: Times, guarded: Times) -> str:
    """Return both clusters' figures side by side, and the ratio."""
    lines = ["| Since the preemptor was created, ms | neither | both | ratio |", "|---|---|---|---|"]
    for what, one, other in (
        ("victim deleted", bare.deleted, guarded.deleted),
        ("preemptor bound", bare.bound, guarded.bound),
    ):
        for name, index in (("p50", 49), ("p90", 89)):
            without, with_ = quantiles(one, n=100)[index] * 1000, quantiles(other, n=100)[index] * 1000
            lines.append(f"| {what}, {name} | {without:.0f} | {with_:.0f} | {with_ / without:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Start both clusters, let them take turns, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preemptions", type=int, default=100, help="in each cluster")
    parser.add_argument("--json", type=Path, help="write every time to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="makeway-bench-") as directory, ExitStack() as stack:
        clusters = {
            name: stack.enter_context(DevCluster(Path(directory) / name, options).start())
            for name, options in (("bare", BARE), ("guarded", GUARDED))
        }
        times = {name: Times() for name in clusters}
        for cluster in clusters.values():
            prepare(cluster)
        for number in range(_WARM_UP + given.preemptions):
            for name, cluster in clusters.items():
                preempt(cluster, number, times[name] if number >= _WARM_UP else Times())
        print(report(times["bare"], times["guarded"]))
        if given.json:
            given.json.write_text(json.dumps({name: vars(one) for name, one in times.items()}))


if __name__ == "__main__":
    main()
