"""What was found about one pod, in the words of a decision record. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from makeway.bus.plan import PlanRequest
from makeway.planner.offline.asking import OFFLINE, beyond
from makeway.planner.offline.results import Result, SimulatedPod
from makeway.planner.plan.decision import decision_of, record_of
from makeway.planner.plan.feasibility import NOWHERE
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal, Scope
from makeway.planner.plan.unfiltered import PodVerdict
from makeway.planner.snapshot.state import Snapshot


def described(
    snapshot: Snapshot,
    request: PlanRequest,
    question: Question,
    answer: PodVerdict | PlanRefusal,
    *,
    now: datetime,
    warnings: Iterable[str],
) -> SimulatedPod:
    """Write down what was found about a pod; the refusal of one about which no planner is asked, too."""
    judged = PodVerdict(NOWHERE, "", answer) if isinstance(answer, PlanRefusal) else answer
    pod, found, result = question.preemptor, judged.found, judged.result
    scope = Scope(snapshot.revision, snapshot.node_count, int(found.helpable.size))
    decision = decision_of(
        snapshot,
        request,
        question,
        result or Plan(scope, (), 0, (), 0),
        decision_id=OFFLINE,
        planner=OFFLINE,
        at=now,
    )
    record = record_of(decision)
    queue = snapshot.queues.queue_of(pod)
    outcome: Result = "fits" if result is None else "refused"
    if record.nominated_node:
        outcome = "preempts" if record.victims else "waits"
    return SimulatedPod(
        namespace=pod.namespace,
        name=pod.name,
        result=outcome,
        preemptor=decision.preemptor,
        queue=queue.path if queue is not None else "",
        mode=request.mode,
        node=judged.node or record.nominated_node or None,
        nominated_node=record.nominated_node or None,
        victims=record.victims,
        pdb_violations=record.pdb_violations,
        candidates=record.candidates,
        candidates_total=record.candidates_total,
        diagnosis=record.diagnosis,
        spared_by_rule=record.spared_by_rule,
        nearest=record.nearest,
        nodes_total=record.nodes_total,
        nodes_fitting=int(found.fits.size),
        nodes_potential=record.nodes_potential,
        nodes_excluded=found.excluded,
        warnings=(*warnings, *beyond(found.left_out)),
    )
