"""`makeway dev`: a control plane for development, run from a checkout of the source.

Standard output has what a shell or a program reads; progress and errors go to standard error. Importing this
fails with ModuleNotFoundError where `makeway.dev` is not installed, which `makeway.cli.main` explains.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from makeway.cli.errors import fail
from makeway.dev import named
from makeway.dev.binaries import ALL
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.options import BRIDGES, COMPONENTS, ClusterOptions
from makeway.dev.paths import cache_directory
from makeway.dev.progress import ConsoleProgress
from makeway.dev.status import components

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Run a control plane for development: real processes, no containers.",
)

Name = Annotated[str, typer.Option("--name", "-n", help="Which cluster; several can run side by side.")]


@app.command()
def up(
    *,
    name: Name = "default",
    nodes: Annotated[int, typer.Option(min=0, help="How many nodes of 4 CPUs and 16 GiB to create.")] = 3,
    without: Annotated[
        list[str] | None,
        typer.Option(help=f"Leave a component out; may be repeated. One of {', '.join(COMPONENTS)}."),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="off, observe or enforce; `makeway mode` changes it later.")
    ] = "enforce",
    fallback: Annotated[
        bool, typer.Option(help="Whether DefaultPreemption may act where there is no plan.")
    ] = True,
    bridge: Annotated[
        str,
        typer.Option(
            help="Who brings plans, as in the chart: none, external or plugin. But for plugin, "
            "the scheduler is kube-scheduler."
        ),
    ] = "plugin",
) -> None:
    """Start a cluster, leave it running, and print what a shell needs to use it.

    The first start builds Kubernetes from source, which takes some minutes.
    """
    try:
        options = ClusterOptions(
            components=_parts(bridge) - set(_known(without or [])),
            mode=mode,
            fallback=fallback,
            plugin=bridge == "plugin",
            admission_policies=True,
            consumers=_CONSUMERS,
        )
        info = named.up(name, options, nodes=nodes, progress=ConsoleProgress())
    except (DevError, ValueError) as error:
        fail(str(error))
    typer.echo(info.exports())
    typer.echo(f'\ncluster {name} is up. In a shell: eval "$(makeway dev env --name {name})"', err=True)


_CONSUMERS: Final = "audit=outcomes,orders"
"""The consumer of docs/consumers.md, so that its program runs here as it stands."""


def _parts(bridge: str) -> frozenset[str]:
    """Return the components of a form.

    Raises:
        ValueError: there is no such form.
    """
    if bridge not in BRIDGES:
        raise ValueError(f"bridge is {bridge!r}; it must be {', '.join(BRIDGES)}")
    return BRIDGES[bridge]


def _known(chosen: list[str]) -> list[str]:
    """Pass component names on.

    Raises:
        ValueError: a name is not a component's.
    """
    if unknown := set(chosen) - set(COMPONENTS):
        raise ValueError(f"no component {', '.join(sorted(unknown))}; there are {', '.join(COMPONENTS)}")
    return chosen


@app.command()
def build() -> None:
    """Build every binary of the control plane that the cache lacks, and start nothing."""
    try:
        ensure(ALL, ConsoleProgress())
    except DevError as error:
        fail(str(error))
    typer.echo(f"all binaries are in {cache_directory() / 'bin'}", err=True)


@app.command()
def down(
    name: Name = "default",
    every: Annotated[bool, typer.Option("--all", help="Every cluster that is up.")] = False,
    keep_logs: Annotated[bool, typer.Option(help="Leave the cluster's directory with its logs.")] = False,
) -> None:
    """End a cluster and remove what it left."""
    try:
        for each in named.names() if every else [name]:
            was_up = named.down(each, keep_logs=keep_logs)
            kept = f"; logs: {named.directory_of(each) / 'logs'}" if keep_logs else ""
            typer.echo(f"cluster {each} {'is down' if was_up else 'was not up'}{kept}", err=True)
    except DevError as error:
        fail(str(error))


@app.command()
def env(name: Name = "default") -> None:
    r"""Print shell exports: KUBECONFIG, NATS_URL, and PATH with kubectl.

    Use: eval "$(makeway dev env)"
    """
    try:
        typer.echo(named.find(name).exports())
    except DevError as error:
        fail(str(error))


@app.command()
def status(
    name: Annotated[str | None, typer.Option("--name", "-n", help="Which cluster; else all.")] = None,
) -> None:
    """Show what runs; exit code 1 where a cluster is not up or a component is not ready."""
    console = Console()
    chosen = [name] if name else named.names()
    try:
        healthy = [_show(each, console) for each in chosen]
    except DevError as error:
        fail(str(error))
    if not chosen:
        console.print("no cluster is up; start one with: makeway dev up")
    if not all(healthy) or not chosen:
        raise typer.Exit(1)


def _show(name: str, console: Console) -> bool:
    """Print one cluster; whether all of it is as it should be."""
    if not named.is_up(name):
        console.print(f"cluster {name}: not up, logs in {named.directory_of(name) / 'logs'}", soft_wrap=True)
        return False
    info = named.find(name)
    console.print(f"cluster {name}: API server {info.server}, NATS {info.nats_url}", soft_wrap=True)
    console.print(f"logs: {info.logs}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("COMPONENT", "STATE", "PID", "RESTARTS"):
        table.add_column(column, no_wrap=True)
    rows = components(info)
    for row in rows:
        table.add_row(row.name, row.state, str(row.pid or ""), str(row.restarts))
    console.print(table)
    for row in rows:
        if row.detail:
            console.print(f"{row.name}: {row.detail}", markup=False, soft_wrap=True)
    return all(row.state in ("ready", "running") for row in rows)
