"""Kubernetes Events on victims and preemptors. Best effort: they never hold up or fail an order.

They are queued and written by a task of their own. A victim's Event does not name its preemptor:
tenants must not learn each other's names (kubernetes#114923); the UID is kube-scheduler's practice.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Any, Final, NoReturn

import structlog

from makeway.bus.messages import EvictionOrder, OrderedGroup, Outcome, PodRef, Preemptor, Victim
from makeway.core.k8s.event import EventType, Regarding, event
from makeway.core.k8s.pod_groups import GROUP, POD_GROUP_VERSIONS
from makeway.core.text import counted
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import Clock, PermanentError, TemporaryError

QUEUE_LIMIT = 1000
"""Events that may wait to be written; more are dropped and counted. 100 orders at once make a few hundred."""

CONTROLLER = "makeway.dev/evictor"
"""Who reports, in Events."""

_log = structlog.get_logger()


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


def _words(preemptor: Preemptor | OrderedGroup, outcome: Outcome) -> str:
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
    """Queues Events; `write_forever` writes them."""

    def __init__(self, cluster: Cluster, clock: Clock, metrics: EvictorMetrics, instance: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(QUEUE_LIMIT)

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
        ref = PodRef(namespace=victim.namespace, name=victim.name, uid=victim.uid)
        self._put(ref, "Preempted", "Preempting", note, "Normal")

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

    async def write_forever(self) -> NoReturn:
        """Write what is queued, one after the other."""
        while True:
            namespace, body = await self._queue.get()
            try:
                await self._cluster.create_event(namespace, body)
            except (TemporaryError, PermanentError) as error:
                self._metrics.events_dropped.labels(reason="refused").inc()
                _log.debug("event_dropped", namespace=namespace, reason=str(error))

    def _about(self, one: Preemptor | OrderedGroup, reason: str, note: str, event_type: EventType) -> None:
        self._put(one, reason, "MakeWay", note, event_type)

    def _put(
        self,
        about: PodRef | Preemptor | OrderedGroup,
        reason: str,
        action: str,
        note: str,
        event_type: EventType,
    ) -> None:
        version, kind = POD_GROUP if isinstance(about, OrderedGroup) else POD
        body = event(
            Regarding(version, kind, about.namespace, about.name, about.uid),
            namespace=about.namespace,
            event_type=event_type,
            reason=reason,
            action=action,
            note=note,
            controller=CONTROLLER,
            instance=self._instance,
            now=self._clock.now(),
            unique=secrets.token_hex(8),
        )
        try:
            self._queue.put_nowait((about.namespace, body))
        except asyncio.QueueFull:
            self._metrics.events_dropped.labels(reason="queue-full").inc()
