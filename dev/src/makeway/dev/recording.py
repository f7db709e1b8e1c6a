"""Run the demo and draw what it prints, moving and still: `make recording` writes docs/demo.svg and a still.

The lines, their order and their colours are the program's. Bursts are slowed down and pauses cut, so that a
person can follow; the times of what happened stand in the lines themselves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from makeway.dev.demo.scenarios import SCENARIOS

COLUMNS: Final = 80
ROWS: Final = 30
LEAST_SECONDS: Final = 0.3
"""Between two lines in the picture: a line is read, not only seen."""
LONGEST_SECONDS: Final = 1.5
"""Between two lines in the picture."""
REST_SECONDS: Final = 6.0
"""For which the end is shown before it begins again."""

_RULE: Final = "───"
"""What a chapter's title ends with."""
_CHARACTER: Final = 7.8
_LINE: Final = 17.0
_MARGIN: Final = 14.0
_FONTS: Final = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"


@dataclass(frozen=True, slots=True)
class TimedLine:
    """One line of output, with its terminal escapes, and the seconds since the program began."""

    at: float
    text: str


def record(command: Sequence[str]) -> list[TimedLine]:
    """Run a program and return its output with the times at which it came.

    Raises:
        CalledProcessError: it failed; what failed is no picture of what works.
    """
    # Rich writes colours into a pipe where it is forced to; a spinner would only fill the recording.
    environment = {**os.environ, "FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(COLUMNS)}
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as running:
        output = running.stdout or ()
        lines = [TimedLine(time.monotonic() - began, line.rstrip("\n")) for line in output]
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    return [TimedLine(0.0, f"$ make demo{_argument(command)}"), *_visible(lines)]


def _argument(command: Sequence[str]) -> str:
    scenario = command[-1]
    return f" SCENARIO={scenario}" if scenario in SCENARIOS and scenario != "main" else ""


def _visible(lines: Sequence[TimedLine]) -> list[TimedLine]:
    """Leave out what a spinner has written over itself."""
    return [TimedLine(line.at, line.text.rpartition("\r")[2]) for line in lines]


def shown_at(lines: Sequence[TimedLine]) -> list[float]:
    """Return when each line is shown: after the pause that it really came after, within bounds. Pure.

    What comes before the first chapter, how building and starting went, is there from the beginning.
    """
    chapter = next((number for number, line in enumerate(lines) if _RULE in line.text), 0)
    shown: list[float] = []
    for number, (before, line) in enumerate(zip([TimedLine(0.0, ""), *lines], lines, strict=False)):
        pause = min(max(line.at - before.at, LEAST_SECONDS), LONGEST_SECONDS)
        shown.append(shown[-1] + pause if number > chapter else 0.0)
    return shown


def still(lines: Sequence[TimedLine]) -> str:
    """Return the SVG of all lines, for who wants no motion. Pure. O(characters)."""
    return _framed(lines, len(lines), [])


def drawn(lines: Sequence[TimedLine]) -> str:
    """Return the SVG: a terminal of ROWS lines that scrolls as they come, for ever. Pure. O(characters)."""
    shown = shown_at(lines)
    whole = shown[-1] + REST_SECONDS
    end = max(len(lines) - ROWS, 0) * _LINE
    rules, scroll = [], ["0%{transform:none}"]
    for number, at in enumerate(shown):
        percent = f"{100 * at / whole:.2f}%"
        rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{percent},100%{{opacity:1}}}}")
        rules.append(f"#l{number}{{animation:l{number} {whole:.1f}s step-end infinite}}")
        if number >= ROWS:
            scroll.append(f"{percent}{{transform:translateY(-{(number - ROWS + 1) * _LINE:g}px)}}")
    return _framed(
        lines,
        ROWS,
        [
            f"#all{{transform:translateY(-{end:g}px);animation:all {whole:.1f}s step-end infinite}}",
            f"@keyframes all{{{''.join(scroll)}100%{{transform:translateY(-{end:g}px)}}}}",
            *rules,
        ],
    )


def _framed(lines: Sequence[TimedLine], rows: int, rules: Sequence[str]) -> str:
    width, height = COLUMNS * _CHARACTER + 2 * _MARGIN, rows * _LINE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        "<title>make demo: the output of one run, pauses cut</title>",
        "<style>",
        f"text{{font:13px {_FONTS};fill:{_hex(MONOKAI.foreground_color)};white-space:pre}}",
        *rules,
        "</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{_hex(MONOKAI.background_color)}"/>',
        f'<svg x="{_MARGIN:g}" y="{_MARGIN:g}" width="{COLUMNS * _CHARACTER:g}" height="{rows * _LINE:g}">',
        '<g id="all">',
        *(_text(number, line.text) for number, line in enumerate(lines)),
        "</g></svg></svg>",
    ]
    return "".join(f"{part}\n" for part in parts)


def _text(number: int, text: str) -> str:
    """Draw one line: a `tspan` for each run of one style, at its own column whatever the font is."""
    plain = Text.from_ansi(text)
    plain.rstrip()
    if not plain:
        return f'<text id="l{number}"/>'
    spans, column = [], 0
    for segment in plain.render(Console(width=COLUMNS)):
        style, begins = segment.style, column
        column += segment.cell_length
        if not segment.text.strip():
            continue
        look = f' x="{begins * _CHARACTER:g}"'
        if style is not None and style.color is not None and not style.color.is_default:
            look += f' fill="{_hex(style.color.get_truecolor(MONOKAI))}"'
        if style is not None and style.bold:
            look += ' font-weight="bold"'
        if style is not None and style.dim:
            look += ' opacity="0.6"'
        spans.append(f"<tspan{look}>{escape(segment.text, quote=False)}</tspan>")
    y = number * _LINE + 0.75 * _LINE
    return f'<text id="l{number}" y="{y:g}" xml:space="preserve">{"".join(spans)}</text>'


def _hex(colour: tuple[int, int, int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


def main() -> None:
    """Record and draw; nothing is written where the demo failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    lines = record((str(Path(sys.executable).with_name("makeway")), "demo", arguments.scenario))
    arguments.target.write_text(drawn(lines))
    # A picture in a page does not see by itself that no motion is wanted: the page chooses.
    arguments.target.with_stem(f"{arguments.target.stem}-still").write_text(still(lines))
    print(f"wrote {arguments.target}: {len(lines)} lines of {lines[-1].at:.0f} s")


if __name__ == "__main__":
    main()
