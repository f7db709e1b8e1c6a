"""What preemptions cost in a cluster of a GPU trace, by the hour.

    make bench BENCH=gpu-trace ARGS=--replay

Jobs of one pod come, run for as long as one of the trace did, and leave. A job without room preempts by the
planner's own plan, and what it evicts starts again from nothing. Two policies see the same jobs:
`lostWork.rank` off, which are kube-scheduler's rules over all nodes, and `aboveSum`. A seed gives one answer.

*Wasted* are GPU-hours of work thrown away, *waiting* GPU-hours that evicted jobs wait for a place. Ends with
1 where `aboveSum` costs more of both together than `GOALS` allows, over all `SEEDS` of a row.
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Final, Literal

import numpy as np

from bench.gpu_trace.trace import MOST_PODS, TraceNode
from makeway.core.k8s.importance import microseconds
from makeway.core.policy.document import LostWork, LostWorkRank, Policy, PolicyLimits
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import plan
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.changes import PutPod, RemovePod
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import NOW, ask, make_node, make_pod, make_snapshot

Packing = Literal["spread", "packed"]
"""How a job's node is chosen among those with room: the most GPUs left, or the fewest."""

SEEDS: Final = range(101, 111)
"""Chosen before the first run, and never by what they give."""

GOALS: Final[dict[tuple[Packing, float], float]] = {
    ("spread", 0.85): 0.90,
    ("spread", 1.0): 0.90,
    ("packed", 1.0): 1.0,
    ("packed", 1.1): 1.0,
}
"""What both may be under `aboveSum`, in times of kube-scheduler's rules; by packing and load."""

NODES: Final = 60
HOURS: Final = 36
COUNTED_FROM: Final = HOURS / 4
"""Hours until the cluster is full: work that is wasted before is not counted."""

LONGEST_HOURS: Final = 24.0
"""No job runs longer: the trace's longest would fill the cluster for all of the run."""

PRIORITIES: Final = ((0, 40), (500, 20), (1_000, 40))
"""Priorities of jobs, and how many of a hundred have it."""

RETRY_HOURS: Final = 5 / 60
"""So long after its last time a job that waits asks for a preemption again, as in kube-scheduler's queue."""

GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Size:
    """What a job's pod asks for: milli-CPU, MiB and GPUs."""

    cpu: int
    memory: int
    gpus: int


