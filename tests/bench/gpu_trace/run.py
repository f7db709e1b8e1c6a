"""Gangs on the cluster of a real GPU trace, by makeway and by kube-scheduler: `make bench BENCH=gpu-trace`.

    PYTHONPATH=tests .venv/bin/python -m bench.gpu_trace.run --rounds 3 --fill least-allocated

The pods of the trace are placed by their creation until none has room any more. Then each gang is asked about
on that same state: the planner for its plan, and the whole of kube-scheduler 1.37 for the victims that its
PodGroupPostFilter sets out to delete. Ends with 1 where makeway evicts more pods of a priority while the
numbers of all higher ones are equal.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import msgspec

from bench.gpu_trace.cluster import NOW, Gang, case_of, question_of, world_of
from bench.gpu_trace.files import NODES, PODS, SIZES, TraceFileError, trace_file
from bench.gpu_trace.outcome import Outcome, Row, broken_rule, counts_of, median_of, table
from bench.gpu_trace.replay import replay, trace_of
from bench.gpu_trace.trace import PRIORITIES, Rule, TraceNode, TracePod, member_of, nodes_of, placed, pods_of
from bench.warmup import warm_up
from differential.upstream import build
from makeway.dev.paths import cache_directory
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.result import GangPlan

GANGS: Final = ((16, 8), (64, 1), (64, 8), (128, 2))
"""Members, and GPUs of each."""

LEVELS: Final = {"all": max(PRIORITIES.values()) + 1_000, "BE, Burstable": PRIORITIES["LS"] - 500}
"""Priorities of gangs, by whom they may evict."""


class UpstreamAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What kube-scheduler did: see gangAnswer in tests/upstream/answers/gangs.go."""

    result: str
    victims: tuple[str, ...]
    post_filter_seconds: float
    post_filter_cpu_seconds: float
    attempt_seconds: float
    message: str = ""
    nominated: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class State:
    """The nodes, and the pods that have one."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[tuple[TracePod, str], ...]


def ours(state: State, gang: Gang, rounds: int) -> Outcome:
    """Plan for a gang so often, as if for the first time; the time is the median."""
    world = world_of(state.nodes, state.pods)
    question = question_of(world, gang)
    gc.collect()
    times = []
    for _ in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        found = plan_gang(world.snapshot, question, NOW)
        times.append((time.perf_counter() - began, time.process_time() - used))
    took = median_of(times)
    if not isinstance(found, GangPlan):
        return Outcome(frozenset(), {}, took)
    nodes: Counter[str] = Counter()
    for one in found.placements:
        nodes[one.node] += one.count
    return Outcome(frozenset(one.pod.uid for one in found.victims), nodes, took)


def theirs(program: Path, state: State, gang: Gang) -> Outcome:
    """Let kube-scheduler try to place a gang once. Raises CalledProcessError."""
    line = case_of(state.nodes, state.pods, gang) + b"\n"
    answered = subprocess.run([program, "-gangs"], input=line, stdout=subprocess.PIPE, check=True)
    answer = msgspec.json.decode(answered.stdout, type=UpstreamAnswer)
    if answer.result == "fits":
        raise ValueError(f"gang {gang.name} has room without any victim")
    nodes = Counter((answer.nominated or {}).values())
    return Outcome(
        frozenset(answer.victims), nodes, (answer.post_filter_seconds, answer.post_filter_cpu_seconds)
    )


def compared(program: Path, state: State, gang: Gang, level: str, rounds: int) -> Row:
    """Ask both sides. Raises ValueError where one's answer makes no room."""
    mine = ours(state, gang, rounds)
    others = [theirs(program, state, gang) for _ in range(rounds)]
    for outcome in (mine, *others):
        broken = (
            ""
            if outcome.refused
            else broken_rule(outcome, state.nodes, state.pods, member=gang.member, count=gang.count)
        )
        if broken:
            raise ValueError(f"gang {gang.name}: {broken}")
    pods = [pod for pod, _ in state.pods]
    return Row(
        gang=f"{gang.count} x {gang.member.gpus}",
        level=level,
        counts=None if mine.refused else counts_of(mine.victims, pods),
        took=mine.took,
        theirs=tuple(None if one.refused else counts_of(one.victims, pods) for one in others),
        they_took=median_of(one.took for one in others),
    )


def described(state: State, pods: Sequence[TracePod]) -> str:
    """Return what the cluster holds, in a sentence."""
    used, has = sum(pod.gpus for pod, _ in state.pods), sum(node.gpus for node in state.nodes)
    by_qos = Counter(pod.priority for pod, _ in state.pods)
    shares = ", ".join(f"{name} {by_qos[priority]:,}" for name, priority in PRIORITIES.items())
    return (
        f"{len(state.nodes):,} nodes, {len(state.pods):,} of {len(pods):,} pods placed ({shares}), "
        f"{used:,} of {has:,} GPUs taken"
    )


def main() -> None:
    """Compare all gangs, and end with 1 where makeway evicts more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a directory that has the files of the trace")
    parser.add_argument("--replay", action="store_true", help="what preemptions cost as hours go by, instead")
    parser.add_argument("--workers", type=int, default=2, help="processes of a replay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fill", choices=get_args(Rule), action="append", help="how nodes are chosen (all)")
    arguments = parser.parse_args()
    directory = arguments.trace or cache_directory() / "gpu-trace"
    try:
        node_lines, pod_lines, size_lines = (
            trace_file(directory, name, download=arguments.trace is None) for name in (NODES, PODS, SIZES)
        )
    except TraceFileError as error:
        sys.exit(f"error: {error}")
    nodes, pods = nodes_of(node_lines), pods_of(pod_lines)
    if arguments.replay:
        missed = replay(trace_of(nodes, size_lines, pod_lines), arguments.workers)
        sys.exit("\n".join(["error: goals missed", *missed]) if missed else 0)
    program = build()
    warm_up()
    worse: list[str] = []
    for rule in arguments.fill or get_args(Rule):
        state = State(nodes, tuple(placed(nodes, pods, rule)))
        print(f"\n{rule}: {described(state, pods)}\n", flush=True)
        rows: list[Row] = []
        for level, priority in LEVELS.items():
            for count, gpus in GANGS:
                gang = Gang(f"gang-{count}x{gpus}", count, member_of(pods, gpus, priority))
                rows.append(compared(program, state, gang, level, arguments.rounds))
                print(rows[-1], file=sys.stderr, flush=True)
        print(table(rows))
        worse += [f"{rule}: {row.worse}" for row in rows if row.worse]
    sys.exit("\n".join(["error: more victims than kube-scheduler", *worse]) if worse else 0)


if __name__ == "__main__":
    main()
