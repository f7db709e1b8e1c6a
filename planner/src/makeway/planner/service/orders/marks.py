"""Marks left behind: pods that carry preemption's DisruptionTarget, live on, and belong to no live order.

An evictor takes its marks back when its order fails. Where NATS has lost the order as well as the
evictor, no process remembers them. The planner sees every pod, so it notices; it may write nothing, so it
proposes the repair to the evictors, which look again before they act.

Every replica does, for as long as it lives: the standby too watches pods and orders, and a proposal that
comes twice does nothing the second time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import NoReturn, Protocol

import structlog

from makeway.bus.errors import BusError
from makeway.bus.messages import API_VERSION, PodRef
from makeway.bus.repairs import RepairProposal
from makeway.core.k8s.by_uid import ByUid
from makeway.core.k8s.disruption import lives_on_marked
from makeway.core.k8s.objects import Pod
from makeway.planner.orders.ledger import Ledger
from makeway.runtime.failpoints import failpoint

PATIENCE_SECONDS = 15.0
"""How long a mark may belong to no live order. A preemption takes well under a second from mark to delete,
also that of another scheduler, whose orders are not known here."""

REPEAT_SECONDS = 5.0
"""Between two proposals about the same pod."""

AT_ONCE = 50
"""Proposals in one round; those that wait longest come first."""


ROUND_SECONDS = 1.0
"""Between two looks at the marks."""

_log = structlog.get_logger()


@dataclass
class _Seen:
    pod: PodRef
    since: float
    """When it was first seen without a live order, on the monotonic clock."""
    proposed_at: float | None = None


class Marks(ByUid[Pod, _Seen]):
    """Follows the marks of all pods. O(marks) a round."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic

    def __len__(self) -> int:
        """How many pods carry a mark."""
        return len(self.by_uid)

    def keep(self, item: Pod) -> _Seen | None:
        """Note since when a pod that lives on is marked."""
        if not lives_on_marked(item):
            return None
        meta = item.metadata
        ref = PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        return self.by_uid.get(meta.uid) or _Seen(ref, self._monotonic())

    def due(self, live: Collection[str]) -> list[PodRef]:
        """Return the pods to propose now.

        `live`: UIDs that live orders name; their patience begins anew.
        """
        now = self._monotonic()
        waiting = []
        for uid, seen in self.by_uid.items():
            if uid in live:
                seen.since, seen.proposed_at = now, None
            elif now - seen.since >= PATIENCE_SECONDS and (
                seen.proposed_at is None or now - seen.proposed_at >= REPEAT_SECONDS
            ):
                waiting.append(seen)
        waiting.sort(key=lambda seen: (seen.since, seen.pod.uid))
        for seen in waiting[:AT_ONCE]:
            seen.proposed_at = now
        return [seen.pod for seen in waiting[:AT_ONCE]]


class RepairPublisher(Protocol):
    """What is used of the bus."""

    async def propose(self, proposal: RepairProposal) -> None:
        """Send a proposal; raises BusError."""


@dataclass(eq=False)
class RepairProposer:
    """The loop from marks to proposals. `synced()`: whether the ledger and the pods are complete."""

    cluster_uid: str
    _: KW_ONLY
    marks: Marks
    ledger: Ledger
    bus: RepairPublisher
    synced: Callable[[], bool]

    async def propose_forever(self) -> NoReturn:
        """Run as a part of the process."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            if self.synced():
                await self.propose_once(datetime.now(UTC))

    async def propose_once(self, now: datetime) -> None:
        """Propose what is due; what the bus does not take is proposed again later."""
        for pod in self.marks.due(self.ledger.in_flight(now)):
            proposal = RepairProposal(
                api_version=API_VERSION,
                cluster_uid=self.cluster_uid,
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
            )
            await failpoint("planner.before-proposal")
            try:
                await self.bus.propose(proposal)
            except BusError as error:
                _log.warning("repair_not_proposed", victim_uid=pod.uid, error=str(error))
                return
            _log.info("repair_proposed", victim=f"{pod.namespace}/{pod.name}", victim_uid=pod.uid)
