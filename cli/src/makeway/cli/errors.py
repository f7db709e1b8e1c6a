"""How a command ends when it cannot go on: one line on stderr, an exit code, no traceback.

The exit codes of every command that is no service: 0 done; 1 a negative answer, or a failure, as its help
says; 2 wrong usage; 3 nothing was reached that could answer, or it did not let us in; 130 interrupted.
"""

from __future__ import annotations

from typing import Final, NoReturn

import typer

from makeway.cli.text import safe_lines

NEGATIVE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130


def fail(message: str, code: int = NEGATIVE) -> NoReturn:
    """Print `makeway: <message>` on stderr and end with the exit code."""
    typer.echo(f"makeway: {safe_lines(message)}", err=True)
    raise typer.Exit(code)
