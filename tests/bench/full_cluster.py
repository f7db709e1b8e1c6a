"""A cluster whose nodes are full of pods of one size and ten priorities, some of them under budgets."""

from __future__ import annotations

from collections.abc import Iterable

from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import make_budget, make_node, make_pod, make_snapshot

CPU, MEMORY = 100, 2**28
"""Of a pod."""


def full_cluster(nodes: int, each: int, apps: int, budgets: Iterable[int]) -> Snapshot:
    """Make it, with so many pods on each node; `budgets`: of these apps."""
    return make_snapshot(
        (make_node(f"n{node:05}", pods=110, cpu=each * CPU, memory=each * MEMORY) for node in range(nodes)),
        (
            make_pod(
                f"p{node:05}-{slot}",
                f"n{node:05}",
                10 * ((node + slot) % 10),
                start=(node * 31 + slot * 17) % 1000,
                labels={"app": f"app-{(node * 7 + slot) % apps}"},
                requests={"cpu": CPU, "memory": MEMORY},
            )
            for node in range(nodes)
            for slot in range(each)
        ),
        (make_budget(f"budget-{app}", {"app": f"app-{app}"}, allowed=app % 3) for app in budgets),
    )
