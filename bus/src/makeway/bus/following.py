"""What more than one part reads: what a stream holds, the control state, one cluster's outcomes.

A message that is not understood, or is another cluster's, changes nothing; it is logged, and told to whoever
counts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import structlog

from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.errors import Malformed
from makeway.bus.messages import Outcome, StreamPosition
from makeway.bus.nats.jetstream import StoredMessage
from makeway.bus.signing.signatures import FAILURES

_PASSING: Final = FAILURES | {"future-revision"}
"""Reasons that speak of this process's keys or clock as much as of the message."""

_log = structlog.get_logger()


T = TypeVar("T")


def _now() -> datetime:
    return datetime.now(UTC)


async def past_messages(
    bus: Bus,
    stream: str,
    decode: Callable[[bytes], T],
    *,
    since: datetime | None = None,
    subjects: Sequence[str] = (),
) -> AsyncGenerator[T]:
    """Read what a stream holds now, from a moment on, oldest first; what is malformed is left out.

    `subjects`: as of `Bus.follow`. Raises BusError. One that does not exist is waited for.
    """
    async with aclosing(bus.follow(stream, since=since, subjects=subjects, stop_at_end=True)) as messages:
        async for message in messages:
            try:
                yield decode(message.data)
            except Malformed:
                continue


async def follow_control(
    bus: Bus,
    cluster_uid: str,
    *,
    take: Callable[[ControlState], None],
    refused: Callable[[], None],
    caught_up: asyncio.Event,
    now: Callable[[], datetime] = _now,
) -> None:
    """Have each control state of a cluster taken, in the order of the stream; ends with the process.

    In that order a planner puts one only if it has read the one before. One that is older than the one taken
    last is a copy. Only a stream that was made anew begins at a lower sequence, and may go on with a lower
    revision. `refused`: called for each that is not taken. The last one, where keys that are read later or a
    clock that is set right may bear it out, is tried again whenever there is none behind it: the planner says
    nothing twice.
    """
    sequence = revision = 0
    waiting: StoredMessage | None = None
    stream = bus.subjects.control_stream

    def consider(message: StoredMessage) -> None:
        nonlocal sequence, revision, waiting
        again, waiting = message is waiting, None
        try:
            state = bus.signatures.control(message.data, message.subject, now())
        except Malformed as error:
            why: str = error.reason
            waiting = message if why in _PASSING else None
        else:
            why = "" if state.cluster_uid == cluster_uid else "other-cluster"
            if not why and message.sequence > sequence and state.revision < revision:
                why = "old-revision"
        if not why:
            sequence, revision = message.sequence, state.revision
            take(state)
        elif not again:
            refused()
            _log.warning("message_malformed", source="control", sequence=message.sequence, reason=why)

    def try_again(_: float) -> None:
        if waiting is not None:
            consider(waiting)

    async for message in bus.follow(stream, caught_up=caught_up, at_end=try_again):
        consider(message)


async def follow_outcomes(
    bus: Bus,
    cluster_uid: str,
    since: timedelta,
    *,
    take: Callable[[Outcome], None],
    refused: Callable[[], None] = lambda: None,
    caught_up: asyncio.Event | None = None,
    reached: Callable[[StreamPosition], None] | None = None,
) -> None:
    """Have each outcome of a cluster's orders taken; ends with the process.

    `refused`: called for each that is not understood. `caught_up`, `reached`: as of `Bus.follow`.
    """
    stream = bus.subjects.outcomes_stream
    async for message in bus.follow(stream, since=since, caught_up=caught_up, reached=reached):
        try:
            outcome = bus.signatures.outcome(message.data, message.subject)
        except Malformed as error:
            refused()
            _log.warning(
                "message_malformed", source="outcomes", sequence=message.sequence, reason=error.reason
            )
            continue
        if outcome.cluster_uid == cluster_uid:
            take(outcome)
