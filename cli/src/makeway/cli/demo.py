"""`makeway demo`: a scenario on a real control plane, told as it happens, every claim checked."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console

from makeway.cli.errors import USAGE, fail
from makeway.dev.binaries import KUBERNETES
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.runner import CLUSTER, run
from makeway.dev.demo.scenarios import SCENARIOS, Scenario
from makeway.dev.errors import DevError
from makeway.dev.progress import ConsoleProgress

_TOLD = "; ".join(f"{name}: {scenario.shows}" for name, scenario in SCENARIOS.items())


def demo(
    scenario: Annotated[str, typer.Argument(help=f"What to show. {_TOLD}.")] = "main",
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up and say how to use it.")] = False,
) -> None:
    """Show pods making room on a real control plane.

    It starts a cluster of its own, tells what happens, checks every claim, names the two commands that are
    best run next, and takes the cluster down again: on a terminal when Enter is pressed. Exit code 1 where a
    claim did not hold.
    """
    if scenario not in SCENARIOS:
        raise typer.BadParameter(f"no scenario {scenario!r}; there is: {', '.join(SCENARIOS)}")
    if why := SCENARIOS[scenario].refused_on(KUBERNETES.name):
        fail(f"scenario {scenario}: {why}", USAGE)
    chosen, console = SCENARIOS[scenario], Console(highlight=False)
    narrator = Narrator(console)
    waits = not keep and console.is_terminal and sys.stdin.isatty()

    def at_end() -> None:
        if keep or waits:
            console.print(f"\nThe cluster is up. In another terminal:\n{next_commands(chosen)}", markup=False)
        if waits:
            with suppress(EOFError):
                console.input("Enter ends it. ")

    try:
        run(chosen, narrator, ConsoleProgress(console), keep=keep, at_end=at_end)
    except DevError as error:
        fail(str(error))
    if keep:
        console.print(f"and to end it:\n  {program()} dev down --name {CLUSTER}")
    if narrator.broken:
        raise typer.Exit(1)


def next_commands(scenario: Scenario) -> str:
    """Return what is best run next on the demo's cluster, a command a line."""
    environment = f'eval "$({program()} dev env --name {CLUSTER})"'
    return f"  {environment}\n  makeway {scenario.asks}\n  makeway ui"


def program() -> str:
    """Return how a shell calls this program: by its name, or where it is not on PATH by its path."""
    return "makeway" if shutil.which("makeway") else os.path.relpath(sys.argv[0])
