"""How a command ends when it cannot go on: one line on stderr, an exit code, no traceback.

The exit codes of every command that is no service: 0 done; 1 a negative answer, or a failure, as its help
says; 2 wrong usage; 3 nothing was reached that could answer, or it did not let us in; 130 interrupted; 141
the reader of stdout went away.
"""

from __future__ import annotations

import shutil
import signal
import sys
from typing import Final, NoReturn

import typer

from makeway.cli.text import folded, safe_lines

NEGATIVE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
"""As of a program that SIGPIPE ends; 1 would be a negative answer, such as of `makeway check | head -1`."""

NARROWEST: Final = 40
"""Columns that a folded line has at the least."""


_OF_EXTRAS: Final = {
    "numpy": "services",
    "uvloop": "services",
    "opentelemetry": "tracing",
    "starlette": "ui",
    "uvicorn": "ui",
}
"""Top-level modules that an extra brings, and its name in pyproject.toml.

The command line comes with what asks the API server and NATS. The services, and whatever plans, need
`.[services]` besides: the arrays of the planner alone are larger than all the rest. The page needs `.[ui]`,
which has these too; services that trace need `.[tracing]`. A checkout is named, not the package index, where
until the first release anyone may register the name.
"""


def tell(message: str) -> None:
    """Print `makeway: <message>` on stderr; on a terminal folded between words."""
    note(f"makeway: {message}")


def note(text: str) -> None:
    """Print a text on stderr; on a terminal folded between words."""
    shown = safe_lines(text)
    if sys.stderr.isatty():
        shown = folded(shown, max(shutil.get_terminal_size().columns, NARROWEST))
    typer.echo(shown, err=True)


def confirm(question: str, what: str) -> None:
    """Ask at the terminal, and end where the answer is no; without a terminal, end with `what` and --yes."""
    if not sys.stdin.isatty():
        fail(f"{what}, and there is no terminal to ask at: nothing was changed; give --yes", USAGE)
    # A coroutine asks: asyncio would note the first interrupt, and the terminal would be read on.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:
        typer.echo(err=True)  # no key has ended the question's line
        interrupted = isinstance(error.__context__, KeyboardInterrupt)
        fail("nothing was changed", INTERRUPTED if interrupted else NEGATIVE)
    finally:
        signal.signal(signal.SIGINT, handler)
    if not agreed:
        fail("nothing was changed")


def fail(message: str, code: int = NEGATIVE) -> NoReturn:
    """Print `makeway: <message>` on stderr and end with the exit code."""
    tell(message)
    raise typer.Exit(code)


def needed(error: ModuleNotFoundError, what: str) -> str:
    """Say which extra brings what was not found, and how to install it.

    `what`: the subject of the sentence. Raises the error again where no extra brings the module: something
    else is wrong then.
    """
    module = (error.name or "").partition(".")[0]
    if module not in _OF_EXTRAS:
        raise error
    extra = _OF_EXTRAS[module]
    return f"{what} needs {module}, which is not installed: pip install '.[{extra}]' in a checkout"
