"""Pods of classes that are opted in: they say Never, and makeway nominator preempts for them. Pure."""

from __future__ import annotations

from dataclasses import replace

from makeway.core.k8s.objects import Pod
from makeway.core.policy.external import is_external
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.state import Snapshot


def as_nominator_asks(snapshot: Snapshot, question: Question, pod: Pod) -> Question:
    """Return a pod's question as makeway nominator puts it, for pods that it preempts for: those may preempt.

    Members of a pod group are none of them.
    """
    of_class = snapshot.priority_classes.get(pod.spec.priority_class_name or "")
    if question.may_preempt or pod.spec.scheduling_group is not None or not is_external(of_class):
        return question
    return replace(question, may_preempt=True)
