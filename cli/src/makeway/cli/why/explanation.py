"""All that is known of one pod, order or decision, from the streams and the API server, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Victim
from makeway.cli.connect.objects import asked_of_each
from makeway.cli.errors import needed, tell
from makeway.cli.history.comparisons import comparisons
from makeway.cli.history.story import Story, is_overdue
from makeway.cli.mode.brake import brake_seen
from makeway.cli.offline.finding import (
    decision_named,
    decisions,
    order_named,
    order_of,
    orders,
    outcome_of,
)
from makeway.core.k8s.disruption import PREEMPTION_HELD
from makeway.core.k8s.objects import Pod, PodCondition
from makeway.core.k8s.pod_groups import GroupKey, group_of
from makeway.planner.offline.results import Pending
from makeway.runtime.kube import Api, ApiError, read_object
from makeway.runtime.settings import ConfigSettings

_HELD: Final = ("QueueFull", "QueueLimitsUnknown")
"""Reasons of the plugin's queue gate; see docs/policies/queue-gate.md."""

_NO_PLAN: Final = "no plan: "
"""How the plugin begins what it says of a pod that the planner has not answered for."""

_GROUP_HELD: Final = ("groups.preemptors of the policy is hold", "the gate WorkloadAwarePreemption")
"""How the plugin begins what it says of a pod of a group for which nothing is evicted."""

_DELAYED: Final = "preemption is delayed until "
"""How the plugin begins what it says of a pod whose PriorityClass delays its preemption."""

_MOST_TAKEN: Final = 3
"""The last orders that took a group are told."""

_decode_pod = msgspec.json.Decoder(Pod).decode


@dataclass(frozen=True)
class Subject:
    """What is asked about: a pod, by its UID where that is known and else by its name, or a PodGroup.

    A PodGroup is a victim where pods go since it, or a tree of groups of that name, goes whole.
    """

    namespace: str
    name: str
    uid: str = ""
    group: bool = False

    def takes(self, victim: Victim) -> bool:
        """Report whether it is a victim, or a victim belongs to it."""
        if self.group:
            key = GroupKey(self.namespace, self.name)
            return victim.unit in (str(key), str(GroupKey(self.namespace, self.name, composite=True)))
        return self._is(victim.namespace, victim.name, victim.uid)

    def served(self, order: EvictionOrder) -> bool:
        """Report whether an order makes room for it; one for a group does for each of its members."""
        if any(self._is(one.namespace, one.name, one.uid) for one in order.members if not self.group):
            return True
        for_it = order.room_for
        named = for_it is not None and self._is(for_it.namespace, for_it.name, for_it.uid)
        return named and (order.kind == "group") == self.group

    def compared(self, one: Comparison) -> bool:
        """Report whether another scheduler's preemption made room for it."""
        pod = one.preemptor
        return (one.group is not None) == self.group and self._is(pod.namespace, pod.name, pod.uid)

    def decided(self, record: DecisionRecord) -> bool:
        """Report whether a decision is about it."""
        about = record.group if self.group else record.preemptor
        return about is not None and self._is(about.namespace, about.name, about.uid)

    def _is(self, namespace: str, name: str, uid: str) -> bool:
        return uid == self.uid if self.uid else (namespace, name) == (self.namespace, self.name)


async def story_of(bus: Bus, order: EvictionOrder) -> Story:
    """Read what belongs to an order. Raises BusError."""
    decision = await decision_named(bus, order.decision_id) if order.decision_id else None
    outcome = await outcome_of(bus, order.order_id)
    overdue = outcome is None and order.void is None and is_overdue(order, datetime.now(UTC))
    return Story(order=order, outcome=outcome, decision=decision, overdue=overdue)


async def orders_about(bus: Bus, subject: Subject) -> tuple[list[EvictionOrder], list[EvictionOrder]]:
    """Find the orders that took it, and those that made room for it, oldest first. Raises BusError."""
    taken: list[EvictionOrder] = []
    made: list[EvictionOrder] = []
    async for order in orders(bus):
        if any(map(subject.takes, order.victims)):
            taken.append(order)
        if subject.served(order):
            made.append(order)
    return taken, made


async def by_others(bus: Bus, subject: Subject) -> tuple[list[Comparison], list[Comparison]]:
    """Find the preemptions that others made: of it, and for it; oldest first. Raises BusError."""
    of_it: list[Comparison] = []
    for_it: list[Comparison] = []
    for one in await comparisons(bus):
        if not subject.group and any(map(subject.takes, one.evicted)):
            of_it.append(one)
        elif one.evicted and subject.compared(one):
            for_it.append(one)
    return of_it, for_it


async def last_decision(bus: Bus, subject: Subject) -> DecisionRecord | None:
    """Find the last decision about it. Raises BusError."""
    last = None
    async for record in decisions(bus, preemptor_uid=subject.uid):
        if subject.decided(record):
            last = record
    return last


