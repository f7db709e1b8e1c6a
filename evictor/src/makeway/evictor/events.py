"""Kubernetes Events on victims and preemptors. Best effort: they never hold up or fail an order.

They are queued and written by a task of their own. A victim's Event does not name its preemptor:
tenants must not learn each other's names (kubernetes#114923); the UID is kube-scheduler's practice.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import NoReturn

import structlog

from makeway.bus.messages import EvictionOrder, Outcome, PodRef, Preemptor, Victim
from makeway.core.k8s.event import EventType, Regarding, event
from makeway.core.text import counted
from makeway.evictor.cluster import Cluster
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import Clock, PermanentError, TemporaryError

QUEUE_LIMIT = 1000
"""Events that may wait to be written; more are dropped and counted. 100 orders at once make a few hundred."""

CONTROLLER = "makeway.dev/evictor"
"""Who reports, in Events."""

_log = structlog.get_logger()


class Events:
    """Queues Events; `write_forever` writes them."""

    def __init__(self, cluster: Cluster, clock: Clock, metrics: EvictorMetrics, instance: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(QUEUE_LIMIT)

    def making_room(self, order: EvictionOrder) -> None:
        """On the preemptor, when the room cannot be made at once: something has to be tried again."""
        if order.preemptor is not None:
            pods = counted(len(order.victims), "pod")
            note = f"Evicting {pods} from node {order.node} to make room for this pod"
            self._about_preemptor(order.preemptor, "MakingRoom", note, "Normal")

    def preempted(self, order: EvictionOrder, victim: Victim) -> None:
        """On a victim whose delete was accepted; kube-scheduler's reason and wording, where it has one."""
        if order.preemptor is not None:
            note = f"Preempted by pod {order.preemptor.uid} on node {order.node}"
        else:
            note = f"Preempted since queue {order.queue} is above its maximum"
        ref = PodRef(namespace=victim.namespace, name=victim.name, uid=victim.uid)
        self._put(ref, "Preempted", "Preempting", note, "Normal")

    def ended(self, order: EvictionOrder, outcome: Outcome) -> None:
        """On the preemptor, when its order has its outcome."""
        if order.preemptor is None:
            return
        if outcome.result == "succeeded":
            done = [v for v in outcome.victims if v.result == "deleted"]
            left = len(outcome.victims) - len(done)
            note = f"Evicted {counted(len(done), 'pod')} from node {order.node}"
            if left:
                note += (
                    f"; {counted(left, 'pod')} had left or {'was' if left == 1 else 'were'} leaving already"
                )
            self._about_preemptor(order.preemptor, "RoomMade", note, "Normal")
        elif outcome.result != "cancelled":
            note = f"No room was made on node {order.node}: {outcome.reason}"
            self._about_preemptor(order.preemptor, "PreemptionFailed", note, "Warning")

    async def write_forever(self) -> NoReturn:
        """Write what is queued, one after the other."""
        while True:
            namespace, body = await self._queue.get()
            try:
                await self._cluster.create_event(namespace, body)
            except (TemporaryError, PermanentError) as error:
                self._metrics.events_dropped.labels(reason="refused").inc()
                _log.debug("event_dropped", namespace=namespace, reason=str(error))

    def _about_preemptor(self, pod: Preemptor, reason: str, note: str, event_type: EventType) -> None:
        ref = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        self._put(ref, reason, "MakeWay", note, event_type)

    def _put(self, about: PodRef, reason: str, action: str, note: str, event_type: EventType) -> None:
        body = event(
            Regarding("v1", "Pod", about.namespace, about.name, about.uid),
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
