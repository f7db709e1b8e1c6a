"""What commands print of a real run: one file for each screen and width.

`MAKEWAY_WRITE_SCREENS=1 pytest tests/unit/cli/test_screens.py` writes them anew; look at them then. Orders
are those of tests/unit/dev/test_checker_on_a_recording.py. The rest, under recorded/, is what the commands
printed with `-o json` after `makeway dev up --mode observe`: six pods under a budget on three nodes, then
three urgent ones, and a fourth in mode enforce; and after the ten-minute page's pods in mode enforce.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from campaign.recording import Kept, load
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.queue_report import QueueReport
from makeway.cli import tables
from makeway.cli.check.command import screen
from makeway.cli.check.result import CheckReport
from makeway.cli.history import comparisons
from makeway.cli.history import rows as history_rows
from makeway.cli.history.command import Compared
from makeway.cli.history.rows import History, Wanted
from makeway.cli.history.story import Row, Story
from makeway.cli.history.watch import picture
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


@pytest.mark.parametrize("width", [80, 120])
def test_watch_has_a_row_for_each_preemption(width: int) -> None:
    kept = recorded()
    # As of the middle of the recording, when some orders had no outcome yet.
    streams = kept.history.streams
    messages: list[EvictionOrder | Outcome] = [one.message for one in streams.orders]
    messages += [one.message for one in streams.outcomes]
    until = sorted(one.created_at for one in messages if isinstance(one, EvictionOrder))[-4]
    found = History()
    for one in messages:
        if (one.created_at if isinstance(one, EvictionOrder) else one.finished_at) <= until:
            found.add(one)
    console = Console(file=StringIO(), width=width, highlight=False)

    console.print(picture(found, Wanted(), until, width))

    shown = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"  # type: ignore[attr-defined]
    assert max(map(cell_len, shown.splitlines())) <= width
    is_as_kept(f"watch-{width}", shown)


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

    assert max(map(cell_len, [*seen.splitlines(), *table.splitlines()[:4]])) <= width


def tables_at_80() -> dict[str, tuple[Sequence[Column], list[tuple[str, ...]]]]:
    """The tables of the screens that list preemptions: their columns, and the whole cells of their rows."""
    now, compared = recorded().now, kept_answer("compared", Compared).comparisons
    rows, others = history().rows(now, Wanted()), kept_answer("rows", list[Row])
    return {
        "history": (history_rows.COLUMNS, [history_rows.cells(row, now) for row in rows]),
        "watch": (history_rows.LINE, [history_rows.line(row, now) for row in rows]),
        "preempted": (history_rows.COLUMNS, [history_rows.cells(row, ASKED) for row in others]),
        "compared": (comparisons.COLUMNS, [comparisons.cells(one, ASKED) for one in compared]),
    }


@pytest.mark.parametrize("name", ["history", "watch", "preempted", "compared"])
def test_two_rows_that_differ_in_victims_or_reason_differ_there_at_80_columns(name: str) -> None:
    columns, rows = tables_at_80()[name]
    narrow = [number for number, column in enumerate(columns) if not column.wide]
    whole = {columns[number].title: [row[number] for row in rows] for number in narrow}

    kept, shown = tables._fitted([columns[number] for number in narrow], list(whole.values()), 80)

    titles = [column.title for column in kept]
    asked = {"VICTIMS", "REASON", "DEFAULTPREEMPTION", "MAKEWAY", "BY"} & whole.keys()
    assert asked <= set(titles), "none of them is left out"
    for title in asked:
        cells = set(zip(whole[title], shown[titles.index(title)], strict=True))
        assert len(cells) == len({cut for _, cut in cells}), title


def test_check_begins_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("text")

    for line in screen(kept_answer("check", CheckReport)):
        printer.line(line)

    shown = capsys.readouterr().out
    assert shown.startswith("nothing is wrong; ")
    is_as_kept("check", shown)


@pytest.mark.parametrize("width", [80, 120])
def test_mode_names_every_component(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    report = kept_answer("mode", ModeReport)
    printer = Printer("text")

    for line in mode_lines(report, "makeway-system"):
        printer.line(line)
    printer.table(report.columns(), report.rows())

    shown = capsys.readouterr().out
    assert all(one.identity in shown for one in report.components)
    is_as_kept(f"mode-{width}", shown)


def test_why_of_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    streams = recorded().history.streams
    order = streams.orders[0].message
    outcome = next(one.message for one in streams.outcomes if one.message.order_id == order.order_id)

    printer = Printer("text")
    for line in why_text.of_order(Story(order=order, outcome=outcome, decision=None)):
        printer.line(line)

    is_as_kept("why-order", capsys.readouterr().out)


@pytest.mark.parametrize("width", [80, 120])
def test_queues_fit_a_width(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    Printer("text").table(queues_text.COLUMNS, queues_text.rows(kept_answer("queues", QueueReport)))

    shown = capsys.readouterr().out
    assert max(map(cell_len, shown.splitlines())) <= width
    is_as_kept(f"queues-{width}", shown)


@pytest.mark.parametrize("name", ["taken", "pending"])
def test_why_of_a_pod(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("text")

    for line in why_lines(kept_answer(name, Explanation)):
        printer.line(line)

    is_as_kept(f"why-{name}", capsys.readouterr().out)


def test_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("text")

    for line in simulate_text.lines(kept_answer("simulated", SimulationReport), all_candidates=False):
        printer.line(line)

    is_as_kept("simulate", capsys.readouterr().out)
