"""Who waits for the end of which order in this process. Pure bookkeeping; nothing depends on it but time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Awaiting:
    """Wakes orders that count on others as soon as this evictor has ended one of those.

    Orders that others carry out are asked for now and then.
    """

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def of(self, order_ids: Sequence[str]) -> Iterator[asyncio.Event]:
        """Return an event that is set each time one of these orders ends here; who waits clears it."""
        event = asyncio.Event()
        for one in order_ids:
            self._waiting[one].add(event)
        try:
            yield event
        finally:
            for one in order_ids:
                self._waiting[one].discard(event)
                if not self._waiting[one]:
                    del self._waiting[one]

    def tell(self, order_id: str) -> None:
        """Wake those that wait for an order; its outcome is written."""
        for event in self._waiting.get(order_id, ()):
            event.set()
