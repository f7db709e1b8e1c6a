"""The reader of the GPU trace, how its pods are placed, and how two sides are compared."""

import hashlib
from pathlib import Path
from random import Random

import pytest

from bench.gpu_trace import files
from bench.gpu_trace.cluster import NOW, Gang, question_of, world_of
from bench.gpu_trace.files import TraceFileError, trace_file
from bench.gpu_trace.outcome import Outcome, Row, broken_rule, counts_of, table
from bench.gpu_trace.replay import HOURS, Cost, Job, Replay, Size, jobs_of
from bench.gpu_trace.trace import Rule, TraceNode, TracePod, member_of, nodes_of, placed, pods_of
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.result import GangPlan

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


def row(mine: tuple[int, ...] | None, *theirs: tuple[int, ...] | None) -> Row:
    return Row("16 x 8", "all", mine, (0.012, 0.011), theirs, (1.5, 2.5))


def test_nodes_are_read_in_their_order() -> None:
    assert nodes_of(NODES.splitlines()) == (
        TraceNode("openb-node-0000", 64_000, 262_144, 2),
        TraceNode("openb-node-0001", 96_000, 393_216, 8),
    )


def test_pods_are_read_by_creation_and_a_share_of_a_gpu_is_a_whole_one() -> None:
    assert pods_of(PODS.splitlines()) == (
        TracePod("early", 12_000, 16_384, 2, 2_000, 0),
        TracePod("without", 8_000, 30_517, 0, 1_000, 5),
        TracePod("late", 6_000, 12_288, 1, 0, 427_061),
    )


def test_a_quality_of_service_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        pods_of(PODS.replace("Burstable", "LSR").splitlines())


@pytest.mark.parametrize(("rule", "where"), [("first-fit", "aa"), ("least-allocated", "ab")])
def test_the_rule_says_which_node_a_pod_gets(rule: Rule, where: str) -> None:
    found = placed([node("a"), node("b")], [pod("p"), pod("q")], rule)

    assert [name for _, name in found] == list(where)


def test_a_pod_without_room_is_passed_over_and_a_later_one_may_find_some() -> None:
    found = placed([node("a", gpus=2)], [pod("p"), pod("q", 2), pod("r"), pod("s")], "least-allocated")

    assert [(one.name, name) for one, name in found] == [("p", "a"), ("r", "a")]


def test_least_allocated_looks_at_cpu_and_memory_after_the_pod() -> None:
    nodes = [node("small", cpu=1_000, memory=1_000), node("large")]

    assert placed(nodes, [pod("p", cpu=500, memory=500)], "least-allocated")[0][1] == "large"


def test_a_member_asks_for_what_the_median_pod_with_as_many_gpus_does() -> None:
    pods = [pod("p", 8, cpu=1), pod("q", 8, cpu=3), pod("r", 8, cpu=2), pod("s", 1, cpu=9)]

    assert member_of(pods, 8, 500) == TracePod("member", 2, 100, 8, 500, 0)


def test_a_file_that_is_not_there_is_named_with_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match=rf"{files.NODES} is not there. Put .* into {tmp_path}"):
        trace_file(tmp_path, files.NODES, download=False)


def test_a_file_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / files.NODES).write_text(NODES)

    with pytest.raises(TraceFileError, match="has sha256"):
        trace_file(tmp_path, files.NODES, download=False)


def test_what_a_directory_lacks_is_downloaded_once_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    contents = {files.NODES: NODES, files.PODS: PODS}

    def downloaded(path: Path) -> bytes:
        asked.append(path.name)
        return contents[path.name].encode()

    monkeypatch.setattr(files, "_downloaded", downloaded)
    with pytest.raises(TraceFileError, match="has sha256"):
        trace_file(tmp_path / "cache", files.NODES, download=True)
    assert not (tmp_path / "cache" / files.NODES).exists()
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    monkeypatch.setattr(files, "SHA256", sums)

    for _ in range(2):
        for name, text in contents.items():
            assert trace_file(tmp_path / "cache", name, download=True) == text.splitlines()

    assert asked == [files.NODES, files.NODES, files.PODS]


def test_victims_are_counted_from_the_highest_priority_down() -> None:
    pods = [pod("p", priority=2_000), pod("q"), pod("r"), pod("s", priority=1_000)]

    assert counts_of(["p", "q", "r"], pods) == (0, 1, 0, 2)


@pytest.mark.parametrize(
    ("victims", "there", "broken"),
    [
        ({"p"}, {"a": 1}, "1 members of 2"),
        ({"p"}, {"a": 2}, "node a has too little room"),
        ({"p", "high"}, {"a": 2}, "victim high is not of lower priority"),
        ({"p", "q"}, {"a": 2}, ""),
    ],
)
def test_an_outcome_has_to_make_room_for_all(victims: set[str], there: dict[str, int], broken: str) -> None:
    pods = [(pod(name), "a") for name in "pq"] + [(pod("high", priority=500), "a")]
    outcome = Outcome(frozenset(victims), there, (0.0, 0.0))

    found = broken_rule(outcome, [node("a", gpus=3)], pods, member=pod("m", priority=500), count=2)

    assert found.startswith(broken)
    assert bool(found) == bool(broken)


@pytest.mark.parametrize(
    ("mine", "theirs", "worse"),
    [
        ((0, 1, 0, 9), [(0, 2, 0, 0)], False),
        ((0, 1, 0, 1), [(0, 2, 0, 0), (0, 1, 0, 0)], True),
        ((0, 1, 0, 0), [(0, 1, 0, 0)], False),
        (None, [None], False),
        ((1, 0, 0, 0), [None], False),
        (None, [(1, 0, 0, 0)], True),
    ],
)
def test_a_plan_is_worse_with_more_victims_of_the_highest_priority_that_differs(
    mine: tuple[int, ...] | None, theirs: list[tuple[int, ...] | None], worse: bool
) -> None:
    assert bool(row(mine, *theirs).worse) == worse


def test_the_table_tells_both_sides_and_where_there_is_no_room() -> None:
    shown = table([row((0, 1, 0, 9), (0, 2, 0, 0), (0, 2, 0, 0)), row(None, None)]).splitlines()

    assert shown[2] == "| 16 x 8 | all | 10 (0/1/0/9) | 12 (11) | 2 (0/2/0/0) | 1,500 (2,500) |"
    assert shown[3] == "| 16 x 8 | all | no room | 12 (11) | no room | 1,500 (2,500) |"


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


def test_jobs_come_as_often_as_the_load_says() -> None:
    sizes, hours = [Size(1_000, 1_000, 1), Size(1_000, 1_000, 3)], [1.0, 3.0]

    jobs = list(jobs_of(sizes, hours, gpus=400, load=0.5, random=Random(1)))

    assert 0.9 < sum(job.size.gpus * job.hours for job in jobs) / (0.5 * 400 * HOURS) < 1.1
    assert [job.comes for job in jobs] == sorted(job.comes for job in jobs)
    assert {job.priority for job in jobs} == {0, 500, 1_000}
