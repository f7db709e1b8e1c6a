"""The streams and their limits, the evictors' consumer, and how both are kept to what is written here.

The configurations are pure data. `ensure_streams` creates what is missing and brings back what has
drifted, in every field: a republish, a source or a limit of messages that makeway did not set would forge
or drop orders. Only what is free stays, as an operator's placement, compression or description. What
JetStream cannot change in place (retention, storage) is refused with a sentence. Where the login may only
look, `wrong_streams` says what is otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import structlog

from makeway.bus.codec import MAX_BYTES
from makeway.bus.errors import BusUnavailable, StreamConflict
from makeway.bus.nats.jetstream import JetStream, JetStreamError
from makeway.bus.subjects import Subjects

_SECOND: Final = 1_000_000_000
_DAY: Final = 24 * 3600 * _SECOND
_MIB: Final = 1 << 20

ACK_WAIT_SECONDS: Final = 10
"""An order is given to another evictor when the one that has it is silent for so long: as long as its
preemptor waits where an evictor dies. One that was only slow does no harm, as every effect is idempotent."""

EVICTOR_CONSUMER: Final = "evictor"

_FREE: Final = frozenset(
    {"placement", "compression", "description", "metadata", "consumer_limits", "first_seq", "mirror_direct"}
)
"""Fields that change nothing of what is in a stream: the server fills them in, or an operator may choose."""

_FIXED: Final = ("retention", "storage")
_STREAM_NOT_FOUND: Final = 10059
_NAME_IN_USE: Final = 10058
_UNAVAILABLE: Final = 503
_NO_STORAGE: Final = 10047

_log = structlog.get_logger()


def stream_configs(subjects: Subjects, replicas: int = 1) -> list[dict[str, Any]]:
    """Every stream of one prefix, as the fields that makeway owns.

    Limits retention, since a work queue with a delivery limit has lost messages on three replicas
    (nats-server#7817) and since audit reads what evictors have acknowledged. `discard: old`: a full
    stream forgets the oldest rather than refuse the newest, as an outcome that cannot be written
    would hold its preemptor back for nothing.
    """

    def stream(
        name: str, listens: str, *, days: int, mebibytes: int, each: int, **more: Any
    ) -> dict[str, Any]:
        """`days`: of a message; 0 for ever. `each`: the most messages of one subject."""
        return {
            **_common(replicas),
            "name": name,
            "subjects": [listens],
            "max_age": days * _DAY,
            "max_bytes": mebibytes * _MIB,
            "max_msgs_per_subject": each,
            "discard": "old",
            "max_msg_size": MAX_BYTES,
            # Nor can that be taken back: what is stored leaves by its limits alone.
            "deny_purge": True,
            **more,
        }

    return [
        # Looked back on by audit. An order is about 1 KiB and 250 bytes a victim: room for some 300,000
        # orders, one every two seconds for the whole week. One is live; the ones before it have their
        # outcomes and are kept for the eye.
        stream(subjects.orders_stream, subjects.orders, days=7, mebibytes=512, each=8),
        # As long as the orders they end. One outcome an order; writers expect sequence 0.
        stream(subjects.outcomes_stream, subjects.outcomes, days=7, mebibytes=512, each=1),
        # Read while an order may be taken over, which is void after a minute. About 500 bytes an order with
        # units.
        stream(subjects.begun_stream, subjects.begun_orders, days=1, mebibytes=32, each=1),
        # Every plan and refusal, so the bulk of the bytes: a few KiB each. A pod that is refused every minute
        # for three days must not push out all others.
        stream(subjects.decisions_stream, subjects.decisions, days=3, mebibytes=512, each=100),
        # The last word counts until there is another, however long ago it was said. One message, of 1 MiB at
        # most; the rest is for the moment in which one replaces another.
        stream(subjects.control_stream, subjects.control, days=0, mebibytes=4, each=1),
        # For people to look at; a flood of rubbish must not fill the disk. The newest are kept. A subject a
        # component: what floods one leaves the others theirs. A planner reads half an hour back when it
        # starts; what it meets again is stored once.
        stream(
            subjects.quarantine_stream,
            subjects.quarantine,
            days=30,
            mebibytes=256,
            each=5000,
            duplicate_window=3600 * _SECOND,
        ),
        # Read by people who ask how a decision came about, soon after it. A recording of a cluster of 50,000
        # pods begins with about 5 MiB and ends when it has grown by as much, or after six hours at the most;
        # it grows by two parts a second.
        stream(subjects.recordings_stream, subjects.recordings, days=1, mebibytes=256, each=50_000),
    ]


def epochs_config(subjects: Subjects, replicas: int = 1) -> dict[str, Any]:
    """The bucket that holds fencing epochs where no Lease does; in the form of NATS key-value buckets are."""
    return {
        **_common(replicas),
        "name": f"KV_{subjects.epochs_bucket}",
        "subjects": [f"$KV.{subjects.epochs_bucket}.>"],
        # For each scheduler without election one empty message, whose sequence counts; it must never age.
        "max_age": 0,
        "max_bytes": 1 * _MIB,
        "max_msg_size": 1024,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
    }


def _common(replicas: int) -> dict[str, Any]:
    return {
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs": -1,
        "max_consumers": -1,
        "allow_direct": True,
        # That cannot be taken back.
        "deny_delete": True,
        # Publishers repeat an ambiguous publish within seconds; an order is void after one minute.
        "duplicate_window": 120 * _SECOND,
    }


def evictor_config(subjects: Subjects) -> dict[str, Any]:
    """The evictors' durable consumer on the orders, without where it starts: see `consumer.ensure_consumer`.

    No delivery limit: an order is only left alone by its outcome, and poison is put aside by the
    evictor itself, which reads the delivery count before it decodes.
    """
    return {
        "durable_name": EVICTOR_CONSUMER,
        "name": EVICTOR_CONSUMER,
        "filter_subject": subjects.orders,
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_SECONDS * _SECOND,
        "max_deliver": -1,
        # Orders in the hands of all evictors together, and those that were given back and wait to come again.
        "max_ack_pending": 10_000,
        "replay_policy": "instant",
    }


def drift(
    wanted: Mapping[str, Any], found: Mapping[str, Any], free: Set[str] | None = None
) -> dict[str, tuple[Any, Any]]:
    """Return how `found` differs from `wanted`, as (found, wanted). Absent is JetStream's zero.

    `free`: of the fields that `wanted` does not name, those that may be anything; None: all of them.
    """
    unnamed = () if free is None else found.keys() - wanted.keys() - free
    pairs = {key: (found.get(key), wanted.get(key)) for key in (*wanted, *unnamed)}
    return {key: (have, want) for key, (have, want) in pairs.items() if (have or None) != (want or None)}


def stream_drift(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return how a stream differs from `wanted`, as (found, wanted): in any field, but for what is free."""
    return drift(wanted, found, _FREE | {"num_replicas"})


def told(different: Mapping[str, tuple[Any, Any]]) -> str:
    """Return a drift as one line of text."""
    parts = (
        f"{key} is {have!r}" if want is None else f"{key} is {have!r}, not {want!r}"
        for key, (have, want) in sorted(different.items())
    )
    return "; ".join(parts)


async def wrong_streams(jetstream: JetStream, subjects: Subjects) -> dict[str, str]:
    """Return what is wrong with each stream that is not as it must be, by its name. Changes nothing.

    The number of copies is the installation's choice, and not looked at.

    Raises:
        JetStreamError: a refusal that says nothing of the streams.
        BusUnavailable: NATS does not answer.
    """
    wrong: dict[str, str] = {}
    for config in (*stream_configs(subjects), epochs_config(subjects)):
        found = await _found(jetstream, config["name"])
        if found is None:
            wrong[config["name"]] = "it does not exist"
        elif different := stream_drift({k: v for k, v in config.items() if k != "num_replicas"}, found):
            wrong[config["name"]] = told(different)
    return wrong


async def ensure_streams(jetstream: JetStream, subjects: Subjects, replicas: int = 1) -> None:
    """Create or bring back every stream and the epochs' bucket. Safe to call from several processes at once.

    Before the first is created, the limits of NATS are compared with what is needed.

    Raises:
        StreamConflict: a stream of the name cannot be made what it must be, or NATS has no room for all.
        BusUnavailable: NATS does not answer.
    """
    configs = (*stream_configs(subjects, replicas), epochs_config(subjects, replicas))
    try:
        missing = [config for config in configs if await _found(jetstream, config["name"]) is None]
        if missing and (
            lacking := lacks(await jetstream.api("INFO"), jetstream.max_payload, missing, replicas)
        ):
            raise StreamConflict(lacking)
    except JetStreamError as error:
        raise BusUnavailable(f"JetStream: {error.description}") from error
    for config in configs:
        await ensure_stream(jetstream, config)


def lacks(
    account: Mapping[str, Any], max_payload: int, missing: Sequence[Mapping[str, Any]], replicas: int
) -> str:
    """Return which limit of NATS is too low for the missing streams, and what to do; empty where none is.

    `account`: JetStream's answer to `$JS.API.INFO`. `max_payload`: of the server, in bytes. JetStream
    reserves a stream's `max_bytes` for each of its copies (nats-server, `tieredReservation`).
    """
    if max_payload < MAX_BYTES:
        return (
            f"NATS takes messages of at most {max_payload} bytes and makeway sends up to {MAX_BYTES}: "
            "raise max_payload in its configuration"
        )
    figures = account.get("tiers", {}).get(f"R{replicas}") or account
    limits = figures.get("limits", {})
    needed = sum(config["max_bytes"] for config in missing) * replicas
    room = limits.get("max_storage", -1)
    left = room - max(figures.get("storage", 0), figures.get("reserved_storage", 0))
    if room >= 0 and left < needed:
        return (
            f"the streams take {needed / _MIB:.0f} MiB at most, and this account of NATS has "
            f"{max(left, 0) / _MIB:.0f} of {room / _MIB:.0f} MiB left: raise its limit max_file"
        )
    streams = limits.get("max_streams", -1)
    if 0 <= streams < figures.get("streams", 0) + len(missing):
        return (
            f"{len(missing)} streams are missing, and NATS allows this account {streams}, of which it has "
            f"{figures.get('streams', 0)}: raise its limit max_streams"
        )
    return ""


async def ensure_stream(jetstream: JetStream, config: Mapping[str, Any]) -> None:
    """Create or bring back one stream; raises as `ensure_streams`."""
    name = config["name"]
    try:
        found = await _found(jetstream, name) or await _created(jetstream, config)
        if different := stream_drift(config, found):
            _refuse_the_fixed(name, different)
            kept = {key: value for key, value in found.items() if key in _FREE}
            await jetstream.api(f"STREAM.UPDATE.{name}", {**kept, **config})
            _log.warning("stream_reconciled", stream=name, found=told(different))
    except JetStreamError as error:
        if error.err_code == _NO_STORAGE:
            raise StreamConflict(
                f"stream {name}: NATS has no {config['max_bytes'] / _MIB:.0f} MiB of storage left for it: "
                "raise max_file_store in the configuration of its servers"
            ) from error
        if error.code == _UNAVAILABLE:
            raise BusUnavailable(f"stream {name}: {error.description}") from error
        raise StreamConflict(f"stream {name}: {error.description}") from error


async def _found(jetstream: JetStream, name: str) -> dict[str, Any] | None:
    try:
        return dict((await jetstream.api(f"STREAM.INFO.{name}"))["config"])
    except JetStreamError as error:
        if error.err_code == _STREAM_NOT_FOUND:
            return None
        raise


async def _created(jetstream: JetStream, config: Mapping[str, Any]) -> dict[str, Any]:
    name = config["name"]
    try:
        created = dict((await jetstream.api(f"STREAM.CREATE.{name}", config))["config"])
    except JetStreamError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        # Another process was first, with other settings: now it is drift.
        return await _found(jetstream, name) or {}
    _log.info("stream_created", stream=name)
    return created


def _refuse_the_fixed(name: str, different: Mapping[str, tuple[Any, Any]]) -> None:
    for key in _FIXED:
        if key in different:
            have, want = different[key]
            raise StreamConflict(
                f"stream {name} has {key} {have!r} where makeway needs {want!r}, which JetStream cannot "
                f"change: use another subject prefix, or delete the stream while no order is in flight"
            )
