"""Asking for a list in pages that are bounded in objects and in bytes.

Objects are as large as their authors make them, up to some MiB each: 500 of the largest would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from makeway.runtime.kube import AnswerTooLong

PAGE_OBJECTS: Final = 500
"""Objects that a page has at the most; client-go's default."""

PAGE_BYTES: Final = 32 * 1024 * 1024
"""Bytes that a page may have; some three times what 500 pods usually take, and more than any object."""

SHORT_BYTES: Final = PAGE_BYTES // 4
"""After a page shorter than this the next has twice as many objects: where they are as large, it takes less
than half of `PAGE_BYTES`."""


class Paging:
    """The requests for one list.

    `ask`: send the request with these parameters, and raise AnswerTooLong above `PAGE_BYTES`. `objects`:
    asked for at first, and at the most. A page that is too long is asked for again with half as many objects,
    and so are those that follow, until one is shorter than `SHORT_BYTES`.
    """

    def __init__(
        self, ask: Callable[[Mapping[str, str]], Awaitable[bytes]], objects: int = PAGE_OBJECTS
    ) -> None:
        self._ask = ask
        self._objects = self._most = objects

    async def page(self, token: str) -> bytes:
        """Return a page: the first without a token, else the one that the `continue` of the last one names.

        Raises what `ask` raises; AnswerTooLong where one object alone is too long.
        """
        while True:
            query = {"limit": str(self._objects)}
            if token:
                query["continue"] = token
            try:
                page = await self._ask(query)
            except AnswerTooLong:
                if self._objects == 1:
                    raise
                self._objects //= 2
                continue
            if len(page) < SHORT_BYTES:
                self._objects = min(2 * self._objects, self._most)
            return page
