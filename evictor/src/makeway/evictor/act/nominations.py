"""Clearing `status.nominatedNodeName`, of exactly the pods that an order lists.

A pod of lower priority that waits for the same node would keep the preemptor out or be kept waiting
for nothing. kube-scheduler clears those nominations too, best effort; so is it here: an order whose
victims have gone has succeeded, whatever becomes of these.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from makeway.bus.messages import NominationToClear
from makeway.evictor.act.work import OrderWork
from makeway.evictor.judge import decide
from makeway.evictor.limits.slots import AT_ONCE
from makeway.evictor.retry import PermanentError, TemporaryError, reporter, retrying
from makeway.runtime.failpoints import failpoint

PATIENCE = timedelta(seconds=3)
"""How long an order's outcome waits for the clearing: it holds the preemptor back."""

_log = structlog.get_logger()


async def clear_listed(work: OrderWork) -> tuple[str, ...]:
    """Clear the nominations that the order lists where they still stand; the UIDs of those cleared."""
    order, turn, cluster = work.order, work.turn, work.parts.cluster
    deadline = min(order.not_after, turn.now() + PATIENCE)
    places = asyncio.Semaphore(AT_ONCE)

    async def clear(ref: NominationToClear) -> bool:
        async def attempt() -> bool:
            async with places, turn.work():
                pod = await cluster.get_pod(ref.namespace, ref.name)
                if pod is None or not decide.nomination_yields(order, ref, pod, work.preemptor.priority):
                    return False
                if decide.expired(order, turn.now()) or work.parts.mode_guard.refusal_of(order):
                    return False
                await failpoint("evictor.before-clear")
                await cluster.clear_nomination(pod)
                return True

        try:
            return await retrying(
                attempt, clock=turn, deadline=deadline, on_retry=reporter(work.parts.metrics, "clear")
            )
        except (TemporaryError, PermanentError) as error:
            _log.warning("nomination_not_cleared", pod=f"{ref.namespace}/{ref.name}", reason=str(error))
            return False

    refs = order.nominations_to_clear
    cleared = await asyncio.gather(*(clear(ref) for ref in refs))
    return tuple(ref.uid for ref, done in zip(refs, cleared, strict=True) if done)
