"""Placement and counting as the scheduler's queue gate does both: one file of cases for the two sides."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from makeway.core.k8s.objects import Pod
from makeway.core.k8s.queue_labels import asked_for
from makeway.core.k8s.requests import pod_requests
from makeway.core.queues.placement import place
from makeway.core.queues.tree import QueueSpec, QueueTree

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[3] / "bus/testdata/queues/placement.json").read_text()
)


def spec(path: str) -> QueueSpec:
    """A queue of the file, with those below it."""
    (queue,) = (one for one in CASES["queues"] if one["path"] == path)
    children = (one["path"] for one in CASES["queues"] if one["path"].rpartition(".")[0] == path)
    return QueueSpec(
        name=path.rpartition(".")[2],
        maximum=queue.get("max", {}),
        namespaces=tuple(queue.get("namespaces", ())),
        children=tuple(spec(child) for child in children),
    )


@pytest.mark.parametrize("case", CASES["placements"], ids=lambda case: case["name"])
def test_pods_are_placed_as_the_gate_places_them(case: dict[str, Any]) -> None:
    tree = QueueTree.of(spec("root"))

    assert place(tree, asked_for(case["labels"]), case["namespace"]).queue.path == case["queue"]


@pytest.mark.parametrize("case", CASES["held"], ids=lambda case: case["name"])
def test_pods_that_no_queue_takes_are_held_as_the_gate_holds_them(case: dict[str, Any]) -> None:
    tree = QueueTree.of(spec("root"), hold=True)

    found = place(tree, asked_for(case["labels"]), case["namespace"])

    assert found.queue.path == case["queue"]
    assert bool(found.warning) == (case["queue"] == "root.@unplaced")


@pytest.mark.parametrize("case", CASES["requests"], ids=lambda case: case["name"])
def test_requests_count_as_the_gate_counts_them(case: dict[str, Any]) -> None:
    pod = msgspec.convert(case["pod"], Pod)

    assert pod_requests(pod, placed=bool(pod.spec.node_name)) == case["amounts"]
