"""`makeway ui`: the page, on this machine alone."""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from datetime import UTC, datetime
from typing import Annotated

import typer

from makeway.bus.reasons import reason_of
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import fail, needed
from makeway.cli.history.streams import must_exist
from makeway.cli.shared_options import SinceOption, since_given
from makeway.runtime.settings import ConfigSettings

app = typer.Typer(add_completion=False)

_HOST = "127.0.0.1"


@app.command()
@connected
async def ui(
    installation: Installation,
    *,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the address in a browser.")] = False,
    since: SinceOption = "1d",
) -> None:
    """Show what makeway does in a browser: now, timeline, stories, nodes, queues, comparisons, a simulation.

    It prints the address, with a token in it, and serves it on this machine alone until it is interrupted.
    What it shows it reads with your own rights, as the commands do; nothing is created or changed.
    """
    now = datetime.now(UTC)
    look_back = now - since_given(since, now)
    try:
        from makeway.ui.edge.app import Site, page_app  # noqa: PLC0415 - what an extra brings
        from makeway.ui.edge.gate import LocalGate  # noqa: PLC0415
        from makeway.ui.edge.reader import Reader  # noqa: PLC0415
        from makeway.ui.edge.server import listening, serve  # noqa: PLC0415
        from makeway.ui.edge.sources import Sources  # noqa: PLC0415
    except ModuleNotFoundError as error:
        fail(needed(error, "the page"))
    async with installation.bus() as bus, installation.api() as api:
        await must_exist(bus)
        try:
            where = listening(_HOST, port)
        except OSError as error:
            fail(f"cannot listen on {_HOST}:{port}: {reason_of(error)}; give another --port, or 0")
        port = int(where.getsockname()[1])
        token = secrets.token_urlsafe(24)
        reader = Reader(bus, look_back)
        settings = ConfigSettings(namespace=installation.makeway_namespace)
        sources = Sources(bus, api, settings, reader)
        # Cookies of one host are shared by its ports.
        site = Site(gate=LocalGate(token), hosts=(_HOST, "localhost"), cookie=f"makeway-ui-{port}")
        address = f"http://{_HOST}:{port}/?token={token}"
        typer.echo(address)
        if open_browser and not webbrowser.open(address):
            typer.echo("makeway: no browser can be opened here; open the address yourself", err=True)
        await asyncio.gather(serve(page_app(site, sources), where), reader.run())
