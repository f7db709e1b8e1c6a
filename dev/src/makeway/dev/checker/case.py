"""A history made ready for the rules: who did what to which pod, under which orders, by when."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.epochs import Epochs
from makeway.dev.checker.findings import Invariant, PendingPod, Violation
from makeway.dev.checker.history import RecordedHistory
from makeway.dev.checker.orders import OrderHistory, Orders
from makeway.dev.checker.outages import Outages, scheduler_silences
from makeway.dev.checker.pods import Pods

Finding = Violation | PendingPod


class OrderCase:
    """What every rule is given. `now`: how far the history reaches."""

    def __init__(self, history: RecordedHistory, now: datetime) -> None:
        self.history = history
        self.accounts = history.accounts
        self.now = now
        self.pods = Pods(history.requests)
        self.orders = Orders(history.streams)
        silences = scheduler_silences(history.requests, history.accounts.scheduler, now)
        self.outages = Outages([*history.outages, *silences])
        self.epochs = Epochs(history.requests)

    @cached_property
    def evictor_writes(self) -> list[AuditEvent]:
        """The evictor's accepted writes of pods."""
        return [
            event
            for event in self.history.requests
            if event.user == self.accounts.evictor
            and event.resource == "pods"
            and event.accepted
            and event.verb in ("create", "update", "patch", "delete", "deletecollection")
        ]

    @cached_property
    def deletes(self) -> list[tuple[AuditEvent, str, OrderHistory | None]]:
        """The evictor's accepted deletes, each with the pod's UID and the order that it carries out.

        That is the last one that names the pod and was committed before; None where there is none.
        """
        found = []
        for event in self.evictor_writes:
            if event.removes_pod:
                uid = uid_of(event)
                before = [order for order in self.orders.of_victim(uid) if order.committed_at < event.at]
                found.append((event, uid, before[-1] if before else None))
        return found

    def overdue(self, rule: Invariant, objects: tuple[str, ...], due: datetime, evidence: str) -> Finding:
        """A promise not kept: broken where its time is up, else pending."""
        if due < self.now:
            return Violation(rule, objects, due, evidence)
        return PendingPod(rule, objects, due)


def uid_of(event: AuditEvent) -> str:
    """The UID of the pod that an accepted request changed, from the object in its answer.

    The answer to an eviction holds no pod, but it is not accepted unless its precondition holds.
    """
    if event.subresource == "eviction":
        return event.precondition_uid
    return str(((event.response or {}).get("metadata") or {}).get("uid", ""))


def described(event: AuditEvent) -> str:
    """The pod of a request, for people."""
    return f"pod {event.namespace}/{event.name} ({uid_of(event)})"
