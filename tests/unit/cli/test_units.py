"""What goes together is told as one, with its size."""

from builders_bus import make_victim
from makeway.bus.decisions import RankedCandidate
from makeway.bus.messages import Victim
from makeway.cli.history.rows import listed
from makeway.cli.units import decided_text, names_of, unit_text


def victim(name: str, node: str, unit: str = "", *, violating: bool = False) -> Victim:
    return make_victim(name, uid=name, node=node, priority=10, pdb_violating=violating, unit=unit)


TRAIN = [victim(f"train-{n}", f"n{n % 4}", "PodGroup batch/train-7", violating=n == 3) for n in range(16)]


def test_a_unit_is_told_with_its_pods_and_nodes() -> None:
    assert unit_text("PodGroup batch/train-7", TRAIN) == "group batch/train-7: 16 pods on 4 nodes"
    assert unit_text("CompositePodGroup batch/all", TRAIN[:1]) == (
        "composite group batch/all: 1 pod on 1 node"
    )


def test_other_victims_are_told_by_name() -> None:
    victims = [victim("a", "n1"), *TRAIN, victim("b", "n1")]

    assert names_of(victims) == ["batch/a", "group batch/train-7: 16 pods on 4 nodes", "batch/b"]
    assert listed(victims, 2) == "batch/a, group batch/train-7: 16 pods on 4 nodes, …"


def test_lost_work_that_decided_is_told_of_both_nodes() -> None:
    best = RankedCandidate("n1", decided_by="least-lost-work", lost_work_seconds=6480)
    other = RankedCandidate("n2", lost_work_seconds=50_400)

    assert decided_text(best, [other]) == "least-lost-work (1h48m of a pod of its size; 14h on n2)"
    assert decided_text(best, []) == "least-lost-work"
    assert decided_text(RankedCandidate("n1", decided_by="node-name"), [other]) == "node-name"
