"""`makeway streams`: set up the streams on NATS, or bring them back to what they must be."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import typer

from makeway.bus.client import Bus
from makeway.bus.connection import ConnectionTimings
from makeway.bus.errors import BusError, BusUnavailable
from makeway.bus.streams import epochs_config, stream_configs
from makeway.cli.errors import fail
from makeway.cli.nats_options import with_nats
from makeway.runtime import logs
from makeway.runtime.process import identity
from makeway.runtime.settings import NatsSettings

app = typer.Typer(add_completion=False)

_RETRY_SECONDS: Final = 1.0


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
) -> None:
    """Set up the streams on NATS, or bring them back to what they must be.

    Planner and evictor do so too when they start; this is for an installation that sets up first, and for
    one where they may not. What an operator has added to a stream (placement, compression) stays. Ends with
    0 when every stream is as it must be, with 1 when NATS cannot be reached or a stream is in the way.
    """
    me = identity()
    logs.configure("text", "warning", "streams", me)
    try:
        names = asyncio.run(_ensure(nats, me, wait))
    except (BusError, ValueError) as error:
        fail(str(error))
    for name in names:
        typer.echo(f"{name}\treplicas {nats.replicas}")


async def _ensure(nats: NatsSettings, me: str, wait_seconds: int) -> list[str]:
    """Do it, again and again while NATS or JetStream does not answer and there is time."""
    until = time.monotonic() + wait_seconds
    while True:
        try:
            return await _attempt(nats, me)
        except BusUnavailable:
            if time.monotonic() + _RETRY_SECONDS > until:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


async def _attempt(nats: NatsSettings, me: str) -> list[str]:
    bus = await Bus.connect(
        nats.servers(),
        name=f"streams/{me}",
        prefix=nats.subject_prefix,
        creds=nats.creds,
        tls=nats.tls(),
        timings=ConnectionTimings(connect=5),
    )
    try:
        await bus.ensure_streams(nats.replicas)
        configs = (*stream_configs(bus.subjects), epochs_config(bus.subjects))
        return [config["name"] for config in configs]
    finally:
        await bus.close()
