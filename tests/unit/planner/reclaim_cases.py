"""Cases of reclaim that were taken from other schedulers' tests: one pod asks, and some make room for it.

A case as JSON has `nodes` with what they have, `queues` by their paths below root with `guaranteed` and
`max`, `pods`, the pod that `asks`, and the names of the `victims` there. Of a pod there are `name`, `queue`
and `requests`; `priority`, `node` and `start`, in minutes, where they are not 0, n1 and 0. `reclaim`: whether
it is on, as it is where nothing is said.
"""

import json
from pathlib import Path
from typing import Any

from makeway.core.policy.facts import PodFacts
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.changes import Adopt
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import NOW, ask, make_node, make_pod, make_snapshot
from unit.planner.caching import plan

Case = dict[str, Any]


def cases_of(name: str) -> list[Case]:
    found: list[Case] = json.loads(Path(__file__).with_name(name).read_text())["cases"]
    return found


def play(case: Case) -> list[str]:
    """Return who is evicted; there may be other candidates as good."""
    nodes = [make_node(name, **{"cpu": 0, **has}) for name, has in case["nodes"].items()]
    snapshot = make_snapshot(nodes, [_pod(one, one.get("node", "n1")) for one in case["pods"]])
    root = QueueSpec(name="root", children=_below(case, ""))
    snapshot.apply(Adopt(QueueTree.of(root, reclaim=case.get("reclaim", True)), "case"))
    found = plan(snapshot, ask(_pod({"name": "asks", **case["asks"]}, "")), NOW)
    return sorted(one.pod.uid for one in found.candidates[0].victims) if isinstance(found, Plan) else []


def below_guarantee(case: Case, victims: list[str]) -> list[str]:
    """Return the queues, but those that the asking pod is in, that victims take below their guarantees."""
    return [
        path
        for path, limits in case["queues"].items()
        if not _inside(case["asks"], path)
        for name, least in limits.get("guaranteed", {}).items()
        if (gone := [one for one in case["pods"] if one["name"] in victims and _inside(one, path)])
        if any(one["requests"].get(name) for one in gone)
        if sum(one["requests"].get(name, 0) for one in case["pods"] if _inside(one, path) and one not in gone)
        < least
    ]


def priorities(case: Case, victims: list[str]) -> list[int]:
    """Return the priorities of some pods, the highest first."""
    return sorted((one.get("priority", 0) for one in case["pods"] if one["name"] in victims), reverse=True)


def _inside(one: Case, path: str) -> bool:
    return f"{one['queue']}.".startswith(f"{path}.")


def _below(case: Case, above: str) -> tuple[QueueSpec, ...]:
    return tuple(
        QueueSpec(
            name=path.rpartition(".")[2],
            guaranteed=limits.get("guaranteed", {}),
            maximum=limits.get("max", {}),
            children=_below(case, path),
        )
        for path, limits in sorted(case["queues"].items())
        if path.rpartition(".")[0] == above
    )


def _pod(one: Case, node: str) -> PodRecord:
    path = f"root.{one['queue']}"
    return make_pod(
        one["name"],
        node,
        one.get("priority", 0),
        start=60 * one.get("start", 0),
        requests=one["requests"],
        labels={"queue": path},
        facts=PodFacts(queue=path),
    )
