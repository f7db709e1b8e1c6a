"""Repairing what no process remembers: a mark on a pod that lives on and belongs to no live order.

The planner proposes. Here everything is read anew: the pod, and the orders of the stream. In doubt the
mark stays; the planner proposes again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import structlog

from makeway.bus import codec
from makeway.bus.errors import Malformed
from makeway.bus.repairs import RepairProposal
from makeway.core.k8s.disruption import lives_on_marked
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import Clock, PermanentError, TemporaryError
from makeway.runtime.failpoints import failpoint

_log = structlog.get_logger()


class LiveOrders(Protocol):
    """What is asked of the streams."""

    async def name(self, victim_uid: str, now: datetime) -> bool:
        """Whether a live order names this victim; raises TemporaryError where that cannot be known."""


class MarkRepair:
    """Takes proposals; `handle` raises nothing for what one may contain or the API may answer."""

    def __init__(
        self,
        cluster_uid: str,
        mode_guard: ModeGuard,
        *,
        cluster: Cluster,
        orders: LiveOrders,
        clock: Clock,
        metrics: EvictorMetrics,
    ) -> None:
        self._cluster_uid = cluster_uid
        self._mode_guard = mode_guard
        self._cluster = cluster
        self._orders = orders
        self._clock = clock
        self._metrics = metrics

    async def handle(self, data: bytes) -> None:
        """Deal with one proposal."""
        try:
            proposal = codec.decode(RepairProposal, data)
        except Malformed as error:
            self._metrics.repairs.labels(result="malformed").inc()
            _log.warning("message_malformed", source="repairs", reason=error.reason)
            return
        try:
            result = await self._repair(proposal)
        except (TemporaryError, PermanentError) as error:
            result = "failed"
            _log.warning("mark_not_repaired", victim_uid=proposal.uid, reason=error.reason, error=str(error))
        self._metrics.repairs.labels(result=result).inc()

    async def _repair(self, proposal: RepairProposal) -> str:
        """Re-check, then clear the mark from the pod as it was read; returns the metric's label."""
        # Before anything is read: what a pod of another cluster is called is not used here.
        if proposal.cluster_uid != self._cluster_uid:
            return "other-cluster"
        pod = await self._cluster.get_pod(proposal.namespace, proposal.name)
        if self._mode_guard.mode(proposal.namespace) != "enforce":
            return "mode"
        if pod is None or pod.metadata.uid != proposal.uid:
            return "gone"
        if not lives_on_marked(pod):
            return "not-marked"
        if await self._orders.name(proposal.uid, self._clock.now()):
            return "live"
        await failpoint("evictor.before-repair")
        await self._cluster.clear_mark(pod)
        await failpoint("evictor.after-repair")
        _log.info("mark_repaired", victim=f"{proposal.namespace}/{proposal.name}", victim_uid=proposal.uid)
        return "cleared"
