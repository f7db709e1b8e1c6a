"""Rules about the form of a write: which conditions it is sent with, and what it may touch."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from makeway.core.k8s.disruption import PREEMPTION_HELD
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import Finding, OrderCase, described
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.pods import MARK_TYPE

_WRITES = ("create", "update", "patch")
"""Deletes are judged by who sends them."""

_CONFLICTS = 2
"""After so many a delete may name the UID alone."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """Deletes are of the pod as it was judged, with its own grace; patches of two fields of its status."""
    for event, uid, _ in case.deletes:
        by_uid = event.precondition_uid and not event.precondition_revision
        if by_uid and _conflicts_before(case, event) < _CONFLICTS:
            yield Violation(Invariant.DELETE_WITHOUT_REVISION, (described(event),), event.at, "no revision")
        asked = event.delete_options.get("gracePeriodSeconds")
        pod = case.pods.get(uid)
        own = 30 if pod is None or pod.grace_period_seconds is None else pod.grace_period_seconds
        if asked is not None and asked < own:
            evidence = f"{asked} s in place of {own} s"
            yield Violation(Invariant.GRACE_SHORTENED, (described(event),), event.at, evidence)
    for event in case.history.requests:
        if event.resource != "pods" or not event.accepted or event.verb not in _WRITES:
            continue
        if event.user == case.accounts.planner and not event.removes_pod:
            yield _beyond(event, f"{event.verb} by the planner")
        if event.user == case.accounts.evictor and not event.removes_pod:
            if event.verb != "patch" or event.subresource != "status":
                yield _beyond(event, f"{event.verb} {event.subresource}")
            elif extra := _extra(event.request or {}):
                yield _beyond(event, f"it writes {', '.join(extra)}")
        if event.user == case.accounts.nominator:
            if event.verb != "patch" or event.subresource != "status":
                yield _beyond(event, f"{event.verb} {event.subresource}")
            elif extra := _not_a_nomination(event.request or {}):
                yield _beyond(event, f"it writes {', '.join(extra)}")


def _conflicts_before(case: OrderCase, delete: AuditEvent) -> int:
    """Count the evictor's writes to a pod that met a conflict before its delete."""
    return sum(
        one.code == HTTPStatus.CONFLICT and one.answered_at <= delete.at and one.user == delete.user
        for one in case.history.requests
        if (one.resource, one.namespace, one.name) == ("pods", delete.namespace, delete.name)
    )


def _beyond(event: AuditEvent, evidence: str) -> Violation:
    return Violation(Invariant.WRITE_BEYOND, (described(event),), event.at, evidence)


def _not_a_nomination(body: dict[str, Any]) -> list[str]:
    """Return what a nominator's patch of a status has in it besides a nomination, and what names the pod."""
    status = body.get("status") or {}
    others = [name for name in _extra({**body, "status": {}}) if name]
    return [*others, *(f"status.{name}" for name in status if name != "nominatedNodeName")]


def _extra(body: dict[str, Any]) -> list[str]:
    """What a patch has in it besides the mark, what holds an order, a nomination, and what names the pod."""
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    return [
        *(name for name in body if name not in ("metadata", "status", "kind", "apiVersion")),
        *(f"metadata.{name}" for name in metadata if name not in ("uid", "resourceVersion")),
        *(f"status.{name}" for name in status if name not in ("conditions", "nominatedNodeName")),
        *(
            f"condition {condition.get('type')}"
            for condition in status.get("conditions") or ()
            if condition.get("type") not in (MARK_TYPE, PREEMPTION_HELD)
        ),
        *(["a nomination"] if status.get("nominatedNodeName") else []),
    ]
