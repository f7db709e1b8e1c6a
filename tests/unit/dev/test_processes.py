import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from makeway.dev.errors import DevError
from makeway.dev.process_set import ProcessSet
from makeway.dev.processes import Program
from makeway.dev.status import process_state
from narrowing import there

pytestmark = pytest.mark.tools


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ProcessSet]:
    running = ProcessSet(tmp_path)
    yield running
    running.stop()


def python(name: str, code: str, **fields: object) -> Program:
    values: dict[str, object] = {"ready": lambda: "", "stop_seconds": 1.0, **fields}
    return Program(name=name, argv=(sys.executable, "-c", code), **values)  # type: ignore[arg-type]


SLEEPS = "import time; time.sleep(60)"


def until(what: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def test_a_program_that_ends_before_it_is_ready_is_named_with_its_log(processes: ProcessSet) -> None:
    process = processes.start(
        python("sick", "print('no such file'); raise SystemExit(3)", ready=lambda: "down")
    )

    with pytest.raises(DevError) as failure:
        process.wait_ready()

    text = str(failure.value)
    assert "sick ended with exit code 3" in text
    assert "no such file" in text
    assert str(process.log) in text


def test_a_program_that_may_restart_is_started_again_and_a_stopped_one_not(processes: ProcessSet) -> None:
    process = processes.start(python("a", SLEEPS, restart=True))
    first = there(process.pid)

    os.kill(first, signal.SIGKILL)
    until(lambda: process.pid not in (None, first))
    assert process.restarts == 1

    process.kill()
    time.sleep(0.5)
    assert process.pid is None
    assert process.restarts == 1

    process.start()
    assert process.pid is not None


def test_a_program_dies_with_the_process_that_owns_it(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from makeway.dev.process_set import ProcessSet\nfrom makeway.dev.processes import Program\n"
        f"program = Program('a', (sys.executable, '-c', {SLEEPS!r}), ready=lambda: '')\n"
        "process = ProcessSet(pathlib.Path(sys.argv[1])).start(program)\n"
        "time.sleep(0.3)\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        child = int(there(owner.stdout).readline())
        assert process_state(child) == "running"
        owner.kill()

    until(lambda: process_state(child) == "ended")
