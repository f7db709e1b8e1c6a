"""A correct history of the cluster, built step by step, that tests of the checker then falsify.

Times are seconds since BEGIN. The scheduler renews its Lease all the time.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec

from builders_bus import make_group, make_order, make_outcome, make_preemptor, make_victim
from makeway.bus.messages import EvictionOrder, NominationToClear, Outcome, Placement
from makeway.bus.subjects import Subjects
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.check import check
from makeway.dev.checker.findings import Findings
from makeway.dev.checker.history import Accounts, InForce, RecordedHistory, StoredRecord, Streams

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ACCOUNTS = Accounts()
EVICTOR, SCHEDULER = ACCOUNTS.evictor, ACCOUNTS.scheduler
KUBELET, ADMIN = "makeway-dev-kwok", "makeway-dev-admin"
NODE = "node-1"

Body = dict[str, Any]
Call = tuple[str, str, str]
"""Verb, subresource, name."""


def at(seconds: float) -> datetime:
    """A moment of the history."""
    return BEGIN + timedelta(seconds=seconds)


def order_of(
    number: int = 1, *, victims: tuple[str, ...] = ("victim",), rule: str = "lower-priority"
) -> EvictionOrder:
    """An order made at second 2 that may be carried out until second 62."""
    of_shop = {"namespace": "shop", "grace_period_seconds": 1, "rule": rule}
    return make_order(
        order_id=f"ord-{number}",
        preemptor=make_preemptor("uid-urgent", namespace="shop", name="urgent"),
        victims=tuple(make_victim(name, **of_shop) for name in victims),
        created_at=at(2),
        not_after=at(62),
        node=NODE,
    )


def quota_order_of(number: int = 1, *victims: str, queue: str = "root.shop") -> EvictionOrder:
    """A quota order made at second 2."""
    order = order_of(number, victims=victims or ("victim",))
    return msgspec.structs.replace(order, kind="quota", preemptor=None, node="", node_uid="", queue=queue)


@dataclass
class Recording:
    """What was recorded so far. Methods append; `report` judges."""

    requests: list[AuditEvent] = field(default_factory=list)
    orders: list[StoredRecord[EvictionOrder]] = field(default_factory=list)
    outcomes: list[StoredRecord[Outcome]] = field(default_factory=list)
    outages: list[tuple[datetime, datetime]] = field(default_factory=list)
    simple_preemptor: bool = False
    in_force: InForce = field(default_factory=InForce)
    _objects: dict[str, Body] = field(default_factory=dict)
    _revision: int = 100

    # ------------------------------------------------------------------------------------- requests

    def pod(
        self,
        name: str,
        seconds: float,
        *,
        priority: int,
        node: str = "",
        uid: str = "",
        daemon: bool = False,
        only_on: str = "",
        group: str = "",
        **metadata: Any,
    ) -> Self:
        """A user creates a pod; `daemon`: a DaemonSet does, and `only_on` is the node it is for.

        `group`: the PodGroup that it names.
        """
        body: Body = {
            "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "uid": uid or f"uid-{name}", **metadata},
            "spec": {"priority": priority, **({"nodeName": node} if node else {})},
            "status": {},
        }
        if group:
            body["spec"]["schedulingGroup"] = {"podGroupName": group}
        if daemon:
            body["metadata"]["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
            ]
        if only_on:
            field = {"key": "metadata.name", "operator": "In", "values": [only_on]}
            terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            body["spec"]["affinity"] = {"nodeAffinity": affinity}
        self._objects[name] = body
        return self._add(seconds, ADMIN, ("create", "", name), {}, body)

    def group(self, name: str, seconds: float, *, priority: int, min_count: int) -> Self:
        """A user creates a PodGroup, or changes it."""
        body: Body = {
            "kind": "PodGroup",
            "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}"},
            "spec": {"priority": priority, "schedulingPolicy": {"gang": {"minCount": min_count}}},
        }
        event = self._event(seconds, ADMIN, ("update", "", name), {}, body)
        self.requests.append(replace(event, resource="podgroups", group="scheduling.k8s.io"))
        return self

    def node(self, name: str, seconds: float, **labels: str) -> Self:
        """A user creates a node, or changes its labels: `rack="a"` is example.com/rack=a."""
        shown = {f"example.com/{key}": value for key, value in labels.items()}
        body: Body = {"kind": "Node", "metadata": {"name": name, "labels": shown}}
        event = self._event(seconds, ADMIN, ("update", "", name), {}, body)
        self.requests.append(replace(event, resource="nodes", namespace=""))
        return self

    def read(self, seconds: float, *names: str) -> Self:
        """The evictor reads pods."""
        for name in names:
            self._add(seconds, EVICTOR, ("get", "", name), {}, None)
        return self

    def tried(self, seconds: float, *names: str) -> Self:
        """The evictor asks for deletions without effect."""
        for name in names:
            event = self._event(seconds, EVICTOR, ("delete", "", name), {}, None)
            self.requests.append(replace(event, dry_run=True))
        return self

    def patch(self, name: str, seconds: float, user: str, status: Body, *, uid: str | None = None) -> Self:
        """Somebody patches a pod's status; `uid`: what the patch names, the pod's own unless given."""
        body = self._objects[name]
        named = body["metadata"]["uid"] if uid is None else uid
        body = self._objects[name] = {**body, "status": {**body["status"], **status}}
        request = {"metadata": {"uid": named} if named else {}, "status": status}
        return self._add(seconds, user, ("patch", "status", name), request, body)

    def nominated(self, name: str, seconds: float, node: str = NODE) -> Self:
        """The scheduler nominates a pod."""
        return self.patch(name, seconds, SCHEDULER, {"nominatedNodeName": node})

    def cleared(self, name: str, seconds: float) -> Self:
        """The evictor takes a nomination back."""
        return self.patch(name, seconds, EVICTOR, {"nominatedNodeName": None})

    def marked(self, name: str, seconds: float, **named: str) -> Self:
        """The evictor sets its mark."""
        mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        return self.patch(name, seconds, EVICTOR, {"conditions": [mark]}, **named)

    def unmarked(self, name: str, seconds: float) -> Self:
        """The evictor takes its mark off."""
        return self.patch(name, seconds, EVICTOR, {"conditions": []})

    def deleted(self, name: str, seconds: float, user: str = EVICTOR) -> Self:
        """Somebody deletes a pod, which begins to leave."""
        body = self._objects[name]
        uid = body["metadata"]["uid"]
        metadata = {**body["metadata"], "deletionTimestamp": "2026-03-01T12:00:09Z"}
        metadata["deletionGracePeriodSeconds"] = 1
        body = self._objects[name] = {**body, "metadata": metadata}
        request = {"preconditions": {"uid": uid, "resourceVersion": "1"}}
        return self._add(seconds, user, ("delete", "", name), request, body)

    def removed(self, name: str, seconds: float) -> Self:
        """The kubelet says that a pod has ended."""
        body = self._objects[name]
        metadata = {**body["metadata"], "deletionGracePeriodSeconds": 0}
        return self._add(seconds, KUBELET, ("delete", "", name), {}, {**body, "metadata": metadata})

    def bound(self, name: str, seconds: float, node: str = NODE) -> Self:
        """The scheduler binds a pod."""
        request = {"metadata": {"uid": self._objects[name]["metadata"]["uid"]}, "target": {"name": node}}
        return self._add(seconds, SCHEDULER, ("create", "binding", name), request, None)

    def failed_scheduling(self, name: str, seconds: float) -> Self:
        """The scheduler says in an Event that a pod does not fit."""
        request = {"regarding": {"uid": self._objects[name]["metadata"]["uid"]}}
        event = self._event(seconds, SCHEDULER, ("create", "", f"{name}.1"), request, None)
        self.requests.append(replace(event, resource="events"))
        return self

    # -------------------------------------------------------------------------------------- streams

    def ordered(self, order: EvictionOrder, seconds: float = 2.0) -> Self:
        """An order is committed."""
        subject = Subjects().order(order)
        self.orders.append(StoredRecord(len(self.orders) + 1, at(seconds), subject, order))
        return self

    def ended(self, order: EvictionOrder, seconds: float, **changes: Any) -> Self:
        """An outcome is stored; one that is no success tells of no victim, unless told otherwise."""
        if changes.get("result", "succeeded") != "succeeded":
            changes.setdefault("victims", ())
        outcome = make_outcome(order, **changes)
        subject = f"makeway.v1.outcomes.{order.order_id}"
        self.outcomes.append(StoredRecord(len(self.outcomes) + 1, at(seconds), subject, outcome))
        return self

    # --------------------------------------------------------------------------------------- judging

    def report(self, seconds: float = 200.0, *, fallback: bool = False) -> Findings:
        """Judge the history as it stands at a moment."""
        renewals = [
            replace(self._event(second / 2, SCHEDULER, ("update", "", "lease"), {}, None), resource="leases")
            for second in range(int(2 * seconds))
        ]
        requests = sorted([*self.requests, *renewals], key=lambda event: event.answered_at)
        streams = Streams(
            tuple(sorted(self.orders, key=lambda stored: stored.at)),
            tuple(sorted(self.outcomes, key=lambda stored: stored.at)),
        )
        history = RecordedHistory(
            tuple(requests),
            streams,
            fallback=fallback,
            simple_preemptor=self.simple_preemptor,
            outages=tuple(self.outages),
            in_force=self.in_force,
        )
        return check(history, at(seconds))

    def found(self, seconds: float = 200.0, *, fallback: bool = False) -> list[str]:
        """The rules that the history breaks."""
        return sorted({v.rule.value for v in self.report(seconds, fallback=fallback).violations})

    def _add(self, seconds: float, user: str, call: Call, request: Body, response: Body | None) -> Self:
        self.requests.append(self._event(seconds, user, call, request, response))
        return self

    def _event(
        self, seconds: float, user: str, call: Call, request: Body, response: Body | None
    ) -> AuditEvent:
        verb, subresource, name = call
        self._revision += 1
        answer = None
        if response is not None:
            metadata = {**response["metadata"], "resourceVersion": str(self._revision)}
            answer = msgspec.json.decode(msgspec.json.encode({**response, "metadata": metadata}))
        return AuditEvent(
            verb=verb,
            group="",
            resource="pods",
            subresource=subresource,
            namespace="shop",
            name=name,
            uri="",
            user=user,
            code=200,
            at=at(seconds),
            answered_at=at(seconds + 0.001),
            dry_run=False,
            request=request,
            response=answer,
        )


def pending(order: EvictionOrder | None = None) -> Recording:
    """A victim that runs, a preemptor nominated to its node, and the order, committed at second 2."""
    return (
        Recording()
        .pod("victim", 0, priority=0, node=NODE)
        .pod("urgent", 1, priority=1000)
        .nominated("urgent", 1.5)
        .ordered(order or order_of())
    )


def made_room() -> Recording:
    """The whole of a good preemption: order, mark, delete, outcome, binding."""
    return (
        pending()
        .marked("victim", 2.1)
        .deleted("victim", 2.2)
        .ended(order_of(), 2.3)
        .removed("victim", 3.3)
        .bound("urgent", 3.4)
    )


GANG = ("train-1", "train-2")
"""The members, nominated to node-1 and node-2."""


def group_order_of(*victims: str) -> EvictionOrder:
    """An order for a group of two, made at second 2; its victims run on node-1 but for the last."""
    order = order_of(victims=victims)
    return msgspec.structs.replace(
        order,
        kind="group",
        preemptor=None,
        node="",
        victims=(*order.victims[:-1], msgspec.structs.replace(order.victims[-1], node="node-2")),
        group=make_group(),
        members=tuple(
            Placement(namespace="shop", name=name, uid=f"uid-{name}", node=f"node-{number}")
            for number, name in enumerate(GANG, 1)
        ),
    )


def gang_pending(*, priority: int = 0, min_count: int = 2, members: tuple[str, ...] = GANG) -> Recording:
    """Victims that run, members nominated to their nodes, and the order, committed at second 2."""
    recording = Recording().group("train", 0, priority=1000, min_count=min_count)
    recording.pod("a", 0, priority=priority, node="node-1").pod("b", 0, priority=0, node="node-2")
    for number, name in enumerate(GANG, 1):
        recording.pod(name, 1, priority=1000, group="train")
        if name in members:
            recording.nominated(name, 1.5, f"node-{number}")
    return recording.ordered(group_order_of("a", "b"))


def gang_made_room(recording: Recording | None = None, *, read: float = 2.6, tried: bool = True) -> Recording:
    """The whole of a good one: marks, trials, a last read, deletes, outcome, bindings."""
    recording = recording or gang_pending()
    recording.marked("a", 2.1).marked("b", 2.1)
    if tried:
        recording.tried(2.4, "a", "b")
    return (
        recording.read(read, "a", "b", *GANG)
        .deleted("a", 2.7)
        .deleted("b", 2.8)
        .ended(group_order_of("a", "b"), 2.9)
        .removed("a", 3.9)
        .removed("b", 3.9)
        .bound("train-1", 4, "node-1")
        .bound("train-2", 4, "node-2")
    )


def gang_made_no_room() -> Recording:
    """The whole of a failed one: marks, a trial that was refused, rollback, outcome, another attempt."""
    recording = gang_pending().marked("a", 2.1).marked("b", 2.1).unmarked("a", 3).unmarked("b", 3)
    for name in GANG:
        recording.cleared(name, 3)
    recording.ended(group_order_of("a", "b"), 3.1, result="failed")
    for name in GANG:
        recording.failed_scheduling(name, 3.5)
    return recording


def made_room_for_pinned(
    *,
    policy: bool = True,
    priority: int = 0,
    victim_priority: int | None = None,
    daemon: bool = True,
    only_on: str = NODE,
    victim_daemon: bool = False,
    rule: str = "daemonset-single",
) -> Recording:
    """A preemption for a pod that its DaemonSet has bound to the node, of a victim of the same priority."""
    order = order_of(rule=rule)
    equal = priority if victim_priority is None else victim_priority
    return (
        Recording(simple_preemptor=policy)
        .pod("victim", 0, priority=equal, node=NODE, daemon=victim_daemon)
        .pod("urgent", 1, priority=priority, daemon=daemon, only_on=only_on)
        .nominated("urgent", 1.5)
        .ordered(order)
        .marked("victim", 2.1)
        .deleted("victim", 2.2)
        .ended(order, 2.3)
        .removed("victim", 3.3)
        .bound("urgent", 3.4)
    )


def made_no_room() -> Recording:
    """The whole of a failed one: mark, a delete that was refused, rollback, outcome, another attempt."""
    return (
        pending()
        .marked("victim", 2.1)
        .unmarked("victim", 3)
        .cleared("urgent", 3)
        .ended(order_of(), 3.1, result="failed")
        .failed_scheduling("urgent", 3.5)
    )


def listing(uid: str) -> EvictionOrder:
    """An order that lists another pod's nomination."""
    ref = NominationToClear(namespace="shop", name=uid.removeprefix("uid-"), uid=uid)
    return msgspec.structs.replace(order_of(), nominations_to_clear=(ref,))
