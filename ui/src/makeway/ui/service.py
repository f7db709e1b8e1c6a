"""`makeway ui-server`: the page in a cluster, for whom the API server knows by a token."""

from __future__ import annotations

from typing import Annotated

import typer

from makeway.cli.errors import fail, needed
from makeway.cli.services.service import service
from makeway.cli.shared_options import SinceOption
from makeway.runtime.settings import ServiceSettings

app = typer.Typer(add_completion=False)


@app.command()
@service("ui-server", listen=":9468")
async def ui_server(
    shared: ServiceSettings,
    *,
    page_listen: Annotated[
        str,
        typer.Option(
            "--page-listen", envvar="MAKEWAY_PAGE_LISTEN", metavar="HOST:PORT", help="Address of the page."
        ),
    ] = "127.0.0.1:8080",
    hosts: Annotated[
        list[str],
        typer.Option(
            "--host",
            metavar="NAME",
            help="Name under which browsers may ask for the page, besides localhost and 127.0.0.1. May be "
            "given again.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    https: Annotated[
        bool,
        typer.Option(
            "--https/--http", help="Whether browsers reach it by HTTPS alone, as through an Ingress."
        ),
    ] = False,
    since: SinceOption = "1d",
) -> int:
    """Serve the page to whom the API server knows by a token and lets list pods and nodes in all namespaces.

    A token is given in a form or as Authorization: Bearer. It is asked about anew each minute (TokenReview,
    SubjectAccessReview). Needs the rights of charts/makeway/rbac/ui.yaml, and to read from NATS as `viewer`
    does. It speaks HTTP: put an Ingress with TLS before it, or use kubectl port-forward.
    """
    try:
        from makeway.ui.edge.process import run  # noqa: PLC0415 - what an extra brings
    except ModuleNotFoundError as error:
        fail(needed(error, "the page"))
    return await run(shared, page_listen=page_listen, hosts=tuple(hosts), https=https, since=since)
