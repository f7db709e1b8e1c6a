"""The process that owns a cluster started by `makeway dev up`.

Run as `python -m makeway.dev.supervisor <job as JSON>`. It tells the one who started it how far it is on the
pipe it was given, one JSON object a line, then stays until it gets SIGTERM or, where it has a lifeline,
until the other end of that is closed. It holds a lock in the cluster's directory; whoever finds that lock
free knows it is dead.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from makeway.dev import nodes
from makeway.dev.cluster import DevCluster
from makeway.dev.errors import DevError
from makeway.dev.lock import hold
from makeway.dev.options import ClusterOptions

LOCK = "owner.lock"


@dataclass(frozen=True)
class Job:
    """What a supervisor is told to do."""

    name: str
    directory: Path
    options: ClusterOptions
    nodes: int
    """How many nodes to create."""
    reports: int
    """File descriptor of the pipe it reports on."""
    lifeline: int | None
    """File descriptor of a pipe; the cluster ends when its other end is closed. None: no process holds it."""

    def to_json(self) -> str:
        """As the supervisor's argument has it."""
        return json.dumps(
            {**asdict(self), "directory": str(self.directory), "options": self.options.to_dict()}
        )

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """The reverse of `to_json`."""
        values: dict[str, Any] = json.loads(text)
        options = ClusterOptions.from_dict(values["options"])
        return cls(**{**values, "directory": Path(values["directory"]), "options": options})


class _Reports:
    """A `Progress` that tells steps on the pipe; a reader that has gone is no failure."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, **message: object) -> None:
        """Send one message."""
        line = json.dumps(message)
        print(line, flush=True)
        try:
            os.write(self._descriptor, f"{line}\n".encode())
        except BrokenPipeError:
            return

    @contextmanager
    def step(self, what: str, usual_seconds: float = 0) -> Iterator[None]:
        """Tell a step's begin and end."""
        self.send(begin=what, usual_seconds=usual_seconds)
        yield
        self.send(end=what)

    def note(self, text: str) -> None:
        """Tell one thing."""
        self.send(note=text)

    def close(self) -> None:
        """No more will come."""
        os.close(self._descriptor)


class _Ended(BaseException):
    """SIGTERM or SIGINT came."""


def main() -> int:
    """Run the cluster until told to end; 0 if it was started, 1 if that failed."""
    job = Job.from_json(sys.argv[1])
    reports = _Reports(job.reports)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    with hold(job.directory / LOCK) as lock:
        lock.write(str(os.getpid()))
        lock.flush()
        cluster = DevCluster(job.directory, job.options, name=job.name, progress=reports)
        try:
            with cluster.start():
                nodes.create(cluster.api, job.nodes)
                reports.send(ready=True)
                reports.close()
                _stay(job.lifeline)
        except DevError as error:
            reports.send(error=str(error))
            return 1
        except _Ended:
            return 0
    return 0


def _end(*_: object) -> None:
    raise _Ended


def _stay(lifeline: int | None) -> None:
    """Wait for the end of the lifeline, or for a signal."""
    if lifeline is not None:
        select.select([lifeline], [], [])
        return
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
