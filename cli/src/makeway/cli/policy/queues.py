"""`makeway queues`: what the leading planner knows of the queues, as a tree or of one in full."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from makeway.bus.errors import BusUnavailable
from makeway.bus.queue_report import QueueQuery, QueueReport
from makeway.cli.connect import completion
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import fail
from makeway.cli.output import Printer, TableOutputOption
from makeway.cli.policy.queues_text import COLUMNS, lines, rows, summary

app = typer.Typer(add_completion=False)

_TIMEOUT_SECONDS = 5.0


@app.command()
@connected
async def queues(
    installation: Installation,
    queue: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Only this queue, and all of it.", autocompletion=completion.queues
        ),
    ] = "",
    *,
    output: TableOutputOption = "text",
) -> None:
    """Show queues: limits, usage, guarantees, and what became of lowered quotas.

    The leading planner is asked. Exit code 1 where there are no queues, or none of that path.
    """
    printer = Printer(output)
    report = await _ask(installation, queue)
    if not report.revision:
        fail("there are no queues: no queues.yaml is effective")
    if report.unknown:
        fail(f"there is no queue {queue}; `makeway queues` lists them")
    if printer.data:
        printer.document(report)
    elif queue:
        for line in lines(report.queues[0], report.at):
            printer.line(line)
    else:
        printer.table(COLUMNS, rows(report))
        if note := summary(report):
            printer.note(note)


async def _ask(installation: Installation, queue: str) -> QueueReport:
    async with installation.bus() as bus:
        try:
            query = msgspec.json.encode(QueueQuery(queue=queue))
            answer = await bus.request_queues(query, _TIMEOUT_SECONDS)
        except BusUnavailable as error:
            raise BusUnavailable(
                f"no planner answers: {error}; `makeway check` says which parts run"
            ) from error
    return msgspec.json.decode(answer, type=QueueReport)
