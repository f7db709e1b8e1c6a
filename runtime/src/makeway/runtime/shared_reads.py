"""One read that answers all who asked for the same thing before it began.

Orders that are carried out at the same time read the same fence, the same PriorityClasses and often the
same node; whoever asks for metrics reads the same registry. Whoever asks while such a read is under way gets
the next one, together with all others who wait for it: no answer is older than the question, just as if each
had read by itself. Where a second does not matter, as with PriorityClasses, an answer serves for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

PATIENCE_SECONDS = 0.05
"""How long a read keeps the next one waiting by default: one that is lost or slow holds up its own askers."""

LONG_PATIENCE_SECONDS = 5.0
"""The same of a read of very many objects: 10,000 pods, or all members of a gang, take a second."""

MOST_KEPT: Final = 1000
"""Answers of one kind that are kept."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedReads(Generic[K, T]):
    """Reads of one kind of object, by key. Of each key at most one waits.

    `read` is what reads one of them. Whatever it raises is raised to each of its askers. `patience`: how many
    seconds a read may keep the next one waiting. `lasts`: how many seconds ago a read may have begun whose
    answer serves; 0: none that began before the question.
    """

    def __init__(
        self, read: Callable[[K], Awaitable[T]], patience: float = PATIENCE_SECONDS, *, lasts: float = 0.0
    ) -> None:
        self._read = read
        self._patience = patience
        self._lasts = lasts
        self._kept: dict[K, tuple[float, T]] = {}
        self._under_way: dict[K, asyncio.Future[None]] = {}
        self._waiting: dict[K, asyncio.Task[T]] = {}

    async def __call__(self, key: K) -> T:
        """Return what a read finds that begins after this call, or began no longer ago than it may last.

        With no other under way it begins at once and costs nothing more. Cancelling an asker takes nothing
        from the others.
        """
        kept = self._kept.get(key)
        if kept is not None and asyncio.get_running_loop().time() - kept[0] <= self._lasts:
            return kept[1]
        waiting = self._waiting.get(key)
        if waiting is None:
            under_way = self._under_way.get(key)
            if under_way is None:
                return await self._begin(key)
            waiting = self._waiting[key] = asyncio.create_task(self._after(key, under_way))
            waiting.add_done_callback(_seen)
        return await asyncio.shield(waiting)

    async def _after(self, key: K, under_way: asyncio.Future[None]) -> T:
        await asyncio.wait((under_way,), timeout=self._patience)
        # Whoever asks from here on gets a later read; nothing is awaited before this one is under way.
        del self._waiting[key]
        return await self._begin(key)

    async def _begin(self, key: K) -> T:
        loop = asyncio.get_running_loop()
        over, began = loop.create_future(), loop.time()
        self._under_way[key] = over
        try:
            found = await self._read(key)
            if self._lasts:
                if len(self._kept) >= MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = began, found
            return found
        finally:
            over.set_result(None)
            if self._under_way.get(key) is over:
                del self._under_way[key]


def _seen(task: asyncio.Task[T]) -> None:
    """Keep the loop from reporting an error as lost where all who asked have been cancelled."""
    if not task.cancelled():
        task.exception()
