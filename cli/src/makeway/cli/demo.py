"""`makeway demo`: a scenario on a real control plane, told as it happens, every claim checked."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from makeway.cli.errors import USAGE, fail
from makeway.dev.binaries import KUBERNETES
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.runner import CLUSTER, run
from makeway.dev.demo.scenarios import SCENARIOS
from makeway.dev.errors import DevError
from makeway.dev.progress import ConsoleProgress

_TOLD = "; ".join(f"{name}: {scenario.shows}" for name, scenario in SCENARIOS.items())


def demo(
    scenario: Annotated[str, typer.Argument(help=f"What to show. {_TOLD}.")] = "main",
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up and say how to use it.")] = False,
) -> None:
    """Show pods making room on a real control plane.

    It starts a cluster of its own, tells what happens, checks every claim, and takes the cluster down again.
    Exit code 1 where a claim did not hold.
    """
    if scenario not in SCENARIOS:
        raise typer.BadParameter(f"no scenario {scenario!r}; there is: {', '.join(SCENARIOS)}")
    if why := SCENARIOS[scenario].refused_on(KUBERNETES.name):
        fail(f"scenario {scenario}: {why}", USAGE)
    console = Console(highlight=False)
    narrator = Narrator(console)
    try:
        info = run(SCENARIOS[scenario], narrator, ConsoleProgress(console), keep=keep)
    except DevError as error:
        fail(str(error))
    if keep:
        console.print(
            f'\nThe cluster stays up. To look around:\n  eval "$(makeway dev env --name {CLUSTER})"'
        )
        console.print("  kubectl get pods -n demo -o wide\n  kubectl get events -n demo")
        console.print(f"  makeway history --nats-url {info.nats_url}")
        console.print(f"and to end it:\n  makeway dev down --name {CLUSTER}", highlight=False)
    if narrator.broken:
        raise typer.Exit(1)
