"""First plans without a request: what is loaded on first use is loaded before the first request."""

from __future__ import annotations

from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.planner import plan
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from unit.planner.building import NOW, ask, make_budget, make_node, make_pod, make_snapshot

_LABELS = {"app": "warm-up"}


def warm_up() -> tuple[Plan | PlanRefusal, GangPlan | PlanRefusal]:
    """Plan for a pod and a group on a made-up cluster that has a bit of everything.

    The first plan for a pod takes some 40 ms longer, the first one for a group 10 ms.
    """
    pods = [make_pod(f"{node}{index}", node, index, labels=_LABELS) for node in "abc" for index in range(2)]
    pods += [make_pod(name, priority=9, labels=_LABELS) for name in ("nominated", "assumed", "preemptor")]
    nodes = [make_node(name, 200) for name in "abc"]
    snapshot = make_snapshot(nodes, pods, [make_budget("warm-up", _LABELS, 0)])
    question = ask(
        make_pod("preemptor", priority=5, labels=_LABELS),
        nominations=[("nominated", "a")],
        assumed=[("assumed", "b")],
        in_flight={"a0": "ord-warm-up"},
    )
    gang = GangQuestion("warm-up", (GangClass(question, 3),), 2)
    return plan(snapshot, question, NOW), plan_gang(snapshot, gang, NOW)
