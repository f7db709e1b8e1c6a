"""`makeway audit`: read the streams of decisions, orders and outcomes, and tell what happened.

It only reads, and any number may. It is a tool for administrators: it shows names across
namespaces, which tenants must not learn of one another.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from makeway.cli.connect import completion
from makeway.cli.connect.session import Installation, OnlyNamespaceOption, connected
from makeway.cli.history.audit_lines import Auditor
from makeway.cli.history.audit_streams import everything
from makeway.cli.history.since import parse_since
from makeway.cli.output import OutputOption, Printer

app = typer.Typer(add_completion=False)


@app.command()
@connected
async def audit(
    installation: Installation,
    *,
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
    namespace: OnlyNamespaceOption = "",
    order: Annotated[
        str,
        typer.Option(
            "--order",
            help="Only this order and its outcome, by id or its beginning.",
            autocompletion=completion.orders,
        ),
    ] = "",
    output: OutputOption = "text",
) -> None:
    """Show who makes room for whom, where, by which rule, and how it ended.

    A line a decision, order or outcome; as data, an object each: its stream and the CloudEvent in it.
    """
    try:
        start = parse_since(since, datetime.now(UTC)) if since else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from error
    auditor, printer = Auditor(namespace=namespace, order=order), Printer(output)
    async with (
        installation.bus() as bus,
        aclosing(everything(bus, since=start, follow=follow)) as messages,
    ):
        async for kind, message in messages:
            entry = auditor.read(message, kind)
            if not auditor.wanted(entry):
                continue
            if printer.data:
                printer.item(msgspec.json.decode(auditor.json_line(entry)))
            else:
                printer.line(auditor.line(entry))
