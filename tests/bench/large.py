"""Memory and time of the planner's snapshot on uneven and on very large clusters: `make bench BENCH=large`.

    PYTHONPATH=tests .venv/bin/python -m bench.large [--nodes 65000] [--pods 1500000]

Measured in a process each, in three alternating rounds: the same pods spread evenly over 5,000 nodes,
1,000 of them on one node, half of them on a tenth of the nodes, from 1 to 39 on each node, and drawn from
a Pareto distribution. Then 2,000 pods whose node is not there; and a cluster beyond what Kubernetes
supports, with pods of 50 workloads and then with labels of their own for each pod. Time is CPU time, of
several plans the median; memory is resident memory beyond that before loading, records of pods included.
Objects are read from pages of the API server's JSON, 500 at a time as by the planner's watch; the time of
writing these pages is left out, and nothing goes over a network (`bench.initial_list` measures that).
Goals are printed beside the figures; the exit code is 1 where one is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import accumulate, islice, pairwise
from pathlib import Path
from resource import getpagesize
from statistics import median
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from bench.api_server import node, pod_text
from bench.warmup import warm_up
from makeway.core.k8s.objects import Node, Pod
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan
from makeway.planner.service.watch import Feed, PodFeed
from makeway.planner.snapshot.pending_updates import CHUNK
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime import garbage
from makeway.runtime.pages import Page, UnreadableObject
from makeway.runtime.paging import PAGE_OBJECTS
from unit.planner.building import NOW, ask, make_pod

T = TypeVar("T")

_CPU, _MEMORY = 200, 2**29
"""Of a pod of `bench.api_server`."""
_WORKLOADS = 50
_PLANS = 15
_ROUNDS = 3
_MIB = 2**20
_EVEN_NODES, _EVEN_PODS, _FULL = 5_000, 20, 1_000
_ABSENT = 2_000


def main() -> None:
    """Measure all and print it, or one case as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nodes", type=int, default=65_000, help="of the large cluster (default: %(default)s)"
    )
    parser.add_argument("--pods", type=int, default=1_500_000, help="of it (default: %(default)s)")
    parser.add_argument(
        "--case",
        choices=("even", "full", "uneven", "drawn", "pareto", "absent", "large", "own-labels"),
        help="only this, as JSON",
    )
    args = parser.parse_args()
    if args.case:
        json.dump(_measured(args.case, args.nodes, args.pods), sys.stdout)
        return
    sys.exit(_report(args.nodes, args.pods))


def _report(nodes: int, pods: int) -> int:
    """Print all figures; return how many goals are missed, 1 at most."""
    missed = False

    def goal(what: str, found: float, most: float, unit: str) -> None:
        nonlocal missed
        missed |= found > most
        print(
            f"{what:<58} {found:9.2f} {unit:<5} goal {most:g}{' MISSED' if found > most else ''}", flush=True
        )

    def case(name: str) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.large", "--case", name, f"--nodes={nodes}", f"--pods={pods}"]
        found: dict[str, float] = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        )
        return found

    others = {
        "full": (f"{_FULL} of them on one node", 2),
        "uneven": ("half of them on a tenth of the nodes", 1.3),
        "drawn": ("1 to 39 of them on each node", 1.3),
        "pareto": ("on each node by a Pareto distribution", 1.3),
    }
    rounds = [{name: case(name) for name in ("even", *others)} for _ in range(_ROUNDS)]
    mib, first = (
        {name: median(one[name][key] for one in rounds) for name in rounds[0]} for key in ("mib", "first")
    )
    print(f"{_EVEN_NODES} nodes, {_EVEN_NODES * _EVEN_PODS} pods:")
    print(f"  spread evenly {mib['even']:.0f} MiB, first plan {first['even']:.1f} ms")
    for name, (what, most) in others.items():
        goal(f"  {what}: memory", mib[name] / mib["even"], 1.3, "times")
        goal(f"  {what}: first plan", first[name] / first["even"], most, "times")
    goal(f"{_ABSENT} pods on no node: memory", case("absent")["mib"], 20, "MiB")
    large = case("large")
    print(f"{nodes} nodes, {pods} pods of {_WORKLOADS} workloads:")
    goal("  memory", large["mib"], 2048, "MiB")
    goal("  loading, from JSON to the snapshot", large["load"], 60, "s")
    goal("  first plan", large["first"], 200, "ms")
    goal("  repeated plan", large["repeated"], 4, "ms")
    print(f"  longest piece of a first plan {large['piece']:.1f} ms")
    own = case("own-labels")
    print("  with labels of their own for each pod, without a goal:")
    print(f"    {own['mib']:.0f} MiB, loading {own['load']:.0f} s")
    print(f"    first plan {own['first']:.0f} ms, repeated {own['repeated']:.1f} ms")
    return int(missed)


def _measured(case: str, nodes: int, pods: int) -> dict[str, float]:
    """Load one cluster; return MiB, seconds of loading, and milliseconds of plans."""
    warm_up()
    garbage.set_aside()
    if case == "absent":
        return {"mib": _of_absent_pods()}
    before = _resident()
    loader = _Loader()
    loader.load(_widths(case, nodes, pods), own=case == "own-labels")
    mib = _resident() - before
    gc.freeze()
    snapshot, cache = loader.snapshot, PlanCache()
    _planned(snapshot, _question(0), cache)
    first = [_planned(snapshot, _question(turn + 1), cache) for turn in range(_PLANS)]
    last = _question(_PLANS)
    repeated = [sum(_planned(snapshot, last, cache)) for _ in range(_PLANS)]
    return {
        "mib": mib,
        "load": loader.seconds,
        "first": median(map(sum, first)),
        "piece": max(map(max, first)),
        "repeated": median(repeated),
    }


