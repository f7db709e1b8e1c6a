"""The evictors' consumer on the server: made, compared with what it should be, made anew where it is another.

Whoever may create consumers could have pointed it elsewhere, and a filter that matches nothing looks like
a quiet cluster. So every setting counts here, those that makeway leaves alone too: a consumer that differs
in more than its pace may have passed orders over, and is deleted and made anew from the orders that may
be alive. A repeated delivery does no harm; an order that has ended is acknowledged at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from makeway.bus.errors import StreamConflict
from makeway.bus.nats.jetstream import JetStream, JetStreamError, written_time
from makeway.bus.streams.configs import drift, told

_CONSUMER_REFUSED: Final = 10012
# The one refusal under that number which passes: the files of a consumer just deleted are still going.
_STORE_BUSY: Final = "error creating store for consumer"
_NO_CONSUMER: Final = 10014
_BY_START_TIME: Final = "by_start_time"
_STARTS: Final = ("all", _BY_START_TIME)
"""Where a consumer of ours may have started: older versions read the whole stream."""

_PACE: Final = frozenset({"ack_wait", "max_ack_pending"})
"""What can be set right in place: no order is passed over for it."""

_FREE: Final = frozenset({"opt_start_time", "max_waiting", "num_replicas", "metadata", "description"})
"""What the server fills in, or an operator may choose."""

_log = structlog.get_logger()


def consumer_drift(wanted: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return how a consumer differs from `wanted`, as (found, wanted); `info` as CONSUMER.INFO answers.

    What `wanted` does not name must be JetStream's zero, but for what is free.
    """
    found = info["config"]
    different = drift(wanted, found, _FREE | {"deliver_policy"})
    if (starts := found.get("deliver_policy")) not in _STARTS:
        different["deliver_policy"] = (starts, _BY_START_TIME)
    if info.get("paused"):
        different["paused"] = (True, False)
    return different


def passes(error: JetStreamError) -> bool:
    """Report whether the server may make or change the consumer later, which it has refused now."""
    return error.temporary and (error.err_code != _CONSUMER_REFUSED or error.description == _STORE_BUSY)


async def ensure_consumer(
    jetstream: JetStream, stream: str, config: Mapping[str, Any], start: datetime
) -> None:
    """Create a consumer that starts with the first message since `start`, or bring one back to `config`.

    One that is there and differs in its pace alone keeps where it is. Several processes may call this at
    once: where another one was first, its start stands.

    Raises:
        StreamConflict: the server refuses the consumer for good.
        JetStreamError: with `not_found`, where the stream does not exist; with `temporary`, where the
            server is overloaded or still deletes the consumer that had the name.
        BusUnavailable: NATS does not answer.
    """
    name, filter_ = config["name"], config["filter_subject"]
    create = f"CONSUMER.CREATE.{stream}.{name}.{filter_}"
    new = {"deliver_policy": _BY_START_TIME, "opt_start_time": written_time(start)}
    try:
        begun = await _begun(jetstream, stream, config)
        try:
            await jetstream.api(create, {"stream_name": stream, "config": {**config, **(begun or new)}})
        except JetStreamError:
            # Another process may have been first.
            if begun is not None or (begun := await _begun(jetstream, stream, config)) is None:
                raise
            await jetstream.api(create, {"stream_name": stream, "config": {**config, **begun}})
    except JetStreamError as error:
        if error.not_found or passes(error):
            raise
        raise StreamConflict(f"consumer {name} of stream {stream}: {error.description}") from error


async def _begun(jetstream: JetStream, stream: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return where an existing consumer started; None where there is none, or none that can stay."""
    name = config["name"]
    try:
        info = await jetstream.api(f"CONSUMER.INFO.{stream}.{name}")
    except JetStreamError as error:
        if error.err_code == _NO_CONSUMER:
            return None
        raise
    different = consumer_drift(config, info)
    if different.keys() <= _PACE:
        found = info["config"]
        return {key: found[key] for key in ("deliver_policy", "opt_start_time") if key in found}
    _log.error("consumer_made_anew", stream=stream, consumer=name, found=told(different))
    try:
        await jetstream.api(f"CONSUMER.DELETE.{stream}.{name}")
    except JetStreamError as error:
        if error.err_code != _NO_CONSUMER:
            raise
    return None
