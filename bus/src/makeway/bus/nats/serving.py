"""A subscription whose messages go to a handler, whatever becomes of any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from makeway.bus import metrics
from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import translated, unsubscribed
from makeway.bus.subjects import matches

_MAX_WAITING: Final = 256
_MAX_TOLD: Final = 200

_log = structlog.get_logger()


class Responder:
    """One that is served until `unsubscribe`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        """Take no more. What is waiting here is left; whoever asked waits until its time-out."""
        await unsubscribed(self._subscription)


async def serve(
    connection: Connection,
    subject: str,
    handler: Callable[[Msg], Awaitable[bytes | None]],
    *,
    failed: str,
    queue: str = "",
    at_once: int = 1,
) -> Responder:
    """Hand what comes on a subject to `handler`, and publish what it returns as the answer.

    So many messages are handled `at_once`, begun in their order; by default one after another.

    A message to be answered elsewhere than where the component answers is left alone, logged and counted.
    An error of the handler leaves that message without an answer; it is logged as `failed` and counted, and
    the next is handled. `queue`: of those that share the messages.

    Raises:
        BusUnavailable: not connected.
    """
    places = asyncio.Semaphore(at_once)
    under_way: set[asyncio.Task[None]] = set()

    def ended(task: asyncio.Task[None]) -> None:
        under_way.discard(task)
        places.release()

    async def take(message: Msg) -> None:
        await places.acquire()
        task = asyncio.create_task(handle(message))
        under_way.add(task)
        task.add_done_callback(ended)

    async def handle(message: Msg) -> None:
        if message.reply and not any(matches(message.reply, one) for one in connection.answers):
            metrics.REPLIES_REFUSED.inc()
            _log.warning("reply_refused", subject=subject, reply=message.reply[:_MAX_TOLD])
            return
        try:
            answer = await handler(message)
            if answer is not None and message.reply:
                await connection.client.publish(message.reply, answer)
        except Exception as error:  # noqa: BLE001 - the top of a request: one must not end the service
            metrics.HANDLER_ERRORS.inc()
            _log.error(failed, error=str(error), exc_info=error)

    with translated(f"subscribe to {subject}"):
        subscription = await connection.client.subscribe(
            subject,
            queue=queue,
            cb=handle if at_once == 1 else take,
            pending_msgs_limit=_MAX_WAITING,
        )
    return Responder(subscription)
