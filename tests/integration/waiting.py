"""Wait for something to come true, with a message that says what was seen instead."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENT_SECONDS = 120.0
"""No promise: what takes a second on a machine of its own may take a minute on a busy one."""

IN_FORCE_SECONDS = 180.0
"""A new API server may take a minute, and longer on a busy machine, until it goes by admission policies."""

_LONGEST_SECONDS = 0.5
"""Between two times of asking."""
_MOST_CHARACTERS = 2000
"""Of what was seen last."""


class NotYet(Exception):  # noqa: N818 - a state, not an error
    """Raised by a probe to say what it saw instead."""


async def until(
    what: str,
    probe: Callable[[], Awaitable[T | None]],
    *,
    seconds: float = PATIENT_SECONDS,
    every: float = 0.05,
) -> T:
    """Ask again and again until the probe gives a true value, and give that.

    Asking comes every `every` seconds, and less often the longer it has taken, so that many may wait at once.

    Raises:
        AssertionError: not within `seconds`; the text has `what` and what the probe saw last.
    """
    begin = time.monotonic()
    while True:
        seen: object = None
        try:
            if answer := await probe():
                return answer
            seen = answer
        except NotYet as not_yet:
            seen = not_yet
        waited = time.monotonic() - begin
        if waited > seconds:
            last = f"{seen}"[:_MOST_CHARACTERS]
            raise AssertionError(f"{what}: not within {seconds:g} s; last seen: {last}")
        await asyncio.sleep(max(every, min(waited / 10, _LONGEST_SECONDS)))


async def until_seen(
    what: str,
    read: Callable[[], Awaitable[T]],
    wanted: Callable[[T], object],
    *,
    seconds: float = PATIENT_SECONDS,
    every: float = 0.05,
) -> T:
    """Read again and again until what is read is as wanted, and give that; see `until`."""

    async def probe() -> tuple[T]:
        if not wanted(seen := await read()):
            raise NotYet(f"{seen}")
        return (seen,)

    return (await until(what, probe, seconds=seconds, every=every))[0]
