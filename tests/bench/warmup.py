"""First plans without a request: what is loaded on first use is loaded before the first request."""

from __future__ import annotations

from datetime import UTC, datetime

from makeway.bus.messages import Placement
from makeway.bus.plan import NodeSelection
from makeway.core.k8s.budget import budget_of
from makeway.core.k8s.objects import LabelSelector, Metadata, PodDisruptionBudget, PodDisruptionBudgetSpec
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.planner import plan
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.snapshot.changes import PutBudget, PutNode, PutPod
from makeway.planner.snapshot.records import NodeRecord, PodRecord
from makeway.planner.snapshot.signatures.table import PodSignature
from makeway.planner.snapshot.state import Snapshot

_LABELS = {"app": "warm-up"}


def warm_up() -> tuple[Plan | PlanRefusal, GangPlan | PlanRefusal]:
    """Plan for a pod and a group on a made-up cluster that has a bit of everything.

    The first plan for a pod takes some 40 ms longer, the first one for a group 10 ms.
    """
    snapshot = Snapshot()
    selector = LabelSelector(match_labels=_LABELS)
    snapshot.apply(
        PutBudget(
            budget_of(
                PodDisruptionBudget(
                    metadata=Metadata(name="warm-up"), spec=PodDisruptionBudgetSpec(selector=selector)
                )
            )
        )
    )
    for node in ("a", "b", "c"):
        snapshot.apply(PutNode(NodeRecord(name=node, allocatable={"cpu": 2, "pods": 110})))
        for index in range(2):
            snapshot.apply(PutPod(_pod(f"{node}{index}", node=node, priority=index)))
    for name in ("nominated", "assumed", "preemptor"):
        snapshot.apply(PutPod(_pod(name, node="", priority=9)))
    question = Question(
        preemptor=_pod("preemptor", node="", priority=5),
        needs={"cpu": 1, "pods": 1},
        may_preempt=True,
        scheduler_name="",
        nodes=NodeSelection(all_but=True),
        max_candidates=16,
        nominations=(Placement(namespace="", name="nominated", uid="nominated", node="a"),),
        assumed=(Placement(namespace="", name="assumed", uid="assumed", node="b"),),
        in_flight={"a0": "ord-warm-up"},
    )
    now = datetime.now(UTC)
    gang = GangQuestion("warm-up", (GangClass(question, 3),), 2)
    return plan(snapshot, question, now), plan_gang(snapshot, gang, now)


def _pod(uid: str, *, node: str, priority: int) -> PodRecord:
    return PodRecord(
        namespace="",
        name=uid,
        uid=uid,
        node=node,
        priority=priority,
        start_micros=0,
        grace_period_seconds=0,
        terminating=False,
        requests={"cpu": 1, "pods": 1},
        labels=_LABELS,
        facts=PodFacts(priority=priority),
        signature=PodSignature(namespace=""),
    )
