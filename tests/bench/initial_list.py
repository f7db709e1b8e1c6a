"""What the first list of a large cluster costs the planner, and what its watch does: `make bench`.

    PYTHONPATH=tests .venv/bin/python -m bench.initial_list --nodes 5000 --pods 150000 --events 20000

The planner's own API connection, list-watches and snapshot run in this process; a local server streams real
JSON from another, with `--tls` as an API server does. Given are wall time and CPU time from the first request
until the snapshot is complete, and the peak of resident memory; then what a policy, trees of queues and a
disruption budget take to be applied; then changed pods a second, all at once, from the first until the last
of them is there; then the CPU time of each where they come one by one.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from bench.api_server import KUBE_SYSTEM
from bench.options import read_options
from bench.warmup import warm_up
from makeway.core.k8s.budget import Budget
from makeway.core.k8s.objects import LabelSelector
from makeway.core.k8s.selector import compile_selector
from makeway.core.policy.document import Policy, Protection
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.dev.pki import Authority
from makeway.dev.ports import Ports
from makeway.dev.probes import http_ok, unverified
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service.pending_updates import apply_forever
from makeway.planner.service.watch import Watch
from makeway.planner.snapshot.changes import Adopt, Enforce, PutBudget
from makeway.planner.snapshot.pending_updates import CHUNK
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime import garbage
from makeway.runtime.kube import Api

_QUEUES, _OTHER_QUEUES = (
    QueueTree.of(
        QueueSpec(name="root", children=(QueueSpec(name="a", guaranteed=guaranteed), QueueSpec(name="b")))
    )
    for guaranteed in ({"cpu": 1000}, {"example.com/gpu": 8})
)

_BUDGET = Budget(
    namespace="team-0",
    name="app-0",
    allowed=1,
    selector=compile_selector(LabelSelector(match_labels={"app": "app-0"})),
    disrupted=frozenset(),
)

_TRICKLE_SECONDS = 8.0
"""How long changes come one by one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU time since some moment."""

    wall: float
    cpu: float

    @staticmethod
    def now() -> Cost:
        """Read both clocks."""
        return Cost(time.perf_counter(), time.process_time())

    def since(self, began: Cost) -> Cost:
        """Give the difference."""
        return Cost(self.wall - began.wall, self.cpu - began.cpu)


def peak_mib() -> float:
    """The most resident memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(server: str, kubeconfig: Path, events: int, rate: float) -> None:
    """List, then watch, and print what it took."""
    warm_up()
    snapshot = Snapshot(chunk=CHUNK)
    api = await Api.connect(kubeconfig=str(kubeconfig), user_agent="bench")
    watch = Watch(api, snapshot, PlannerMetrics(CollectorRegistry()), KUBE_SYSTEM)
    garbage.set_aside()
    print(f"before: {peak_mib():.0f} MiB resident")
    began = Cost.now()
    running = asyncio.gather(*watch.runs(), apply_forever(snapshot.pending_updates))
    longest = await _until(lambda: watch.synced)
    took = Cost.now().since(began)
    print(
        f"{snapshot.node_count} nodes, {len(snapshot.pods)} pods: "
        f"{took.cpu:.2f} s of CPU in {took.wall:.1f} s, {peak_mib():.0f} MiB at the peak, "
        f"the event loop held for {longest * 1000:.0f} ms at most"
    )
    protected = Policy(protection=Protection(minimum_priority=-1))
    await _apply(snapshot, "a policy", lambda: snapshot.apply(Enforce(protected, "1")))
    await _apply(snapshot, "a tree of queues", lambda: snapshot.apply(Adopt(_QUEUES, "1")))
    await _apply(snapshot, "another, with a new resource", lambda: snapshot.apply(Adopt(_OTHER_QUEUES, "2")))
    await _apply(snapshot, "a disruption budget", lambda: snapshot.apply(PutBudget(_BUDGET)))
    if events:
        took, _ = await _change(watch, server, 1, events, 0)
        each = took.cpu / events * 1e6
        print(f"{events} changed pods: {events / took.wall:,.0f} a second, {each:.0f} us of CPU each")
    if rate:
        before, few = 1 + events, int(rate * _TRICKLE_SECONDS)
        took, longest = await _change(watch, server, before, few, rate)
        each = took.cpu / few * 1e6
        print(
            f"{few} changed pods, {few / took.wall:,.0f} a second: {each:.0f} us of CPU each, "
            f"the event loop held for {longest * 1000:.0f} ms at most"
        )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await api.close()


async def _apply(snapshot: Snapshot, what: str, change: Callable[[], None]) -> None:
    """Print what it takes to apply a change to all pods."""
    began = Cost.now()
    change()
    longest = max(Cost.now().since(began).wall, await _until(lambda: not snapshot.pending_updates.pending))
    took = Cost.now().since(began)
    print(
        f"{what}: applied in {took.cpu:.1f} s of CPU, the event loop held for {longest * 1000:.0f} ms at most"
    )


async def _change(watch: Watch, server: str, version: int, count: int, rate: float) -> tuple[Cost, float]:
    """Have so many pods changed; give what it took from first to last, and how long the loop was held."""
    await asyncio.to_thread(_post, f"{server}/changes?count={count}&rate={rate}")
    await _until(lambda: not watch.behind({"pods": version + 1}), 0.0005)
    began = Cost.now()
    longest = await _until(lambda: not watch.behind({"pods": version + count}))
    return Cost.now().since(began), longest


async def _until(true: Callable[[], bool], every: float = 0.005) -> float:
    """Wait until it is; give the longest time for which the event loop did nothing else, less `every`.

    Seldom enough to cost next to nothing of the CPU time that is measured beside it.
    """
    longest = 0.0
    while not true():
        asked = time.perf_counter()
        await asyncio.sleep(every)
        longest = max(longest, time.perf_counter() - asked - every)
    return longest


def _post(url: str) -> None:
    request = urllib.request.Request(url, method="POST")  # noqa: S310
    with urllib.request.urlopen(request, context=unverified() if url.startswith("https") else None):  # noqa: S310
        pass


def main() -> None:
    """Start the server, measure, end it."""
    # rate: changes a second, one by one; 0: none
    given = read_options(__doc__, nodes=5_000, pods=150_000, events=20_000, rate=500.0, tls=False)
    ports = Ports()
    port = ports.take()
    server = f"{'https' if given.tls else 'http'}://127.0.0.1:{port}"
    command = [sys.executable, "-m", "bench.api_server", f"--port={port}"]
    command += [f"--nodes={given.nodes}", f"--pods={given.pods}"]
    with tempfile.TemporaryDirectory() as directory:
        cluster: dict[str, str] = {"server": server}
        if given.tls:
            authority = Authority(Path(directory) / "pki")
            pair = authority.serving("bench")
            command += [f"--certificate={pair.certificate}", f"--key={pair.key}"]
            cluster["certificate-authority"] = str(authority.certificate)
        kubeconfig = Path(directory) / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(cluster)))
        with subprocess.Popen(command) as process:
            try:
                ready = http_ok(f"{server}/api/v1/namespaces", unverified() if given.tls else None)
                while ready():
                    time.sleep(0.05)
                asyncio.run(measure(server, kubeconfig, given.events, given.rate))
            finally:
                process.kill()  # it has nothing to put away
                ports.release()


def _kubeconfig(cluster: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


if __name__ == "__main__":
    main()
