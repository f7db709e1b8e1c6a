"""Pods whose own preemptionPolicy does not count: the group's does, or makeway nominator preempts. Pure."""

from __future__ import annotations

from dataclasses import replace

from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import group_of
from makeway.core.policy.external import is_external
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.state import Snapshot


def as_asked(snapshot: Snapshot, question: Question, pod: Pod) -> Question:
    """Return a pod's question as its scheduler puts it, or makeway nominator for pods that it preempts for.

    Those may preempt. Members of a pod group are none of them: their group's own policy counts first.
    """
    if name := group_of(pod):
        group = snapshot.groups.record_of(f"{pod.metadata.namespace}/{name}")
        own = question.may_preempt
        return replace(question, may_preempt=own if group is None else group.lets_preempt(own))
    of_class = snapshot.priority_classes.get(pod.spec.priority_class_name or "")
    if question.may_preempt or not is_external(of_class):
        return question
    return replace(question, may_preempt=True)
