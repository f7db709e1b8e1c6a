"""Queues as bars, comparisons and their sum, the grid of nodes, and what stands in a pod's way."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from builders_bus import NOW, make_victim
from makeway.bus.comparison import Choice, Comparison
from makeway.cli.history.comparisons import summed
from makeway.dev.samples import MESSAGES
from makeway.planner.offline.manifests import ManifestError
from makeway.planner.offline.obstacles import FITS, HELPS
from makeway.ui.model.grid import ZONE, grid_of, node_of
from makeway.ui.model.observed import Comparisons
from makeway.ui.model.queues import tree_of
from makeway.ui.model.simulating import MOST_PODS, check, simulated, standing_of
from narrowing import as_a, there
from ui_page import MadeUpCluster, cluster, queue_report

_POD = """
kind: Pod
metadata: {name: new, namespace: shop}
spec: {priority: 1000, containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
"""


def comparison(number: int, result: str, victims: int) -> Comparison:
    sample = as_a(Comparison, MESSAGES["comparison.full"])
    gone = tuple(make_victim(f"v-{place}") for place in range(victims))
    return replace(
        sample,
        decision_id=f"cmp-{number}",
        result=result,
        makeway=Choice(node="n", victims=gone[:1]),
        default_preemption=Choice(node="n", victims=gone),
    )


def test_comparisons_are_summed_as_history_sums_them_and_kept_once() -> None:
    some = [comparison(1, "better", 3), comparison(2, "same", 1), comparison(3, "worse", 40)]
    kept = Comparisons()
    for one in (*some, some[0]):
        kept.add(one)

    view = kept.view(10, loaded=True)
    assert view.summary == summed(some)
    assert [one.decision_id for one in view.comparisons] == ["cmp-3", "cmp-2", "cmp-1"]
    theirs = there(view.comparisons[0].default_preemption)
    assert (len(theirs.victims), theirs.victims_total) == (20, 40)


def test_the_oldest_comparison_makes_room() -> None:
    kept = Comparisons(most=2)
    for number in range(5):
        kept.add(comparison(number, "same", 1))

    assert kept.view(10, loaded=True).summary.compared == 2


def test_bars_are_as_long_as_the_max_and_a_queue_without_one_has_none() -> None:
    tree = tree_of(queue_report(NOW))
    shop = next(row for row in tree.queues if row.path == "root.shop")
    cpu = next(bar for bar in shop.bars if bar.resource == "cpu")
    root = tree.queues[0]

    assert (cpu.used, cpu.guaranteed, cpu.max) == ("20", "16", "32")
    assert (cpu.used_share, cpu.guaranteed_share) == (0.625, 0.5)
    assert (root.depth, shop.depth, root.bars[0].max) == (0, 1, "")
    training = next(row for row in tree.queues if row.path == "root.ml.training")
    assert (training.bars[0].used, training.bars[0].used_share) == ("41", 0), "no max, no share"
    states = {row.path: [bar.state for bar in row.bars] for row in tree.queues}
    assert states["root.ml"] == ["full", "", "full"]
    assert any(line.startswith("Guaranteed:") for line in shop.lines)


def test_nodes_are_in_the_groups_of_a_label_and_pending_pods_come_by_priority() -> None:
    world = cluster(40)
    grid = grid_of(world.snapshot, NOW)

    assert grid.label == ZONE
    assert grid.group_names == ("zone-a", "zone-b", "zone-c")
    assert (len(grid.names), grid.nodes_total) == (40, 40)
    assert set(grid.cpu) == {62}, "2.5 of 4 CPUs"
    assert grid.marks[5] == 1
    assert grid.marks[7] == 2
    assert list(grid.pending) == [f"shop/waiting-{number}" for number in (2, 1, 0)]
    by_type = grid_of(world.snapshot, NOW, "node.kubernetes.io/instance-type")
    assert by_type.group_names == ("c8.xlarge", "m8.large")
    assert grid_of(world.snapshot, NOW, "no-such-label").label == ZONE


def test_a_node_lists_its_least_important_pods_first() -> None:
    node = there(node_of(cluster(3).snapshot, "node-0001"))

    assert [pod.priority for pod in node.pods] == [0, 10, 20, 30]
    assert node.requested["cpu"] == "2500m"
    assert node_of(cluster(3).snapshot, "no-such-node") is None


async def test_each_node_stands_once_under_what_is_in_the_way_there() -> None:
    made_up = MadeUpCluster(40)
    world = await made_up.read()
    raw = there(await made_up.pod("shop", "waiting-2"))

    standing = standing_of(world, raw, NOW)

    names = [name for those in standing.nodes.values() for name in those]
    assert sorted(names) == sorted(world.snapshot.node_names())
    assert standing.nodes["Node is cordoned"] == ("node-0005",)
    assert standing.nodes["Untolerated taint"] == ("node-0007", "node-0030")
    assert set(standing.nodes) == {"Node is cordoned", "Untolerated taint", "Insufficient cpu"}
    assert standing.found.answer.result == "refused"


async def test_a_node_where_room_is_or_can_be_made_says_so() -> None:
    made_up = MadeUpCluster(6)
    world = await made_up.read()
    raw = there(await made_up.pod("shop", "waiting-2"))
    small, large = raw.replace(b"3500m", b"1"), raw.replace(b'"priority":10', b'"priority":100')

    assert set(standing_of(world, small, NOW).nodes) == {FITS, "Node is cordoned"}
    assert set(standing_of(world, large, NOW).nodes) == {HELPS, "Node is cordoned"}


def test_a_pasted_pod_is_planned_for() -> None:
    (answer,) = simulated(cluster(4), _POD, "default", NOW + timedelta(seconds=1))

    assert (answer.namespace, answer.name, answer.result) == ("shop", "new", "preempts")
    assert answer.victims
    told = "not judged: what the API server would add or refuse: makeway simulate asks it"
    assert told in answer.warnings


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "not YAML"),
        ("- 1", "no Kubernetes object"),
        ("a: &x [1]\nb: [*x, *x]", "aliases"),
        ("[" * 60 + "]" * 60, "nested deeper"),
        ("x" * 70_000, "more than 64 KiB"),
        ("kind: Deployment\nspec: {replicas: 9999, template: {spec: {}}}", "this form takes 20"),
        ("---\n".join([_POD] * (MOST_PODS + 1)), "this form takes 20"),
        ("kind: PodGroup\nmetadata: {name: g}", "makeway simulate"),
        ("kind: Pod\nspec: a text", "must be objects"),
        ("kind: Pod\nmetadata: [1]", "must be objects"),
        ("kind: Deployment\nmetadata: [1]\nspec: {template: {}}", "would not take this Deployment"),
        ("kind: List\nitems: [{kind: Deployment, spec: {replicas: 500}}]", "500 pods"),
    ],
)
def test_what_cannot_be_planned_for_is_refused_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(ManifestError, match=why):
        simulated(cluster(2), text, "default", NOW)


def test_text_that_would_become_large_is_refused_before_it_is_loaded() -> None:
    laughs = "\n".join(["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)])

    with pytest.raises(ManifestError, match="aliases"):
        check(laughs)
