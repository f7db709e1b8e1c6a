"""The conditions that preemption sets on its victims, and on a pod whose order is held. Pure.

Source of DisruptionTarget: KEP-3329 and kube-scheduler's preemption executor, whose reason and message are
kept, so that Jobs' pod failure policies and people see what they know.
"""

from __future__ import annotations

from makeway.core.k8s.objects import ENDED_PHASES, Pod, PodCondition

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"
PREEMPTION_HELD = "makeway.dev/PreemptionHeld"
"""The condition of a pod that waits while something holds the order that makes room for it."""

_MESSAGE = "preempting to accommodate a higher priority pod"
_GROUP_MESSAGE = "preempting to accommodate a higher priority podgroup"
QUOTA_MESSAGE = "makeway: preempting to bring the pod's queue down to its maximum"
"""The condition's message where there is no preemptor."""


def preemption_message(scheduler_name: str, *, for_group: bool = False) -> str:
    """Return the condition's message; it names no pod. `for_group`: where a PodGroup preempts."""
    return f"{scheduler_name}: {_GROUP_MESSAGE if for_group else _MESSAGE}"


def is_disrupted(pod: Pod) -> bool:
    """Report whether a pod carries a DisruptionTarget, whoever set it."""
    for condition in pod.status.conditions or ():  # noqa: SIM110 - of each pod event; a generator costs twice
        if condition.type == DISRUPTION_TARGET:
            return True
    return False


def disruption_target(pod: Pod) -> PodCondition | None:
    """Return the pod's DisruptionTarget condition where it is True."""
    for condition in pod.status.conditions or ():
        if condition.type == DISRUPTION_TARGET and condition.status == "True":
            return condition
    return None


def preemption_mark(pod: Pod) -> str:
    """Return the message of the mark that preemption has set on a pod; empty where none has."""
    condition = disruption_target(pod)
    if condition is None or condition.reason != PREEMPTION_BY_SCHEDULER:
        return ""
    return condition.message or ""


def lives_on_marked(pod: Pod) -> bool:
    """Report whether a pod carries preemption's mark and is not on its way out."""
    if pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDED_PHASES:
        return False
    mark = preemption_mark(pod)
    return mark == QUOTA_MESSAGE or mark.endswith((f": {_MESSAGE}", f": {_GROUP_MESSAGE}"))


def preempted_by(pod: Pod) -> str:
    """Return the name of the scheduler whose preemption marked a pod, leaving or not; empty if none."""
    scheduler, _, rest = preemption_mark(pod).rpartition(": ")
    return scheduler if rest in (_MESSAGE, _GROUP_MESSAGE) else ""


def preempted_for_group(pod: Pod) -> bool:
    """Report whether a preemption's mark on a pod says that it was for a PodGroup."""
    return preemption_mark(pod).endswith(f": {_GROUP_MESSAGE}")
