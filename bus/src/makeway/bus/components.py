"""Asking all components at once how they are, and answering.

Planners, evictors and schedulers each answer for themselves; who asks waits a moment and takes what has come.
No list is kept of those that should be there: one that does not answer is known only to what heard it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nats.aio.msg import Msg

from makeway.bus import codec, metrics
from makeway.bus.component_status import ComponentStatus
from makeway.bus.errors import Malformed
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import translated
from makeway.bus.nats.serving import Responder, serve
from makeway.bus.subjects import STATUS, Subjects


class Components:
    """All components that are on one bus."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._subject = subjects.status

    async def answer(self, status: Callable[[], ComponentStatus]) -> Responder:
        """Answer for this component, until it ends.

        Raises:
            BusUnavailable: not connected.
        """

        async def tell(_: Msg) -> bytes:
            return codec.encode(status())

        return await serve(self._connection, self._subject, tell, failed="status_request_failed")

    async def ask(self, seconds: float) -> list[ComponentStatus]:
        """Ask all and give what answers come within so long, by component and identity.

        Answers that are not understood are counted and left out.

        Raises:
            BusUnavailable: not connected.
        """
        found: dict[str, ComponentStatus] = {}

        async def take(message: Msg) -> None:
            if not message.data:
                return  # NATS says that none is there
            try:
                one = codec.decode(ComponentStatus, message.data)
            except Malformed as error:
                metrics.MALFORMED.labels("status", error.reason).inc()
                return
            found[one.identity] = one

        client = self._connection.client
        with translated("ask the components"):
            own, _, token = client.new_inbox().rpartition(".")
            inbox = f"{own}.{STATUS}.{token}"
            subscription = await client.subscribe(inbox, cb=take)
            try:
                await client.publish(self._subject, b"", reply=inbox)
                await asyncio.sleep(seconds)
            finally:
                await subscription.unsubscribe()
        return sorted(found.values(), key=lambda one: (one.component, one.identity))
