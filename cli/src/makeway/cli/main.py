"""The `makeway` command: one sub-command a service or tool, each loaded only when it is called.

Loading late keeps `makeway --help` and shell completion fast: numpy, aiohttp and the Kubernetes
client are imported by the sub-command that needs them. A sub-command's module has an `app`
(`typer.Typer`; one with a single command is that command, one with several is a group).

As `kubectl makeway` it is the same command: kubectl finds `kubectl-makeway` on the PATH, and asks
`kubectl_complete-makeway` for completions. Exit codes: see `makeway.cli.errors`.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
import typer.main

from makeway.cli import examples
from makeway.cli.errors import CLOSED_PIPE, fail, needed

_PLUGIN = "kubectl-makeway"
_PROGRAM = {True: "kubectl makeway", False: "makeway"}
_KUBECTLS = ("-n", "--namespace", "--context", "--kubeconfig")
"""Options that may stand before the sub-command."""
_NAMED_BY_PYTHON = "Value error, "
"""How pydantic, by which typer reads values, begins what it says."""
_COMPLETING = "_MAKEWAY_COMPLETE"
_YOUNG_OBJECTS = 100_000
"""Objects made between two looks of the collector: nearly all of a command's are its modules, which stay.

A service sets its own number once it has begun (`makeway.runtime.garbage`)."""
_JOINED = re.compile(r"-n[^-].*|--(namespace|context|kubeconfig)=.*", re.DOTALL)


class SubCommand(NamedTuple):
    """A sub-command as the main help lists it."""

    module: str
    help: str
    panel: str = "Commands"


_SERVICES = "Services"
_OPTIONS_OF_ALL = "options"
_REACHING = ("NATS", "Kubernetes")
"""Panels of options that `makeway options` shows, and the help of other commands of users does not."""

_SOURCE_ONLY = ("demo", "dev")
"""Commands whose parts are not in the wheel."""

_OF_USERS = {
    "why": ("makeway.cli.why.command", "Say why a pod was preempted, or why it is still pending."),
    "history": (
        "makeway.cli.history.command",
        "Show what was decided and done, or compare it with DefaultPreemption.",
    ),
    "simulate": ("makeway.cli.offline.simulate", "Say what would happen if pods were created."),
    "queues": ("makeway.cli.policy.queues", "Show queues: limits, usage, and lowered quotas."),
    "mode": ("makeway.cli.mode.command", "Show the mode of makeway, or change it."),
    "check": (
        "makeway.cli.check.command",
        "Check an installation: rights, versions, NATS, profile, planner, clocks.",
    ),
    "policy": ("makeway.cli.policy.command", "Check policies and queues before they are applied."),
    "replay": ("makeway.cli.offline.replay", "Decide again what was decided, and compare."),
    "ui": ("makeway.ui.command", "Show what makeway does in a browser."),
    "breaker": ("makeway.cli.mode.breaker", "Show what the evictors' breaker has stopped, or close it."),
    "keys": ("makeway.cli.keys.command", "Make and rotate the keys of signatures."),
    "options": ("makeway.cli.connect.common", "Show the options that reach NATS and Kubernetes."),
    "demo": ("makeway.dev.demo.command", "Watch preemptions on a real control plane."),
    "dev": ("makeway.dev.command", "Run a control plane for development."),
}
_THAT_SERVE = {
    "planner": ("makeway.cli.services.planner", "Run the planner: it plans which pods to evict for a pod."),
    "evictor": (
        "makeway.cli.services.evictor",
        "Run an evictor: carry out eviction orders, or roll them back.",
    ),
    "nominator": (
        "makeway.cli.services.nominator",
        "Run a nominator: preempt beside a scheduler without the plugin.",
    ),
    "ui-server": ("makeway.ui.service", "Run the page in a cluster: for users with a token."),
    "streams": ("makeway.cli.streams", "Set up the streams on NATS."),
}


SUB_COMMANDS = {
    **{name: SubCommand(*one) for name, one in _OF_USERS.items()},
    **{name: SubCommand(*one, _SERVICES) for name, one in _THAT_SERVE.items()},
}


def behind(args: list[str]) -> list[str]:
    """Return arguments with the options before the sub-command put at its end: `-n x why y` as `why y -n x`.

    It is how users of kubectl write them. Pure.
    """
    first = 0
    while first < len(args):
        if args[first] in _KUBECTLS and first + 1 < len(args):
            first += 2
        elif _JOINED.fullmatch(args[first]):
            first += 1
        else:
            break
    moved, rest = args[:first], args[first:]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]]


class LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands without loading them, and loads the one that is called."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; where its output is read no more, end as by SIGPIPE.

        rich and typer each end with 1 then.
        """
        try:
            return super().main(*args, **extra)
        except SystemExit as end:
            if not isinstance(end.__context__, BrokenPipeError):
                raise
            # What is left has no reader: it would be written once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(CLOSED_PIPE) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is called; what is wrong with a value is said without a name of Python's."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.replace(_NAMED_BY_PYTHON, "", 1)
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take options that stand before the sub-command as if they stood behind it."""
        return super().parse_args(ctx, behind(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in place of its entry in the list."""
        name, entry, rest = super().resolve_command(ctx, args)
        if name is None or name not in SUB_COMMANDS:
            return name, entry, rest
        if name == _OPTIONS_OF_ALL:
            rest = ["--help"]
        return name, load(name), rest


