"""Rules about who deletes which pod."""

from __future__ import annotations

from collections.abc import Iterator

from makeway.dev.checker.case import Case, Finding, described, uid_of
from makeway.dev.checker.findings import Rule, Violation


def rules(case: Case) -> Iterator[Finding]:
    """Every delete is by the evictor, conditional, ordered, the only one, and of a lower priority."""
    yield from _by_another(case)
    yield from _of_the_evictor(case)


def _by_another(case: Case) -> Iterator[Finding]:
    forbidden = {case.accounts.planner}
    if not case.history.fallback:
        forbidden.add(case.accounts.scheduler)
    for event in case.history.requests:
        if event.resource != "pods" or not event.accepted:
            continue
        deletes = event.verb in ("delete", "deletecollection") or event.subresource == "eviction"
        whole = event.user == case.accounts.evictor and (event.verb, event.subresource) != ("delete", "")
        if deletes and (event.user in forbidden or whole):
            yield Violation(
                Rule.DELETE_BY_ANOTHER,
                (described(event),),
                event.at,
                f"{event.verb} {event.subresource} by {event.user}",
            )


def _of_the_evictor(case: Case) -> Iterator[Finding]:
    deleted: dict[str, str] = {}
    for event in case.evictor_writes:
        if (event.verb, event.subresource) != ("delete", ""):
            continue
        uid, pod = uid_of(event), described(event)
        if event.precondition_uid != uid or not uid:
            yield Violation(
                Rule.DELETE_WITHOUT_PRECONDITION,
                (pod,),
                event.at,
                f"precondition {event.precondition_uid or 'none'}, deleted {uid or 'an unknown pod'}",
            )
        if uid in deleted:
            yield Violation(Rule.DELETED_TWICE, (pod,), event.at, f"deleted at {deleted[uid]} already")
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
                Rule.DELETE_NOT_ORDERED,
                (pod,),
                event.at,
                f"no order before names it; later or other: {later}",
            )
            continue
        yield from _priorities(case, uid, orders[-1].preemptor_uid, pod, event.at.isoformat())


def _priorities(case: Case, uid: str, preemptor_uid: str, pod: str, when: str) -> Iterator[Finding]:
    """The victim's priority against the preemptor's, both as the API server showed them."""
    if not preemptor_uid:
        return
    victim, preemptor = case.pods[uid], case.pods.get(preemptor_uid)
    if preemptor is None or not victim.versions:
        yield Violation(
            Rule.VICTIM_UNKNOWN, (pod,), case.now, f"the API never showed its preemptor {preemptor_uid}"
        )
    elif victim.priority >= preemptor.priority:
        yield Violation(
            Rule.VICTIM_NOT_LOWER,
            (pod, preemptor.described),
            victim.leaving_at or case.now,
            f"deleted at {when} with priority {victim.priority} for {preemptor.priority}",
        )
