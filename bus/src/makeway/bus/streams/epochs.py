"""Fencing epochs where no Lease has them: a key for each scheduler in a NATS key-value bucket.

A scheduler without leader election writes its key when it starts, and the sequence of that message in
the bucket into its orders; whoever carries an order out compares it with that of the key's last message then.
The bucket's sequence grows with each message, so that no two starts have one number. No watch.
"""

from __future__ import annotations

import re
from typing import Final

from makeway.bus.nats.jetstream import JetStream
from makeway.bus.streams.configs import ensure_stream, epochs_config
from makeway.bus.subjects import Subjects

_KEY: Final = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
_TIMEOUT_SECONDS: Final = 2.0


class Epochs:
    """The epochs of one prefix."""

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
            ValueError: the key is not one.
            JetStreamError, BusUnavailable: it could not be read.
        """
        stored = await self._jetstream.last_message(self._stream, self._subject(key))
        return stored.sequence if stored else 0

    async def increment(self, key: str) -> int:
        """Begin a new epoch and return it. No two callers get the same.

        Raises:
            ValueError, JetStreamError, BusUnavailable: as `current`. After `BusUnavailable` an epoch may
                have been used up, which is harmless.
        """
        ack = await self._jetstream.publish(
            self._subject(key), b"", headers={}, timeout_seconds=_TIMEOUT_SECONDS
        )
        return ack.sequence

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"{key!r} cannot be a key: use letters, digits and any of - _ = / and inner dots"
            )
        return f"$KV.{self._subjects.epochs_bucket}.{key}"
