"""`makeway queues`: what the leading planner knows of the queues, as a tree or of one in full."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import msgspec
import typer
import yaml
from rich.console import Console
from rich.table import Table

from makeway.bus.client import Bus
from makeway.bus.connection import Timings
from makeway.bus.errors import BusError
from makeway.bus.queue_report import QueueQuery, QueueReport
from makeway.cli.errors import fail
from makeway.cli.queues_text import COLUMNS, lines, rows, summary
from makeway.runtime import logs
from makeway.runtime.process import identity
from makeway.runtime.settings import NatsCredsOption, NatsSettings, NatsUrlOption, SubjectPrefixOption

app = typer.Typer(add_completion=False)

_NATS = NatsSettings()
_TIMEOUT_SECONDS = 5.0
_PIPE_WIDTH = 4096


@app.command()
def queues(
    queue: Annotated[str, typer.Argument(help="Only this queue, by its path, and all of it.")] = "",
    *,
    output: Annotated[
        Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="For a person, or as data.")
    ] = "text",
    nats_url: NatsUrlOption = _NATS.url,
    nats_creds: NatsCredsOption = _NATS.creds,
    subject_prefix: SubjectPrefixOption = _NATS.subject_prefix,
) -> None:
    """Show queues: limits, usage, guarantees, and what became of lowered quotas."""
    me = identity()
    logs.configure("text", "error", "queues", me)
    nats = NatsSettings(url=nats_url, creds=nats_creds, subject_prefix=subject_prefix)
    try:
        report = asyncio.run(_ask(nats, me, queue))
    except (BusError, ValueError) as error:
        fail(f"no planner answers: {error}")
    if not report.revision:
        fail("there are no queues: no queues.yaml is in force")
    if report.unknown:
        fail(f"there is no queue {queue}; `makeway queues` lists them")
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    elif output == "yaml":
        typer.echo(yaml.safe_dump(msgspec.to_builtins(report, str_keys=True), sort_keys=False), nl=False)
    elif queue:
        for line in lines(report.queues[0], report.at):
            typer.echo(line)
    else:
        _print_tree(report)


def _print_tree(report: QueueReport) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, header_style="")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows(report):
        table.add_row(*row)
    if not console.is_terminal:
        # A pipe has no width to fold a line to.
        console.width = _PIPE_WIDTH
    console.print(table)
    if note := summary(report):
        typer.echo(note, err=True)


async def _ask(nats: NatsSettings, me: str, queue: str) -> QueueReport:
    bus = await Bus.connect(
        nats.servers(),
        name=f"queues/{me}",
        prefix=nats.subject_prefix,
        creds=nats.creds,
        timings=Timings(connect=5),
    )
    try:
        answer = await bus.request_queues(msgspec.json.encode(QueueQuery(queue=queue)), _TIMEOUT_SECONDS)
    finally:
        await bus.close()
    return msgspec.json.decode(answer, type=QueueReport)
