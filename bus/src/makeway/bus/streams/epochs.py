"""Fencing epochs where no Lease has them: a counter for each scheduler in a NATS key-value bucket.

A scheduler without leader election increments its counter when it starts, and writes the number
into its orders; whoever carries an order out compares it with the counter then. The value is the
number in decimal. Only plain reads and compare-and-set writes: no watch.
"""

from __future__ import annotations

import re
from typing import Final

from tenacity import AsyncRetrying, RetryError, retry_if_exception, stop_after_attempt, wait_random

from makeway.bus.errors import BusUnavailable
from makeway.bus.nats.jetstream import EXPECTED_LAST_SUBJECT_SEQUENCE, JetStream, JetStreamError
from makeway.bus.streams.configs import ensure_stream, epochs_config
from makeway.bus.subjects import Subjects

_KEY: Final = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
_ATTEMPTS: Final = 20
_TIMEOUT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1


def _passes(error: BaseException) -> bool:
    """Report whether another writer was first, or the server says that it may work later."""
    return isinstance(error, JetStreamError) and (error.wrong_last_sequence or error.temporary)


class Epochs:
    """The counters of one prefix."""

    def __init__(self, jetstream: JetStream, subjects: Subjects) -> None:
        self._jetstream = jetstream
        self._subjects = subjects
        self._stream = f"KV_{subjects.epochs_bucket}"

    async def ensure(self, replicas: int = 1) -> None:
        """Create the bucket or bring it back; raises as `ensure_stream`."""
        await ensure_stream(self._jetstream, epochs_config(self._subjects, replicas))

    async def current(self, key: str) -> int:
        """The epoch of a scheduler; 0 before its first.

        Raises:
            ValueError: the key is not one, or what the bucket holds is no number.
            JetStreamError, BusUnavailable: it could not be read.
        """
        return (await self._read(key))[0]

    async def increment(self, key: str) -> int:
        """Begin a new epoch and return it. No two callers get the same.

        Raises:
            ValueError, JetStreamError, BusUnavailable: as `current`. After `BusUnavailable` an epoch may
                have been used up, which is harmless.
        """
        attempts = AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random(0, _PAUSE_SECONDS),
            retry=retry_if_exception(_passes),
        )
        try:
            return await attempts(self._advance, key)
        except RetryError as error:
            raise BusUnavailable(f"epoch of {key}: others were first {_ATTEMPTS} times") from error

    async def _advance(self, key: str) -> int:
        """Begin a new epoch, once."""
        epoch, sequence = await self._read(key)
        await self._jetstream.publish(
            self._subject(key),
            str(epoch + 1).encode(),
            headers={EXPECTED_LAST_SUBJECT_SEQUENCE: str(sequence)},
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        return epoch + 1

    async def _read(self, key: str) -> tuple[int, int]:
        """The epoch and its message's sequence."""
        stored = await self._jetstream.last_message(self._stream, self._subject(key))
        return (int(stored.data), stored.sequence) if stored else (0, 0)

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"{key!r} cannot be a key: use letters, digits and any of - _ = / and inner dots"
            )
        return f"$KV.{self._subjects.epochs_bucket}.{key}"
