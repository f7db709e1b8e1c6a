"""Violations seeded into the recording of a real run: each falsifies one thing in what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from makeway.bus.decisions import RankedCandidate
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.subjects import Subjects
from makeway.core.comparison import LEAST_LOST_WORK
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import OrderCase
from makeway.dev.checker.history import RecordedHistory, StoredRecord, Streams
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import is_marked
from narrowing import there

Body = dict[str, Any]
M = TypeVar("M", EvictionOrder, Outcome)
LATER = timedelta(milliseconds=5)


@dataclass(frozen=True)
class Mutation:
    """One seeded violation. `rule`: what has to find it."""

    rule: str
    falsify: Callable[[Sample], RecordedHistory]


class Sample:
    """A clean history, and one preemption in it: an order of one victim that succeeded by a plain delete."""

    def __init__(self, history: RecordedHistory, now: datetime) -> None:
        self.history = history
        self.case = OrderCase(history, now)
        self.event, self.uid, self.order = next(
            (event, uid, order)
            for event, uid, order in self.case.deletes
            if order is not None and self._is_plain(event, uid, order)
        )
        self.outcome = there(self.order.outcome)

    def _is_plain(self, event: AuditEvent, uid: str, order: OrderHistory) -> bool:
        pod = self.case.pods[uid]
        preemptor = self.case.pods.get(order.preemptor_uid)
        return (
            event.subresource == ""
            and bool(pod.grace_period_seconds)
            and preemptor is not None
            and preemptor.leaving_at is None
            and len(preemptor.bindings) == 1
            and len(order.order.victims) == 1
            and order.outcome is not None
            and order.outcome.result == "succeeded"
            and len(self.case.orders.of_preemptor(order.preemptor_uid)) == 1
            and len(self.case.orders.of_victim(uid)) == 1
        )

    # ------------------------------------------------------------------------------------------- requests

    def the_delete(self, **changes: Any) -> RecordedHistory:
        """Change the delete."""
        return self.requests(lambda event: replace(event, **changes) if event is self.event else event)

    def requests(self, change: Callable[[AuditEvent], AuditEvent | None]) -> RecordedHistory:
        """Change every request, or leave some out."""
        changed = (change(event) for event in self.history.requests)
        return replace(self.history, requests=tuple(event for event in changed if event is not None))

    def with_request(self, like: AuditEvent, **changes: Any) -> RecordedHistory:
        """Add a request like another."""
        added = replace(like, **changes)
        events = sorted([*self.history.requests, added], key=lambda event: event.answered_at)
        return replace(self.history, requests=tuple(events))

    def pod(self, uid: str, change: Callable[[Body], object]) -> RecordedHistory:
        """Change a pod in every answer that shows it."""

        def changed(event: AuditEvent) -> AuditEvent:
            if ((event.response or {}).get("metadata") or {}).get("uid") != uid:
                return event
            body = deepcopy(event.response or {})
            change(body)
            return replace(event, response=body)

        return self.requests(changed)

    def mark(self) -> AuditEvent:
        """The evictor's mark of the victim."""
        return next(
            event
            for event in self.case.evictor_writes
            if event.verb == "patch" and event.name == self.event.name and is_marked(event.request["status"])  # type: ignore[index]
        )

    def marking(self, **changes: Any) -> RecordedHistory:
        """Change the mark."""
        mark = self.mark()
        return self.requests(lambda event: replace(event, **changes) if event is mark else event)

    def patching(self, status: Body, **more: Any) -> RecordedHistory:
        """Let the evictor patch something else right after its mark."""
        mark = self.mark()
        body = {"metadata": {"uid": self.uid, "resourceVersion": "1"}, "status": status, **more}
        return self.with_request(mark, at=mark.answered_at, answered_at=mark.answered_at, request=body)

    def bystander(self) -> AuditEvent:
        """The making of a pod that no order names."""
        named = {uid for uid, _ in self.case.orders.by_victim()} | {
            uid for uid, _ in self.case.orders.by_preemptor()
        }
        return next(
            event
            for event in self.history.requests
            if (event.verb, event.resource, event.subresource) == ("create", "pods", "")
            and event.accepted
            and _uid(event) not in named
            and event.namespace == self.event.namespace
        )

    def running(self) -> str:
        """A pod that no order names, and that ran while the victim was deleted."""
        moment = self.event.at
        named = {uid for uid, _ in self.case.orders.by_victim()}
        return next(
            pod.uid
            for pod in self.case.pods
            if pod.uid not in named
            and pod.namespace == self.event.namespace
            and pod.bound_by(moment - timedelta(seconds=2))
            and (pod.leaving_at is None or pod.leaving_at > moment)
            and (pod.gone_at is None or pod.gone_at > moment)
        )

    def unit_with(self, uid: str) -> RecordedHistory:
        """Let the victim and another pod be of a group that is evicted whole or not at all."""
        made = next(event for event in self.history.requests if event.resource == "pods" and event.accepted)
        metadata = {"namespace": self.event.namespace, "name": "falsified", "uid": "falsified"}
        group = {"metadata": metadata, "spec": {"disruptionMode": {"all": {}}}}
        history = self.with_request(
            made,
            verb="create",
            group="scheduling.k8s.io",
            resource="podgroups",
            subresource="",
            response=group,
        )

        def join(body: Body) -> None:
            body["spec"]["schedulingGroup"] = {"podGroupName": "falsified"}

        for one in (self.uid, uid):
            history = replace_history(self, history).pod(one, join)
        return history

    # -------------------------------------------------------------------------------------------- streams

    def orders(
        self, change: Callable[[EvictionOrder], EvictionOrder | None], **stored: Any
    ) -> RecordedHistory:
        """Change the order; `stored`: its place in the stream."""
        return self._streams("orders", self.order.order.order_id, change, stored)

    def outcomes(self, change: Callable[[Outcome], Outcome | None], **stored: Any) -> RecordedHistory:
        """Change its outcome."""
        return self._streams("outcomes", self.order.order.order_id, change, stored)

    def _streams(
        self, name: str, order_id: str, change: Callable[[Any], Any], stored: Body
    ) -> RecordedHistory:
        records = []
        for record in getattr(self.history.streams, name):
            if record.message.order_id != order_id:
                records.append(record)
            elif (message := change(record.message)) is not None:
                records.append(replace(record, message=message, **stored))
        return self._with(name, records)

    def adding(
        self, name: str, change: Callable[[M], M], after: timedelta = LATER, **stored: Any
    ) -> RecordedHistory:
        """Add a message like the order, or like its outcome, a little later."""
        records: list[StoredRecord[Any]] = list(getattr(self.history.streams, name))
        like = next(one for one in records if one.message.order_id == self.order.order.order_id)
        added = replace(like, message=change(like.message), at=like.at + after, **stored)
        return self._with(name, [*records, added])

    def _with(self, name: str, records: list[StoredRecord[Any]]) -> RecordedHistory:
        ordered = tuple(sorted(records, key=lambda one: one.at))
        streams: Streams = replace(self.history.streams, **{name: ordered})  # type: ignore[arg-type]
        return replace(self.history, streams=streams)

    def decided(self, *violations: int) -> RecordedHistory:
        """Let lost work decide between candidates with so many violated budgets, ever more of it lost."""
        victims = self.order.order.victims
        candidates = tuple(
            RankedCandidate(
                f"n{place}", victims, pdb_violations=many, decided_by=LEAST_LOST_WORK, lost_work_seconds=place
            )
            for place, many in enumerate(violations)
        )
        first, *others = self.history.streams.decisions
        return self._with(
            "decisions", [replace(first, message=_with(first.message, candidates=candidates)), *others]
        )

    def victim(self, **changes: Any) -> RecordedHistory:
        """Change the victim that the order names."""
        return self.orders(
            lambda order: _with(order, victims=tuple(_with(victim, **changes) for victim in order.victims))
        )

    def told(self, **changes: Any) -> RecordedHistory:
        """Change what the outcome tells of the victim."""
        return self.outcomes(
            lambda outcome: _with(
                outcome, victims=tuple(_with(victim, **changes) for victim in outcome.victims)
            )
        )

    def in_force(self, **changes: Any) -> RecordedHistory:
        """Change what was in force."""
        return replace(self.history, in_force=replace(self.history.in_force, **changes))

    def as_quota(self, change: Callable[[Body], object]) -> RecordedHistory:
        """Make it the order of a quota, of a pod that is changed."""
        queue = "root.falsified"
        as_quota = self.orders(lambda order: _with(order, kind="quota", preemptor=None, node="", queue=queue))
        sample = replace_history(self, as_quota)
        return sample.pod(self.uid, change)

    def failing(self, *, keep_mark: bool, keep_nomination: bool) -> RecordedHistory:
        """Let the order have failed before its delete, with what it should have undone left standing."""
        failed = self.outcomes(lambda outcome: _with(outcome, result="failed", victims=()))
        mark = self.mark()

        def without(event: AuditEvent) -> AuditEvent | None:
            shown = _uid(event)
            about = shown == self.uid or (event.name, event.namespace) == (
                self.event.name,
                self.event.namespace,
            )
            if about and event.at >= mark.at and not (event is mark and keep_mark):
                return None
            if event.name == self._preemptor_name and event.at > self.order.committed_at:
                return None
            if event.name == self._preemptor_name and event.subresource == "status" and not keep_nomination:
                return None
            return event

        return replace_history(self, failed).requests(without)

    @property
    def _preemptor_name(self) -> str:
        return there(self.order.order.preemptor).name


