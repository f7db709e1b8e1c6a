"""Which choice is better: the cases of bus/testdata/ranking, which planner and plugin rank by too."""

import json
import re
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from makeway.core.comparison import (
    LEAST_LOST_WORK,
    RULES,
    RULES_WITH_LOST_WORK,
    Judgement,
    RemovedPod,
    compare,
    judge,
)
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.policy.lost_work import UnsavedWork

_ROOT = Path(__file__).parents[3]
_TABLE = json.loads((_ROOT / "bus/testdata/ranking/cases.json").read_text())


def gone(uid: str, pod: dict[str, Any]) -> RemovedPod:
    """Return a pod of the table; one that violates has a budget of its own that allows nothing."""
    start = pod["startTime"]
    started = NOT_STARTED if start is None else microseconds(datetime.fromisoformat(start))
    budgets = (("default", uid),) if pod.get("violating") else ()
    return RemovedPod(uid, pod["priority"], started, budgets, work=UnsavedWork({}, pod.get("lostWork", 0)))


def judged(candidate: dict[str, Any]) -> Judgement:
    """Return the numbers of a candidate of the table."""
    pods = candidate["victims"] + candidate.get("awaited", [])
    removed = [gone(f"{candidate['node']}-{index}", pod) for index, pod in enumerate(pods)]
    return judge(removed, {}, lambda work: work.since)


def test_the_rules_are_kube_schedulers_among_those_by_which_candidates_are_ranked() -> None:
    rules = [rule for rule in _TABLE["rules"] if rule != LEAST_LOST_WORK]
    assert list(RULES) == rules[: len(RULES)]
    assert list(RULES_WITH_LOST_WORK) == _TABLE["rules"][: len(RULES_WITH_LOST_WORK)]


def test_the_documentation_lists_the_rules_in_their_order() -> None:
    page = (_ROOT / "docs/ranking.md").read_text()

    assert re.findall(r"^\d+\. `([a-z-]+)`:", page, re.MULTILINE) == _TABLE["rules"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in _TABLE["cases"]])
def test_choices_compare_by_the_rules_that_rank_candidates(case: dict[str, Any]) -> None:
    candidates = [judged(candidate) for candidate in case["candidates"]]

    found = [compare(better, worse, RULES_WITH_LOST_WORK) for better, worse in pairwise(candidates)]

    assert found == [
        ("better", rule) if rule in RULES_WITH_LOST_WORK else ("equal", "") for rule in case["decidedBy"]
    ]
