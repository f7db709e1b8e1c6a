"""A gang on a small cluster, by the planner and by kube-scheduler, as the benchmark on the GPU trace asks."""

import pytest

from bench.gpu_trace.cluster import Gang
from bench.gpu_trace.run import State, compared
from bench.gpu_trace.trace import PRIORITIES, TraceNode, TracePod
from differential.upstream import build
from makeway.dev.binaries import KUBERNETES

pytestmark = pytest.mark.skipif(KUBERNETES.name != "1.37", reason="it came with Kubernetes 1.37")

MEMBER = TracePod("member", 1_000, 1_000, 8, 5_000, 0)


def full(levels: str) -> State:
    """Return one node for each level, full of four pods of it."""
    nodes = tuple(TraceNode(f"n{number}", 64_000, 64_000, 8) for number in range(len(levels.split())))
    pods = tuple(
        (TracePod(f"p{number}{slot}", 1_000, 1_000, 2, PRIORITIES[level], 60 * slot), f"n{number}")
        for number, level in enumerate(levels.split())
        for slot in range(4)
    )
    return State(nodes, pods)


def test_both_sides_make_room_and_makeway_for_no_more_pods_of_high_priority() -> None:
    found = compared(build(), full("LS BE BE LS"), Gang("gang", 2, MEMBER), "all", 1)

    assert found.counts == (0, 0, 0, 8)
    assert found.theirs[0] is not None
    assert sum(found.theirs[0]) == 8
    assert found.worse == ""
