"""`makeway quarantine`: look at the messages that were put aside, publish them again, or remove them.

Evictors park what they cannot read or carry out, planners what they cannot read of outcomes. The
original stays in its stream as well, until that forgets it. It is a tool for administrators: payloads name
pods across namespaces.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from makeway.bus.client import Bus
from makeway.bus.connection import Timings
from makeway.bus.errors import BusError
from makeway.cli.errors import fail
from makeway.cli.quarantine_store import NotReplayable, Store
from makeway.cli.quarantine_text import HEAD_BYTES, ago, as_json, headers, payload
from makeway.runtime import logs
from makeway.runtime.process import identity
from makeway.runtime.settings import NatsCredsOption, NatsSettings, NatsUrlOption, SubjectPrefixOption

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at messages that were put aside, publish them again, or remove them.",
)

T = TypeVar("T")

_NATS = NatsSettings()
_INTERRUPTED = 130
_PIPE_WIDTH = 4096

Number = Annotated[int, typer.Argument(min=1, help="Its number, as `makeway quarantine list` shows it.")]
Reason = Annotated[
    str, typer.Option("--reason", help="Only those put aside for this reason, such as not-json.")
]
Component = Annotated[
    str, typer.Option("--component", help="Only those that this part put aside: evictor, planner.")
]


@app.command("list")
def list_(
    *,
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="A table, or JSON lines.")
    ] = "table",
    reason: Reason = "",
    component: Component = "",
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
) -> None:
    """List what was put aside, oldest first."""
    nats = NatsSettings(url=nats_url, creds=nats_creds, subject_prefix=subject_prefix)
    found = _with_store(nats, lambda store: store.entries(reason=reason, component=component))
    console = Console(highlight=False, markup=False, emoji=False)
    if output == "json":
        for entry in found:
            console.out(json.dumps(as_json(entry)), highlight=False)
        return
    if not found:
        typer.echo("Nothing is in quarantine.", err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("NUMBER", "AGE", "BY", "REASON", "DELIVERIES", "SUBJECT", "SEQUENCE", "REPLAYED"):
        table.add_column(column, overflow="fold")
    now = datetime.now(UTC)
    for entry in found:
        message = entry.message
        table.add_row(
            str(entry.number),
            ago(now - entry.parked_at),
            message.component,
            message.reason,
            str(message.deliveries or "-"),
            message.subject,
            str(message.sequence),
            f"as {entry.replayed_as}" if entry.replayed_as else "-",
        )
    if not console.is_terminal:
        # A pipe has no width to fold a line to.
        console.width = _PIPE_WIDTH
    console.print(table)


@app.command()
def show(
    number: Number,
    *,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="For a person, or one JSON object.")
    ] = "text",
    full: Annotated[
        bool, typer.Option("--full", help=f"The whole payload, not its first {HEAD_BYTES} bytes.")
    ] = False,
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
) -> None:
    """Show one message: where it came from, why it was put aside, and what is in it.

    What a terminal would obey, and what is no UTF-8, is shown escaped.
    """
    nats = NatsSettings(url=nats_url, creds=nats_creds, subject_prefix=subject_prefix)
    entry = _with_store(nats, lambda store: store.entry(number))
    if output == "json":
        typer.echo(json.dumps(as_json(entry, payload_too=True)))
        return
    for name, value in headers(entry):
        typer.echo(f"{name + ':':<14}{value}")
    typer.echo()
    typer.echo(payload(entry.message, full=full))


@app.command()
def replay(
    number: Number,
    *,
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
) -> None:
    """Publish a message again where it came from, if nothing newer stands there.

    For what a newer version understands, or what a repaired cluster can carry out. An order that is past
    its time ends as expired.
    """
    nats = NatsSettings(url=nats_url, creds=nats_creds, subject_prefix=subject_prefix)
    entry, sequence = _with_store(nats, lambda store: store.replay(number))
    typer.echo(f"replayed {number} to {entry.message.subject} as {sequence} of {entry.message.stream}")


@app.command()
def drop(
    numbers: Annotated[list[int] | None, typer.Argument(min=1, help="Numbers, as `list` shows them.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All, or all that the filters leave.")] = False,
    reason: Reason = "",
    component: Component = "",
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
) -> None:
    """Remove messages from the quarantine. The originals are left to their streams."""
    if bool(numbers) == every:
        raise typer.BadParameter("give numbers, or --all with or without filters")
    if numbers and (reason or component):
        raise typer.BadParameter("--reason and --component go with --all")
    nats = NatsSettings(url=nats_url, creds=nats_creds, subject_prefix=subject_prefix)

    async def remove(store: Store) -> int:
        if numbers:
            chosen = [await store.entry(number) for number in dict.fromkeys(numbers)]
        else:
            chosen = await store.entries(reason=reason, component=component)
        for entry in chosen:
            await store.drop(entry)
        return len(chosen)

    count = _with_store(nats, remove)
    typer.echo(f"dropped {count} {'message' if count == 1 else 'messages'}")


def _with_store(nats: NatsSettings, act: Callable[[Store], Awaitable[T]]) -> T:
    """Connect, act, disconnect; what goes wrong ends the command with one line."""
    me = identity()
    logs.configure("text", "error", "quarantine", me)

    async def run() -> T:
        bus = await Bus.connect(
            nats.servers(),
            name=f"quarantine/{me}",
            prefix=nats.subject_prefix,
            creds=nats.creds,
            timings=Timings(connect=5),
        )
        try:
            return await act(Store(bus))
        finally:
            await bus.close()

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except (BusError, NotReplayable, LookupError, ValueError) as error:
        fail(str(error.args[0]) if isinstance(error, KeyError) else str(error))
