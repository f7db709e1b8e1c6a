"""What the pod itself could be, or when it could be tried, so that it is not pending. Pure."""

from __future__ import annotations

from typing import Final

from makeway.core.k8s.objects import Taint
from makeway.core.k8s.objects import Toleration as Tolerates
from makeway.core.k8s.resources import CPU, PODS
from makeway.core.k8s.times import api_time
from makeway.core.policy.toleration import PreemptionToleration, toleration_of
from makeway.core.queues.amounts import text_of
from makeway.planner.offline.counterfactuals.changes import Case, Found, first, helps
from makeway.planner.offline.results import Change
from makeway.planner.plan.eligibility import TAINT
from makeway.planner.plan.unfiltered import PodVerdict

HIGHEST: Final = 1_000_000_000
"""The highest priority that a PriorityClass of users may have."""

_MEBI: Final = 2**20
_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")
_MOST_TAINTS: Final = 8


def waiting(case: Case, judged: PodVerdict) -> Found:
    """Time alone: a toleration or a start delay ends."""
    moment = judged.refusal.retry_at if judged.refusal else None
    if moment is None or moment <= case.now:
        return
    later = case.at(moment)
    if helps(later):
        text = f"wait until {api_time(moment)}"
        yield Change(kind="wait", text=text, object="pod", field="", now=case.now, then=moment), later


def allowed(case: Case, judged: PodVerdict) -> Found:
    """The pod may not preempt at all."""
    lifted = lift_never(case)
    if lifted is not None and helps(lifted[1]):
        yield lifted


def lift_never(case: Case) -> tuple[Change, Case] | None:
    """Let a pod preempt that may not; None where it may."""
    if case.question.may_preempt:
        return None
    pod = case.question.preemptor
    group = case.snapshot.groups.record_of(f"{pod.namespace}/{pod.group}")
    change = Change(
        kind="preemption-policy",
        text="preemptionPolicy PreemptLowerPriority instead of Never",
        object="pod" if group is None or not group.preemption_policy else str(group.key),
        field="spec.preemptionPolicy",
        now="Never",
        then="PreemptLowerPriority",
    )
    return change, case.asking(may_preempt=True)


def of_higher_priority(case: Case, judged: PodVerdict) -> Found:
    """The least priority with which others would have to go, or would no longer keep a place reserved."""
    own = case.question.preemptor.priority
    snapshot = case.snapshot
    reached = {pod.priority + 1 for pod in snapshot.pods.values() if pod.priority >= own}
    for priority_class in snapshot.priority_classes.values():
        asked = toleration_of(priority_class)
        if isinstance(asked, PreemptionToleration) and asked.minimum_preemptable_priority > own:
            reached.add(asked.minimum_preemptable_priority)
    priority = first(
        sorted(one for one in reached if own < one <= HIGHEST), lambda one: helps(case.of_priority(one))
    )
    if priority is not None:
        text = f"priority ≥ {priority} (it has {own})"
        change = Change(
            kind="priority", text=text, object="pod", field="spec.priority", now=own, then=priority
        )
        yield change, case.of_priority(priority)


def of_less(case: Case, judged: PodVerdict) -> Found:
    """The most of each resource that the pod could ask for instead."""
    for resource, amount in sorted(case.question.needs.items()):
        if resource == PODS or amount <= 1:
            continue
        step = _MEBI if resource != CPU and amount > _MEBI else 1
        less = range((amount - 1) // step * step, 0, -step)
        found = first(less, lambda one, name=resource: helps(case.requesting(name, one)))  # type: ignore[misc]
        if found is not None:
            was, now = text_of(resource, amount), text_of(resource, found)
            change = Change(
                kind="request",
                text=f"a request of at most {resource} {now} (it asks for {was})",
                object="pod",
                field=f"requests.{resource}",
                now=amount,
                then=found,
            )
            yield change, case.requesting(resource, found)


def tolerating(case: Case, judged: PodVerdict) -> Found:
    """A taint that the pod could tolerate."""
    if not judged.found.excluded.get(TAINT):
        return
    taints = sorted(
        {taint for node in case.nodes.values() for taint in node.taints if taint.effect in _KEEPS_OUT},
        key=lambda taint: (taint.key, taint.value, taint.effect),
    )
    for taint in taints[:_MOST_TAINTS]:
        if taint.key.startswith("node.kubernetes.io/"):
            continue  # a state of the node, which no pod of users should be told to tolerate
        operator = "Equal" if taint.value else "Exists"
        there = case.tolerating(
            Tolerates(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)
        )
        if helps(there):
            change = Change(
                kind="toleration",
                text=f"a toleration of the taint {written(taint)}",
                object="pod",
                field="spec.tolerations",
                now=None,
                then={"key": taint.key, "operator": operator, "value": taint.value, "effect": taint.effect},
            )
            yield change, there


def written(taint: Taint) -> str:
    """Write a taint as kubectl does."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
