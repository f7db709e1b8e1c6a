"""Many preemptors at once, by DefaultPreemption, the plugin and the nominator: `make bench BENCH=forms`.

    PYTHONPATH=tests .venv/bin/python -m bench.forms --preemptors 200 --rounds 1

Each form has a cluster of its own, one after the other. Nodes are full of the pods of one Deployment, and
twice as many of them wait for room. Then the preemptors are created, one after another without a pause. Taken
are the times from a preemptor's creation until it is bound, who was deleted, and how many of the waiting pods
took a place meanwhile. No victim has a grace period.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from bench.options import read_options
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.dev import nodes
from makeway.dev.cluster import DevCluster
from makeway.dev.options import KWOK, LIFTED_RATES, NATS, NOMINATOR, SCHEDULER, USUAL, ClusterOptions
from makeway.runtime.kube import Api

_PODS: Final = "/api/v1/namespaces/default/pods"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
_CPUS: Final = 4
"""Of a node, as `nodes.create` makes them."""
_PER_NODE: Final = 2
_WAITING_TIMES: Final = 2
_PATIENCE_SECONDS: Final = 300.0

_PLUGIN = ClusterOptions(limits=LIFTED_RATES)
FORMS: Final = {
    "DefaultPreemption": ClusterOptions(components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False),
    "plugin": _PLUGIN,
    "external": replace(_PLUGIN, components=frozenset({*USUAL, NOMINATOR}), plugin=False),
}


@dataclass
class Seen:
    """What one watch of the pods has told, by the clock of this process.

    created, bound: of preemptors, by name. low: UIDs of the Deployment's pods that have a place. late: those
    of them that got it after the first preemptor was created. gone: those with a place that were deleted.
    """

    began: bool = False
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    low: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def take(self, event: dict[str, Any]) -> None:
        """Take note of one event."""
        pod = event["object"]
        name, uid, node = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if name.startswith("urgent-"):
            if node:
                self.bound.setdefault(name, time.monotonic())
            return
        if node and uid not in self.low:
            self.low.add(uid)
            if self.began:
                self.late.add(uid)
        if self.began and node and (event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]):
            self.gone.add(uid)


@dataclass(frozen=True)
class Result:
    """One form's: seconds of each bound preemptor, and counts."""

    seconds: list[float]
    preemptors: int
    victims: int
    stolen: int


async def measure(cluster: DevCluster, form: str, preemptors: int) -> Result:
    """Fill the nodes, create the preemptors, and wait until all are bound or the patience ends."""
    nodes.create(cluster.api, preemptors // _PER_NODE)
    opted_in = form == "external"
    cluster.api.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent", "annotations": {ANNOTATION: EXTERNAL} if opted_in else {}},
            "value": 1000,
            "preemptionPolicy": "Never" if opted_in else "PreemptLowerPriority",
        }
    )
    api = await Api.connect(kubeconfig=str(cluster.info.kubeconfig), user_agent="makeway-bench")
    try:
        seen = Seen()
        async with _watching(api, seen):
            await _post(api, _DEPLOYMENTS, _deployment(preemptors * (1 + _WAITING_TIMES)))
            await _until(lambda: len(seen.low) >= preemptors, 180.0)
            await asyncio.sleep(3.0)
            seen.began = True
            for number in range(preemptors):
                name = f"urgent-{number:04}"
                seen.created[name] = time.monotonic()
                await _post(api, _PODS, _pod(name))
            with suppress(TimeoutError):
                await _until(lambda: len(seen.bound) == preemptors, _PATIENCE_SECONDS)
            await asyncio.sleep(1.0)
        seconds = [seen.bound[name] - seen.created[name] for name in seen.bound]
        return Result(seconds, preemptors, len(seen.gone), len(seen.late))
    finally:
        await api.close()


def _pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**_spec(), "priorityClassName": "urgent"},
    }


def _deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "low"}
    template = {"metadata": {"labels": labels}, "spec": _spec()}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "low"}, "spec": spec}


def _spec() -> dict[str, Any]:
    requests = {"cpu": f"{_CPUS / _PER_NODE:g}", "memory": "1Gi"}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    return {"terminationGracePeriodSeconds": 0, "containers": [container]}


async def _post(api: Api, path: str, body: dict[str, Any]) -> None:
    await api.request("POST", path, body=json.dumps(body).encode())


async def _until(done: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110 - what is waited for is many things
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _watching(api: Api, seen: Seen) -> AsyncIterator[None]:
    async def watch() -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true"}
        while True:  # an API server ends the watch of one who does not keep up with a burst
            async for lines in api.stream(_PODS, query=query, idle_timeout_seconds=300):
                for event in map(json.loads, lines):
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"the watch of pods ended: {event['object']}")
                    query["resourceVersion"] = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        seen.take(event)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def report(results: dict[str, list[Result]]) -> str:
    """Return a table: a column a form; of several rounds the medians."""
    rows: dict[str, Callable[[Result], str]] = {
        "preemptors bound": lambda one: f"{len(one.seconds)} of {one.preemptors}",
        "pods deleted for them": lambda one: str(one.victims),
        "places taken by waiting pods": lambda one: str(one.stolen),
    }
    lines = [f"| | {' | '.join(results)} |", f"|---|{'---:|' * len(results)}"]
    for what, show in rows.items():
        cells = ["; ".join(dict.fromkeys(show(one) for one in found)) for found in results.values()]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    for name, index in (("p50", 49), ("p90", 89), ("p99", 98)):
        cells = []
        for found in results.values():
            values = [quantiles(one.seconds, n=100)[index] for one in found if len(one.seconds) > 1]
            cells.append(f"{median(values):.1f}" if values else "-")
        lines.append(f"| created to bound, {name}, s | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what was asked for."""
    given = read_options(__doc__, preemptors=200, rounds=1, forms=",".join(FORMS))
    results: dict[str, list[Result]] = {form: [] for form in given.forms.split(",")}
    for number in range(given.rounds):
        for form in list(results)[:: -1 if number % 2 else 1]:
            with (
                tempfile.TemporaryDirectory(prefix="makeway-bench-") as directory,
                DevCluster(Path(directory) / "cluster", FORMS[form]).start() as cluster,
            ):
                results[form].append(asyncio.run(measure(cluster, form, given.preemptors)))
            print(f"{form}: {results[form][-1].victims} victims", flush=True)
    print(report(results))


if __name__ == "__main__":
    main()
