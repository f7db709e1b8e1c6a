"""One answer in three forms."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import typer
import yaml
from rich.console import Console
from rich.text import Text

from makeway.cli.errors import fail
from makeway.cli.output import Output, Printer
from makeway.cli.tables import Column
from makeway.cli.text import folded


class Answer(msgspec.Struct, rename="camel"):
    some_name: str
    at: datetime


ANSWER = Answer("ä", datetime(2026, 1, 2, tzinfo=UTC))
PLAIN = {"someName": "ä", "at": "2026-01-02T00:00:00Z"}


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_data_is_the_same_in_json_and_yaml(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    Printer(output).document(ANSWER)

    printed = capsys.readouterr().out
    assert (json.loads if output == "json" else yaml.safe_load)(printed) == PLAIN


def test_a_stream_is_lines_in_json_and_documents_in_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    for output in ("json", "yaml"):
        printer = Printer(output)
        printer.item(ANSWER)
        printer.item({"b": ["x" * 5000]})

    lines = capsys.readouterr().out.split("\n", 2)
    assert [json.loads(line) for line in lines[:2]] == [PLAIN, {"b": ["x" * 5000]}]
    assert list(yaml.safe_load_all(lines[2])) == [PLAIN, {"b": ["x" * 5000]}]


@pytest.mark.parametrize("width", ["", "40"])
def test_a_quoted_text_makes_no_line_of_its_own(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    printer, forged = Printer("text"), "quoted\n✓ all\x1b[2J"

    printer.line(forged)
    printer.line(Text(forged))
    printer.note(forged)

    shown = "quoted\\n✓ all\\x1b[2J\n"
    assert tuple(capsys.readouterr()) == (shown * 2, shown)


def test_a_narrow_terminal_divides_no_id_of_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    ids = ["dec-01m84d0f6s4bq1x0470w6zb6w3", "ord-01m84d157fa0khcepscvggahhy"]

    Printer("text").table([Column("FIRST"), Column("SECOND")], [ids])

    row = capsys.readouterr().out.splitlines()[1]
    assert row.split() == ids


def test_a_command_is_broken_where_it_can_be_copied_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    Printer("text").line(
        "the last good one is effective; see `kubectl get cm policy -o yaml | makeway lint -`"
    )

    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["  `kubectl get cm policy -o yaml |", "  makeway lint -`"]


def test_a_pipe_takes_its_width_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, row = (Column("NAME"), Column("WHY", kind="text")), ("a", "x" * 300)

    monkeypatch.setenv("COLUMNS", "40")
    Printer("text").table(columns, [row])
    monkeypatch.setenv("COLUMNS", "wide")
    Printer("text").table(columns, [row])

    widths = [len(line) for line in capsys.readouterr().out.splitlines()]
    assert widths == [len("NAME  WHY"), 40, len("NAME  WHY"), 306]


def test_in_a_pipe_a_table_is_not_folded_and_progress_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    printer = Printer("text")
    with printer.progress("waiting"):
        printer.table((Column("NAME"), Column("WHY", kind="text")), [("a", "x" * 300)])
    printer.note("that is all")

    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].rstrip() == "a     " + "x" * 300
    assert captured.err == "that is all\n"


HOSTILE = "evil\x1b[2J\x1b]0;owned\x07\x9b1m\u202e"
"""What a terminal acts on: it clears the screen, sets a title, turns the writing round."""


def test_no_text_reaches_a_terminal_with_what_it_would_act_on(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("text")

    printer.line(HOSTILE)
    printer.line(Text(HOSTILE, style="bold"))
    printer.table((Column("NAME"),), [(HOSTILE,), (HOSTILE,)])
    printer.note(HOSTILE)
    with pytest.raises(typer.Exit):
        fail(HOSTILE)

    shown = "".join(capsys.readouterr())
    assert shown.replace("\\x07", "").count("evil\\x1b[2J\\x1b]0;owned\\x9b1m\\u202e") == 6
    assert all(c.isprintable() or c == "\n" for c in shown)


def test_a_line_keeps_its_colours_where_it_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    printer = Printer("text")
    printer.console = Console(file=StringIO(), width=80, color_system="standard", force_terminal=True)

    printer.line(Text.assemble("  ", ("✗", "red"), " NATS: nothing listens at ", ("127.0.0.1:4222", "bold")))

    shown = printer.console.file.getvalue()  # type: ignore[attr-defined]
    assert shown == "  \x1b[31m✗\x1b[0m NATS: nothing listens at\n    \x1b[1m127.0.0.1:4222\x1b[0m\n"


def test_prose_is_folded_between_words_and_a_long_name_is_not_broken() -> None:
    told = "not in the dump: limitranges, resourcequotas\nregistry.example.com/an/image-with-a-long-name is"

    assert folded(told, 30).split("\n") == [
        "not in the dump: limitranges,",
        "  resourcequotas",
        "registry.example.com/an/image-with-a-long-name",
        "  is",
    ]


ASKING = """\
import asyncio, sys, typer
from makeway.cli.errors import confirm

async def ask():
    confirm("Go on?", "")

try:
    asyncio.run(ask())
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


@pytest.mark.parametrize(("typed", "code"), [(b"", 130), (b"\x04", 1), (b"n\n", 1), (b"y\n", 0)])
def test_a_question_is_ended_by_the_first_interrupt(typed: bytes, code: int) -> None:
    """In a coroutine, as commands ask it, where asyncio only notes the first.

    Sent once the process sleeps in its read: Python sees what comes right before that only after the read.
    """
    terminal, its = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", ASKING], stdin=its, stdout=its, stderr=its) as process:
        shown = b""
        while b"[y/N]: " not in shown:
            shown += os.read(terminal, 1024)
        while " S " not in Path(f"/proc/{process.pid}/stat").read_text():
            time.sleep(0.01)
        if typed:
            os.write(terminal, typed)
        else:
            process.send_signal(signal.SIGINT)
        try:
            assert process.wait(20) == code
            begun = os.read(terminal, 1024).replace(b"^C", b"").replace(b"^D", b"")
            assert not code or begun.endswith(b"\nmakeway: nothing was changed\r\n")
        finally:
            process.kill()
