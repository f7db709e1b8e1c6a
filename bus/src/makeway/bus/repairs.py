"""Proposals of repairs, from whoever watches the cluster to whoever may write in it.

They are neither stored nor answered: an evictor that takes one reads everything anew before it acts, and
what has not been repaired is proposed again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from nats.aio.msg import Msg

from makeway.bus import codec
from makeway.bus.messages import Message, Text
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import translated
from makeway.bus.nats.serving import Responder, serve
from makeway.bus.subjects import Subjects

EVICTOR_QUEUE: Final = "evictor"

_AT_ONCE: Final = 50
"""Proposals in one evictor's hands: those that come while the orders are read share the next read."""


class RepairProposal(Message, frozen=True):
    """What the planner asks an evictor to look at: a pod that may carry a mark left behind.

    The pod lives on, is marked as preemption's victim, and belongs to no live order that the planner
    knows. The evictor reads all of it anew. Bare JSON, neither stored nor answered.
    """

    api_version: Text
    cluster_uid: Text
    namespace: Text
    name: Text
    uid: Text


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

    async def serve(self, handler: Callable[[bytes], Awaitable[None]]) -> Responder:
        """Hand proposals to `handler`, some at a time, shared with the other evictors.

        Raises:
            BusUnavailable: not connected.
        """

        async def take(message: Msg) -> None:
            await handler(message.data)

        return await serve(
            self._connection,
            self._subject,
            take,
            failed="repair_failed",
            queue=EVICTOR_QUEUE,
            at_once=_AT_ONCE,
        )
