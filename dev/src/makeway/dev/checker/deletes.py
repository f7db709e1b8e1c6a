"""Rules about who deletes which pod."""

from __future__ import annotations

from collections.abc import Iterator

from makeway.core.policy.rules import RECLAIM
from makeway.dev.checker.case import Finding, OrderCase, described, uid_of
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import PodHistory

_SYSTEM_CRITICAL = 2_000_000_000


def rules(case: OrderCase) -> Iterator[Finding]:
    """Every delete is by the evictor, conditional, ordered, the only one, and of a lower priority."""
    yield from _by_another(case)
    yield from _of_the_evictor(case)


def _by_another(case: OrderCase) -> Iterator[Finding]:
    forbidden = {case.accounts.planner}
    if not case.history.fallback:
        forbidden.add(case.accounts.scheduler)
    for event in case.history.requests:
        if event.resource != "pods" or not event.accepted:
            continue
        deletes = event.verb in ("delete", "deletecollection") or event.subresource == "eviction"
        whole = event.user == case.accounts.evictor and not event.removes_pod
        if deletes and (event.user in forbidden or whole):
            yield Violation(
                Invariant.DELETE_BY_ANOTHER,
                (described(event),),
                event.at,
                f"{event.verb} {event.subresource} by {event.user}",
            )


def _of_the_evictor(case: OrderCase) -> Iterator[Finding]:
    deleted: dict[str, str] = {}
    for event in case.evictor_writes:
        if not event.removes_pod:
            continue
        uid, pod = uid_of(event), described(event)
        if event.precondition_uid != uid or not uid:
            yield Violation(
                Invariant.DELETE_WITHOUT_PRECONDITION,
                (pod,),
                event.at,
                f"precondition {event.precondition_uid or 'none'}, deleted {uid or 'an unknown pod'}",
            )
        if uid in deleted:
            yield Violation(Invariant.DELETED_TWICE, (pod,), event.at, f"deleted at {deleted[uid]} already")
        deleted.setdefault(uid, event.at.isoformat())
        orders = [
            order
            for order in case.orders.of_victim(uid)
            if order.committed_at < event.at
            and any(
                (victim.namespace, victim.name, victim.uid) == (event.namespace, event.name, uid)
                for victim in order.order.victims
            )
        ]
        if not orders:
            later = ", ".join(order.described for order in case.orders.of_victim(uid)) or "none at all"
            yield Violation(
                Invariant.DELETE_NOT_ORDERED,
                (pod,),
                event.at,
                f"no order before names it; later or other: {later}",
            )
            continue
        if orders[-1].order.kind == "quota":
            yield from _of_quota(case, uid, pod)
        yield from _importance(case, uid, orders[-1], pod, event.at.isoformat())


def _importance(case: OrderCase, uid: str, order: OrderHistory, pod: str, when: str) -> Iterator[Finding]:
    """The victim against the preemptor, both as the API server showed them. For groups see `gangs`."""
    preemptor_uid = order.preemptor_uid
    if not preemptor_uid or order.order.kind == "group":
        return
    victim, preemptor = case.pods[uid], case.pods.get(preemptor_uid)
    if preemptor is None or not victim.versions:
        yield Violation(
            Invariant.VICTIM_UNKNOWN, (pod,), case.now, f"the API never showed its preemptor {preemptor_uid}"
        )
        return
    objects, at = (pod, preemptor.described), victim.leaving_at or case.now
    listed = case.history.in_force.daemonset_namespaces
    equal = (
        case.history.simple_preemptor
        and (preemptor.namespace in listed or "*" in listed)
        and _may_take_equals(victim, preemptor, order.order.node)
    )
    rule = next(named.rule for named in order.order.victims if named.uid == uid)
    equal |= may_reclaim(case, victim, rule)
    if victim.priority > preemptor.priority or (victim.priority == preemptor.priority and not equal):
        evidence = f"deleted at {when} with priority {victim.priority} for {preemptor.priority}"
        yield Violation(Invariant.VICTIM_NOT_LOWER, objects, at, evidence)
    if victim.daemon and rule.startswith("daemonset-"):
        yield Violation(Invariant.VICTIM_OF_DAEMONSET, objects, at, f"deleted at {when} by rule {rule}")


def _may_take_equals(victim: PodHistory, preemptor: PodHistory, node: str) -> bool:
    """Whether the simple preemptor may take a pod of the preemptor's own priority on an order's node."""
    return preemptor.pinned_to == node and _is_ordinary(victim)


def may_reclaim(case: OrderCase, victim: PodHistory, rule: str) -> bool:
    """Whether a pod of equal priority may be evicted by the rule that its order names for it."""
    return case.history.in_force.reclaims and rule == RECLAIM and _is_ordinary(victim)


def _is_ordinary(victim: PodHistory) -> bool:
    """Whether a pod may make room for one of its own priority at all."""
    return not victim.daemon and victim.priority < _SYSTEM_CRITICAL


def _of_quota(case: OrderCase, uid: str, pod: str) -> Iterator[Finding]:
    """What a quota's victim may never be, as the API server showed it."""
    victim = case.pods[uid]
    kinds = {
        "of a DaemonSet": victim.daemon,
        "a mirror pod": victim.mirror,
        "system-critical": victim.priority >= _SYSTEM_CRITICAL,
    }
    for kind, is_one in kinds.items():
        if is_one:
            yield Violation(Invariant.VICTIM_OF_QUOTA, (pod,), victim.leaving_at or case.now, f"it is {kind}")
