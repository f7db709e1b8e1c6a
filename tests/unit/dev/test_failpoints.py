"""Failpoints: inert without a directory, fire once, and every one of them stands somewhere in the code."""

import asyncio
import re
from pathlib import Path

import pytest

from integration.crashing import ALL_POINTS
from makeway.dev import failpoints
from makeway.dev.failpoints import NAMES, Failpoints

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[3]
SOURCES = [
    path for part in ("evictor", "nominator", "planner") for path in (ROOT / part / "src").rglob("*.py")
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / failpoints.FIRED).mkdir()
    return tmp_path


async def test_the_hits_of_each_order_are_counted_for_itself_and_a_point_fires_once(directory: Path) -> None:
    points = Failpoints(directory)

    await points.hit("evictor.after-delete", "earlier")
    await points.hit("evictor.after-delete", "earlier")
    (directory / "evictor.after-delete").write_text("hold 2")

    passes = ["earlier", "one", "other", "one", "other"]
    fired = [await held(points, "evictor.after-delete", order) for order in passes]
    assert fired == [False, False, False, True, False]


async def held(points: Failpoints, name: str, of: str = "") -> bool:
    """Pass a point; whether it fired, and held until its file was removed."""
    passing = asyncio.create_task(points.hit(name, of))
    await asyncio.sleep(0.1)
    if passing.done():
        return False
    (points._directory / failpoints.FIRED / name).unlink()
    await passing
    return True


def test_every_listed_point_stands_in_the_code_and_no_other_does() -> None:
    # Those of a search are its values, which its handler passes on.
    named = re.compile(r'(?:failpoint\(|received=|replying=)"([^"]+)"[,)]')
    calls = {name for path in SOURCES for name in named.findall(path.read_text())}

    assert calls == NAMES


def test_the_schedulers_points_stand_in_its_code() -> None:
    plugin = ROOT / "plugin"
    listed = dict(
        re.findall(
            r'^\t(\w+) += "(scheduler[^"]+)"',
            (plugin / "internal/failpoints/failpoints.go").read_text(),
            re.MULTILINE,
        )
    )
    sources = "".join(path.read_text() for path in plugin.rglob("*.go"))

    assert {name for name in listed if f"failpoints.At(failpoints.{name})" in sources} == set(listed)
    assert {name for name in ALL_POINTS if name.startswith("scheduler.")} == set(listed.values())


def test_the_tests_of_crashes_pass_every_point() -> None:
    assert {name for name in ALL_POINTS if not name.startswith("scheduler.")} == NAMES
