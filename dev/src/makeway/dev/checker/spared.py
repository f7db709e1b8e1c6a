"""Rules about pods that stay: protected, on other nodes, kept by hard budgets, and all under a brake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from makeway.dev.checker.case import Finding, OrderCase, described
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.pods import PodHistory

MINUTE = timedelta(minutes=1)
ROUGHLY = 1.25
"""By how much the evictors together may exceed a minute's limit."""
BRAKE = timedelta(seconds=2)
"""An evictor's look at the brake is a second old at most when a delete begins, which then takes its way."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """Whom the policy, the node, a budget or the brake keeps from being a victim stays."""
    in_force = case.history.in_force
    yield from _caps(case)
    for event, uid, order in case.deletes:
        objects, pod = (described(event),), case.pods.get(uid)
        of_quota = order is not None and order.order.kind == "quota"
        if pod is not None and (why := _protected(case, pod, event.at, of_quota=of_quota)):
            yield Violation(Invariant.VICTIM_PROTECTED, objects, event.at, why)
        if pod is not None and order is not None and order.order.kind != "quota":
            node = pod.node_at(event.at)
            named = next(one for one in order.order.victims if one.uid == uid)
            wanted = named.node if named.unit or order.order.kind == "group" else order.order.node
            if node and node != wanted:
                evidence = f"it is on {node}, its order is for {wanted}"
                yield Violation(Invariant.VICTIM_ELSEWHERE, objects, event.at, evidence)
        if event.subresource != "eviction" and _among(event.namespace, in_force.hard_namespaces):
            yield Violation(Invariant.BUDGET_PASSED_BY, objects, event.at, "a delete, where budgets are hard")
        for begin, end in in_force.brakes:
            if begin + BRAKE < event.at < end:
                late = (event.at - begin).total_seconds()
                evidence = f"{late:.3f} s after the brake was set"
                yield Violation(Invariant.DELETE_UNDER_BRAKE, objects, event.at, evidence)


def _caps(case: OrderCase) -> Iterator[Finding]:
    """The limits of the policy; evictors learn of one another's deletes by outcomes, a moment later."""
    in_force = case.history.in_force
    if in_force.victims_per_order is not None:
        by_order = Counter(order.described for _, _, order in case.deletes if order is not None)
        for name, count in by_order.items():
            if count > in_force.victims_per_order:
                yield Violation(Invariant.CAP_EXCEEDED, (name,), case.now, f"it took {count} pods")
    if in_force.victims_per_minute is None:
        return
    most = ROUGHLY * in_force.victims_per_minute
    times = sorted(event.at for event, _, _ in case.deletes)
    first = 0
    for last, at in enumerate(times):
        while times[first] <= at - MINUTE:
            first += 1
        if last - first + 1 > most:
            evidence = f"{last - first + 1} pods in the minute before"
            yield Violation(Invariant.CAP_EXCEEDED, ("all orders",), at, evidence)
            return


def _protected(case: OrderCase, pod: PodHistory, moment: datetime, *, of_quota: bool) -> str:
    """Why a pod may not be a victim; empty where it may. A quota's mirror pods have a rule of their own."""
    in_force, shown = case.history.in_force, pod.at(moment)
    if _among(pod.namespace, in_force.protected_namespaces):
        return f"namespace {pod.namespace} is protected"
    if pod.mirror and not of_quota:
        return "it is a mirror pod"
    if shown is not None and shown.never_evict and _among(pod.namespace, in_force.never_evict_namespaces):
        return "it has the annotation never-evict"
    return ""


def _among(namespace: str, listed: Collection[str]) -> bool:
    return namespace in listed or "*" in listed
