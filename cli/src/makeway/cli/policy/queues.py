"""`makeway queues`: what the leading planner knows of the queues, as a tree or of one in full."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from makeway.bus.errors import BusUnavailable
from makeway.bus.queue_report import QueueQuery, QueueReport
from makeway.cli.connect import completion
from makeway.cli.connect.asking import asked
from makeway.cli.connect.session import Installation, MayNotRead, connected
from makeway.cli.errors import fail
from makeway.cli.output import Printer, TableOutputOption
from makeway.cli.policy.queues_text import COLUMNS, lines, rows, summary
from makeway.core.queues.tree import ROOT

app = typer.Typer(add_completion=False)

_TIMEOUT_SECONDS = 5.0


@app.command()
@connected
async def queues(
    installation: Installation,
    queue: Annotated[
        str,
        typer.Argument(help="Only this queue, by its path, and all of it.", autocompletion=completion.queues),
    ] = "",
    *,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="For a user who sees no more: queues that its pods may use. Default: the context's.",
            autocompletion=completion.namespaces,
        ),
    ] = "",
    output: TableOutputOption = "text",
) -> None:
    """Show queues: limits, usage, guarantees, and what became of lowered quotas.

    The leading planner is asked. A user who may not read makeway's namespace is answered by the API
    ask.makeway.dev about the queues that pods of the namespace may use. Exit code 1 where there are no
    queues, or none of that path.
    """
    printer = Printer(output)
    try:
        report = await _ask(installation, queue)
    except MayNotRead as error:
        path = f"{installation.namespace(namespace)}/queues/{queue or ROOT}"
        answer = await asked(installation, printer, path, instead=error)
        report = msgspec.json.decode(answer, type=QueueReport)
        if queue and report.queues:
            report = msgspec.structs.replace(report, queues=report.queues[:1])
    if not report.revision:
        fail("there are no queues: no queues.yaml is in force")
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
            answer = await bus.request_queues(msgspec.json.encode(QueueQuery(queue=queue)), _TIMEOUT_SECONDS)
        except BusUnavailable as error:
            raise BusUnavailable(f"no planner answers: {error}") from error
    return msgspec.json.decode(answer, type=QueueReport)