class NotKept(LookupError):  # noqa: N818 - it names what was looked for
    """Nothing is known of it; the message says what was looked for and how long it would be kept."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is known of one pod, of one order or of one decision.

    state: "preempted", "pending", "placed", "order", "decision" or "group". taken_by: orders that took the
    pod, oldest first. preempted_by_others: preemptions of it by kube-scheduler itself or another scheduler,
    likewise. served_by_others: preemptions by which they made room for it, likewise.
    made_room: orders that made room for it, or the one that was asked about. pending: of a pod that is
    pending. last_decision: likewise, or the decision that was asked about. held: the
    condition by which its queue holds it, where it does. unplanned: why its scheduler had no plan for it,
    where it says so. delayed: until when its PriorityClass delays its preemption, likewise. condition: what
    the pod itself says of why it is pending, for a user to whom nothing else may be told. group: the PodGroup
    that a pending pod names. leaving: how many victims of the last order for a pending pod are still there.
    waits_for: the condition that says what holds the order that makes room for it. brake: what the brake
    says, where it holds for the pod's namespace and the user may read it.
    """

    state: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    taken_by: tuple[Story, ...] = ()
    made_room: tuple[Story, ...] = ()
    pending: Pending | None = None
    last_decision: DecisionRecord | None = None
    held: PodCondition | None = None
    unplanned: str = ""
    condition: str = ""
    group: str = ""
    delayed: str = ""
    leaving: int = 0
    waits_for: PodCondition | None = None
    brake: str = ""
    preempted_by_others: tuple[Comparison, ...] = ()
    served_by_others: tuple[Comparison, ...] = ()

    @property
    def story(self) -> Story | None:
        """The order that was asked about, or the last one that made room for it."""
        return self.made_room[0] if self.made_room else None


async def of_order(bus: Bus, order_id: str) -> Explanation:
    """Explain an order, by its id or the beginning of it. Raises BusError, ValueError, NotKept."""
    order = await order_named(bus, order_id)
    if order is None:
        raise NotKept(f"there is no order {order_id}; orders are kept for a week")
    return _about(order, "order", made_room=(await story_of(bus, order),))


async def of_decision(bus: Bus, decision_id: str) -> Explanation:
    """Explain a decision, by its id or the beginning of it. Raises BusError, ValueError, NotKept."""
    record = await decision_named(bus, decision_id)
    if record is None:
        raise NotKept(f"there is no decision {decision_id}; decisions are kept for three days")
    order = await order_of(bus, record)
    made_room = (await story_of(bus, order),) if order is not None else ()
    return _about(record, "decision", made_room=made_room, last_decision=record)


def _about(subject: EvictionOrder | DecisionRecord, state: str, **known: Any) -> Explanation:
    """Explain an order or a decision: whom it is for, and what is known of it."""
    about = subject.room_for
    if about is None:
        return Explanation(state=state, name=subject.queue, **known)
    return Explanation(state=state, namespace=about.namespace, name=about.name, uid=about.uid, **known)


async def of_group(bus: Bus, namespace: str, name: str) -> Explanation:
    """Explain what was last decided for a PodGroup, what became of that, and whom it went for.

    Raises BusError, NotKept.
    """
    subject = Subject(namespace, name, group=True)
    taken, made = await orders_about(bus, subject)
    last = await last_decision(bus, subject)
    _, served = await by_others(bus, subject)
    if not made and last is None and not served and not taken:
        raise NotKept(
            f"no decision of the last three days is about PodGroup {namespace}/{name}, no order of the last "
            "week makes room for it or takes it as a whole, and no preemption for it by others was seen"
        )
    story = await story_of(bus, made[-1]) if made else None
    about = made[-1].group if made else last.group if last is not None else None
    uid = about.uid if about is not None else served[-1].preemptor.uid if served else ""
    return Explanation(
        state="group",
        namespace=namespace,
        name=name,
        uid=uid,
        taken_by=tuple([await story_of(bus, order) for order in taken[-_MOST_TAKEN:]]),
        made_room=(story,) if story is not None else (),
        last_decision=last,
        served_by_others=tuple(served),
    )


