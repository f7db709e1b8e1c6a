"""What commands print of a real run: one file for each screen and width.

`MAKEWAY_WRITE_SCREENS=1 pytest tests/unit/cli/test_screens.py` writes them anew; look at them then. Orders
are those of tests/unit/dev/test_checker_on_a_recording.py. The rest, under recorded/, is what the commands
printed with `-o json` after `makeway dev up --mode observe`: six pods under a budget on three nodes, then
three urgent ones, and a fourth in mode enforce; and after the ten-minute page's pods in mode enforce.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from campaign.recording import Kept, load
from makeway.bus.comparison import Comparison
from makeway.bus.queue_report import QueueReport
from makeway.cli import tables
from makeway.cli.check.command import screen
from makeway.cli.check.result import CheckReport
from makeway.cli.history import comparisons
from makeway.cli.history import rows as history_rows
from makeway.cli.history.comparisons import Summary
from makeway.cli.history.rows import History, Wanted
from makeway.cli.history.story import Row, Story
from makeway.cli.mode.components import COLUMNS, row
from makeway.cli.mode.report import ModeReport
from makeway.cli.mode.report import lines as mode_lines
from makeway.cli.offline import simulate_text
from makeway.cli.output import Printer
from makeway.cli.policy import queues_text
from makeway.cli.tables import Column
from makeway.cli.why import text as why_text
from makeway.cli.why.command import _lines as why_lines
from makeway.cli.why.explanation import Explanation
from makeway.planner.offline.results import SimulationReport

RECORDING = Path(__file__).parents[1] / "dev" / "recording.json.gz"
SCREENS = Path(__file__).parent / "screens"
RECORDED = Path(__file__).parent / "recorded"
NAMESPACE = "camp-quota"
ASKED = datetime(2026, 11, 24, 18, 21, 4, tzinfo=UTC)
"""When the answers were recorded."""

Answer = TypeVar("Answer")


@cache
def recorded() -> Kept:
    return load(RECORDING)


def is_as_kept(name: str, shown: str) -> None:
    """Compare a screen with its file."""
    file = SCREENS / f"{name}.txt"
    if os.environ.get("MAKEWAY_WRITE_SCREENS"):
        file.write_text(shown)
    assert shown == file.read_text(), file.name


def history() -> History:
    found = History()
    streams = recorded().history.streams
    for order in streams.orders:
        found.add(order.message)
    for outcome in streams.outcomes:
        found.add(outcome.message)
    return found


def show_history(capsys: pytest.CaptureFixture[str], *, wide: bool = False) -> str:
    now = recorded().now
    printer = Printer("wide" if wide else "text")
    rows = history().rows(now, Wanted(NAMESPACE))
    printer.table(history_rows.COLUMNS, [history_rows.cells(row, now, wide=printer.wide) for row in rows])
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_history_fits_its_width_in_a_pipe(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    shown = show_history(capsys)

    assert max(map(cell_len, shown.splitlines())) <= width
    assert "\x1b" not in shown
    for line in shown.splitlines()[1:]:
        assert {"succeeded", "failed", "expired", "refused"} & set(line.split()), "a result is never cut"
    is_as_kept(f"history-{width}", shown)


def test_history_wide_is_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown = show_history(capsys, wide=True)

    assert "…" not in shown
    is_as_kept("history-wide", shown)


class Compared(msgspec.Struct):
    """What `makeway history --compare` prints as data."""

    summary: Summary
    comparisons: list[Comparison]


def kept_answer(name: str, kind: type[Answer]) -> Answer:
    return msgspec.json.decode((RECORDED / f"{name}.json").read_bytes(), type=kind)


@pytest.mark.parametrize("width", [80, 120])
def test_preemptions_by_others_fit_a_width_too(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printer = Printer("text")

    rows = kept_answer("rows", list[Row])
    printer.table(history_rows.COLUMNS, [history_rows.cells(row, ASKED) for row in rows])
    seen = capsys.readouterr().out
    is_as_kept(f"preempted-{width}", seen)
    compared = kept_answer("compared", Compared)
    printer.table(comparisons.COLUMNS, [comparisons.cells(one, ASKED) for one in compared.comparisons])
    for sentence in comparisons.sentences(compared.summary):
        printer.line(sentence)
    table = capsys.readouterr().out
    is_as_kept(f"compared-{width}", table)

    assert max(map(cell_len, [*seen.splitlines(), *table.splitlines()])) <= width


def tables_at_80() -> dict[str, tuple[Sequence[Column], Sequence[Sequence[str]]]]:
    """The tables of all screens: their columns, and the whole cells of their rows."""
    now, mode = recorded().now, kept_answer("mode", ModeReport)
    compared = kept_answer("compared", Compared).comparisons
    rows, others = history().rows(now, Wanted()), kept_answer("rows", list[Row])
    return {
        "history": (history_rows.COLUMNS, [history_rows.cells(row, now) for row in rows]),
        "following": (history_rows.LINE, [history_rows.line(row, now) for row in rows]),
        "preempted": (history_rows.COLUMNS, [history_rows.cells(row, ASKED) for row in others]),
        "compared": (comparisons.COLUMNS, [comparisons.cells(one, ASKED) for one in compared]),
        "mode": (COLUMNS, list(map(row, mode.components))),
        **{
            name: (queues_text.COLUMNS, list(queues_text.rows(kept_answer(name, QueueReport))))
            for name in QUEUES
        },
    }


QUEUES = ("queues", "queues-reclaim")
TABLES = ("history", "following", "preempted", "compared", "mode", *QUEUES)
PROSE = ("check", "simulate", "why-order", "why-pending", "why-taken")
"""Screens without a table: nothing in them is cut."""


def test_every_screen_of_80_columns_is_a_table_or_prose() -> None:
    names = {file.stem.removesuffix("-80") for file in SCREENS.glob("*-80.txt")}

    assert names == {*TABLES, *PROSE} - {"following"}


@pytest.mark.parametrize("name", TABLES)
def test_two_rows_that_differ_in_victims_or_reason_differ_there_at_80_columns(name: str) -> None:
    columns, rows = tables_at_80()[name]
    narrow = [number for number, column in enumerate(columns) if not column.wide]
    whole = {columns[number].title: [row[number] for row in rows] for number in narrow}

    kept, shown = tables._fitted([columns[number] for number in narrow], list(whole.values()), 80)

    titles = [column.title for column in kept]
    asked = {"VICTIMS", "REASON", "REMARK", "QUOTA", "DEFAULTPREEMPTION", "MAKEWAY", "BY"} & whole.keys()
    assert asked
    assert asked <= set(titles), "none of them is left out"
    for title in asked:
        cells = set(zip(whole[title], shown[titles.index(title)], strict=True))
        assert len(cells) == len({cut for _, cut in cells}), title


Shows = Callable[[str, Iterable[str | Text]], str]


@pytest.fixture(params=[None, 80], ids=["pipe", "80"])
def shows(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shows:
    """Give what prints lines of prose, whole in a pipe and folded at 80 columns, and compares them."""
    width: int | None = request.param
    monkeypatch.setenv("COLUMNS", str(width or ""))

    def show(name: str, lines: Iterable[str | Text]) -> str:
        told = list(lines)
        printer = Printer("text")
        for line in told:
            printer.line(line)
        shown = capsys.readouterr().out
        if width:
            assert max(map(cell_len, shown.splitlines())) <= width
            assert shown.split() == "\n".join(map(str, told)).split(), "no word is broken"
        is_as_kept(f"{name}-{width}" if width else name, shown)
        return shown

    return show


def test_check_begins_with_its_verdict(shows: Shows) -> None:
    shown = shows("check", screen(kept_answer("check", CheckReport)))

    assert shown.startswith("nothing is wrong; ")


@pytest.mark.parametrize("width", [80, 120])
def test_mode_names_every_component(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    report = kept_answer("mode", ModeReport)
    printer = Printer("text")

    for line in mode_lines(report, "makeway-system"):
        printer.line(line)
    printer.table(COLUMNS, map(row, report.components))

    shown = capsys.readouterr().out
    assert all(one.identity in shown for one in report.components)
    is_as_kept(f"mode-{width}", shown)


def test_why_of_an_order(shows: Shows) -> None:
    streams = recorded().history.streams
    order = streams.orders[0].message
    outcome = next(one.message for one in streams.outcomes if one.message.order_id == order.order_id)

    shows("why-order", why_text.of_order(Story(order=order, outcome=outcome, decision=None)))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", QUEUES)
def test_queues_fit_a_width(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    Printer("text").table(queues_text.COLUMNS, queues_text.rows(kept_answer(name, QueueReport)))

    shown = capsys.readouterr().out
    assert max(map(cell_len, shown.splitlines())) <= width
    is_as_kept(f"{name}-{width}", shown)


@pytest.mark.parametrize("name", ["taken", "pending"])
def test_why_of_a_pod(name: str, shows: Shows) -> None:
    shows(f"why-{name}", why_lines(kept_answer(name, Explanation)))


def test_simulate(shows: Shows) -> None:
    report = kept_answer("simulated", SimulationReport)

    shows("simulate", simulate_text.lines(report, all_candidates=False))
