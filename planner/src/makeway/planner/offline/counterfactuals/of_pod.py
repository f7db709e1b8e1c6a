"""What the pod itself could be, or when it could be tried, so that it is not pending. Pure."""

from __future__ import annotations

from functools import partial
from typing import Final

from makeway.core.k8s.resources import CPU, PODS
from makeway.core.k8s.times import api_time
from makeway.core.policy.toleration import PreemptionToleration, toleration_of
from makeway.core.queues.amounts import text_of
from makeway.planner.offline.counterfactuals.changes import Case, Found, helps, least
from makeway.planner.offline.results import Change
from makeway.planner.plan.unfiltered import PodVerdict

HIGHEST: Final = 1_000_000_000
"""The highest priority that a PriorityClass of users may have."""

_MEBI: Final = 2**20


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
    lifted = case.asking(may_preempt=True)
    if case.question.may_preempt or not helps(lifted):
        return
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
    yield change, lifted


def of_higher_priority(case: Case, judged: PodVerdict) -> Found:
    """The least priority with which others would have to go, or would no longer keep a place reserved."""
    own = case.question.preemptor.priority
    snapshot = case.snapshot
    reached = {pod.priority + 1 for pod in snapshot.pods.values() if pod.priority >= own}
    for priority_class in snapshot.priority_classes.values():
        asked = toleration_of(priority_class)
        if isinstance(asked, PreemptionToleration) and asked.minimum_preemptable_priority > own:
            reached.add(asked.minimum_preemptable_priority)
    if found := least(sorted(one for one in reached if own < one <= HIGHEST), case.of_priority):
        priority, there = found
        text = f"priority ≥ {priority} (it has {own})"
        change = Change(
            kind="priority", text=text, object="pod", field="spec.priority", now=own, then=priority
        )
        yield change, there


def of_less(case: Case, judged: PodVerdict) -> Found:
    """The most of each resource that the pod could ask for instead."""
    for resource, amount in sorted(case.question.needs.items()):
        if resource == PODS or amount <= 1:
            continue
        step = _MEBI if resource != CPU and amount > _MEBI else 1
        less = range((amount - 1) // step * step, 0, -step)
        if found := least(less, partial(case.requesting, resource)):
            most, there = found
            was, now = text_of(resource, amount), text_of(resource, most)
            change = Change(
                kind="request",
                text=f"a request of at most {resource} {now} (it asks for {was})",
                object="pod",
                field=f"requests.{resource}",
                now=amount,
                then=most,
            )
            yield change, there
