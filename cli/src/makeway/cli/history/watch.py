"""`makeway watch`: what is in flight and what was decided last, as it happens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from makeway.bus.messages import DecisionRecord, EvictionOrder, Outcome
from makeway.cli.ages import age
from makeway.cli.connect.session import Installation, OnlyNamespaceOption, connected
from makeway.cli.history.audit_lines import AuditEntry, Auditor
from makeway.cli.history.audit_streams import Item, everything
from makeway.cli.history.rows import History, Row, Wanted, named
from makeway.cli.history.since import parse_since
from makeway.cli.output import OutputOption, Printer
from makeway.cli.tables import Column, table

app = typer.Typer(add_completion=False)

_KEPT: Final = 5000
_LAST: Final = 12
_REFRESH_SECONDS: Final = 0.5
_COLUMNS: Final = (
    Column("FOR"),
    Column("NODE", rank=2),
    Column("VICTIMS", kind="text"),
    Column("AGE"),
    Column("LEFT", rank=1),
    Column("ORDER", kind="id"),
)


@app.command()
@connected
async def watch(
    installation: Installation,
    *,
    since: Annotated[
        str,
        typer.Option("--since", metavar="AGO|TIME", help="Begin so far back: 90s, 10m, 2h, 1d, or RFC 3339."),
    ] = "5m",
    namespace: OnlyNamespaceOption = "",
    output: OutputOption = "text",
) -> None:
    """Watch makeway work: the orders in flight and the last decisions, until it is interrupted.

    On a terminal a picture that is kept up to date; in a pipe, and as data, what `makeway audit` prints.
    """
    try:
        start = parse_since(since, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from error
    printer, auditor = Printer(output), Auditor(namespace=namespace)
    async with (
        installation.bus() as bus,
        aclosing(everything(bus, since=start, follow=True)) as messages,
    ):
        if printer.terminal and not printer.data:
            await _picture(printer, messages, auditor, Wanted(namespace))
            return
        async for kind, message in messages:
            entry = auditor.read(message, kind)
            if auditor.wanted(entry):
                _print(printer, auditor, entry)


def _print(printer: Printer, auditor: Auditor, entry: AuditEntry) -> None:
    if printer.data:
        printer.item(msgspec.json.decode(auditor.json_line(entry)))
    else:
        printer.line(auditor.line(entry))


async def _picture(printer: Printer, messages: AsyncIterator[Item], auditor: Auditor, wanted: Wanted) -> None:
    """Keep the picture up to date until the connection is lost or the command interrupted."""
    story, last = History(), deque[Text](maxlen=_LAST)

    async def read() -> None:
        async for kind, message in messages:
            entry = auditor.read(message, kind)
            if isinstance(entry.content, DecisionRecord | EvictionOrder | Outcome):
                story.add(entry.content)
                story.forget(_KEPT)
            if auditor.wanted(entry):
                last.append(auditor.line(entry))

    reading = asyncio.create_task(read())
    try:
        with Live(console=printer.console, auto_refresh=False, screen=True) as live:
            while not reading.done():
                now = datetime.now(UTC)
                width = printer.console.width
                live.update(picture(story, list(last), wanted, now, width), refresh=True)
                await asyncio.wait({reading}, timeout=_REFRESH_SECONDS)
        reading.result()
    finally:
        reading.cancel()
        await asyncio.wait({reading})


def picture(
    story: History, last: list[Text], wanted: Wanted, now: datetime, width: int | None = None
) -> RenderableType:
    """What a terminal of a width shows at this moment. Pure."""
    live = [row for row in story.live(now) if wanted.takes(row)]
    head = Text(f"makeway  {now:%H:%M:%SZ}  {len(live)} in flight", style="bold")
    parts: list[RenderableType] = [head, Text("")]
    if live:
        titles, *lines = table(_COLUMNS, (_cells(row, now) for row in live), width=width)
        parts += [Text(titles, style="dim", no_wrap=True)]
        parts += [Text(line, no_wrap=True) for line in lines]
        parts.append(Text(""))
    parts.append(Text("last", style="dim"))
    parts += [_one_line(text) for text in last] or [Text("nothing yet")]
    return Group(*parts)


def _one_line(text: Text) -> Text:
    """Cut at the terminal's edge; `makeway audit` shows it whole."""
    line = text.copy()
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    whom = f"{row.namespace}/{row.name}" if row.name else f"queue {row.queue}"
    return (
        whom,
        row.node or "-",
        named(row.victims),
        age(now - row.at),
        "-" if row.until is None else age(row.until - now),
        row.order_id,
    )
