"""Violations seeded into the recording of a real run: each falsifies one thing in what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from makeway.bus.decisions import RankedCandidate
from makeway.bus.messages import EvictionOrder, Outcome, VictimOutcome
from makeway.bus.subjects import Subjects
from makeway.core.comparison import LEAST_LOST_WORK
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import OrderCase
from makeway.dev.checker.history import RecordedHistory, StoredRecord, Streams
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import is_marked

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
        assert self.order.outcome is not None
        self.outcome = self.order.outcome

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
        assert self.order.order.preemptor is not None
        return self.order.order.preemptor.name


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


def _another(order_id: str = "ord-falsified", **changes: Any) -> Callable[[Any], Any]:
    return lambda message: _with(message, order_id=order_id, **changes)


def _rival(order: EvictionOrder) -> EvictionOrder:
    assert order.preemptor is not None
    return _another(preemptor=_with(order.preemptor, uid="falsified"))(order)  # type: ignore[no-any-return]


def _foreign(outcome: Outcome) -> Outcome:
    told = VictimOutcome(namespace="x", name="x", uid="falsified", result="gone")
    return _with(outcome, victims=(*outcome.victims, told))  # type: ignore[no-any-return]


def _eviction(sample: Sample) -> Body:
    return {"deleteOptions": _preconditions(uid=sample.uid, resourceVersion="1")}


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


MUTATIONS: dict[str, Mutation] = {
    "a delete without preconditions": Mutation(
        "delete-without-precondition", lambda sample: sample.the_delete(request={})
    ),
    "a delete with the revision alone": Mutation(
        "delete-without-precondition",
        lambda sample: sample.the_delete(request=_preconditions(resourceVersion="1")),
    ),
    "a delete on condition of another UID": Mutation(
        "delete-without-precondition",
        lambda sample: sample.the_delete(request=_preconditions(uid="falsified", resourceVersion="1")),
    ),
    "a delete without the revision": Mutation(
        "delete-without-revision", lambda sample: sample.the_delete(request=_preconditions(uid=sample.uid))
    ),
    "a delete that shortens the grace": Mutation(
        "grace-shortened",
        lambda sample: sample.the_delete(
            request={**_preconditions(uid=sample.uid, resourceVersion="1"), "gracePeriodSeconds": 0}
        ),
    ),
    "a delete by the planner": Mutation(
        "delete-by-another", lambda sample: sample.the_delete(user=sample.case.accounts.planner)
    ),
    "a delete by the scheduler": Mutation(
        "delete-by-another", lambda sample: sample.the_delete(user=sample.case.accounts.scheduler)
    ),
    "a deletion of a collection": Mutation(
        "delete-by-another", lambda sample: sample.the_delete(verb="deletecollection")
    ),
    "an eviction by the planner": Mutation(
        "delete-by-another",
        lambda sample: sample.the_delete(
            user=sample.case.accounts.planner,
            verb="create",
            subresource="eviction",
            request=_eviction(sample),
        ),
    ),
    "a delete that the log shows as the planner's, and whose outcome calls it the evictor's": Mutation(
        "outcome-untrue", lambda sample: sample.the_delete(user=sample.case.accounts.planner)
    ),
    "a delete of a pod of no order": Mutation("delete-not-ordered", _deleted_bystander),
    "a delete before its order": Mutation(
        "delete-not-ordered", lambda sample: sample.orders(lambda order: order, at=sample.event.at + LATER)
    ),
    "an order for the victim's namesake": Mutation(
        "delete-not-ordered", lambda sample: sample.victim(uid="falsified")
    ),
    "an order for a pod of that name elsewhere": Mutation(
        "delete-not-ordered", lambda sample: sample.victim(namespace="falsified")
    ),
    "an order for a pod of another name": Mutation(
        "delete-not-ordered", lambda sample: sample.victim(name="falsified")
    ),
    "an order without the victim": Mutation(
        "delete-not-ordered", lambda sample: sample.orders(lambda order: _with(order, victims=()))
    ),
    "an order that was never stored": Mutation(
        "delete-not-ordered", lambda sample: sample.orders(lambda order: None)
    ),
    "a victim deleted twice": Mutation(
        "deleted-twice",
        lambda sample: sample.with_request(
            sample.event, at=sample.event.at + LATER, answered_at=sample.event.answered_at + LATER
        ),
    ),
    "a victim of higher priority": Mutation(
        "victim-not-lower", lambda sample: sample.pod(sample.uid, _priority(1_999_999_999))
    ),
    "a victim of the same priority": Mutation(
        "victim-not-lower",
        lambda sample: sample.pod(
            sample.uid, _priority(sample.case.pods[sample.order.preemptor_uid].priority)
        ),
    ),
    "a preemptor of the lowest priority": Mutation(
        "victim-not-lower", lambda sample: sample.pod(sample.order.preemptor_uid, _priority(-(2**31)))
    ),
    "a preemptor that the API never showed": Mutation("victim-unknown", _never_heard_of_preemptor),
    "a preemptor that may not preempt": Mutation(
        "preemptor-may-not",
        lambda sample: sample.pod(
            sample.order.preemptor_uid, lambda pod: pod["spec"].update(preemptionPolicy="Never")
        ),
    ),
    "a nominator's order for a pod that its scheduler preempts for": Mutation(
        "preemptor-may-not",
        lambda sample: sample.orders(lambda order: _with(order, writer="makeway/nominator/n1")),
    ),
    "a victim in a protected namespace": Mutation(
        "victim-protected",
        lambda sample: sample.in_force(protected_namespaces=frozenset({sample.event.namespace})),
    ),
    "a victim that opted out": Mutation(
        "victim-protected",
        lambda sample: replace_history(sample, sample.in_force(never_evict_namespaces=frozenset({"*"}))).pod(
            sample.uid, _annotate("makeway.dev/never-evict")
        ),
    ),
    "a mirror pod as a victim": Mutation(
        "victim-protected",
        lambda sample: sample.pod(sample.uid, _annotate("kubernetes.io/config.mirror")),
    ),
    "a victim on another node": Mutation(
        "victim-elsewhere", lambda sample: sample.orders(lambda order: _with(order, node="falsified"))
    ),
    "a part of a unit": Mutation("unit-broken", lambda sample: sample.unit_with(sample.running())),
    "a delete past a hard budget": Mutation(
        "budget-passed-by",
        lambda sample: sample.in_force(hard_namespaces=frozenset({sample.event.namespace})),
    ),
    "a delete under the brake": Mutation(
        "delete-under-brake",
        lambda sample: sample.in_force(
            brakes=((sample.event.at - timedelta(seconds=5), sample.event.at + timedelta(seconds=5)),)
        ),
    ),
    "lost work that the policy does not ask for": Mutation(
        "lost-work-unasked", lambda sample: sample.decided(0)
    ),
    "lost work that counts before a budget": Mutation("lost-work-first", lambda sample: sample.decided(1, 0)),
    "an order of more victims than the policy allows": Mutation(
        "cap-exceeded", lambda sample: sample.in_force(victims_per_order=0)
    ),
    "more victims in a minute than the policy allows": Mutation(
        "cap-exceeded", lambda sample: sample.in_force(victims_per_minute=2)
    ),
    "a late delete": Mutation(
        "late-write",
        lambda sample: sample.orders(
            lambda order: _with(order, not_after=sample.event.at - timedelta(seconds=3))
        ),
    ),
    "a late mark": Mutation(
        "late-write",
        lambda sample: sample.orders(
            lambda order: _with(order, not_after=sample.mark().at - timedelta(seconds=2.1))
        ),
    ),
    "an epoch that had ended": Mutation(
        "fence-not-held", lambda sample: _fence(sample, epoch=sample.order.order.fence.epoch - 1)
    ),
    "an epoch from the future": Mutation(
        "fence-not-held", lambda sample: _fence(sample, epoch=sample.order.order.fence.epoch + 1000)
    ),
    "the fence of another Lease": Mutation("fence-not-held", lambda sample: _fence(sample, name="falsified")),
    "the fence of a Lease elsewhere": Mutation(
        "fence-not-held", lambda sample: _fence(sample, namespace="falsified")
    ),
    "an order stored twice": Mutation(
        "order-twice", lambda sample: sample.adding("orders", lambda order: order)
    ),
    "an order stored again with other victims": Mutation(
        "order-twice",
        lambda sample: sample.adding("orders", lambda order: _with(order, victims=())),
    ),
    "two live orders of a preemptor": Mutation(
        "two-live-orders", lambda sample: sample.adding("orders", _another())
    ),
    "a victim of two live orders": Mutation(
        "victim-in-two-orders", lambda sample: sample.adding("orders", _rival)
    ),
    "an order on another preemptor's subject": Mutation(
        "order-misrouted",
        lambda sample: sample.orders(lambda order: order, subject=Subjects().pod_order("falsified")),
    ),
    "an order of another cluster": Mutation(
        "order-of-another-cluster",
        lambda sample: sample.orders(lambda order: _with(order, cluster_uid="falsified")),
    ),
    "a quota that takes the pod of a DaemonSet": Mutation(
        "victim-of-quota", lambda sample: sample.as_quota(_daemon)
    ),
    "a quota that takes a mirror pod": Mutation(
        "victim-of-quota", lambda sample: sample.as_quota(_annotate("kubernetes.io/config.mirror"))
    ),
    "a quota that takes a system-critical pod": Mutation(
        "victim-of-quota", lambda sample: sample.as_quota(_priority(2_000_001_000))
    ),
    "an order without an outcome": Mutation(
        "no-outcome", lambda sample: sample.outcomes(lambda outcome: None)
    ),
    "a second outcome": Mutation(
        "two-outcomes",
        lambda sample: sample.adding("outcomes", lambda outcome: _with(outcome, result="failed")),
    ),
    "an outcome of no order": Mutation(
        "outcome-without-order", lambda sample: sample.adding("outcomes", _another())
    ),
    "an outcome before its order": Mutation(
        "outcome-without-order",
        lambda sample: sample.outcomes(
            lambda outcome: outcome, at=sample.order.committed_at - timedelta(seconds=1)
        ),
    ),
    "an outcome that tells of a delete that was not": Mutation(
        "outcome-untrue",
        lambda sample: sample.requests(lambda event: None if event is sample.event else event),
    ),
    "an outcome that is silent on its victim": Mutation(
        "outcome-untrue", lambda sample: sample.outcomes(lambda outcome: _with(outcome, victims=()))
    ),
    "an outcome that tells of a foreign pod": Mutation(
        "outcome-untrue", lambda sample: sample.outcomes(_foreign)
    ),
    "an outcome that calls a deleted victim spared": Mutation(
        "outcome-untrue", lambda sample: sample.told(result="spared")
    ),
    "an outcome before the mark is off": Mutation(
        "outcome-before-rollback",
        lambda sample: sample.failing(keep_mark=True, keep_nomination=False),
    ),
    "an outcome before the nomination is off": Mutation(
        "outcome-before-rollback",
        lambda sample: sample.failing(keep_mark=False, keep_nomination=True),
    ),
    "a mark that stays": Mutation(
        "mark-left", lambda sample: sample.failing(keep_mark=True, keep_nomination=False)
    ),
    "a nomination that stays": Mutation(
        "nomination-left", lambda sample: sample.failing(keep_mark=False, keep_nomination=True)
    ),
    "a preemptor that is not tried again": Mutation("preemptor-idle", _untried),
    "a mark without the UID": Mutation(
        "patch-without-uid",
        lambda sample: sample.marking(request={"status": (sample.mark().request or {})["status"]}),
    ),
    "a mark on a pod of no order": Mutation("mark-not-ordered", _marked_bystander),
    "a nomination cleared that no order names": Mutation("clear-not-ordered", _cleared_bystander),
    "a label written by the evictor": Mutation(
        "write-beyond",
        lambda sample: sample.marking(
            request={"metadata": {"uid": sample.uid, "labels": {"falsified": "x"}}, "status": {}}
        ),
    ),
    "another condition written by the evictor": Mutation(
        "write-beyond",
        lambda sample: sample.patching({"conditions": [{"type": "Ready", "status": "False"}]}),
    ),
    "a pod's address written by the evictor": Mutation(
        "write-beyond", lambda sample: sample.patching({"podIP": "10.0.0.1"})
    ),
    "a pod's spec written by the evictor": Mutation(
        "write-beyond", lambda sample: sample.patching({}, spec={"activeDeadlineSeconds": 1})
    ),
    "a nomination written by the evictor": Mutation(
        "write-beyond", lambda sample: sample.patching({"nominatedNodeName": "falsified"})
    ),
    "a mark set by the planner": Mutation(
        "write-beyond", lambda sample: sample.marking(user=sample.case.accounts.planner)
    ),
    "a mark set by the nominator": Mutation(
        "write-beyond", lambda sample: sample.marking(user=sample.case.accounts.nominator)
    ),
    "a preemptor bound twice": Mutation("bound-twice", _bound_again),
}
"""Each has a name; the checker has to find it by its rule, among whatever else is wrong then."""
