"""When to look into a stream again: as soon as a message passes on one of its subjects, or after a while.

A message that passes on core NATS is no proof that the stream has it, or will have it: it may be stored a
moment later, on other servers first, or be refused. So it is a reason to look and no more, and what is read
is what the stream answers. A login that may not subscribe to the subjects looks every `POLL_SECONDS`; all
others do so every `LISTENING_SECONDS`, since a subscription may break without a word.
"""

from __future__ import annotations

import asyncio
from typing import Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from makeway.bus.nats.connection import Connection
from makeway.bus.nats.jetstream import translated, unsubscribed

POLL_SECONDS: Final = 0.2
"""Between two looks of one that does not hear what passes; a look is one request and one answer."""

LISTENING_SECONDS: Final = 1.0
"""Between two looks of one that hears it, where nothing passes."""

_FIRST_PAUSE: Final = 0.01
"""After a look that did not find what had passed; each such look doubles the next pause."""


class Owed:
    """How many messages have passed that were not found, and how long to wait for them. Pure state."""

    def __init__(self) -> None:
        self._count = 0
        self._pause = _FIRST_PAUSE

    def passed(self) -> None:
        """Take in that a message passed."""
        self._count += 1

    def found(self, count: int) -> None:
        """Take in that so many were read."""
        self._count = max(0, self._count - count)
        if count:
            self._pause = _FIRST_PAUSE

    def pause(self, idle: float = POLL_SECONDS) -> float:
        """Return how many seconds to wait before the next look, `idle` where nothing passed.

        The next answer is longer. What was not found within some `POLL_SECONDS` was refused, or read before
        it passed.
        """
        if not self._count:
            return idle
        pause, self._pause = self._pause, 2 * self._pause
        if self._pause > POLL_SECONDS:
            self._count, self._pause = 0, _FIRST_PAUSE
        return pause


class WakeUp:
    """Waits for one stream. `subject`: where its messages pass; empty for a login that may not subscribe."""

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection = connection
        self._subject = subject
        self._subscription: Subscription | None = None
        self._owed = Owed()
        self._passed = asyncio.Event()

    async def open(self) -> None:
        """Subscribe, where that has not been done; raises `BusUnavailable`."""
        if self._subject and self._subscription is None:
            with translated(f"subscribe to {self._subject}"):
                self._subscription = await self._connection.subscribe_if_allowed(
                    self._subject, self._on_message
                )

    async def close(self) -> None:
        """Subscribe no more."""
        subscription, self._subscription = self._subscription, None
        await unsubscribed(subscription)

    async def wait(self, found: int) -> None:
        """Wait for a reason to look again; `found`: messages that came since the last wait."""
        self._owed.found(found)
        hears = self._subscription is not None and not self._connection.is_refused(self._subject)
        try:
            async with asyncio.timeout(self._owed.pause(LISTENING_SECONDS if hears else POLL_SECONDS)):
                await self._passed.wait()
        except TimeoutError:
            return
        self._passed.clear()

    async def _on_message(self, _: Msg) -> None:
        self._owed.passed()
        self._passed.set()