def load(name: str) -> Any:
    """Import a sub-command; ends the process with a message where its parts are not installed."""
    sub_command = SUB_COMMANDS[name]
    try:
        module = importlib.import_module(sub_command.module)
    except ModuleNotFoundError as error:
        if name in _SOURCE_ONLY and (error.name or "").startswith("makeway."):
            fail(
                f"makeway {name} needs a checkout of the source: {error.name} is not in the installed package"
            )
        fail(needed(error, f"makeway {name}"))
    command = typer.main.get_command(module.app)
    command.name = name
    brief = sub_command.panel != _SERVICES and name != _OPTIONS_OF_ALL
    _shape_help(command, name, brief=brief)
    return command


def _shape_help(command: Any, path: str, *, brief: bool) -> None:
    """Begin the help of a command, and of its own commands, with examples; and join its paragraphs' lines.

    typer joins those of the first paragraph alone, so that a terminal narrower than the source breaks the
    others twice. brief: the options that reach NATS and Kubernetes are left to `makeway options`.
    """
    own, name = command.format_help, _PROGRAM[_called() == _PLUGIN]
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    reaching = [one for one in command.params if getattr(one, "rich_help_panel", None) in _REACHING]

    def format_help(ctx: Any, formatter: Any) -> None:
        for line in examples.lines(path, name):
            typer.echo(line)
        # For the help alone: a shell completes them all the same.
        for one in reaching if brief else ():
            one.hidden = True
        own(ctx, formatter)
        for one in reaching:
            one.hidden = False
        if brief and reaching:
            typer.echo(f" Options that reach NATS and Kubernetes: {name} {_OPTIONS_OF_ALL}\n")

    command.format_help = format_help
    for inner_name, inner in getattr(command, "commands", {}).items():
        _shape_help(inner, f"{path} {inner_name}", brief=brief)


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
    "-n, --context and --kubeconfig may also precede the command: kubectl makeway -n shop why web-0.\n\n"
    "Exit codes: 0 done; 1 a negative answer or a failure, as the command's help says; 2 wrong usage; 3 no "
    "connection or no permission, and stderr says which; 130 interrupted; 141 its output is read no more.",
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


_FROM_SOURCE = importlib.util.find_spec("makeway.dev") is not None

for _name, _sub_command in SUB_COMMANDS.items():
    # What cannot run is not shown; whoever calls it is told what it needs.
    app.command(
        _name,
        help=_sub_command.help,
        hidden=_name in _SOURCE_ONLY and not _FROM_SOURCE,
        rich_help_panel=_sub_command.panel,
    )(_listed_only)


def main() -> None:
    """Run the command line, under the name by which it was called."""
    gc.set_threshold(_YOUNG_OBJECTS)
    if _COMPLETING in os.environ:
        _unfold()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on stderr: a terminal that is not in UTF-8 shows what it cannot write as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name=_PROGRAM[_called() == _PLUGIN])


def _unfold() -> None:
    """Have help texts take a line each: of a folded one, each line would be offered."""
    os.environ["COLUMNS"] = "4096"


def complete() -> None:
    """Print what could stand next, a line each, as kubectl asks of its plugins' completers.

    The last argument is the word being written. The last line, `:4`, is cobra's directive not to offer files.
    Source: kubectl's documentation of plugins, on completion.
    """
    # The command line completes itself for shells by these variables; fish's form is kubectl's too.
    os.environ[_COMPLETING] = "complete_fish"
    os.environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    os.environ["_TYPER_COMPLETE_ARGS"] = shlex.join(["makeway", *(sys.argv[1:] or [""])])
    _unfold()
    try:
        app(prog_name="makeway")
    finally:
        typer.echo(":4")
