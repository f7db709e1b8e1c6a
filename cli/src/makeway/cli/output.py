"""How commands print: text for a person, plain and stable in a pipe, or data alone as JSON or YAML.

A command declares `output: OutputOption = "text"`, or `TableOutputOption` where it prints a table, makes one
`Printer(output)` and prints by it alone:

    printer = Printer(output)
    if printer.data:
        printer.document(report)             # one document; or printer.item(each) for each of a stream
    else:
        printer.table(COLUMNS, rows(report))
        printer.note("nothing else")         # about the answer, not part of it: stderr

What is data is only ever on stdout, what is about it only ever on stderr. Control characters in text are
escaped here, whoever wrote them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import msgspec
import typer
import yaml
from rich.console import Console
from rich.text import Text

from makeway.cli import tables
from makeway.cli.errors import NARROWEST, note
from makeway.cli.tables import Column
from makeway.cli.text import broken, safe

Output = Literal["text", "json", "yaml"]
TableOutput = Literal["text", "wide", "json", "yaml"]

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Text for a person, or data for a program.")
]

TableOutputOption = Annotated[
    TableOutput,
    typer.Option(
        "--output",
        "-o",
        help="Text for a person, wide with every column and nothing cut, or data for a program.",
    ),
]

_PIPE_WIDTH: Final = 4096
"""A pipe has no width to fold a line to."""

_INDENT: Final = 2


class Printer:
    """Prints one command's answer in the form that was asked for.

    `data`: JSON or YAML was asked for, so that only `document` or `item` may be called.
    `wide`: every column of a table was asked for.
    `terminal`: a person looks at it; colours, and progress on stderr, are for them alone.
    `width`: of the terminal, or what COLUMNS says, in cells; None in a pipe otherwise.
    """

    def __init__(self, output: TableOutput) -> None:
        self.output = output
        self.data = output in ("json", "yaml")
        self.wide = output == "wide"
        self.console = Console(highlight=False, markup=False, emoji=False)
        self.terminal = self.console.is_terminal
        self.width = self.console.width if self.terminal else _columns()
        if not self.terminal:
            self.console.width = _PIPE_WIDTH

    def document(self, value: Any) -> None:
        """Print a whole answer: a msgspec struct, or plain dicts and lists. Indented JSON, or YAML."""
        plain = _plain(value)
        if self.output == "yaml":
            _write(_yaml(plain))
        else:
            _write(msgspec.json.format(msgspec.json.encode(plain)).decode() + "\n")

    def item(self, value: Any) -> None:
        """Print one of a stream of answers: a line of JSON, or a YAML document after `---`. At once."""
        plain = _plain(value)
        if self.output == "yaml":
            _write("---\n" + _yaml(plain))
        else:
            _write(msgspec.json.encode(plain).decode() + "\n")

    def line(self, text: str | Text) -> None:
        """Print a line for a person: folded between words where there is a width, whole in a pipe."""
        shown = _shown(text)
        if self.width is None:
            self.row(shown)
            return
        for part in _parts(shown if isinstance(shown, Text) else Text(shown), max(self.width, NARROWEST)):
            self.row(part)

    def row(self, text: str | Text) -> None:
        """Print a line that is never folded, such as one of a table."""
        self.console.print(_shown(text), soft_wrap=True)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Print a table as kubectl does: capitals on top, no lines, no folded cell; ids can be copied."""
        for line in tables.table(columns, rows, width=self.width, wide=self.wide):
            self.row(line)

    def note(self, text: str) -> None:
        """Say something about the answer, on one line of stderr; on a terminal folded between words."""
        note(safe(text))

    @contextmanager
    def progress(self, what: str) -> Iterator[None]:
        """Show that something is waited for, on stderr, where that is a terminal; else nothing."""
        console = Console(stderr=True, highlight=False, markup=False)
        if not console.is_terminal:
            yield
            return
        with console.status(what):
            yield


def _parts(line: Text, width: int) -> Iterator[Text]:
    """Break a line between words, of which none is broken; later parts are indented by two more."""
    indent = " " * (len(line.plain) - len(line.plain.lstrip(" ")) + _INDENT)
    end = 0
    for part in broken(line.plain, width, indent) or [""]:
        text = part.removeprefix(indent) if end else part
        begin = line.plain.index(text, end)
        yield Text.assemble(indent if end else "", line[begin : begin + len(text)])
        end = begin + len(text)


def _columns() -> int | None:
    """Return how wide a table in a pipe may be: as COLUMNS says; None where it does not."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and len(said) <= len(str(_PIPE_WIDTH)) and int(said) else None


def _shown(text: str | Text) -> str | Text:
    """Return a text without what a terminal would act on: much of it was written by those who create pods.

    It stays one line, so that no quoted text can look like another line of the answer.
    """
    if isinstance(text, str):
        return safe(text)
    return text if text.plain.isprintable() else Text(safe(text.plain))


def _plain(value: Any) -> Any:
    """Return what JSON and YAML both can say; times in RFC 3339."""
    return msgspec.to_builtins(value, str_keys=True)


def _yaml(plain: Any) -> str:
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=_PIPE_WIDTH)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
