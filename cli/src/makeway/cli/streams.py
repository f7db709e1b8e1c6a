"""`makeway streams`: set up the streams on NATS, or bring them back to what they must be."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Final, NoReturn

import structlog
import typer

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, BusRefused, BusUnavailable
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.streams.configs import epochs_config, stream_configs
from makeway.bus.streams.named_consumers import NamedConsumer, parsed
from makeway.cli.errors import fail
from makeway.cli.nats_options import with_nats
from makeway.runtime import logs
from makeway.runtime.process import identity, run_until_signalled
from makeway.runtime.settings import NatsSettings, StreamReplicasOption

app = typer.Typer(add_completion=False)

_RETRY_SECONDS: Final = 1.0

_log = structlog.get_logger()


@app.command()
@with_nats
def streams(
    nats: NatsSettings,
    *,
    wait: Annotated[
        int,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            max=3600,
            help="How long to wait for a NATS that is not up yet.",
        ),
    ] = 0,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Run until stopped: compare every 5 s, and restore what differs.",
        ),
    ] = False,
    stream_replicas: StreamReplicasOption = 1,
    consumers: Annotated[
        str | None,
        typer.Option(
            "--consumers",
            envvar="MAKEWAY_CONSUMERS",
            metavar="NAME=STREAM[,STREAM][;...]",
            help="Named consumers for programs of yours, as in audit=outcomes,orders. Given, all others that "
            "makeway has made are deleted; an empty text deletes all. Not given, none is changed.",
        ),
    ] = None,
) -> None:
    """Set up the streams on NATS, or bring them back to what they must be.

    Nothing else of makeway's creates or changes a stream: planner and evictor only compare, and complain.
    What an operator has added to a stream (placement, compression) stays. Without --keep it ends with 0 when
    every stream is as it must be, with 1 when NATS cannot be reached or a stream is in the way.
    """
    me = identity()
    logs.configure("text", "info" if keep else "warning", "streams", me)
    try:
        wanted = _Wanted(stream_replicas, None if consumers is None else parsed(consumers))
        if keep:
            raise typer.Exit(asyncio.run(_keep(nats, me, wanted)))
        names = asyncio.run(_ensure(nats, me, wanted, wait))
    except (BusError, ValueError) as error:
        fail(str(error))
    for name in names:
        typer.echo(f"{name}\treplicas {stream_replicas}")


@dataclass(frozen=True)
class _Wanted:
    """Copies of each stream, and named consumers; None where they are not looked at."""

    replicas: int
    consumers: tuple[NamedConsumer, ...] | None


async def _ensure(nats: NatsSettings, me: str, wanted: _Wanted, wait_seconds: int) -> list[str]:
    """Do it, again and again while NATS or JetStream does not answer and there is time."""
    until = time.monotonic() + wait_seconds
    while True:
        try:
            return await _attempt(nats, me, wanted)
        except BusUnavailable:
            if time.monotonic() + _RETRY_SECONDS > until:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


async def _attempt(nats: NatsSettings, me: str, wanted: _Wanted) -> list[str]:
    bus = await _connect(nats, me)
    try:
        await bus.ensure_streams(wanted.replicas, wanted.consumers)
        configs = (*stream_configs(bus.subjects), epochs_config(bus.subjects))
        return [config["name"] for config in configs]
    finally:
        await bus.close()


async def _keep(nats: NatsSettings, me: str, wanted: _Wanted) -> int:
    """Keep the streams until a signal; return the exit code. Where one is in the way, it is tried again."""

    async def keep() -> NoReturn:
        while True:
            try:
                bus = await _connect(nats, me)
            except BusRefused:
                raise
            except BusUnavailable as error:
                _log.warning("nats_awaited", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await bus.keep_streams(wanted.replicas, wanted.consumers)
                await bus.until_lost()
            finally:
                await bus.close()

    return await run_until_signalled(keep(), expected=(BusError,))


async def _connect(nats: NatsSettings, me: str) -> Bus:
    return await Bus.connect(
        nats.servers(),
        name=f"streams/{me}",
        prefix=nats.subject_prefix,
        login=nats.login(),
        tls=nats.tls(),
        timings=ConnectionTimings(connect=5),
    )