async def of_pod(
    bus: Bus, api: Api, settings: ConfigSettings, namespace: str, name: str, *, plan: bool
) -> Explanation:
    """Explain what became of a pod; `plan`: and, where it is pending, what would unblock it.

    Raises BusError, ApiError, ApiUnavailable, NotKept.
    """
    raw = await _read_pod(api, namespace, name)
    pod = _decode_pod(raw) if raw is not None else None
    subject = Subject(namespace, name, pod.metadata.uid if pod else "")
    taken, made = await orders_about(bus, subject)
    others, served = await by_others(bus, subject)
    waits = pod is not None and not pod.spec.node_name and pod.status.phase in (None, "", "Pending")
    if pod is None and not taken and not others:
        raise NotKept(
            f"there is no pod {namespace}/{name}, no order of the last week names one as a victim, and no "
            "preemption by others was seen in the last three days that took one"
        )
    found = await _pending(bus, api, settings, raw) if raw is not None and waits and plan else None
    story = await story_of(bus, made[-1]) if made and pod is not None else None
    answer = Explanation(
        state="pending" if waits else "preempted" if taken or others else "placed",
        namespace=namespace,
        name=name,
        uid=subject.uid or _uid(subject, taken, others),
        taken_by=tuple([await story_of(bus, order) for order in taken]),
        made_room=(story,) if story is not None else (),
        pending=found,
        preempted_by_others=tuple(others),
        served_by_others=tuple(served) if pod is not None else (),
    )
    if pod is None or not waits:
        return answer
    brake = await brake_seen(api, settings.namespace)
    return msgspec.structs.replace(
        answer,
        last_decision=await last_decision(bus, subject),
        held=_held(pod),
        unplanned=unplanned(pod),
        delayed=delayed(pod),
        leaving=await _leaving(api, pod, story),
        waits_for=_said(pod, PREEMPTION_HELD, "True"),
        brake=brake.describe() if brake is not None and brake.holds(namespace) else "",
        condition=_condition(pod),
        group=group_of(pod),
    )


async def _leaving(api: Api, pod: Pod, story: Story | None) -> int:
    """Return how many victims are still there of the order by which a pod is nominated.

    Those that the user may not read do not count. Raises ApiError, ApiUnavailable.
    """
    if story is None or story.order is None or story.outcome is None or story.outcome.result != "succeeded":
        return 0
    node = next((one.node for one in story.order.placements if one.uid == pod.metadata.uid), "")
    if not node or pod.status.nominated_node_name != node:
        return 0

    async def is_there(victim: Victim) -> bool:
        try:
            raw = await _read_pod(api, victim.namespace, victim.name)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return False
        return raw is not None and _decode_pod(raw).metadata.uid == victim.uid

    return sum(await asked_of_each(is_there, story.order.victims))


def _said(pod: Pod, kind: str = "PodScheduled", status: str = "False") -> PodCondition | None:
    """Return a condition of a pod; by default the one by which the scheduler says why it has no node."""
    of_it = (one for one in pod.status.conditions or () if (one.type, one.status) == (kind, status))
    return next(of_it, None)


def _held(pod: Pod) -> PodCondition | None:
    """Return the condition by which the queue gate holds a pod, if it does."""
    said = _said(pod)
    return said if said is not None and said.reason in _HELD else None


def _condition(pod: Pod) -> str:
    """Return what the scheduler says in the pod's condition; empty where it has not said anything."""
    said = _said(pod)
    return "" if said is None else f"{said.reason}: {said.message or 'no message'}"


def unplanned(pod: Pod) -> str:
    """Return why the pod's scheduler had no plan for it, from the pod's condition; empty where it had one."""
    held = next((f"{_NO_PLAN}{told}" for one in _GROUP_HELD if (told := _told(pod, one))), "")
    return _told(pod, _NO_PLAN) or held


def delayed(pod: Pod) -> str:
    """Return until when the pod's preemption is delayed, and why, from its condition; or else nothing."""
    return _told(pod, _DELAYED)


def _told(pod: Pod, beginning: str) -> str:
    """Return what the pod's scheduler says from these words on; empty where it does not."""
    said = _said(pod)
    _, found, rest = ((said.message if said is not None else "") or "").partition(beginning)
    return beginning + rest if found else ""


async def _pending(bus: Bus, api: Api, settings: ConfigSettings, raw: bytes) -> Pending | None:
    """Plan again; without the parts or the rights that it needs, a note says so, and the rest stands."""
    try:
        from makeway.cli.why.planning import planned_again  # noqa: PLC0415 - arrays, for pending pods alone
    except ModuleNotFoundError as error:
        tell(needed(error, "what would unblock a pod"))
        return None
    try:
        return await planned_again(bus, api, settings, raw)
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        tell(f"what would unblock the pod is not known: no permission: {error.message}")
        return None


async def _read_pod(api: Api, namespace: str, name: str) -> bytes | None:
    return await read_object(api, f"/api/v1/namespaces/{namespace}/pods/{name}")


def _uid(subject: Subject, taken: list[EvictionOrder], others: list[Comparison]) -> str:
    """Return the UID of the last incarnation that an order took, or else another's preemption."""
    victims = [victim for one in taken[-1:] for victim in one.victims]
    victims += [victim for one in others[-1:] for victim in one.evicted]
    return next((one.uid for one in victims if subject.takes(one)), "")
