"""The reader of the GPU trace, what it refuses, and what is planned and replayed on it."""

from pathlib import Path

import pytest

from bench.gpu_trace import files
from bench.gpu_trace.cluster import NOW, Gang, question_of, world_of
from bench.gpu_trace.files import TraceFileError, trace_file
from bench.gpu_trace.replay import Cost, Job, Replay, Size
from bench.gpu_trace.trace import TraceNode, TracePod, pods_of
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.result import GangPlan

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,64000,262144,2,P100
openb-node-0001,96000,393216,8,G2
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
late,6000,12288,1,460,,BE,Running,427061,12902960,427061
early,12000,16384,2,1000,,LS,Pending,0,12537496,
without,8000,30517,0,0,,Burstable,Failed,5,6,
"""


def node(name: str, gpus: int = 8, cpu: int = 8_000, memory: int = 8_000) -> TraceNode:
    return TraceNode(name, cpu, memory, gpus)


def pod(name: str, gpus: int = 1, *, cpu: int = 100, priority: int = 0, memory: int = 100) -> TracePod:
    return TracePod(name, cpu, memory, gpus, priority, 0)


def test_pods_are_read_by_creation_and_a_share_of_a_gpu_is_a_whole_one() -> None:
    assert pods_of(PODS.splitlines()) == (
        TracePod("early", 12_000, 16_384, 2, 2_000, 0),
        TracePod("without", 8_000, 30_517, 0, 1_000, 5),
        TracePod("late", 6_000, 12_288, 1, 0, 427_061),
    )


def test_a_file_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / files.NODES).write_text(NODES)

    with pytest.raises(TraceFileError, match="has sha256"):
        trace_file(tmp_path, files.NODES, download=False)


def test_the_planner_plans_on_the_cluster_as_its_objects_say() -> None:
    nodes = [node("a"), node("b")]
    pods = [(pod(f"p{number}", 4, priority=1_000 * (number > 1)), "ab"[number % 2]) for number in range(4)]
    world = world_of(nodes, pods)

    found = plan_gang(world.snapshot, question_of(world, Gang("g", 2, pod("m", 4, priority=5_000))), NOW)

    assert isinstance(found, GangPlan)
    assert {one.pod.uid for one in found.victims} == {"p0", "p1"}
    assert {(one.node, one.count) for one in found.placements} == {("a", 1), ("b", 1)}


def test_a_replay_gives_one_answer_and_counts_what_evictions_cost() -> None:
    """Two nodes of one GPU: jobs of two hours, of which later ones of higher priority evict those before."""
    nodes = [TraceNode(name, 8_000, 8_000, 1) for name in ("a", "b")]
    size = Size(1_000, 1_000, 1)
    jobs = [("low", 0, 20.0, 10.0), ("mid", 500, 20.0, 11.0), ("high", 1_000, 2.0, 14.0)]

    def cost() -> Cost:
        comes = [Job(name, size, priority, hours, at) for name, priority, hours, at in jobs]
        return Replay(nodes, "spread", "off").play(comes)

    assert cost() == cost() == Cost(wasted=4.0, waiting=2.0, preemptions=1, evictions=1)
