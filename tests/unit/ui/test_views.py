"""Queues as bars, comparisons and their sum, and the grid of nodes."""

from msgspec.structs import replace

from builders_bus import NOW, make_victim
from makeway.bus.comparison import Choice, Comparison
from makeway.cli.history.comparisons import summed
from makeway.dev.samples import MESSAGES
from makeway.ui.model.grid import ZONE, grid_of, node_of
from makeway.ui.model.observed import Comparisons
from makeway.ui.model.queues import tree_of
from narrowing import as_a, there
from ui_page import cluster, queue_report


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
    assert [pod.name for pod in grid.pending] == ["waiting-2", "waiting-1", "waiting-0"]
    by_type = grid_of(world.snapshot, NOW, "node.kubernetes.io/instance-type")
    assert by_type.group_names == ("c8.xlarge", "m8.large")
    assert grid_of(world.snapshot, NOW, "no-such-label").label == ZONE


def test_a_node_lists_its_least_important_pods_first() -> None:
    node = there(node_of(cluster(3).snapshot, "node-0001"))

    assert [pod.priority for pod in node.pods] == [0, 10, 20, 30]
    assert node.requested["cpu"] == "2500m"
    assert node_of(cluster(3).snapshot, "no-such-node") is None