def _widths(case: str, nodes: int, pods: int) -> list[int]:
    """Return how many pods each node of a case has."""
    total = _EVEN_PODS * _EVEN_NODES
    if case == "even":
        return _evenly(total, _EVEN_NODES)
    if case == "full":
        return [_FULL, *_evenly(total - _FULL, _EVEN_NODES - 1)]
    if case == "uneven":
        deep = _EVEN_NODES // 10
        return [*_evenly(total // 2, deep), *_evenly(total // 2, _EVEN_NODES - deep)]
    if case == "drawn":
        chance = random.Random(1)
        more = [chance.randint(1, 2 * _EVEN_PODS - 1) for _ in range(_EVEN_NODES // 2)]
        return [*more, *(2 * _EVEN_PODS - one for one in more)]
    if case == "pareto":
        chance = random.Random(1)
        sums = [*accumulate((min(chance.paretovariate(1.1), 90.0) for _ in range(_EVEN_NODES)), initial=0.0)]
        return [end - start for start, end in pairwise(round(total * one / sums[-1]) for one in sums)]
    return _evenly(pods, nodes)


def _evenly(pods: int, nodes: int) -> list[int]:
    each, more = divmod(pods, nodes)
    return [*([each + 1] * more), *([each] * (nodes - more))]


def _of_absent_pods() -> float:
    """Return the MiB of pods whose node is not there, on top of a cluster."""
    loader, there = _Loader(), _EVEN_PODS * _EVEN_NODES
    loader.load(_evenly(there, _EVEN_NODES))
    before = _resident()
    loader.read_pods(_pod(number, _EVEN_NODES) for number in range(there, there + _ABSENT))
    return _resident() - before


class _Loader:
    """Reads pages of lists into a snapshot as the planner's watch does.

    `seconds`: of CPU so far, without those of writing the pages.
    """

    def __init__(self) -> None:
        metrics = PlannerMetrics(CollectorRegistry())
        self.snapshot = Snapshot(chunk=CHUNK)
        self.seconds = 0.0
        self._nodes = Feed[Node](self.snapshot, metrics, "nodes")
        self._pods = PodFeed(self.snapshot, metrics)

    def load(self, widths: list[int], *, own: bool = False) -> None:
        """Read full nodes with so many pods each. `own`: every pod has a label of its own."""
        nodes = (_node(number, pods) for number, pods in enumerate(widths))
        self._read(nodes, msgspec.json.Decoder(Node), self._nodes.put)
        placed = enumerate(node for node, pods in enumerate(widths) for _ in range(pods))
        self.read_pods(_pod(number, node, own=own) for number, node in placed)

    def read_pods(self, texts: Iterator[str]) -> None:
        """Read pods."""
        self._read(texts, msgspec.json.Decoder(Pod), self._pods.put)

    def _read(self, texts: Iterator[str], decoder: msgspec.json.Decoder[T], put: Callable[[T], None]) -> None:
        while page := ",".join(islice(texts, PAGE_OBJECTS)):
            body = f'{{"metadata":{{"resourceVersion":"1"}},"items":[{page}]}}'.encode()
            start = time.process_time()
            for item in Page(body).objects(decoder.decode):
                assert not isinstance(item, UnreadableObject), item.error
                put(item)
            self.seconds += time.process_time() - start
            garbage.keep()


def _node(number: int, pods: int) -> str:
    """Return a node that so many pods fill, as the API server shows it."""
    size = {"cpu": f"{pods * _CPU}m", "memory": str(pods * _MEMORY), "pods": str(max(110, pods))}
    shown = node(number)
    shown["status"] |= {"capacity": size, "allocatable": size}
    return json.dumps(shown, separators=(",", ":"))


def _pod(number: int, place: int, *, own: bool = False) -> str:
    """Return a pod of a workload, as the API server shows it."""
    text = pod_text(number, place, 1, apps=_WORKLOADS)
    return text.replace('"labels":{', f'"labels":{{"index":"{number}",', 1) if own else text


def _question(memory: int) -> Question:
    """Return a preemptor of three pods' size; another amount of memory is another class."""
    pod = make_pod("P", "", 950, requests={"cpu": 3 * _CPU, "memory": 3 * _MEMORY - memory})
    return ask(pod, max_candidates=3)


def _planned(snapshot: Snapshot, question: Question, cache: PlanCache) -> list[float]:
    """Plan; return the milliseconds of each piece between pauses."""
    pieces: list[float] = []
    steps = planning(snapshot, question, NOW, cache)
    while True:
        start = time.process_time()
        found = next(steps)
        pieces.append(1000 * (time.process_time() - start))
        if found is not None:
            assert isinstance(found, Plan), found
            return pieces


def _resident() -> float:
    """Return the process's resident memory in MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize() / _MIB


if __name__ == "__main__":
    main()
