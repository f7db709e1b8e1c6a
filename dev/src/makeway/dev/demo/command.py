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
from makeway.dev.demo.scenarios import MAIN, SCENARIOS, Scenario, played_first
from makeway.dev.errors import DevError
from makeway.dev.progress import ConsoleProgress

app = typer.Typer(add_completion=False)

_TOLD = "; ".join(f"{name}: {scenario.shows}" for name, scenario in SCENARIOS.items())


@app.command()
def demo(
    scenario: Annotated[str | None, typer.Argument(help=f"What to show. {_TOLD}.", show_default=MAIN)] = None,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up and say how to use it.")] = False,
) -> None:
    """Show pods making room on a real control plane.

    It starts a cluster of its own, tells what happens, checks every claim, names the two commands that are
    best run next, and takes the cluster down again: on a terminal when Enter is pressed. Exit code 1 where a
    claim did not hold. Where a mirror has all but makeway-scheduler, external is played before main.
    """
    if scenario and scenario not in SCENARIOS:
        raise typer.BadParameter(f"no scenario {scenario!r}; there is: {', '.join(SCENARIOS)}")
    if scenario and (why := SCENARIOS[scenario].refused_on(KUBERNETES.name)):
        fail(f"scenario {scenario}: {why}", USAGE)
    console = Console(highlight=False)
    try:
        chosen = scenario or played_first()
        then = "" if scenario or chosen == MAIN else MAIN
        if then:
            console.print(f"{chosen} is played first: of {then} makeway-scheduler would have to be built.")
        held, goes_on = _play(chosen, console, keep=keep, then=then)
        if goes_on:
            held &= _play(then, console, keep=False, then="")[0]
    except DevError as error:
        fail(str(error))
    if not held:
        raise typer.Exit(1)


def _play(name: str, console: Console, *, keep: bool, then: str) -> tuple[bool, bool]:
    """Play a scenario; report whether all claims held, and whether `then` is to be played after it.

    Raises:
        DevError: the cluster could not be started.
    """
    narrator, goes_on = Narrator(console), False
    waits = not keep and console.is_terminal and sys.stdin.isatty()

    def at_end() -> None:
        nonlocal goes_on
        if keep or waits:
            commands = next_commands(SCENARIOS[name])
            console.print(f"\nThe cluster is up. In another terminal:\n{commands}", markup=False)
        if waits:
            more = f" and plays {then}: {SCENARIOS[then].shows}; Ctrl-D ends all" if then else ""
            with suppress(EOFError):
                console.input(f"Enter ends it{more}. ")
                goes_on = then != ""

    run(SCENARIOS[name], narrator, ConsoleProgress(console), keep=keep, at_end=at_end)
    if keep:
        console.print(f"and to end it:\n  {program()} dev down --name {CLUSTER}")
    if then and not waits:
        console.print(f"With the plugin, for which makeway-scheduler is built:\n  {program()} demo {then}")
    return not narrator.broken, goes_on


def next_commands(scenario: Scenario) -> str:
    """Return what is best run next on the demo's cluster, a command a line."""
    environment = f'eval "$({program()} dev env --name {CLUSTER})"'
    return f"  {environment}\n  makeway {scenario.asks}\n  makeway ui"


def program() -> str:
    """Return how a shell calls this program: by its name, or where it is not on PATH by its path."""
    return "makeway" if shutil.which("makeway") else os.path.relpath(sys.argv[0])
