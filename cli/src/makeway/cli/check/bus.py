"""What `makeway check` looks at on NATS: streams, their copies, the evictors' consumer, the quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from makeway.bus.client import Bus
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.streams.configs import (
    EVICTOR_CONSUMER,
    epochs_config,
    evictor_config,
    stream_configs,
    stream_drift,
    told,
)
from makeway.bus.streams.consumer import consumer_drift
from makeway.cli.ages import age
from makeway.cli.check.clocks import Reading
from makeway.cli.check.place import CheckedBus
from makeway.cli.check.result import CheckResult
from makeway.core.text import counted

_REPLICAS: Final = "num_replicas"
_MAKE: Final = "see that `makeway streams --keep` runs, or run `makeway streams` with the streams' login"
_RESTORE: Final = f"{_MAKE}; see who changed it"
_PARKED_LATELY: Final = timedelta(days=1)


async def answer_result(at: CheckedBus) -> CheckResult:
    """Ask NATS for a sign of life; raises BusError."""
    await at.bus.connection.round_trip()
    return CheckResult("NATS", "ok", "it answers, and JetStream is asked below")


async def stream_results(at: CheckedBus) -> Sequence[CheckResult]:
    """Look at every stream; the server's clock is added to the readings. Raises BusError."""
    bus, readings, results = at.bus, at.readings, list[CheckResult]()
    for config in (*stream_configs(bus.subjects), epochs_config(bus.subjects)):
        before = datetime.now(UTC)
        if (info := await _info(bus, f"STREAM.INFO.{config['name']}")) is None:
            results.append(CheckResult(f"stream {config['name']}", "wrong", "it does not exist", _MAKE))
            continue
        if not readings and (said := info.get("ts")):
            readings.append(Reading("NATS", datetime.fromisoformat(said), before, datetime.now(UTC)))
        results.append(stream_result(config, info))
        if config["name"] == bus.subjects.quarantine_stream:
            results += parked_result(info["state"], datetime.now(UTC))
    return results


def parked_result(state: Mapping[str, Any], now: datetime) -> Iterator[CheckResult]:
    """Warn of messages that were put aside, where the last is less than a day old. Pure.

    state: of the quarantine's stream, as JetStream tells it. Nothing removes a message there but its age.
    """
    if not state["messages"]:
        return
    ago = now - datetime.fromisoformat(state["last_ts"])
    if ago < _PARKED_LATELY:
        told = f"{counted(state['messages'], 'message')} put aside, the last {age(ago)} ago"
        yield CheckResult("quarantine", "warning", told, "see `makeway history --unreadable -o wide`")


def stream_result(config: Mapping[str, Any], info: Mapping[str, Any]) -> CheckResult:
    """Judge one stream by what it should be, but for its copies, which are the installation's choice."""
    name, found = f"stream {config['name']}", info["config"]
    wanted = {key: value for key, value in config.items() if key != _REPLICAS}
    if different := stream_drift(wanted, found):
        return CheckResult(name, "wrong", told(different), _RESTORE)
    replicas, cluster = found.get(_REPLICAS, 1), info.get("cluster") or {}
    copies = f"{replicas} {'copy' if replicas == 1 else 'copies'}"
    if cluster.get("name") and not cluster.get("leader"):
        return CheckResult(
            name, "wrong", f"{copies}, and no server leads it", "see that most NATS servers run"
        )
    stale = [
        str(one.get("name"))
        for one in cluster.get("replicas") or ()
        if one.get("offline") or not one.get("current")
    ]
    if stale:
        return CheckResult(
            name, "warning", f"{copies}; not up to date: {', '.join(stale)}", "see those NATS servers"
        )
    if cluster.get("name") and replicas == 1:
        return CheckResult(
            name,
            "warning",
            "1 copy on a NATS of several servers",
            "set streams.replicas to 3, so that the loss of a server loses no order",
        )
    return CheckResult(name, "ok", f"{copies}, {counted(info['state']['messages'], 'message')}")


async def consumer_result(at: CheckedBus) -> CheckResult:
    """Look at the consumer that evictors share; raises BusError."""
    bus, name = at.bus, "evictors' consumer"
    info = await _info(bus, f"CONSUMER.INFO.{bus.subjects.orders_stream}.{EVICTOR_CONSUMER}")
    if info is None:
        return CheckResult(name, "wrong", "it does not exist", "an evictor makes it when it starts")
    if different := consumer_drift(evictor_config(bus.subjects), info):
        return CheckResult(
            name, "wrong", told(different), "a running evictor makes it anew within 5 s; see who changed it"
        )
    waiting, taken = info.get("num_pending", 0), info.get("num_ack_pending", 0)
    return CheckResult(name, "ok", f"{waiting} orders wait, {taken} are in hand")


async def _info(bus: Bus, operation: str) -> dict[str, Any] | None:
    """Return what JetStream says of a stream or consumer; None where there is none. Raises BusError."""
    try:
        return await bus.jetstream.api(operation)
    except JetStreamError as error:
        if error.not_found:
            return None
        raise
