"""`makeway quarantine`: look at the messages that were put aside, publish them again, or remove them.

Evictors put aside what they cannot read or carry out, planners what they cannot read of outcomes. The
original stays in its stream as well, until that forgets it. It is a tool for administrators: payloads name
pods across namespaces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from makeway.cli.ages import age
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import fail
from makeway.cli.output import OutputOption, Printer, TableOutputOption
from makeway.cli.quarantine.store import NotReplayable, Store
from makeway.cli.quarantine.text import HEAD_BYTES, as_json, headers, payload
from makeway.cli.tables import Column
from makeway.core.k8s.times import api_time
from makeway.core.text import counted

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at messages that were put aside, publish them again, or remove them.",
)

T = TypeVar("T")

_COLUMNS = (
    Column("NUMBER"),
    Column("AGE"),
    Column("TIME", wide=True),
    Column("BY", rank=3),
    Column("REASON"),
    Column("DELIVERIES", rank=1),
    Column("SUBJECT", kind="text"),
    Column("SEQUENCE", rank=2),
    Column("REPLAYED"),
    Column("DETAIL", wide=True),
)

Number = Annotated[int, typer.Argument(min=1, help="Its number, as `makeway quarantine list` shows it.")]
Reason = Annotated[
    str, typer.Option("--reason", help="Only those put aside for this reason, such as not-json.")
]
Component = Annotated[
    str, typer.Option("--component", help="Only those that this part put aside: evictor, planner.")
]


@app.command("list")
@connected
async def list_(
    installation: Installation,
    *,
    reason: Reason = "",
    component: Component = "",
    output: TableOutputOption = "text",
) -> None:
    """List what was put aside, oldest first."""
    found = await _with_store(installation, lambda store: store.entries(reason=reason, component=component))
    printer = Printer(output)
    if printer.data:
        for entry in found:
            printer.item(as_json(entry))
        return
    if not found:
        printer.note("Nothing is in quarantine.")
        return
    now = datetime.now(UTC)
    rows = [
        (
            str(entry.number),
            age(now - entry.parked_at),
            api_time(entry.parked_at),
            entry.message.component,
            entry.message.reason,
            str(entry.message.deliveries or "-"),
            entry.message.subject,
            str(entry.message.sequence),
            f"as {entry.replayed_as}" if entry.replayed_as else "-",
            entry.message.detail,
        )
        for entry in found
    ]
    printer.table(_COLUMNS, rows)


@app.command()
@connected
async def show(
    installation: Installation,
    number: Number,
    *,
    full: Annotated[
        bool, typer.Option("--full", help=f"The whole payload, not its first {HEAD_BYTES} bytes.")
    ] = False,
    output: OutputOption = "text",
) -> None:
    """Show one message: where it came from, why it was put aside, and what is in it.

    What a terminal would obey, and what is no UTF-8, is shown escaped.
    """
    entry = await _with_store(installation, lambda store: store.entry(number))
    printer = Printer(output)
    if printer.data:
        printer.document(as_json(entry, payload_too=True))
        return
    for name, value in headers(entry):
        printer.line(f"{name + ':':<14}{value}")
    printer.line("")
    printer.line(payload(entry.message, full=full))


@app.command()
@connected
async def replay(
    installation: Installation,
    number: Number,
) -> None:
    """Publish a message again where it came from, if nothing newer stands there.

    For what a newer version understands, or what a repaired cluster can carry out. An order that is past
    its time ends as expired.
    """
    entry, sequence = await _with_store(installation, lambda store: store.replay(number), writes=True)
    typer.echo(f"replayed {number} to {entry.message.subject} as {sequence} of {entry.message.stream}")


@app.command()
@connected
async def drop(
    installation: Installation,
    numbers: Annotated[list[int] | None, typer.Argument(min=1, help="Numbers, as `list` shows them.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All, or all that the filters leave.")] = False,
    reason: Reason = "",
    component: Component = "",
) -> None:
    """Remove messages from the quarantine. The originals are left to their streams."""
    if bool(numbers) == every:
        raise typer.BadParameter("give numbers, or --all with or without filters")
    if numbers and (reason or component):
        raise typer.BadParameter("--reason and --component go with --all")

    async def remove(store: Store) -> int:
        if numbers:
            chosen = [await store.entry(number) for number in dict.fromkeys(numbers)]
        else:
            chosen = await store.entries(reason=reason, component=component)
        for entry in chosen:
            await store.drop(entry)
        return len(chosen)

    count = await _with_store(installation, remove, writes=True)
    typer.echo(f"dropped {counted(count, 'message')}")


async def _with_store(
    installation: Installation, act: Callable[[Store], Awaitable[T]], *, writes: bool = False
) -> T:
    """Connect, act, disconnect; what cannot be done ends the command with one line."""
    async with installation.bus(writes=writes) as bus:
        try:
            return await act(Store(bus))
        except KeyError as error:
            fail(str(error.args[0]))
        except (NotReplayable, LookupError) as error:
            fail(str(error))
