"""Clusters with a name, owned by a supervisor: what `makeway dev up`, `down`, `status` and `env` do."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from makeway.dev import binaries
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.info import ClusterInfo, read_info
from makeway.dev.lock import held, hold, holder
from makeway.dev.options import ClusterOptions
from makeway.dev.paths import state_directory
from makeway.dev.progress import Progress
from makeway.dev.supervisor import LOCK, Job

_STOP_SECONDS = 30.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class Lifeline:
    """Ties a cluster to whoever holds this: it ends when this is closed or its holder dies."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def close(self) -> None:
        """Let the cluster end."""
        os.close(self.reader)
        os.close(self._writer)


def directory_of(name: str) -> Path:
    """Where the cluster of that name lives.

    Raises:
        DevError: it is no possible name.
    """
    if not _NAME.fullmatch(name):
        raise DevError(f"{name!r} is no name for a cluster: use a-z, 0-9 and hyphens, at most 32")
    return state_directory() / name


def is_up(name: str) -> bool:
    """Whether a living process owns the cluster."""
    return held(directory_of(name) / LOCK)


def names() -> list[str]:
    """Every cluster that has a directory, running or not."""
    return sorted(path.name for path in state_directory().glob("*/") if _NAME.fullmatch(path.name))


def find(name: str) -> ClusterInfo:
    """Return addresses and paths of a running cluster.

    Raises:
        DevError: it does not run.
    """
    info = read_info(directory_of(name))
    if info is None or not is_up(name):
        raise DevError(f"cluster {name} is not up; start it with: makeway dev up --name {name}")
    return info


def up(
    name: str,
    options: ClusterOptions,
    *,
    nodes: int = 0,
    progress: Progress,
    lifeline: Lifeline | None = None,
) -> ClusterInfo:
    """Start a cluster under a supervisor of its own and wait until it is ready.

    It outlives this process, unless it is given a lifeline.

    Raises:
        DevError: it is up already, or could not be started; its logs are kept then.
    """
    directory = directory_of(name)
    ensure(binaries.needed(options), progress)
    state_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    with hold(state_directory() / f".{name}.lock"):
        if is_up(name):
            raise DevError(f"cluster {name} is up already; end it with: makeway dev down --name {name}")
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "logs").mkdir(mode=0o700, parents=True)
        supervisor, reader = _supervise(name, directory, options, nodes, lifeline)
        try:
            with os.fdopen(reader) as reports:
                _follow(reports, directory / "logs" / "supervisor.log", progress)
        except BaseException:
            supervisor.terminate()
            raise
        finally:
            # Where this process lives on, this one has to take the supervisor's exit code from the kernel.
            threading.Thread(target=supervisor.wait, daemon=True).start()
    return find(name)


def _supervise(
    name: str, directory: Path, options: ClusterOptions, nodes: int, lifeline: Lifeline | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor; give it and the end of the pipe it reports on."""
    reader, writer = os.pipe()
    reading = None if lifeline is None else lifeline.reader
    job = Job(name, directory, options, nodes, reports=writer, lifeline=reading)
    with (directory / "logs" / "supervisor.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "makeway.dev.supervisor", job.to_json()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[writer] if reading is None else [writer, reading],
            start_new_session=True,
        )
    os.close(writer)
    return child, reader


def _follow(reports: Iterable[str], log: Path, progress: Progress) -> None:
    """Show the supervisor's reports until it says that the cluster is ready.

    Raises:
        DevError: it says that it failed, or says nothing more.
    """
    with ExitStack() as step:
        for line in reports:
            match json.loads(line):
                case {"begin": str(what), "usual_seconds": usual}:
                    step.enter_context(progress.step(what, usual))
                case {"end": _}:
                    step.close()
                case {"note": str(text)}:
                    progress.note(text)
                case {"error": str(text)}:
                    raise DevError(text)
                case {"ready": True}:
                    return
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise DevError(f"the supervisor ended before the cluster was ready.\nLog: {log}\n{tail}")


def down(name: str, *, keep_logs: bool = False) -> bool:
    """End a cluster and remove its directory; False where it was not up.

    Raises:
        DevError: it could not be ended.
    """
    directory = directory_of(name)
    was_up = is_up(name)
    if was_up:
        owner = holder(directory / LOCK)
        if owner is None:
            raise DevError(f"cluster {name} is just being started or ended; try again")
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.kill(owner, number)
            if _freed(directory / LOCK):
                break
        else:
            raise DevError(f"cluster {name}: its supervisor, process {owner}, does not end")
    if not keep_logs:
        shutil.rmtree(directory, ignore_errors=True)
    return was_up


def _freed(lock: Path) -> bool:
    """Wait until no process holds the lock."""
    until = time.monotonic() + _STOP_SECONDS
    while held(lock):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
