"""Named pull consumers for programs of others that read along: made, brought back, and taken away again.

`makeway streams` alone makes them, and knows those that it has made by a mark in their metadata; a consumer
without it is left alone. None can slow a part of makeway: streams keep messages by their limits, and not by
who has read them, so a consumer that reads nothing holds none back and loses those that age out. Whoever
reads asks for each batch, so nothing is sent to one that is slow; how much may be asked for and be
unacknowledged at a time is bounded. Each has a position and acknowledgements of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from makeway.bus.errors import BusUnavailable, StreamConflict
from makeway.bus.nats.jetstream import JetStream, JetStreamError
from makeway.bus.streams.configs import EVICTOR_CONSUMER, told
from makeway.bus.streams.consumer import consumer_drift, passes
from makeway.bus.subjects import READER, Subjects

STREAMS: Final = ("decisions", "orders", "begun", "outcomes")
"""Streams that a consumer may read, as their names end."""

_MARK: Final = "makeway.dev/made-by"
_MAKER: Final = "makeway-streams"
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_SECOND: Final = 1_000_000_000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NamedConsumer:
    """A reader's name, and the streams that it reads, of `STREAMS`."""

    name: str
    streams: tuple[str, ...]

    @property
    def user(self) -> str:
        """The login that may fetch from it."""
        return f"{READER}{self.name}"


def parsed(text: str) -> tuple[NamedConsumer, ...]:
    """Read consumers as `makeway streams --consumers` takes them: audit=outcomes,orders;bill=outcomes.

    Raises:
        ValueError: a name is none, is there twice or is the evictors'; a stream is unknown, or none is named.
    """
    found: dict[str, NamedConsumer] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, _, streams = (one.strip() for one in part.partition("="))
        kinds = tuple(dict.fromkeys(one.strip() for one in streams.split(",") if one.strip()))
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"consumer {name!r}: a name begins with a small letter and has up to 40 of a-z, 0-9 and -"
            )
        if name == EVICTOR_CONSUMER:
            raise ValueError(f"consumer {name}: that is the evictors' own consumer; choose another name")
        if name in found:
            raise ValueError(
                f"consumer {name}: the name is there twice; name each once, with all its streams"
            )
        if unknown := [kind for kind in kinds if kind not in STREAMS]:
            raise ValueError(
                f"consumer {name}: no stream {', '.join(unknown)}; there are {', '.join(STREAMS)}"
            )
        if not kinds:
            raise ValueError(f"consumer {name}: it names no stream; there are {', '.join(STREAMS)}")
        found[name] = NamedConsumer(name, kinds)
    return tuple(found.values())


def stream_of(subjects: Subjects, kind: str) -> str:
    """Return the stream's name on the server, for one of `STREAMS`."""
    return {
        "decisions": subjects.decisions_stream,
        "orders": subjects.orders_stream,
        "begun": subjects.begun_stream,
        "outcomes": subjects.outcomes_stream,
    }[kind]


def consumer_config(subjects: Subjects, name: str, kind: str) -> dict[str, Any]:
    """Return one consumer as the fields that makeway owns. It begins with all that its stream holds."""
    return {
        "name": name,
        "durable_name": name,
        "filter_subject": subjects.of_stream(stream_of(subjects, kind)),
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_policy": "explicit",
        # What was not acknowledged by then is delivered again.
        "ack_wait": 30 * _SECOND,
        "max_deliver": -1,
        # At the reader and not acknowledged; beyond it nothing more is delivered.
        "max_ack_pending": 1000,
        # Open fetches, messages of one, and how long one may wait: an import between accounts lives longer.
        "max_waiting": 16,
        "max_batch": 256,
        "max_expires": 60 * _SECOND,
    }


async def ensure_named_consumers(
    jetstream: JetStream, subjects: Subjects, wanted: Iterable[NamedConsumer]
) -> None:
    """Make or bring back these, and delete others of ours.

    Raises:
        StreamConflict: a consumer of the name is another's, or the server refuses one for good.
        BusUnavailable: NATS does not answer, or the login may not ask for consumers.
    """
    wanted = tuple(wanted)
    for kind in STREAMS:
        stream = stream_of(subjects, kind)
        names = [one.name for one in wanted if kind in one.streams]
        try:
            there = {info["name"]: info for info in await _listed(jetstream, stream)}
            for name in names:
                await _ensure(jetstream, stream, consumer_config(subjects, name, kind), there.get(name))
            for name, info in there.items():
                if name not in names and _is_ours(info):
                    await jetstream.api(f"CONSUMER.DELETE.{stream}.{name}")
                    _log.info("named_consumer_deleted", stream=stream, consumer=name)
        except JetStreamError as error:
            if passes(error):
                raise BusUnavailable(f"consumers of stream {stream}: {error.description}") from error
            raise StreamConflict(f"consumers of stream {stream}: {error.description}") from error


async def unread(jetstream: JetStream, subjects: Subjects) -> dict[tuple[str, str], int]:
    """Return how many messages each consumer of ours has not acknowledged, by its name and its stream's kind.

    Raises:
        JetStreamError, BusUnavailable: as `JetStream.api`.
    """
    return {
        (info["name"], kind): int(info["num_pending"]) + int(info["num_ack_pending"])
        for kind in STREAMS
        for info in await _listed(jetstream, stream_of(subjects, kind))
        if _is_ours(info)
    }


async def _ensure(
    jetstream: JetStream, stream: str, config: Mapping[str, Any], info: Mapping[str, Any] | None
) -> None:
    name = config["name"]
    if info is not None:
        if not _is_ours(info):
            raise StreamConflict(
                f"consumer {name} of stream {stream} was not made by makeway: choose another name, or delete "
                "that consumer"
            )
        different = consumer_drift(config, info)
        if not different:
            return
        _log.warning("named_consumer_reconciled", stream=stream, consumer=name, found=told(different))
    create = f"CONSUMER.CREATE.{stream}.{name}.{config['filter_subject']}"
    request = {"stream_name": stream, "config": {**config, "metadata": {_MARK: _MAKER}}}
    try:
        await jetstream.api(create, request)
    except JetStreamError as error:
        if info is None or passes(error):
            raise
        # A field that cannot be changed in place: what it has read is delivered again.
        await jetstream.api(f"CONSUMER.DELETE.{stream}.{name}")
        await jetstream.api(create, request)
    if info is None:
        _log.info("named_consumer_created", stream=stream, consumer=name)


async def _listed(jetstream: JetStream, stream: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    while True:
        answer = await jetstream.api(f"CONSUMER.LIST.{stream}", {"offset": len(found)})
        page = answer.get("consumers") or []
        found += page
        if not page or len(found) >= int(answer["total"]):
            return found


def _is_ours(info: Mapping[str, Any]) -> bool:
    return (info["config"].get("metadata") or {}).get(_MARK) == _MAKER
