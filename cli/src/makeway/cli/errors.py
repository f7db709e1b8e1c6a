"""How a command ends when it cannot go on: one line on stderr, an exit code, no traceback.

The exit codes of every command that is no service: 0 done; 1 a negative answer, or a failure, as its help
says; 2 wrong usage; 3 nothing was reached that could answer, or it did not let us in; 130 interrupted.
"""

from __future__ import annotations

import shutil
import sys
from typing import Final, NoReturn

import typer

from makeway.cli.text import folded, safe_lines

NEGATIVE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130

NARROWEST: Final = 40
"""Columns that a folded line has at the least."""


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
    if not typer.confirm(question, err=True):
        fail("nothing was changed")


def fail(message: str, code: int = NEGATIVE) -> NoReturn:
    """Print `makeway: <message>` on stderr and end with the exit code."""
    tell(message)
    raise typer.Exit(code)
