"""What the first plan for a gang after one changed pod takes, against its goals: `make bench BENCH=gangs`.

Clusters of full nodes in racks of 40, with 110 pods of ten priorities, every other one in a queue that is at
its max. `plain`: members that ask for nothing else; `queue at max`: members of that queue; `one rack`: with a
topology constraint; `closed racks`: members that share no rack with a job of which a pod is in each. Times
are of the process, in ms: the median of some plans, the 99th of a hundred pieces between two pauses, and the
longest piece, of all plans and as the median of each one's: what is long by the code is so in every plan. The
last line has the longest of equal pieces of work, which the machine alone makes longer than the others.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from msgspec.structs import replace

from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.gang.planner import plan_gang, planning_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.result import GangPlan
from makeway.planner.snapshot.changes import Adopt, PutPod
from makeway.planner.snapshot.pending_updates import CHUNK
from makeway.planner.snapshot.records import pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import NOW, make_node, make_pod, make_snapshot, settle
from unit.planner.manifests import anti_affinity, pod, question, term

PODS_A_NODE = 110
NODES_A_RACK = 40
MEMBERS = (40, 140, 1_000)
GOALS = {(5_000, 40): 150.0, (5_000, 1_000): 400.0}
"""Median in ms, by nodes and members."""

RACK, JOB, QUEUE = "rack", {"job": "old"}, "root.full"
MANIFESTS = {
    "plain": pod("m", priority=95, cpu="300m"),
    "queue at max": pod("m", priority=95, cpu="300m", labels={"queue": QUEUE}),
    "one rack": pod("m", priority=95, cpu="300m"),
    "closed racks": pod("m", priority=95, cpu="300m", affinity=anti_affinity(term(RACK, JOB))),
}

PIECE, LONGEST = 15.0, 30.0
_POLICY = Policy(limits=PolicyLimits(victims_per_order=100_000))


@dataclass(frozen=True)
class Figure:
    """A line of the table; `goal`: at most so much, None where there is none."""

    name: str
    milliseconds: float
    goal: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the goal is reached."""
        return self.goal is None or self.milliseconds <= self.goal

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"  goal {self.goal:.0f}  {'holds' if self.holds else 'MISSED'}"
        return f"{self.name:58} {self.milliseconds:8.1f} ms{goal}"


def full(nodes: int) -> Snapshot:
    """Make a cluster without any room."""
    snapshot = make_snapshot(
        (
            replace(
                make_node(f"n{node:05}", PODS_A_NODE * 100),
                labels={RACK: f"r{node // NODES_A_RACK}", "kubernetes.io/hostname": f"n{node:05}"},
            )
            for node in range(nodes)
        ),
        (
            make_pod(
                f"p{node:05}-{slot}",
                f"n{node:05}",
                10 * ((node + slot) % 10),
                requests={"cpu": 100},
                start=(node * 31 + slot * 17) % 1_000,
                labels=({"queue": QUEUE} if slot % 2 else {} if slot or node % NODES_A_RACK else JOB),
                facts=PodFacts(queue=QUEUE if slot % 2 else ""),
            )
            for node in range(nodes)
            for slot in range(PODS_A_NODE)
        ),
        policy=_POLICY,
        chunk=CHUNK,
    )
    most = nodes * (PODS_A_NODE // 2) * 100
    built = tree(queue("full", maximum={"cpu": most}), queue("default"))
    snapshot.apply(Adopt(built, "queues-1", ("ConfigMap", "makeway-system", "makeway-queues")))
    settle(snapshot)
    return snapshot


def _question(snapshot: Snapshot, kind: str, members: int) -> GangQuestion:
    snapshot.apply(PutPod(pod_record(MANIFESTS[kind])))
    topology = (RACK,) if kind == "one rack" else ()
    return GangQuestion("bench/gang", (GangClass(question(MANIFESTS[kind]), members),), members, topology)


def figures(snapshot: Snapshot, kind: str, nodes: int, members: int, rounds: int) -> Iterator[Figure]:
    """Plan some times and yield what it took."""
    plan_gang(snapshot, _question(snapshot, kind, members), NOW)  # so that pods are told apart by its labels
    settle(snapshot)
    cache, whole, longest = PlanCache(), [], []
    pieces: list[float] = []
    for turn in range(rounds):
        snapshot.apply(PutPod(make_pod(f"changed{turn % 2}", "n00001", 50, 1)))
        asked = _question(snapshot, kind, members)
        began, found, before = time.process_time(), None, len(pieces)
        steps = planning_gang(snapshot, asked, NOW, cache)
        while found is None:
            piece = time.thread_time()
            found = next(steps)
            pieces.append(1_000 * (time.thread_time() - piece))
        whole.append(1_000 * (time.process_time() - began))
        longest.append(max(pieces[before:]))
        assert isinstance(found, GangPlan), found
    name = f"{nodes} nodes, {kind}, {members} members"
    goal = GOALS.get((nodes, members))
    yield Figure(f"{name}: first plan", statistics.median(whole), goal)
    pieces.sort()
    yield Figure(f"{name}: 99 of 100 pieces", pieces[int(len(pieces) * 0.99)], goal and PIECE)
    yield Figure(f"{name}: longest piece", pieces[-1], goal and LONGEST)
    yield Figure(f"{name}: longest piece of a plan, median", statistics.median(longest))


def of_equal_pieces() -> Figure:
    """Return the longest of 4,000 pieces of the same work: what the machine adds to a piece."""
    numbers = np.arange(PODS_A_NODE * 5_000).reshape(PODS_A_NODE, -1)
    pieces: list[float] = []
    for _ in range(4_000):
        began = time.thread_time()
        for _ in range(4):
            numbers.cumsum(axis=0)
        pieces.append(1_000 * (time.thread_time() - began))
    name = f"equal pieces of {statistics.median(pieces):.1f} ms: longest"
    return Figure(name, max(pieces))


def main() -> None:
    """Print the table, and end with 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[300, 1_000, 5_000])
    parser.add_argument("--kinds", nargs="+", choices=MANIFESTS, default=list(MANIFESTS))
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    missed = False
    for nodes in arguments.nodes:
        snapshot = full(nodes)
        gc.collect()
        gc.freeze()  # as the planner does once it has read the cluster
        for kind, members in product(arguments.kinds, MEMBERS):
            for figure in figures(snapshot, kind, nodes, members, arguments.rounds):
                print(figure, flush=True)
                missed |= not figure.holds
    print(of_equal_pieces(), flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
