"""Proposals of repairs, from whoever watches the cluster to whoever may write in it.

They are neither stored nor answered: an evictor that takes one reads everything anew before it acts, and
what has not been repaired is proposed again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from makeway.bus import codec, metrics
from makeway.bus.connection import Connection
from makeway.bus.jetstream import translated
from makeway.bus.messages import RepairProposal
from makeway.bus.subjects import Subjects

EVICTOR_QUEUE: Final = "evictor"
_MAX_WAITING: Final = 256

_log = structlog.get_logger()


class RepairService:
    """A subscription to proposals."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        """Take no more."""
        try:
            await self._subscription.unsubscribe()
        except (nats.errors.Error, OSError) as error:
            # Without a connection the server has no subscription to take back.
            _log.debug("unsubscribe_failed", error=str(error))


class Repairs:
    """Proposals over one connection."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._subject = subjects.repairs

    async def propose(self, proposal: RepairProposal) -> None:
        """Send a proposal to one of the evictors, if there is any.

        Raises:
            BusUnavailable: not connected.
        """
        with translated("propose a repair"):
            await self._connection.client.publish(self._subject, codec.encode(proposal))

    async def serve(self, handler: Callable[[bytes], Awaitable[None]]) -> RepairService:
        """Hand proposals to `handler`, one at a time, shared with the other evictors.

        Raises:
            BusUnavailable: not connected.
        """

        async def take(message: Msg) -> None:
            try:
                await handler(message.data)
            except Exception as error:  # noqa: BLE001 - the top of a proposal: one must not end the service
                metrics.HANDLER_ERRORS.inc()
                _log.error("repair_failed", error=str(error), exc_info=error)

        with translated("subscribe to proposed repairs"):
            subscription = await self._connection.client.subscribe(
                self._subject, queue=EVICTOR_QUEUE, cb=take, pending_msgs_limit=_MAX_WAITING
            )
        return RepairService(subscription)
