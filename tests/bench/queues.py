"""What queues cost: 1,000 queues with 20,000 pods.

    .venv/bin/python tests/bench/queues.py

Prints the time of a pod event (usage of a queue and all above it), of a whole quota pass (root's maximum
lowered to half, which every pod is looked at for), and of one queue's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from makeway.core.queues.quota import QuotaPlan, planning_quota
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.queues.victims import run_to_end
from makeway.core.unit import Unit

PODS = 20_000
GIBI = 2**30


def build() -> QueueTree:
    """10 divisions of 9 groups of 10 teams: 1,000 queues with root and default, 4 levels deep."""

    def queue(name: str, *children: QueueSpec, guaranteed: int, maximum: int = 2**20) -> QueueSpec:
        amounts = {"cpu": guaranteed * 1000, "memory": guaranteed * GIBI}
        return QueueSpec(
            name=name,
            guaranteed=amounts,
            maximum={"cpu": maximum * 1000, "memory": maximum * GIBI},
            delay=timedelta(seconds=60),
            children=children,
        )

    divisions = []
    for d in range(10):
        groups = []
        for g in range(9):
            teams = [queue(f"t{t}", guaranteed=5) for t in range(10)]
            groups.append(queue(f"g{g}", *teams, guaranteed=50))
        divisions.append(queue(f"d{d}", *groups, guaranteed=450, maximum=PODS // 20))
    root = QueueSpec(
        name="root", maximum={"cpu": PODS * 500, "memory": PODS * GIBI // 2}, children=tuple(divisions)
    )
    return QueueTree.of(root)


def best_of(times: int, act: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    fastest = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        act()
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def main() -> None:
    """Measure and print."""
    chance = random.Random(1)
    tree = build()
    usage = Usage(tree)
    leaves = [queue.number for queue in tree if queue.is_leaf]
    pods: dict[int, list[Unit]] = {}
    for number in range(PODS):
        leaf = chance.choice(leaves)
        member = Unit(
            uid=f"{number:036x}",
            requests={"cpu": 1000, "memory": GIBI, "pods": 1},
            priority=chance.choice([0, 0, 0, 100]),
            opted_out=chance.random() < 0.1,
            created_micros=number,
        )
        pods.setdefault(leaf, []).append(member)
        usage.add(leaf, member.requests)

    leaf, member = next((leaf, members[0]) for leaf, members in pods.items())

    def thousand_events() -> None:
        for _ in range(500):
            usage.remove(leaf, member.requests)
            usage.add(leaf, member.requests)

    def planned(path: str) -> QuotaPlan:
        return run_to_end(planning_quota(tree, usage, tree.at(path), lambda number: pods.get(number, ())))

    whole = planned("root")
    print(f"{len(tree)} queues, {PODS} pods; {whole.result}, {len(whole.victims)} victims")
    print(f"pod event    {best_of(5, thousand_events) * 1000:8.2f} µs")
    for path in ("root", "root.d0"):
        seconds = best_of(7, partial(planned, path))
        print(f"quota {path:<8}{seconds * 1000:7.2f} ms")


if __name__ == "__main__":
    main()
