"""Kubernetes Events on victims and preemptors. Best effort: they never hold up or fail an order.

A victim's Event does not name its preemptor: tenants must not learn each other's names
(kubernetes#114923); the UID is kube-scheduler's practice.
"""

from __future__ import annotations

import re
from typing import Final

from makeway.bus.messages import EvictionOrder, OrderedGroup, Outcome, Preemptor, Victim
from makeway.core.k8s.event import EventType, Regarding
from makeway.core.k8s.pod_groups import GROUP, POD_GROUP_VERSIONS
from makeway.core.text import counted
from makeway.runtime.events import EventSink

QUEUE_LIMIT = 1000
"""Events that may wait to be written. 100 orders at once make a few hundred."""

_ANSWER: Final = re.compile(r"\d{3} \w+(?=: )")
"""How a refusal of the API server begins: its status and reason."""


POD: Final = ("v1", "Pod")
POD_GROUP: Final = (f"{GROUP}/{POD_GROUP_VERSIONS[0]}", "PodGroup")
"""apiVersion and kind of what an Event is about."""


def _nodes(order: EvictionOrder) -> str:
    """Return where an order evicts: its node, or how many nodes."""
    if order.kind != "group":
        return f"node {order.node}"
    return counted(len({victim.node for victim in order.victims}), "node")


def _begun(order: EvictionOrder, outcome: Outcome) -> str:
    """Return how many pods an order for a group has evicted for nothing; empty for none."""
    gone = sum(victim.deleted_at is not None for victim in outcome.victims)
    return f" after {counted(gone, 'pod')} had been evicted" if gone and order.kind == "group" else ""


def _words(preemptor: Preemptor, outcome: Outcome) -> str:
    """Return what the API server said of the first victim that it refused to delete, for the preemptor.

    Of a victim in another namespace only status and reason: the rest names it. See docs/visibility.md.
    """
    for victim in outcome.victims:
        if victim.result != "failed" or not victim.message:
            continue
        if victim.namespace == preemptor.namespace:
            return f": {victim.message}"
        if answer := _ANSWER.match(victim.message):
            return f": the API server answered {answer[0]} for a pod of another namespace"
    return ""


class Events:
    """What the Events of orders say; `recorder` writes them."""

    def __init__(self, recorder: EventSink) -> None:
        self._recorder = recorder

    def making_room(self, order: EvictionOrder) -> None:
        """On the preemptor, when the room cannot be made at once: something has to be tried again."""
        if order.room_for is not None:
            pods = counted(len(order.victims), "pod")
            this = "group" if order.kind == "group" else "pod"
            note = f"Evicting {pods} from {_nodes(order)} to make room for this {this}"
            self._about(order.room_for, "MakingRoom", note, "Normal")

    def held(self, order: EvictionOrder, message: str) -> None:
        """On the preemptor, when something holds its order for a while."""
        if order.room_for is not None:
            pods = counted(len(order.victims), "pod")
            note = f"Evicting {pods} from {_nodes(order)} waits: {message}"
            self._about(order.room_for, "PreemptionHeld", note, "Normal")

    def preempted(self, order: EvictionOrder, victim: Victim) -> None:
        """On a victim whose delete was accepted; kube-scheduler's reason and wording, where it has one."""
        if order.group is not None and order.kind == "group":
            note = f"Preempted by podgroup {order.group.uid} on node {victim.node}"
            if victim.closes is not None:
                note += f": {victim.closes.text}"
        elif order.preemptor is not None:
            note = f"Preempted by pod {order.preemptor.uid} on node {order.node}"
        else:
            note = f"Preempted since queue {order.queue} is above its maximum"
        about = Regarding(*POD, victim.namespace, victim.name, victim.uid)
        self._recorder.record(about, "Normal", "Preempted", "Preempting", note)

    def ended(self, order: EvictionOrder, outcome: Outcome) -> None:
        """On the preemptor, pod or group, when its order has its outcome."""
        if order.room_for is None:
            return
        if outcome.result == "succeeded":
            done = [v for v in outcome.victims if v.result == "deleted"]
            left = len(outcome.victims) - len(done)
            note = f"Evicted {counted(len(done), 'pod')} from {_nodes(order)}"
            if left:
                note += (
                    f"; {counted(left, 'pod')} had left or {'was' if left == 1 else 'were'} leaving already"
                )
            self._about(order.room_for, "RoomMade", note, "Normal")
        elif outcome.result != "cancelled":
            words = _words(order.room_for, outcome)
            note = f"No room was made on {_nodes(order)}{_begun(order, outcome)}: {outcome.reason}{words}"
            self._about(order.room_for, "PreemptionFailed", note, "Warning")

    def _about(self, one: Preemptor, reason: str, note: str, event_type: EventType) -> None:
        kind = POD_GROUP if isinstance(one, OrderedGroup) else POD
        about = Regarding(*kind, one.namespace, one.name, one.uid)
        self._recorder.record(about, event_type, reason, "MakeWay", note)
