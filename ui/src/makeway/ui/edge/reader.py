"""Keeps the timeline and the comparisons as the streams have them, and tells who waits that they changed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.component_status import ComponentStatus
from makeway.bus.errors import BusUnavailable, StreamConflict
from makeway.cli.history.story import Message
from makeway.cli.history.streams import everything
from makeway.ui.model.observed import Comparisons
from makeway.ui.model.timeline import Timeline

_TICK_SECONDS: Final = 0.25
_TICKS_TO_SETTLE: Final = 4
_RETRY_SECONDS: Final = 5.0
_STATUS_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 0.5
_ASKED_LATELY_SECONDS: Final = 60.0

_log = structlog.get_logger()


class Reader:
    """What the streams say, as it comes.

    `trouble`: why nothing is read at the moment; empty where all is well. `parts`: the components that
    answered last; None before the first request.
    """

    def __init__(self, bus: Bus, look_back: timedelta) -> None:
        self.timeline = Timeline()
        self.comparisons = Comparisons()
        self.trouble = ""
        self.parts: list[ComponentStatus] | None = None
        self._bus = bus
        self._look_back = look_back
        self._changed = asyncio.Event()
        self._told = 0
        self._wanted = -_ASKED_LATELY_SECONDS

    def want_parts(self) -> None:
        """Have the components asked for a while: someone looks at them."""
        self._wanted = asyncio.get_running_loop().time()

    async def changed(self, revision: int, seconds: float) -> bool:
        """Wait until something has changed since a revision, at most so long; report whether it has."""
        if self._told > revision:
            return True
        event = self._changed
        try:
            async with asyncio.timeout(seconds):
                return await event.wait()
        except TimeoutError:
            return False

    async def run(self) -> None:
        """Read until the connection is beyond repair. Raises ConnectionLost."""
        await asyncio.gather(self._bus.until_lost(), self._read(), self.tell(), self._ask())

    async def _read(self) -> None:
        while True:
            since = datetime.now(UTC) - self._look_back
            try:
                async with aclosing(
                    everything(self._bus, since=since, follow=True, past_read=self.timeline.complete)
                ) as entries:
                    self.trouble = ""
                    async for entry in entries:
                        if isinstance(entry.content, Message):
                            self.put(entry.content, datetime.now(UTC))
            except (StreamConflict, BusUnavailable) as error:
                if self.trouble != str(error):
                    _log.warning("ui_streams_unread", error=str(error))
                self.trouble = str(error)
            await asyncio.sleep(_RETRY_SECONDS)

    def put(self, content: Message, now: datetime) -> None:
        """Take in what a message says."""
        if isinstance(content, Comparison):
            self.comparisons.add(content)
        self.timeline.add(content, now)

    async def tell(self) -> None:
        """Wake those who wait, a few times a second at most, for ever."""
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            ticks += 1
            if ticks % _TICKS_TO_SETTLE == 0:
                self.timeline.settle(datetime.now(UTC))
            if self.timeline.revision != self._told:
                self._told = self.timeline.revision
                self._changed.set()
                self._changed = asyncio.Event()

    async def _ask(self) -> None:
        while True:
            if asyncio.get_running_loop().time() - self._wanted < _ASKED_LATELY_SECONDS:
                try:
                    self.parts = await self._bus.components.ask(_ASK_SECONDS)
                except BusUnavailable:
                    self.parts = None
            await asyncio.sleep(_STATUS_SECONDS if self.parts else _ASK_SECONDS)
