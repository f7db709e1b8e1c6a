"""The picture of the demo: its lines as they were printed, in their order, each from its time on."""

import re
from xml.etree import ElementTree

import pytest

from makeway.dev.paths import CHECKOUT
from makeway.dev.recording import COLUMNS, ROWS, TimedLine, drawn, still

pytestmark = pytest.mark.tools


def lines_of(svg: str) -> list[str]:
    """What stands in the picture, line by line."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - our own file
    return ["".join(text.itertext()) for text in texts]


def test_every_line_is_in_the_picture_as_it_was_printed() -> None:
    svg = drawn([TimedLine(0, "$ make demo"), TimedLine(1, "\x1b[32m✓\x1b[0m a < b & c"), TimedLine(2, "")])

    assert lines_of(svg) == ["$ make demo", "✓ a < b & c", ""]
    assert re.search(r'<tspan x="0" fill="#[0-9a-f]{6}">✓</tspan>', svg)


def test_the_still_picture_has_every_line_and_no_motion() -> None:
    svg = still([TimedLine(number, str(number)) for number in range(ROWS + 2)])

    assert lines_of(svg) == [str(number) for number in range(ROWS + 2)]
    assert "animation" not in svg
    assert lines_of((CHECKOUT / "docs/demo-still.svg").read_text()) == lines_of(
        (CHECKOUT / "docs/demo.svg").read_text()
    )


def test_the_committed_picture_is_of_a_run_whose_claims_held() -> None:
    lines = lines_of((CHECKOUT / "docs/demo.svg").read_text())

    assert lines[0] == "$ make demo"
    assert re.fullmatch(r"All \d+ claims held\.", lines[-2])
    assert re.match(r"Played in \d+ s, after \d+ s of building and starting\.", lines[-1])
    assert max(map(len, lines)) <= COLUMNS
    assert not any(line.startswith("✗") for line in lines)
