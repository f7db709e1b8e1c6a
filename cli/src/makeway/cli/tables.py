"""Tables as kubectl prints them, made to fit a terminal without folding a line. Pure.

Where a table is too wide, its ids are cut to what tells when they were made, its texts are cut, and
columns are left out by their rank. Names, numbers and times are never cut: a table that is still too wide is
printed as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size

from makeway.cli.text import safe

GAP: Final = 2
SHORT_ID: Final = 16
"""Characters of an id that is cut: `ord-`, the ten digits of its millisecond, and two random ones."""

_NARROWEST: Final = 11
_CUT: Final = "…"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: in capitals.
        kind: of its cells: plain (never cut), text (may be cut), or id (may be cut to a prefix).
        rank: which column is left out first where the terminal is narrow, from 1 on; 0 for one that stays.
        wide: whether only `-o wide` shows it.
        sparse: whether it is left out where all its cells are empty.
        least: how narrow a text is cut before a column with a rank is left out; later it is cut to 11 cells.
        tail: characters of a text that are kept at its end where it is cut.
        long: whether it comes last with `-o wide`, where it pads no other line.
    """

    title: str
    kind: Literal["plain", "text", "id"] = "plain"
    rank: int = 0
    wide: bool = False
    sparse: bool = False
    least: int = _NARROWEST
    tail: int = 0
    long: bool = False


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, width: int | None = None, wide: bool = False
) -> list[str]:
    """Return a table's lines, its head first; O(cells * columns).

    rows: a cell for each of `columns`, also for those that are not shown. width: of the terminal, in cells;
    None where nothing bounds it. wide: all columns, and nothing cut.
    """
    body = [[safe(cell) for cell in row] for row in rows]
    shown = [
        number
        for number, column in enumerate(columns)
        if (wide or not column.wide) and not (column.sparse and not any(row[number] for row in body))
    ]
    if wide:
        shown.sort(key=lambda number: columns[number].long)
    kept = [columns[number] for number in shown]
    cells = [[row[number] for row in body] for number in shown]
    if width is not None and not wide:
        kept, cells = _fitted(kept, cells, width)
    sizes = [
        0 if wide and column.long else _size(column, column_cells)
        for column, column_cells in zip(kept, cells, strict=True)
    ]
    head = [column.title for column in kept]
    return [_line(line, sizes) for line in (head, *zip(*cells, strict=True))]


def _fitted(
    columns: list[Column], cells: list[list[str]], width: int
) -> tuple[list[Column], list[list[str]]]:
    """Make it fit as far as can be: cut ids, leave out columns, then cut texts, the widest first."""
    if _total(map(_size, columns, cells)) <= width:
        return columns, cells
    cells = [
        [cell[:SHORT_ID] for cell in one] if column.kind == "id" else one
        for column, one in zip(columns, cells, strict=True)
    ]
    least = list(map(_least, columns, cells))
    ranked = sorted((column.rank, number) for number, column in enumerate(columns) if column.rank)
    gone: set[int] = set()
    while ranked and _total(size for number, size in enumerate(least) if number not in gone) > width:
        gone.add(ranked.pop(0)[1])
    kept = [number for number in range(len(columns)) if number not in gone]
    sizes = {number: _size(columns[number], cells[number]) for number in kept}
    if _total(least[number] for number in kept) > width:
        least = [
            _least(replace(column, least=_NARROWEST), one) for column, one in zip(columns, cells, strict=True)
        ]
    while _total(sizes.values()) > width:
        slack = [number for number in kept if sizes[number] > least[number]]
        if not slack:
            break
        sizes[max(slack, key=sizes.__getitem__)] -= 1
    return [columns[number] for number in kept], [
        [_shortened(cell, sizes[number], columns[number].tail) for cell in cells[number]]
        if columns[number].kind == "text"
        else cells[number]
        for number in kept
    ]


def _least(column: Column, cells: Sequence[str]) -> int:
    """Return how narrow a column may become; only a text is cut."""
    size = _size(column, cells)
    return min(size, max(column.least, cell_len(column.title))) if column.kind == "text" else size


def _shortened(text: str, size: int, tail: int) -> str:
    """Cut a text to so many cells, an ellipsis included; `tail` characters of its end stay."""
    if cell_len(text) <= size:
        return text
    end = text[-tail:] if tail else ""
    return set_cell_size(text, size - 1 - cell_len(end)).rstrip(" ,") + _CUT + end


def _total(sizes: Iterable[int]) -> int:
    found = list(sizes)
    return sum(found) + GAP * (len(found) - 1)


def _size(column: Column, cells: Sequence[str]) -> int:
    return max(map(cell_len, (column.title, *cells)))


def _line(cells: Sequence[str], sizes: Sequence[int]) -> str:
    padded = (set_cell_size(cell, max(size, cell_len(cell))) for cell, size in zip(cells, sizes, strict=True))
    return (" " * GAP).join(padded).rstrip()
