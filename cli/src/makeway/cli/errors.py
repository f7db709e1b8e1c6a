"""How a command ends when it cannot go on: one line on stderr, exit code 1, no traceback."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Print `makeway: <message>` on stderr and end with exit code 1."""
    typer.echo(f"makeway: {message}", err=True)
    raise typer.Exit(1)
