"""The picture of the demo: its lines as they were printed, in their order, each from its time on."""

import re
import sys
from subprocess import CalledProcessError
from xml.etree import ElementTree

import pytest

from makeway.dev.paths import CHECKOUT
from makeway.dev.recording import (
    COLUMNS,
    LEAST_SECONDS,
    LONGEST_SECONDS,
    REST_SECONDS,
    ROWS,
    TimedLine,
    drawn,
    record,
    shown_at,
    still,
)

pytestmark = pytest.mark.tools


def lines_of(svg: str) -> list[str]:
    """What stands in the picture, line by line."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - our own file
    return ["".join(text.itertext()) for text in texts]


def test_every_line_is_in_the_picture_as_it_was_printed() -> None:
    svg = drawn([TimedLine(0, "$ make demo"), TimedLine(1, "\x1b[32m✓\x1b[0m a < b & c"), TimedLine(2, "")])

    assert lines_of(svg) == ["$ make demo", "✓ a < b & c", ""]
    assert re.search(r'<tspan x="0" fill="#[0-9a-f]{6}">✓</tspan>', svg)


def test_pauses_are_cut_and_bursts_slowed_down() -> None:
    shown = shown_at([TimedLine(0, "a"), TimedLine(0.01, "b"), TimedLine(60, "c"), TimedLine(61, "d")])

    assert shown == pytest.approx([0, LEAST_SECONDS, LEAST_SECONDS + LONGEST_SECONDS, 1 + 0.3 + 1.5])


def test_how_the_cluster_was_started_is_there_from_the_beginning() -> None:
    shown = shown_at(
        [TimedLine(0, "$"), TimedLine(9, "starting"), TimedLine(10, "A ────"), TimedLine(11, "b")]
    )

    assert shown == pytest.approx([0, 0, 0, 1])


def test_the_picture_scrolls_once_it_is_full_and_ends_on_the_last_lines() -> None:
    few = drawn([TimedLine(number, str(number)) for number in range(ROWS)])
    many = drawn([TimedLine(number, str(number)) for number in range(ROWS + 2)])

    assert "translateY(-17px)" not in few
    assert "translateY(-17px)" in many
    assert "#all{transform:translateY(-34px)" in many


def test_the_end_is_shown_for_a_while() -> None:
    svg = drawn([TimedLine(0, "a"), TimedLine(1, "b")])

    assert f"{1 + REST_SECONDS:.1f}s step-end infinite" in svg


def test_the_still_picture_has_every_line_and_no_motion() -> None:
    svg = still([TimedLine(number, str(number)) for number in range(ROWS + 2)])

    assert lines_of(svg) == [str(number) for number in range(ROWS + 2)]
    assert "animation" not in svg
    assert lines_of((CHECKOUT / "docs/demo-still.svg").read_text()) == lines_of(
        (CHECKOUT / "docs/demo.svg").read_text()
    )


def test_a_program_that_fails_is_not_drawn() -> None:
    with pytest.raises(CalledProcessError):
        record((sys.executable, "-c", "print('no'); raise SystemExit(1)"))


def test_the_committed_picture_is_of_a_run_whose_claims_held() -> None:
    lines = lines_of((CHECKOUT / "docs/demo.svg").read_text())

    assert lines[0] == "$ make demo"
    assert re.fullmatch(r"All \d+ claims held\.", lines[-2])
    assert re.match(r"Played in \d+ s, after \d+ s of building and starting\.", lines[-1])
    assert max(map(len, lines)) <= COLUMNS
    assert not any(line.startswith("✗") for line in lines)
