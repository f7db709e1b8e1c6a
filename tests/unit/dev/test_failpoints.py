"""Failpoints: inert without a directory, fire once, and every one of them stands somewhere in the code."""

import asyncio
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.crashing import ALL_POINTS
from makeway.dev import failpoints
from makeway.dev.failpoints import NAMES, Failpoints
from makeway.runtime.failpoints import failpoint

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[3]
SOURCES = [
    path for part in ("evictor", "nominator", "planner") for path in (ROOT / part / "src").rglob("*.py")
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / failpoints.FIRED).mkdir()
    return tmp_path


async def test_a_point_does_nothing_by_itself() -> None:
    await failpoint("evictor.before-delete")
    await failpoint("no name is looked at either")


async def test_an_unarmed_point_does_nothing(directory: Path) -> None:
    await Failpoints(directory).hit("evictor.before-delete")

    assert list((directory / failpoints.FIRED).iterdir()) == []


async def test_a_name_that_is_not_listed_is_an_error(directory: Path) -> None:
    with pytest.raises(ValueError, match="no failpoint is called"):
        await Failpoints(directory).hit("evictor.nowhere")


async def test_a_point_fires_once_and_holds_until_it_is_let_go(directory: Path) -> None:
    points = Failpoints(directory)

    assert not await held(points, "evictor.before-ack")
    (directory / "evictor.before-ack").write_text("hold 1")

    assert await held(points, "evictor.before-ack")
    assert not await held(points, "evictor.before-ack")


async def test_the_hits_of_each_order_are_counted_for_itself(directory: Path) -> None:
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


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_kill_and_stop_are_signals_to_the_process_itself(directory: Path, action: str) -> None:
    (directory / "evictor.before-ack").write_text(f"{action} 1")
    program = (
        "import asyncio, pathlib, sys\n"
        "from makeway.dev.failpoints import Failpoints\n"
        "from makeway.runtime.failpoints import act_on_failpoints, failpoint\n"
        "act_on_failpoints(Failpoints(pathlib.Path(sys.argv[1])).hit)\n"
        "asyncio.run(failpoint('evictor.before-ack')); print('went on')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE)
    fired = directory / failpoints.FIRED / "evictor.before-ack"
    until = time.monotonic() + 20
    while not (fired.exists() and fired.read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)

    assert fired.read_text() == str(process.pid)
    if action == "stop":
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGCONT)
    printed, _ = process.communicate(timeout=20)
    assert (process.returncode, printed) == (
        (0, b"went on\n") if action == "stop" else (-signal.SIGKILL, b"")
    )


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
