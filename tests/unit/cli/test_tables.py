"""Tables on terminals of any width, and ages."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from makeway.cli.ages import age
from makeway.cli.tables import SHORT_ID, Column, table

COLUMNS = (
    Column("AGE"),
    Column("TIME", wide=True),
    Column("FOR"),
    Column("NODE", rank=2),
    Column("WHY", kind="text", long=True),
    Column("TOOK", rank=1),
    Column("ID", kind="id"),
)
IDS = ("ord-01m84d157fa0khcepscvggahhy", "ord-01m84d157fa0zzcepscvggahhy")
ROWS = [("5s", "2026-01-31T12:00:00Z", "shop/urgent", "node-1", "because " * 9, "1.50s", one) for one in IDS]


@pytest.mark.parametrize("wide", [False, True])
def test_a_sparse_column_is_there_only_where_a_cell_says_something(wide: bool) -> None:
    columns = (Column("A"), Column("B", sparse=True), Column("C"))

    assert table(columns, [("1", "", "3"), ("4", "", "6")], wide=wide) == ["A  C", "1  3", "4  6"]
    assert table(columns, [("1", "", "3"), ("4", "5", "6")], wide=wide) == ["A  B  C", "1     3", "4  5  6"]


def test_ids_are_cut_first() -> None:
    lines = table(COLUMNS, ROWS, width=120)

    assert [line.split()[-1] for line in lines[1:]] == [one[:SHORT_ID] for one in IDS]


def test_texts_are_cut_next_and_columns_go_by_rank_last() -> None:
    at_90, at_60 = table(COLUMNS, ROWS, width=90), table(COLUMNS, ROWS, width=60)

    assert at_90[0].split() == ["AGE", "FOR", "NODE", "WHY", "TOOK", "ID"]
    assert "…" in at_90[1]
    assert at_60[0].split() == ["AGE", "FOR", "NODE", "WHY", "ID"]
    assert table(COLUMNS, ROWS, width=54)[0].split() == ["AGE", "FOR", "WHY", "ID"]


def test_a_cell_cannot_break_its_line() -> None:
    assert len(table((Column("A"),), [("one\ntwo\x1b[2J",)])) == 2


@given(
    cells=st.lists(st.tuples(*[st.text(max_size=40)] * len(COLUMNS)), max_size=6),
    width=st.integers(min_value=1, max_value=200),
)
def test_a_line_is_too_wide_only_by_what_is_never_cut(cells: list[tuple[str, ...]], width: int) -> None:
    lines = table(COLUMNS, cells, width=width)

    assert len(lines) == len(cells) + 1
    fixed = [c for c in COLUMNS if c.rank == 0 and not c.wide and c.kind == "plain"]
    if max(map(cell_len, lines)) > width:
        assert lines[0].split() == ["AGE", "FOR", "WHY", "ID"]
        assert len(fixed) == 2


@pytest.mark.parametrize(
    ("span", "written"),
    [
        (timedelta(seconds=-5), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=120), "2m"),
        (timedelta(seconds=330), "5m30s"),
        (timedelta(minutes=10), "10m"),
        (timedelta(minutes=179), "179m"),
        (timedelta(hours=3, minutes=15), "3h15m"),
        (timedelta(hours=47), "47h"),
        (timedelta(days=3, hours=4), "3d4h"),
        (timedelta(days=300), "300d"),
        (timedelta(days=3 * 365 + 5), "3y5d"),
        (timedelta(days=9 * 365), "9y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(span: timedelta, written: str) -> None:
    assert age(span) == written
