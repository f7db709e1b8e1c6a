"""`makeway audit`: read the streams of decisions, orders and outcomes, and tell what happened.

It only reads, and any number may. It is a tool for administrators: it shows names across
namespaces, which tenants must not learn of one another.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer
from rich.console import Console

from makeway.bus.client import Bus
from makeway.bus.connection import Timings
from makeway.bus.errors import BusError
from makeway.cli.audit_lines import Auditor
from makeway.cli.audit_streams import everything
from makeway.cli.errors import fail
from makeway.cli.since import parse_since
from makeway.runtime import logs
from makeway.runtime.process import identity
from makeway.runtime.settings import NatsCredsOption, NatsSettings, NatsUrlOption, SubjectPrefixOption

app = typer.Typer(add_completion=False)

_NATS = NatsSettings()
_INTERRUPTED = 130


@app.command()
def audit(
    *,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Lines for a person, or JSON lines.")
    ] = "text",
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="AGO|TIME",
            help="Start in the past: 90s, 10m, 2h, 1d, or RFC 3339. Default: now, or the oldest there is "
            "with --no-follow.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on with what comes, or end at the last.")
    ] = True,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="Only what concerns pods of this namespace, as preemptor or victim."
        ),
    ] = "",
    order: Annotated[str, typer.Option("--order", help="Only this order and its outcome, by id.")] = "",
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
) -> None:
    """Show who makes room for whom, where, by which rule, and how it ended."""
    try:
        start = parse_since(since, datetime.now(UTC)) if since else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from error
    me = identity()
    logs.configure("text", "error", "audit", me)
    try:
        asyncio.run(
            _run(
                NatsSettings(url=nats_url, creds=nats_creds, subject_prefix=subject_prefix),
                Auditor(namespace=namespace, order=order),
                identity=me,
                as_json=output == "json",
                since=start,
                follow=follow,
            )
        )
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except (BusError, ValueError) as error:
        fail(str(error))


async def _run(
    nats: NatsSettings,
    auditor: Auditor,
    *,
    identity: str,
    as_json: bool,
    since: datetime | None,
    follow: bool,
) -> None:
    bus = await Bus.connect(
        nats.servers(),
        name=f"audit/{identity}",
        prefix=nats.subject_prefix,
        creds=nats.creds,
        timings=Timings(connect=5),
    )
    console = Console(highlight=False, markup=False, emoji=False)
    try:
        async with aclosing(everything(bus, since=since, follow=follow)) as messages:
            async for kind, message in messages:
                entry = auditor.read(message, kind)
                if not auditor.wanted(entry):
                    continue
                if as_json:
                    console.out(auditor.json_line(entry), highlight=False)
                else:
                    console.print(auditor.line(entry), soft_wrap=True)
    finally:
        await bus.close()
