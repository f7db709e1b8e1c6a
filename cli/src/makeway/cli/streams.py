"""`makeway streams`: set up the streams on NATS, or bring them back to what they must be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import structlog
import typer

from makeway.bus.client import Bus
from makeway.bus.errors import BusError, BusRefused, BusUnavailable
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.signing.keys import SigningKind
from makeway.bus.streams.configs import epochs_config, stream_configs
from makeway.bus.streams.named_consumers import NamedConsumer, parsed
from makeway.cli.errors import fail
from makeway.cli.keys.keeping import SecretsKeeper, written_login
from makeway.cli.keys.making import WantedSecrets
from makeway.cli.keys.stores import KeyStore
from makeway.cli.shared_options import parameters, taken, with_options
from makeway.runtime import logs
from makeway.runtime.kube import Api, ConfigurationError
from makeway.runtime.process import identity, run_until_signalled
from makeway.runtime.settings import NatsSettings, StreamReplicasOption

app = typer.Typer(add_completion=False)

_RETRY_SECONDS: Final = 1.0

_log = structlog.get_logger()


def _with_nats(run: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes a `NatsSettings` and the command's own options."""

    def start(**options: Any) -> None:
        run(taken(NatsSettings, options, "nats_"), **options)

    return with_options(start, run, parameters(NatsSettings, "nats_"))


@app.command()
@_with_nats
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
    secrets_namespace: Annotated[
        str,
        typer.Option(
            "--secrets-namespace",
            metavar="NS",
            help="With --keep: make the Secrets of the chart's installation in this namespace, and again "
            "what is lost.",
        ),
    ] = "",
    logins: Annotated[
        str,
        typer.Option(
            "--logins", metavar="USER[,USER]", help="Logins of the chart's NATS to make Secrets for."
        ),
    ] = "",
    certificate_days: Annotated[
        int,
        typer.Option(
            "--certificate-days",
            min=0,
            help="For how long the certificates of that NATS and its logins are valid; 0: make none.",
        ),
    ] = 0,
    signing_keys: Annotated[
        str,
        typer.Option(
            "--signing-keys", metavar="KIND[,KIND]", help="Kinds of messages to make signing keys for."
        ),
    ] = "",
    login_directory: Annotated[
        Path, typer.Option("--login-directory", help="Where the streams' own login is written.")
    ] = Path("/run/makeway"),
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
            secrets = WantedSecrets(
                secrets_namespace,
                tuple(filter(None, logins.split(","))),
                certificate_days,
                tuple(SigningKind(one) for one in signing_keys.split(",") if one),
            )
            raise typer.Exit(asyncio.run(_keep(nats, me, wanted, secrets, login_directory)))
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


async def _keep(nats: NatsSettings, me: str, wanted: _Wanted, secrets: WantedSecrets, directory: Path) -> int:
    """Keep streams and Secrets until a signal; return the exit code. What is in the way is tried again."""

    async def keep() -> NoReturn:
        if not secrets.namespace:
            await keep_streams(nats)
        api = await Api.connect(user_agent="makeway-streams", connections=1)
        try:
            keeper = SecretsKeeper(KeyStore(api, secrets.namespace), secrets)
            known = written_login(nats, await keeper.begin(), directory)
            # The login may be made again, with other certificates: it is read at each connection.
            again = partial(written_login, nats, directory=directory)
            await asyncio.gather(keeper.keep(again), keep_streams(known))
        finally:
            await api.close()
        raise AssertionError("neither ends")

    async def keep_streams(nats: NatsSettings) -> NoReturn:
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

    return await run_until_signalled(keep(), expected=(BusError, ConfigurationError))


async def _connect(nats: NatsSettings, me: str) -> Bus:
    return await Bus.connect(
        nats.servers(),
        name=f"streams/{me}",
        prefix=nats.subject_prefix,
        login=nats.login(),
        tls=nats.tls(),
        timings=ConnectionTimings(connect=5),
    )
