"""`makeway options`: the options by which every command reaches NATS and Kubernetes."""

from __future__ import annotations

import typer

from makeway.cli.connect.session import Installation, connected

app = typer.Typer(add_completion=False)


@app.command()
@connected
async def options(installation: Installation) -> None:
    """Show the options by which every command reaches NATS and Kubernetes.

    Each command that asks one of them takes these. Where nothing is given, the ConfigMap
    makeway-installation in makeway's namespace says where NATS is, and the kubeconfig where Kubernetes is.
    """
    del installation  # it is called with --help alone
