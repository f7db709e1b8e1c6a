"""How candidates are ranked: the cases of bus/testdata/ranking, which the plugin ranks by too."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.policy.document import LostWork, Policy
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.lost_work import WHOLE
from makeway.planner.plan.ranking import RULES
from unit.planner.building import NOW, ask, make_budget, make_node, make_pod, make_snapshot, planned

_TABLE = json.loads((Path(__file__).parents[3] / "bus/testdata/ranking/cases.json").read_text())
_SIZE = 840
"""Of a node: what up to eight pods share out evenly among them."""


def test_the_rules_are_those_of_the_table() -> None:
    assert list(RULES) == _TABLE["rules"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in _TABLE["cases"]])
def test_candidates_are_ranked_as_the_plugin_ranks_them(case: dict[str, Any]) -> None:
    pods, budgets, in_flight = [], [], {}
    for candidate in case["candidates"]:
        node, awaited = candidate["node"], candidate.get("awaited", [])
        gone = candidate["victims"] + awaited
        for index, pod in enumerate(gone):
            uid, start = f"{node}-{index}", pod["startTime"]
            started = NOT_STARTED if start is None else microseconds(datetime.fromisoformat(start))
            labels = {"app": uid}
            size = _SIZE // len(gone)
            unsaved = pod.get("lostWork", 0) // (WHOLE * size // _SIZE)
            facts = PodFacts(
                priority=pod["priority"], checkpointed_micros=microseconds(NOW - timedelta(seconds=unsaved))
            )
            pods.append(
                make_pod(uid, node, pod["priority"], size, start_micros=started, labels=labels, facts=facts)
            )
            if pod.get("violating"):
                budgets.append(make_budget(uid, labels, allowed=0))
            if index >= len(candidate["victims"]):
                in_flight[uid] = f"ord-{node}"
    nodes = [make_node(candidate["node"], _SIZE) for candidate in reversed(case["candidates"])]
    preemptor = make_pod("P", priority=1000, size=_SIZE)

    weighs = any("lostWork" in pod for one in case["candidates"] for pod in one["victims"])
    policy = Policy(lost_work=LostWork(rank="aboveSum" if weighs else "off"))

    result = planned(make_snapshot(nodes, pods, budgets, policy=policy), ask(preemptor, in_flight=in_flight))

    assert [found.node for found in result.candidates] == [one["node"] for one in case["candidates"]]
    assert [found.decided_by for found in result.candidates[:-1]] == case["decidedBy"]
