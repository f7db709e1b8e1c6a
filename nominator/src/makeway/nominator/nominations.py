"""The nominations that nominators wrote: whose orders go on, and which are taken back for want of one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from makeway.bus.errors import Malformed
from makeway.bus.messages import EvictionOrder
from makeway.bus.records import Last
from makeway.core.policy.external import NEVER
from makeway.nominator import decide
from makeway.nominator.cluster import Changed
from makeway.nominator.in_flight import OrderInFlight, OrdersInFlight
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPod
from makeway.runtime.kube import ApiError, ApiUnavailable

ORPHAN_AFTER: Final = timedelta(seconds=5)
"""How long a nomination without an order stands before it is looked at: its order may be about to be read."""

NODE_AGAIN: Final = timedelta(seconds=5)
"""How long after its room was made, and between two looks, the node of a pod that is not bound is read."""

MOST_LOOKED_AT: Final = 50
"""Nominations that one round reads, whoever wrote them; the others have their turn in the next."""

_log = structlog.get_logger()


class Nominations:
    """Those of one nominator, while it leads. One that another wrote is never touched."""

    def __init__(self, parts: NominatorParts, in_flight: OrdersInFlight) -> None:
        self._parts = parts
        self._cluster_uid = parts.writer.cluster_uid
        self._in_flight = in_flight
        self._orphans: dict[str, datetime] = {}
        self._not_ours: dict[str, str] = {}

    def __contains__(self, uid: str) -> bool:
        """Report whether a pod has a nomination without an order."""
        return uid in self._orphans

    async def yield_to(self, order: EvictionOrder) -> None:
        """Take note of who has lost a place to an order's pod, which has left: it may be bound there, or not.

        Raises ApiError, ApiUnavailable.
        """
        taken_from, about = self._in_flight.outnominated_by(order), order.preemptor
        if not taken_from or about is None:
            return
        there = await self._parts.cluster.pod(about.namespace, about.name)
        if there is not None and decide.has_its_place(there.pod, order):
            for lower in taken_from:
                lower.lost = lower.lost or "yielded"

    async def look_for_orphans(self, now: datetime) -> None:
        """Go on with the orders of nominators before; take back nominations that no order is behind.

        Raises BusUnavailable.
        """
        external = self._parts.classes.external
        nominated = {
            pod.uid: pod
            for pod in self._parts.pods.nominated()
            # Its class may have been opted in when it was nominated.
            if (pod.class_name in external or pod.policy == NEVER)
            and self._in_flight.of(pod.uid) is None
            and self._not_ours.get(pod.uid) != pod.nominated
        }
        for uid in [uid for uid in self._orphans if uid not in nominated]:
            del self._orphans[uid]
        for uid in [uid for uid in self._not_ours if uid not in self._parts.pods.by_uid]:
            del self._not_ours[uid]
        for uid in nominated:
            self._orphans.setdefault(uid, now)
        due = [uid for uid in nominated if now - self._orphans[uid] >= ORPHAN_AFTER]
        for uid in sorted(due, key=self._orphans.__getitem__)[:MOST_LOOKED_AT]:
            self._orphans[uid] = now
            if not await self._adopt(nominated[uid]):
                await self.clear(nominated[uid].namespace, nominated[uid].name, uid, "orphaned")

    async def _adopt(self, pod: PendingPod) -> bool:
        """Go on with the order behind a pod's nomination; report whether there is one that is not over."""
        try:
            last = await self._parts.bus.last_order(pod.uid)
            order = last.message if isinstance(last, Last) else None
            if order is None or order.void is not None or not order.is_external:
                return False
            if (order.cluster_uid, order.node) != (self._cluster_uid, pod.nominated):
                return False
            one = self._in_flight.begin(order, stored=True)  # an outcome that comes from now on is heard
            outcome = await self._parts.bus.outcome(order.order_id)
        except Malformed:
            return False
        one.shown = True
        one.outcome = one.outcome or (outcome.message if outcome is not None else None)
        if decide.is_over(order, one.outcome, datetime.now(UTC)):
            self._in_flight.end(one)
            return False
        _log.info("order_adopted", order_id=order.order_id, pod_uid=pod.uid, node=order.node)
        return True

    async def is_kept_out(self, one: OrderInFlight, now: datetime) -> bool:
        """Report whether a pod's node has come to be none for it; looks now and then."""
        if now < one.looks_at or one.order.preemptor is None:
            return False
        one.looks_at = now + NODE_AGAIN
        about, node = one.order.preemptor, one.order.node
        try:
            return await self._parts.cluster.keeps_out(about.namespace, about.name, node)
        except (ApiError, ApiUnavailable) as error:
            _log.warning("node_not_read", node=node, pod_uid=one.uid, error=str(error))
            return False

    async def clear(self, namespace: str, name: str, uid: str, reason: str) -> bool:
        """Remove a nomination of the nominator's, tried a few times. Return whether none of its is left."""
        for _ in range(3):
            try:
                stored = await self._parts.cluster.pod(namespace, name)
                if stored is None or stored.pod.metadata.uid != uid or stored.pod.spec.node_name:
                    return True
                if not stored.nominated_by_us():
                    if stored.pod.status.nominated_node_name:
                        self._not_ours[uid] = stored.pod.status.nominated_node_name
                    return True
                await self._parts.cluster.clear_nomination(stored.pod)
            except Changed:
                continue
            except (ApiError, ApiUnavailable) as error:
                _log.warning("nomination_not_cleared", pod=f"{namespace}/{name}", error=str(error))
                return False  # looked at again as one without an order
            self._parts.metrics.cleared.labels(reason).inc()
            _log.info("nomination_cleared", pod=f"{namespace}/{name}", pod_uid=uid, reason=reason)
            return True
        return False
