"""`makeway history`: what was decided and done, a row each; or how it compares with DefaultPreemption."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

import typer

from makeway.bus.client import Bus
from makeway.bus.comparison import Comparison
from makeway.bus.streams.quarantine import QuarantineEntry
from makeway.cli.connect import completion
from makeway.cli.connect.session import Installation, OnlyNamespaceOption, connected
from makeway.cli.history import comparisons
from makeway.cli.history import rows as history_rows
from makeway.cli.history import unreadable as kept_aside
from makeway.cli.history.comparisons import summed
from makeway.cli.history.following import follow as follow_entries
from makeway.cli.history.rows import History, Wanted
from makeway.cli.history.story import Message
from makeway.cli.history.streams import everything, must_exist
from makeway.cli.output import Printer, TableOutputOption
from makeway.cli.shared_options import since_given
from makeway.core.k8s.times import api_time

app = typer.Typer(add_completion=False)


@app.command()
@connected
async def history(
    installation: Installation,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="AGO|TIME",
            help="How far back: 90s, 10m, 2h, 1d, or RFC 3339. Decisions are kept for three days. "
            "Default: 1h; with --follow now, with --unreadable all that is kept.",
        ),
    ] = None,
    namespace: OnlyNamespaceOption = "",
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            metavar="PATH",
            help="Only of this queue and those below it.",
            autocompletion=completion.queues,
        ),
    ] = "",
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="The cluster's own preemptions, beside what makeway would have chosen."
        ),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="What comes, until it is interrupted: as data every message, as text a line for each "
            "order that is in flight, and one for how each preemption ended.",
        ),
    ] = False,
    unreadable: Annotated[
        bool,
        typer.Option(
            "--unreadable", help="Messages that no part could read or carry out; as data with their payload."
        ),
    ] = False,
    output: TableOutputOption = "text",
) -> None:
    """Show what was decided and done: for whom, where, which victims, and how it ended.

    With --compare: how many victims and PDB violations makeway would have saved while DefaultPreemption
    acted, and where it would have done worse. A plan that no order came of is marked as not carried out.
    -f -o json prints each decision, order and outcome as it was published: an object a line, with its stream
    and the CloudEvent.
    """
    if follow + compare + unreadable > 1:
        raise typer.BadParameter("--follow, --compare and --unreadable show other things: give one of them")
    if unreadable and (namespace or queue):
        raise typer.BadParameter(
            "--unreadable shows all: what cannot be read names no namespace and no queue"
        )
    now = datetime.now(UTC)
    start = since_given(since or "1h", now)
    printer, wanted = Printer(output), Wanted(namespace, queue)
    async with installation.bus() as bus:
        await must_exist(bus)
        if follow:
            async with aclosing(everything(bus, since=start if since else None, follow=True)) as entries:
                await follow_entries(printer, entries, wanted)
            return
        if unreadable:
            _show_unreadable(printer, await kept_aside.unreadable(bus, start if since else None), now)
            return
        if compare:
            found = [one for one in await comparisons.comparisons(bus, start) if wanted.takes(one)]
            _show_compared(printer, found, now)
            return
        rows = (await _read(bus, start)).rows(now, wanted)
    if printer.data:
        printer.document(rows)
    elif rows:
        cells = (history_rows.cells(row, now, wide=printer.wide) for row in rows)
        printer.table(history_rows.COLUMNS, cells)
    else:
        printer.note(f"nothing was decided {wanted.describe()}since {api_time(start)}")


async def _read(bus: Bus, start: datetime) -> History:
    found = History()
    async with aclosing(everything(bus, since=start, follow=False)) as entries:
        async for entry in entries:
            if isinstance(entry.content, Message):
                found.add(entry.content)
    return found


def _show_unreadable(printer: Printer, found: list[QuarantineEntry], now: datetime) -> None:
    if printer.data:
        printer.document([kept_aside.as_json(one) for one in found])
    elif found:
        printer.table(kept_aside.COLUMNS, (kept_aside.cells(one, now) for one in found))
    else:
        printer.note("no message was put aside")


def _show_compared(printer: Printer, found: list[Comparison], now: datetime) -> None:
    summary = summed(found)
    if printer.data:
        printer.document({"summary": summary, "comparisons": found})
        return
    if found:
        cells = (comparisons.cells(one, now, wide=printer.wide) for one in found)
        printer.table(comparisons.COLUMNS, cells)
        printer.line("")
    for sentence in comparisons.sentences(summary):
        printer.line(sentence)
