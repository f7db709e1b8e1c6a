"""`makeway breaker`: what the evictors' breaker has stopped, and how to close it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from makeway.cli.check.presence import must_be_installed
from makeway.cli.connect.configmaps import change_map, read_map
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import NEGATIVE
from makeway.cli.output import OutputOption, Printer
from makeway.core.policy.breaker import CONFIGMAP, RESET_AT, parse_breaker

app = typer.Typer(add_completion=False)


@app.command()
@connected
async def breaker(
    installation: Installation,
    action: Annotated[
        Literal["reset"] | None,
        typer.Argument(metavar="reset", help="Close it. Without, what is open is shown."),
    ] = None,
    *,
    output: OutputOption = "text",
) -> int | None:
    """Show for what the evictors' breaker is open, or close it.

    While it is open, evictors delete nothing: everywhere, or for the preemptors of a namespace. It is kept in
    the ConfigMap makeway-breaker. A clock that is off is told by its evictor, in `makeway check`; no reset
    helps. Look at the cause first: docs/runbooks/MakewayBreakerOpen.md. Exit code 1 where it is open.
    """
    printer = Printer(output)
    namespace = installation.makeway_namespace
    now = datetime.now(UTC)
    async with installation.api() as api:
        await must_be_installed(api, installation, changes=action is not None)
        trips, reset_at = parse_breaker((await read_map(api, namespace, CONFIGMAP)).data, now)
        held = [trip for trip in trips.values() if trip.holds(now)]
        if action == "reset":
            # Nothing older holds, and what was there is taken out.
            reset_at = now
            said = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            await change_map(api, namespace, CONFIGMAP, lambda _: {RESET_AT: said})
    still, closed = ([], held) if action else (held, [])
    if printer.data:
        printer.document({"configmap": CONFIGMAP, "resetAt": reset_at, "open": still, "closed": closed})
    else:
        for trip in held:
            printer.line(trip.describe("was" if action else "is"))
        if action:
            told = (
                f"the breaker is reset; evictors follow within seconds  (ConfigMap {namespace}/{CONFIGMAP})"
            )
        elif held:
            told = "`makeway breaker reset` closes it, once the cause is gone"
        else:
            told = "the breaker is closed"
        printer.line(told)
    return NEGATIVE if still else None
