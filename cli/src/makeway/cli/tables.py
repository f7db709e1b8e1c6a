"""Tables as kubectl prints them, made to fit a terminal without folding a line. Pure.

Where a table is too wide, its ids are written as far as it takes to tell them apart, its texts are cut, and
columns are left out by their rank. Names, numbers and times are never cut: a table that is still too wide is
printed as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size

from makeway.cli.text import safe

GAP: Final = 2
SHORT_ID: Final = 16
"""Characters of an id that is cut: `ord-`, the ten digits of its millisecond, and two random ones."""

_NARROWEST: Final = 11
_CUT: Final = "…"
_STEP: Final = 3
"""By how many characters the end of texts grows that look alike where they are cut."""


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
    """Make it fit, as far as that can be done."""
    if _total(columns, cells) <= width:
        return columns, cells
    cells = [
        _short_ids(one) if column.kind == "id" else one for column, one in zip(columns, cells, strict=True)
    ]
    least = [_least(column, one, column.least) for column, one in zip(columns, cells, strict=True)]
    while sum(least) + GAP * (len(least) - 1) > width:
        ranked = [(column.rank, number) for number, column in enumerate(columns) if column.rank]
        if not ranked:
            break
        _, gone = min(ranked)
        for one in (columns, cells, least):
            del one[gone]
    if sum(least) + GAP * (len(least) - 1) > width:
        least = [_least(column, one, _NARROWEST) for column, one in zip(columns, cells, strict=True)]
    return columns, _cut(columns, cells, least, width)


def _least(column: Column, cells: Sequence[str], least: int) -> int:
    """Return how narrow a column may become; only a text is cut."""
    size = _size(column, cells)
    return min(size, max(least, cell_len(column.title))) if column.kind == "text" else size


def _cut(columns: list[Column], cells: list[list[str]], least: list[int], width: int) -> list[list[str]]:
    """Cut texts, the widest column first, until all fits or none can be narrower."""
    sizes = [_size(column, one) for column, one in zip(columns, cells, strict=True)]
    over = sum(sizes) + GAP * (len(sizes) - 1) - width
    while over > 0:
        slack = [size - low for size, low in zip(sizes, least, strict=True)]
        if not any(slack):
            break
        widest = max(range(len(sizes)), key=lambda number: sizes[number] if slack[number] else 0)
        others = [size for number, size in enumerate(sizes) if slack[number] and number != widest]
        step = min(over, slack[widest], max(1, sizes[widest] - max(others, default=0)))
        sizes[widest] -= step
        over -= step
    return [
        _all_shortened(one, size, column.tail) if column.kind == "text" else one
        for column, one, size in zip(columns, cells, sizes, strict=True)
    ]


def _all_shortened(cells: Sequence[str], size: int, tail: int) -> list[str]:
    """Cut texts to so many cells, so that those that differ still do where one cut for all can do that.

    tail: characters of the end that stay; where there are some, more stay if they tell texts apart.
    """
    best: list[str] = []
    different = len(set(cells))
    for end in range(tail, max(size, tail + 1), _STEP) if tail else (0,):
        cut = [_shortened(cell, size, end) for cell in cells]
        if not best or len(set(cut)) > len(set(best)):
            best = cut
        if len(set(best)) == different:
            break
    return best


def _shortened(text: str, size: int, tail: int) -> str:
    """Cut a text to so many cells, an ellipsis included; `tail` characters of its end stay."""
    if cell_len(text) <= size:
        return text
    end = text[-tail:] if tail else ""
    return set_cell_size(text, size - 1 - cell_len(end)).rstrip(" ,") + _CUT + end


def _short_ids(cells: Sequence[str]) -> list[str]:
    """Cut ids, one length for all, so that those that differ still do; `makeway` takes prefixes of ids."""
    different = set(cells)
    length = SHORT_ID
    while len({cell[:length] for cell in different}) < len(different):
        length += 1
    return [cell[:length] for cell in cells]


def _total(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> int:
    sizes = [_size(column, one) for column, one in zip(columns, cells, strict=True)]
    return sum(sizes) + GAP * (len(sizes) - 1)


def _size(column: Column, cells: Sequence[str]) -> int:
    return max(map(cell_len, (column.title, *cells)))


def _line(cells: Sequence[str], sizes: Sequence[int]) -> str:
    padded = (set_cell_size(cell, max(size, cell_len(cell))) for cell, size in zip(cells, sizes, strict=True))
    return (" " * GAP).join(padded).rstrip()
