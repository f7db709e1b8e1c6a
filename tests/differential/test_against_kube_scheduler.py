"""makeway's planner against kube-scheduler's own code: fresh random clusters, and cases kept from before."""

import os
import time
from pathlib import Path

import pytest

from differential.case import decode
from differential.compare import compare
from differential.run import CASES, batches, compare_all
from differential.upstream import build

FRESH = 300


def test_fresh_clusters_are_answered_as_kube_scheduler_answers_them() -> None:
    first = int(os.environ.get("MAKEWAY_SEED") or time.time())
    seeds = list(batches(first, FRESH, ()))

    found = list(compare_all(build(), seeds, os.cpu_count() or 1))

    assert {one.again: one.comparison.disagreements for one in found if one.comparison.disagreements} == {}
    assert len(found) == FRESH
    # The clusters are of use: many nodes have victims, and both agree on them.
    assert sum(one.comparison.nodes["same victims"] for one in found if one.comparison.exact) > FRESH // 2


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_that_once_differed_agrees(path: Path) -> None:
    assert compare(decode(path.read_bytes())).disagreements == ()