def replace_history(sample: Sample, history: RecordedHistory) -> Sample:
    """The same preemption in a changed history."""
    other = object.__new__(Sample)
    other.__dict__ = {**sample.__dict__, "history": history}
    return other


def _with(message: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(message, **changes)


def _uid(event: AuditEvent) -> str:
    return str(((event.response or {}).get("metadata") or {}).get("uid", ""))


def _annotate(name: str) -> Callable[[Body], object]:
    return lambda pod: pod["metadata"].setdefault("annotations", {}).update({name: "true"})


def _daemon(pod: Body) -> None:
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True, "name": "d", "uid": "d"}
    ]


def _priority(value: int) -> Callable[[Body], object]:
    return lambda pod: pod["spec"].update(priority=value)


def _preconditions(**named: str) -> Body:
    return {"preconditions": named} if named else {}


def _fence(sample: Sample, **changes: Any) -> RecordedHistory:
    return sample.orders(lambda order: _with(order, fence=_with(order.fence, **changes)))


def _another(**changes: Any) -> Callable[[Any], Any]:
    return lambda message: _with(message, order_id="ord-falsified", **changes)


def _rival(order: EvictionOrder) -> EvictionOrder:
    assert order.preemptor is not None
    return _another(preemptor=_with(order.preemptor, uid="falsified"))(order)  # type: ignore[no-any-return]


