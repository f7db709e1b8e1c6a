"""The `makeway` command: one sub-command a service or tool, each loaded only when it is called.

Loading late keeps `makeway --help` and shell completion fast: numpy, aiohttp and the Kubernetes
client are imported by the sub-command that needs them. A sub-command's module has an `app`
(`typer.Typer`; one with a single command is that command, one with several is a group) or a function
of the sub-command's name.

As `kubectl makeway` it is the same command: kubectl finds `kubectl-makeway` on the PATH, and asks
`kubectl_complete-makeway` for completions. Exit codes: see `makeway.cli.errors`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
import typer.main

from makeway.cli.errors import fail

_PLUGIN = "kubectl-makeway"


class SubCommand(NamedTuple):
    """A sub-command as the main help lists it. `source_only`: its parts are not in the wheel."""

    module: str
    help: str
    source_only: bool = False


SUB_COMMANDS = {
    "planner": SubCommand(
        "makeway.cli.services.planner", "Run the planner: say which pods would make room for a pod."
    ),
    "evictor": SubCommand(
        "makeway.cli.services.evictor", "Run an evictor: carry out eviction orders, or roll them back."
    ),
    "streams": SubCommand("makeway.cli.streams", "Set up the streams on NATS."),
    "check": SubCommand(
        "makeway.cli.check.command",
        "Check an installation: rights, versions, NATS, profile, planner, clocks.",
    ),
    "mode": SubCommand("makeway.cli.mode.command", "Show how far makeway goes, or change it."),
    "breaker": SubCommand(
        "makeway.cli.mode.breaker", "Show what the evictors' breaker has stopped, or close it."
    ),
    "keys": SubCommand("makeway.cli.keys.command", "Make, show and rotate the keys of signatures."),
    "history": SubCommand(
        "makeway.cli.history.command", "Show what was decided and done, or compare it with DefaultPreemption."
    ),
    "watch": SubCommand("makeway.cli.history.watch", "Watch orders in flight and decisions as they come."),
    "audit": SubCommand("makeway.cli.history.audit", "Show who makes room for whom, where and why."),
    "simulate": SubCommand("makeway.cli.offline.simulate", "Say what would happen if pods were created."),
    "why": SubCommand("makeway.cli.why.command", "Say why a pod was preempted, or why it is still pending."),
    "replay": SubCommand("makeway.cli.offline.replay", "Decide again what was decided, and compare."),
    "queues": SubCommand("makeway.cli.policy.queues", "Show queues: limits, usage, and lowered quotas."),
    "policy": SubCommand("makeway.cli.policy.command", "Check policies and queues before they are applied."),
    "quarantine": SubCommand(
        "makeway.cli.quarantine.command",
        "Look at messages that were put aside, publish them again, or remove them.",
    ),
    "demo": SubCommand("makeway.cli.demo", "Watch pods make room on a real control plane.", source_only=True),
    "dev": SubCommand("makeway.cli.dev", "Run a control plane for development.", source_only=True),
}


class LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands without loading them, and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in place of its entry in the list."""
        name, entry, rest = super().resolve_command(ctx, args)
        if name is None or name not in SUB_COMMANDS:
            return name, entry, rest
        return name, load(name), rest


def load(name: str) -> Any:
    """Import a sub-command; ends the process with a message where its parts are not installed."""
    sub_command = SUB_COMMANDS[name]
    try:
        module = importlib.import_module(sub_command.module)
    except ModuleNotFoundError as error:
        if not sub_command.source_only or not (error.name or "").startswith("makeway."):
            raise
        fail(f"makeway {name} needs a checkout of the source: {error.name} is not in the installed package")
    sub_app = getattr(module, "app", None)
    if sub_app is None:
        sub_app = typer.Typer(add_completion=False)
        sub_app.command()(getattr(module, name))
    command = typer.main.get_command(sub_app)
    command.name = name
    _join_lines(command)
    return command


def _join_lines(command: Any) -> None:
    """Join the lines of each paragraph of a command's help, and of its own commands'.

    typer joins those of the first paragraph alone, so that a terminal narrower than the source breaks the
    others twice.
    """
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _join_lines(inner)


def _called() -> str:
    """The name of the executable that was called."""
    return Path(sys.argv[0]).name


app = typer.Typer(
    name="makeway",
    # A shell completes `kubectl makeway` by kubectl.
    add_completion=_called() != _PLUGIN,
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Better preemption for Kubernetes: a planner, a safe evictor and a kube-scheduler plugin.\n\n"
    "Exit codes: 0 done; 1 a negative answer or a failure, as the command's help says; 2 wrong usage; 3 no "
    "connection or no permission, and stderr says which; 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - only --version pays for it

        typer.echo(f"makeway {version('makeway')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before the sub-command."""


def _listed_only() -> None:
    """Stand for a sub-command in the list; `LazyGroup` puts the real one in its place."""


for _name, _sub_command in SUB_COMMANDS.items():
    app.command(_name, help=_sub_command.help)(_listed_only)


def main() -> None:
    """Run the command line, under the name by which it was called."""
    app(prog_name="kubectl makeway" if _called() == _PLUGIN else "makeway")


def complete() -> None:
    """Print what could stand next, a line each, as kubectl asks of its plugins' completers.

    The last argument is the word being written. The last line, `:4`, is cobra's directive not to offer files.
    Source: kubectl's documentation of plugins, on completion.
    """
    # The command line completes itself for shells by these variables; fish's form is kubectl's too.
    os.environ["_MAKEWAY_COMPLETE"] = "complete_fish"
    os.environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    os.environ["_TYPER_COMPLETE_ARGS"] = shlex.join(["makeway", *(sys.argv[1:] or [""])])
    try:
        app(prog_name="makeway")
    finally:
        typer.echo(":4")
