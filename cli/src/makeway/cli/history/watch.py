"""`makeway watch`: what is in flight and what was decided last, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from makeway.cli.connect.session import Installation, OnlyNamespaceOption, connected
from makeway.cli.history.following import Coming, follow, shown
from makeway.cli.history.rows import LINE, History, Wanted, line
from makeway.cli.history.since import SinceOption, since_given
from makeway.cli.history.streams import StreamEntry, everything
from makeway.cli.output import OutputOption, Printer
from makeway.cli.tables import table

app = typer.Typer(add_completion=False)

_LAST: Final = 16
_REFRESH_SECONDS: Final = 0.5


@app.command()
@connected
async def watch(
    installation: Installation,
    *,
    since: SinceOption = "5m",
    namespace: OnlyNamespaceOption = "",
    output: OutputOption = "text",
) -> None:
    """Watch makeway work: a row for each preemption, those in flight first, until it is interrupted.

    On a terminal a picture that is kept up to date; in a pipe, and as data, what `makeway history --follow`
    prints.
    """
    start = since_given(since, datetime.now(UTC))
    printer, wanted = Printer(output), Wanted(namespace)
    async with (
        installation.bus() as bus,
        aclosing(everything(bus, since=start, follow=True)) as entries,
    ):
        if printer.terminal and not printer.data:
            await _picture(printer, entries, wanted)
        else:
            await follow(printer, entries, wanted)


async def _picture(printer: Printer, entries: AsyncIterator[StreamEntry], wanted: Wanted) -> None:
    """Keep the picture up to date until the connection is lost or the command interrupted."""
    coming = Coming(wanted)

    async def read() -> None:
        async for entry in entries:
            coming.take(entry, datetime.now(UTC))

    reading = asyncio.create_task(read())
    try:
        with Live(console=printer.console, auto_refresh=False, screen=True) as live:
            while not reading.done():
                now = datetime.now(UTC)
                width = printer.console.width
                live.update(picture(coming.history, wanted, now, width), refresh=True)
                await asyncio.wait({reading}, timeout=_REFRESH_SECONDS)
        reading.result()
    finally:
        reading.cancel()
        await asyncio.wait({reading})


def picture(history: History, wanted: Wanted, now: datetime, width: int | None = None) -> RenderableType:
    """What a terminal of a width shows at this moment. Pure."""
    live, last = shown(history.rows(now, wanted), now, _LAST)
    parts: list[RenderableType] = [
        Text(f"makeway  {now:%H:%M:%SZ}  {len(live)} in flight", style="bold"),
        Text(""),
    ]
    if not live and not last:
        return Group(*parts, Text("nothing yet"))
    titles, *lines = table(LINE, (line(row, now) for row in (*live, *last)), width=width)
    parts.append(Text(titles, style="dim", no_wrap=True))
    parts += [
        Text(one, style="bold" if number < len(live) else "", no_wrap=True, overflow="ellipsis")
        for number, one in enumerate(lines)
    ]
    return Group(*parts)