def _bound_again(sample: Sample) -> RecordedHistory:
    preemptor = sample.case.pods[sample.order.preemptor_uid]
    binding = next(
        event
        for event in sample.history.requests
        if event.subresource == "binding" and event.name == preemptor.name
    )
    later = binding.answered_at + LATER
    return sample.with_request(binding, at=later, answered_at=later)


def _cleared_bystander(sample: Sample) -> RecordedHistory:
    made = sample.bystander()
    body = {"metadata": {"uid": _uid(made)}, "status": {"nominatedNodeName": None}}
    return _written(sample, made, body)


def _marked_bystander(sample: Sample) -> RecordedHistory:
    made = sample.bystander()
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    body = {"metadata": {"uid": _uid(made)}, "status": {"conditions": [mark]}}
    return _written(sample, made, body)


def _written(sample: Sample, made: AuditEvent, body: Body) -> RecordedHistory:
    later = made.answered_at + LATER
    user = sample.case.accounts.evictor
    return sample.with_request(
        made, verb="patch", subresource="status", user=user, at=later, answered_at=later, request=body
    )


def _deleted_bystander(sample: Sample) -> RecordedHistory:
    made = sample.bystander()
    later = made.answered_at + LATER
    request = _preconditions(uid=_uid(made), resourceVersion="1")
    return sample.with_request(
        made, verb="delete", user=sample.case.accounts.evictor, at=later, answered_at=later, request=request
    )