@dataclass(slots=True)
class Job:
    """A job; times are hours since the run began. `node`: -1 while it waits. `evicted`: when, else NaN."""

    name: str
    size: Size
    priority: int
    hours: float
    comes: float
    node: int = -1
    started: float = 0.0
    evicted: float = float("nan")
    asked: float = -1.0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run cost: GPU-hours, and counts."""

    wasted: float
    waiting: float
    preemptions: int
    evictions: int

    @property
    def both(self) -> float:
        return self.wasted + self.waiting


def jobs_of(
    sizes: Sequence[Size], hours: Sequence[float], gpus: int, load: float, random: Random
) -> Iterable[Job]:
    """Draw jobs that come one by one, so many that they ask for `load` times the GPU-hours of the cluster."""
    mean = sum(size.gpus for size in sizes) / len(sizes) * sum(hours) / len(hours)
    at = 0.0
    for number in count():
        at += random.expovariate(load * gpus / mean)
        if at >= HOURS:
            return
        priority = random.choices([one for one, _ in PRIORITIES], [share for _, share in PRIORITIES])[0]
        yield Job(f"job-{number:05}", random.choice(sizes), priority, random.choice(hours), at)


@dataclass
class Replay:
    """One run. `play` gives what it cost."""

    nodes: Sequence[TraceNode]
    packing: Packing
    rank: LostWorkRank
    free: Ints = field(init=False)
    running: dict[str, Job] = field(default_factory=dict)
    waiting: list[Job] = field(default_factory=list)
    leaving: list[tuple[float, int, str]] = field(default_factory=list)
    wasted: float = 0.0
    waited: float = 0.0
    preemptions: int = 0
    evictions: int = 0

    def __post_init__(self) -> None:
        self.free = np.array(
            [(one.cpu_milli, one.memory_mib, one.gpus, MOST_PODS) for one in self.nodes], np.int64
        )
        policy = Policy(lost_work=LostWork(rank=self.rank), limits=PolicyLimits(victims_per_order=1_000))
        records = (
            make_node(
                f"n{at:03}", pods=MOST_PODS, cpu=one.cpu_milli, memory=one.memory_mib, **{GPU: one.gpus}
            )
            for at, one in enumerate(self.nodes)
        )
        self._snapshot, self._cache = make_snapshot(records, policy=policy), PlanCache()

    def play(self, jobs: Iterable[Job]) -> Cost:
        """Let the jobs come and the others leave, in the order of time."""
        for job in jobs:
            self._leave(until=job.comes)
            self.waiting.append(job)
            self._place(job.comes)
        self._leave(until=HOURS)
        for job in self.waiting:
            self._ends_waiting(job, HOURS)
        return Cost(self.wasted, self.waited, self.preemptions, self.evictions)

    def _leave(self, until: float) -> None:
        while self.leaving and self.leaving[0][0] <= until:
            at, runs, name = heapq.heappop(self.leaving)
            job = self.running.get(name)
            if job is not None and job.runs == runs:
                self._take_off(job)
                self._place(at)

    def _place(self, now: float) -> None:
        """Give all that wait a node, highest priority and oldest first, by room or by a preemption."""
        self.waiting.sort(key=lambda one: (-one.priority, one.comes))
        refused: set[Size] = set()
        for job in list(self.waiting):
            if job.size not in refused and (node := self._room(job.size)) is not None:
                self._start(job, node, now)
                continue
            refused.add(job.size)
            if now - job.asked >= RETRY_HOURS and job.priority > PRIORITIES[0][0]:
                job.asked = now
                if self._preempt(job, now):
                    return self._place(now)
        return None

    def _room(self, size: Size) -> int | None:
        after = self.free - np.array((size.cpu, size.memory, size.gpus, 1))
        fitting = np.flatnonzero((after >= 0).all(axis=1))
        if not fitting.size:
            return None
        left = after[fitting, 2]
        return int(fitting[left.argmax() if self.packing == "spread" else left.argmin()])

    def _preempt(self, job: Job, now: float) -> bool:
        """Plan for a job as for any pod; evict at once, and start it. Returns whether there was a plan."""
        found = plan(self._snapshot, ask(_record(job, ""), max_candidates=1), _date(now), self._cache)
        if not isinstance(found, Plan):
            return False
        chosen = found.candidates[0]
        self.preemptions += 1
        for victim in chosen.victims:
            evicted = self.running[victim.pod.name]
            self.evictions += 1
            if now >= COUNTED_FROM:
                self.wasted += evicted.size.gpus * (now - evicted.started)
            self._take_off(evicted)
            evicted.evicted = now
            self.waiting.append(evicted)
        self._start(job, int(chosen.node.removeprefix("n")), now)
        return True

    def _start(self, job: Job, node: int, now: float) -> None:
        self.waiting.remove(job)
        self._ends_waiting(job, now)
        job.node, job.started, job.runs = node, now, job.runs + 1
        self.free[node] -= (job.size.cpu, job.size.memory, job.size.gpus, 1)
        self.running[job.name] = job
        heapq.heappush(self.leaving, (now + job.hours, job.runs, job.name))
        self._snapshot.apply(PutPod(_record(job, f"n{node:03}")))

    def _take_off(self, job: Job) -> None:
        del self.running[job.name]
        self.free[job.node] += (job.size.cpu, job.size.memory, job.size.gpus, 1)
        job.node = -1
        self._snapshot.apply(RemovePod(job.name))

    def _ends_waiting(self, job: Job, now: float) -> None:
        if job.evicted == job.evicted:
            self.waited += job.size.gpus * (now - job.evicted)
            job.evicted = float("nan")


def _record(job: Job, node: str) -> PodRecord:
    requests = {"cpu": job.size.cpu, "memory": job.size.memory, GPU: job.size.gpus}
    started = microseconds(_date(job.started))
    return make_pod(job.name, node, job.priority, requests=requests, start_micros=started)


def _date(hours: float) -> datetime:
    return NOW + timedelta(hours=hours)


@dataclass(frozen=True, slots=True)
class Trace:
    """What is drawn from: nodes, sizes of jobs with GPUs, and how many hours jobs with GPUs ran."""

    nodes: tuple[TraceNode, ...]
    sizes: tuple[Size, ...]
    hours: tuple[float, ...]


def trace_of(nodes: Sequence[TraceNode], sizes: Iterable[str], pods: Iterable[str]) -> Trace:
    """Read the lists of sizes and of pods. Raises KeyError and ValueError."""
    asked = (
        Size(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]))
        for row in csv.DictReader(sizes)
    )
    ran = (
        (int(row["deletion_time"]) - int(row["creation_time"])) / 3600
        for row in csv.DictReader(pods)
        if int(row["num_gpu"]) and row["deletion_time"]
    )
    return Trace(
        tuple(nodes),
        tuple(size for size in asked if size.gpus),
        tuple(min(hours, LONGEST_HOURS) for hours in ran if hours > 0),
    )


def played(trace: Trace, packing: Packing, load: float, rank: LostWorkRank, seed: int) -> Cost:
    """Play one run."""
    random = Random(seed)
    nodes = random.sample(trace.nodes, NODES)
    jobs = jobs_of(trace.sizes, trace.hours, sum(node.gpus for node in nodes), load, random)
    return Replay(nodes, packing, rank).play(jobs)


def replay(trace: Trace, workers: int) -> list[str]:
    """Play all rows, print a table, and return of each goal that is missed a sentence."""
    ranks: tuple[LostWorkRank, LostWorkRank] = ("off", "aboveSum")
    runs = [(packing, load, rank, seed) for packing, load in GOALS for rank in ranks for seed in SEEDS]
    with ProcessPoolExecutor(workers) as pool:
        costs = dict(zip(runs, pool.map(played, [trace] * len(runs), *zip(*runs, strict=True)), strict=True))
    missed = []
    print(
        "| packing | load | rank | wasted | waiting | both | of off | preemptions | evictions | better in |"
    )
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (packing, load), goal in GOALS.items():
        off, on = ([costs[packing, load, rank, seed] for seed in SEEDS] for rank in ranks)
        for rank, row in zip(ranks, (off, on), strict=True):
            both, base = sum(one.both for one in row), sum(one.both for one in off)
            better = sum(one.both < other.both for one, other in zip(row, off, strict=True))
            print(
                f"| {packing} | {load} | {rank} | {sum(one.wasted for one in row):,.0f} "
                f"| {sum(one.waiting for one in row):,.0f} | {both:,.0f} | {both / base:.2f} "
                f"| {sum(one.preemptions for one in row):,} | {sum(one.evictions for one in row):,} "
                f"| {better} of {len(row)} |"
            )
            if both > goal * base:
                missed.append(
                    f"{packing}, load {load}: {both / base:.2f} of kube-scheduler's rules, {goal} at most"
                )
    return missed
