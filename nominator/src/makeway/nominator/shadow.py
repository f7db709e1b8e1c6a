"""The shadow scheduler, which answers plan requests with what a scheduler's own filters have verified.

It may be away: then what the planner's columns know is planned without it, and the rest is refused.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.errors import BusError, Malformed
from makeway.bus.plan import PlanReply
from makeway.nominator.metrics import NominatorMetrics

VERIFIES_SECONDS: Final = 5.0
"""How long a verified plan is waited for: a plan, and filters over all nodes."""

LEFT_ALONE_SECONDS: Final = 5.0
"""How long a shadow that did not answer is not asked again."""

AWAY_SECONDS: Final = 60.0
"""How long one that did not answer counts as away: where no pod waits it is not asked, and may be back."""

NOT_VERIFIED: Final = "NotVerified"
"""Reason of an answer without a plan that it could have verified: it may reach no planner."""

_log = structlog.get_logger()


class ShadowScheduler:
    """Asked by one nominator."""

    def __init__(self, bus: Bus, metrics: NominatorMetrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._asked_from = 0.0
        self._away_until = 0.0

    @property
    def away(self) -> bool:
        """Whether it did not answer when it was asked last, within the last minute."""
        return time.monotonic() < self._away_until

    async def ask(self, data: bytes, request_id: str) -> PlanReply | None:
        """Return its answer to a plan request; None where there is none in time, or it verified nothing.

        Only silence counts as away: that it verified nothing may be due to this pod.
        """
        if time.monotonic() < self._asked_from:
            return None
        try:
            reply = codec.decode(PlanReply, await self._bus.request_verified_plan(data, VERIFIES_SECONDS))
            if reply.request_id != request_id:
                raise Malformed("invalid", f"an answer to {reply.request_id!r}")
        except (BusError, Malformed) as error:
            self._asked_from = time.monotonic() + LEFT_ALONE_SECONDS
            self._heard(away=True)
            _log.warning("shadow_request_failed", request_id=request_id, reason=str(error))
            return None
        self._heard(away=False)
        if (refusal := reply.refusal) is not None and refusal.reason == NOT_VERIFIED:
            _log.warning("shadow_request_failed", request_id=request_id, reason=refusal.message)
            return None
        return reply

    def _heard(self, *, away: bool) -> None:
        self._away_until = time.monotonic() + AWAY_SECONDS if away else 0.0
        self._metrics.shadow_answers.set(0 if away else 1)