def _untried(sample: Sample) -> RecordedHistory:
    """After its order has failed, nothing is heard of the preemptor any more."""
    history = sample.failing(keep_mark=False, keep_nomination=False)
    uid = sample.order.preemptor_uid

    def about(event: AuditEvent) -> bool:
        body = event.request or {}
        return bool((body.get("regarding") or body.get("involvedObject") or {}).get("uid") == uid)

    decisions = tuple(
        stored
        for stored in history.streams.decisions
        if stored.message.preemptor is None or stored.message.preemptor.uid != uid
    )
    return replace(
        replace_history(sample, history).requests(lambda event: None if about(event) else event),
        streams=replace(history.streams, decisions=decisions),
    )


def _never_heard_of_preemptor(sample: Sample) -> RecordedHistory:
    uid, named = sample.order.preemptor_uid, sample.order.order.preemptor
    assert named is not None
    return sample.requests(lambda event: None if _uid(event) == uid or event.name == named.name else event)


_BY_RULE: dict[str, dict[str, Callable[[Sample], RecordedHistory]]] = {
    "delete-without-precondition": {
        "a delete without preconditions": lambda s: s.the_delete(request={}),
        "a delete on condition of another UID": lambda s: s.the_delete(
            request=_preconditions(uid="falsified", resourceVersion="1")
        ),
    },
    "delete-without-revision": {
        "a delete without the revision": lambda s: s.the_delete(request=_preconditions(uid=s.uid)),
    },
    "grace-shortened": {
        "a delete that shortens the grace": lambda s: s.the_delete(
            request={**_preconditions(uid=s.uid, resourceVersion="1"), "gracePeriodSeconds": 0}
        ),
    },
    "delete-by-another": {
        "a delete by the planner": lambda s: s.the_delete(user=s.case.accounts.planner),
        "a deletion of a collection": lambda s: s.the_delete(verb="deletecollection"),
    },
    "outcome-untrue": {
        "a delete that the log shows as the planner's, and whose outcome calls it the evictor's": lambda s: (
            s.the_delete(user=s.case.accounts.planner)
        ),
        "an outcome that calls a deleted victim spared": lambda s: s.told(result="spared"),
    },
    "delete-not-ordered": {
        "a delete of a pod of no order": _deleted_bystander,
        "an order for the victim's namesake": lambda s: s.victim(uid="falsified"),
        "an order that was never stored": lambda s: s.orders(lambda order: None),
    },
    "deleted-twice": {
        "a victim deleted twice": lambda s: s.with_request(
            s.event, at=s.event.at + LATER, answered_at=s.event.answered_at + LATER
        ),
    },
    "victim-not-lower": {
        "a victim of the same priority": lambda s: s.pod(
            s.uid, _priority(s.case.pods[s.order.preemptor_uid].priority)
        ),
    },
    "victim-unknown": {"a preemptor that the API never showed": _never_heard_of_preemptor},
    "preemptor-may-not": {
        "a preemptor that may not preempt": lambda s: s.pod(
            s.order.preemptor_uid, lambda pod: pod["spec"].update(preemptionPolicy="Never")
        ),
        "a nominator's order for a pod that its scheduler preempts for": lambda s: s.orders(
            lambda order: _with(order, writer="makeway/nominator/n1")
        ),
    },
    "victim-protected": {
        "a victim in a protected namespace": lambda s: s.in_force(
            protected_namespaces=frozenset({s.event.namespace})
        ),
        "a mirror pod as a victim": lambda s: s.pod(s.uid, _annotate("kubernetes.io/config.mirror")),
    },
    "victim-elsewhere": {
        "a victim on another node": lambda s: s.orders(lambda order: _with(order, node="falsified")),
    },
    "unit-broken": {"a part of a unit": lambda s: s.unit_with(s.running())},
    "budget-passed-by": {
        "a delete past a hard budget": lambda s: s.in_force(hard_namespaces=frozenset({s.event.namespace})),
    },
    "delete-under-brake": {
        "a delete under the brake": lambda s: s.in_force(
            brakes=((s.event.at - timedelta(seconds=5), s.event.at + timedelta(seconds=5)),)
        ),
    },
    "lost-work-unasked": {"lost work that the policy does not ask for": lambda s: s.decided(0)},
    "lost-work-first": {"lost work that counts before a budget": lambda s: s.decided(1, 0)},
    "cap-exceeded": {
        "an order of more victims than the policy allows": lambda s: s.in_force(victims_per_order=0),
    },
    "late-write": {
        "a late delete": lambda s: s.orders(
            lambda order: _with(order, not_after=s.event.at - timedelta(seconds=3))
        ),
    },
    "fence-not-held": {
        "an epoch that had ended": lambda s: _fence(s, epoch=s.order.order.fence.epoch - 1),
        "the fence of another Lease": lambda s: _fence(s, name="falsified"),
    },
    "order-twice": {
        "an order stored twice": lambda s: s.adding("orders", lambda order: order),
    },
    "two-live-orders": {"two live orders of a preemptor": lambda s: s.adding("orders", _another())},
    "victim-in-two-orders": {"a victim of two live orders": lambda s: s.adding("orders", _rival)},
    "order-misrouted": {
        "an order on another preemptor's subject": lambda s: s.orders(
            lambda order: order, subject=Subjects().orders_of("pod", "falsified")
        ),
    },
    "order-of-another-cluster": {
        "an order of another cluster": lambda s: s.orders(
            lambda order: _with(order, cluster_uid="falsified")
        ),
    },
    "victim-of-quota": {
        "a quota that takes the pod of a DaemonSet": lambda s: s.as_quota(_daemon),
        "a quota that takes a system-critical pod": lambda s: s.as_quota(_priority(2_000_001_000)),
    },
    "no-outcome": {"an order without an outcome": lambda s: s.outcomes(lambda outcome: None)},
    "two-outcomes": {
        "a second outcome": lambda s: s.adding("outcomes", lambda outcome: _with(outcome, result="failed")),
    },
    "outcome-without-order": {
        "an outcome of no order": lambda s: s.adding("outcomes", _another()),
    },
    "outcome-before-rollback": {
        "an outcome before the mark is off": lambda s: s.failing(keep_mark=True, keep_nomination=False),
        "an outcome before the nomination is off": lambda s: s.failing(keep_mark=False, keep_nomination=True),
    },
    "mark-left": {"a mark that stays": lambda s: s.failing(keep_mark=True, keep_nomination=False)},
    "nomination-left": {
        "a nomination that stays": lambda s: s.failing(keep_mark=False, keep_nomination=True),
    },
    "preemptor-idle": {"a preemptor that is not tried again": _untried},
    "patch-without-uid": {
        "a mark without the UID": lambda s: s.marking(request={"status": (s.mark().request or {})["status"]}),
    },
    "mark-not-ordered": {"a mark on a pod of no order": _marked_bystander},
    "clear-not-ordered": {"a nomination cleared that no order names": _cleared_bystander},
    "write-beyond": {
        "a label written by the evictor": lambda s: s.marking(
            request={"metadata": {"uid": s.uid, "labels": {"falsified": "x"}}, "status": {}}
        ),
        "a nomination written by the evictor": lambda s: s.patching({"nominatedNodeName": "falsified"}),
        "a mark set by the planner": lambda s: s.marking(user=s.case.accounts.planner),
    },
    "bound-twice": {"a preemptor bound twice": _bound_again},
}

MUTATIONS = {
    name: Mutation(rule, falsify) for rule, named in _BY_RULE.items() for name, falsify in named.items()
}
"""Each has a name; the checker has to find it by its rule, among whatever else is wrong then."""
