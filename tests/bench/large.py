"""Memory and time of the planner's snapshot on uneven and on very large clusters: `make bench-large`.

    PYTHONPATH=tests .venv/bin/python -m bench.large [--nodes 65000] [--pods 1500000]

Measured in a process each: the same pods spread evenly over 5,000 nodes, and 1,000 of them on one node;
2,000 pods whose node is not there; and a cluster beyond what Kubernetes supports, with pods of 50 workloads
and then with labels of their own for each pod. Time is CPU time, of several plans the median; memory is
resident memory beyond that before loading, records of pods included. Reading of the API server's JSON is not
part of it: `bench.initial_list` measures that. Goals are printed beside the figures; the exit code is 1 where
one is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from resource import getpagesize
from statistics import median

import msgspec

from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan
from makeway.planner.service.warmup import warm_up
from makeway.planner.snapshot.changes import PutNode, PutPod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, ask, make_node, make_pod

_CPU, _MEMORY = 100, 2**28
_WORKLOADS = 50
_PLANS = 15
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
        "--case", choices=("even", "full", "absent", "large", "own-labels"), help="only this, as JSON"
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

    even, full = case("even"), case("full")
    print(f"{_EVEN_NODES} nodes, {_EVEN_NODES * _EVEN_PODS} pods:")
    print(f"  spread evenly {even['mib']:.0f} MiB, first plan {even['first']:.1f} ms")
    goal(f"  {_FULL} of them on one node: memory", full["mib"] / even["mib"], 1.3, "times")
    goal(f"  {_FULL} of them on one node: first plan", full["first"] / even["first"], 2, "times")
    goal(f"{_ABSENT} pods on no node: memory", case("absent")["mib"], 20, "MiB")
    large = case("large")
    print(f"{nodes} nodes, {pods} pods of {_WORKLOADS} workloads:")
    goal("  memory", large["mib"], 2048, "MiB")
    goal("  loading", large["load"], 60, "s")
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
    if case == "absent":
        snapshot = _loaded([_EVEN_PODS] * _EVEN_NODES)
        before = _resident()
        for number in range(_ABSENT):
            snapshot.apply(PutPod(_pod(number, "no-such-node", number, own=False)))
        return {"mib": _resident() - before}
    if case in ("even", "full"):
        widths = [_EVEN_PODS] * _EVEN_NODES
        if case == "full":
            others = _EVEN_PODS * _EVEN_NODES - _FULL
            each, more = divmod(others, _EVEN_NODES - 1)
            widths = [_FULL, *([each + 1] * more), *([each] * (_EVEN_NODES - 1 - more))]
    else:
        each, more = divmod(pods, nodes)
        widths = [*([each + 1] * more), *([each] * (nodes - more))]
    before = _resident()
    start = time.process_time()
    snapshot = _loaded(widths, own=case == "own-labels")
    load = time.process_time() - start
    mib = _resident() - before
    gc.collect()
    gc.freeze()
    cache = PlanCache()
    asked = _question(0)
    _planned(snapshot, asked, cache)
    first = [_planned(snapshot, _question(turn + 1), cache) for turn in range(_PLANS)]
    last = _question(_PLANS)
    repeated = [sum(_planned(snapshot, last, cache)) for _ in range(_PLANS)]
    return {
        "mib": mib,
        "load": load,
        "first": median(map(sum, first)),
        "piece": max(map(max, first)),
        "repeated": median(repeated),
    }


def _loaded(widths: list[int], *, own: bool = False) -> Snapshot:
    """Return a snapshot of full nodes with so many pods each; pods are made as they are put in."""
    snapshot = Snapshot()
    for number, pods in enumerate(widths):
        node = make_node(f"n{number:05}", pods=max(110, pods), cpu=pods * _CPU, memory=pods * _MEMORY)
        snapshot.apply(PutNode(node))
    for pod in _pods(widths, own=own):
        snapshot.apply(PutPod(pod))
    return snapshot


def _pods(widths: list[int], *, own: bool) -> Iterator[PodRecord]:
    number = 0
    for node, pods in enumerate(widths):
        for slot in range(pods):
            yield _pod(number, f"n{node:05}", node * 7 + slot, own=own)
            number += 1


_templates: list[PodRecord] = [
    make_pod(
        "template",
        priority=10 * (number % 10),
        labels={"app": f"app-{number}"},
        requests={"cpu": _CPU, "memory": _MEMORY},
    )
    for number in range(_WORKLOADS)
]


def _pod(number: int, node: str, workload: int, *, own: bool) -> PodRecord:
    """Return a pod that shares with others of its workload what records read from the API server share."""
    template = _templates[workload % _WORKLOADS]
    name = f"{template.labels['app']}-7d4b9c8f6d-{number:07}"
    start = template.start_micros + number * 17 % 10**9
    changes = {
        "name": name,
        "uid": f"{number:08x}-0000-4000-8000-000000000000",
        "node": node,
        "start_micros": start,
    }
    if not own:
        return msgspec.structs.replace(template, **changes)
    labels = {**template.labels, "index": str(number)}
    signature = msgspec.structs.replace(template.signature, labels=tuple(sorted(labels.items())))
    return msgspec.structs.replace(template, **changes, labels=labels, signature=signature)


def _question(memory: int) -> Question:
    """Return a preemptor of three pods' size; another amount of memory is another class."""
    pod = make_pod("P", "", 95, requests={"cpu": 3 * _CPU, "memory": 3 * _MEMORY - memory})
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
