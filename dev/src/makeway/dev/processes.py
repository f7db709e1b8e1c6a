"""Run a set of programs: start each, wait until ready, restart what may restart, end all in reverse order.

All children are started by one thread that lives as long as the process: Linux sends PR_SET_PDEATHSIG when
the *thread* that started the child ends, so a thread of a pool, or a test's, would take its children with it.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path

from makeway.dev import guard
from makeway.dev.errors import DevError
from makeway.dev.probes import Probe

_POLL_SECONDS = 0.05
_TAIL_LINES = 20
_RECORDS = "processes.json"
_BACKOFF_SECONDS = (0.2, 1.0, 2.0, 5.0)
"""Pauses before the first, second, ... restart in a row; the last one repeats."""
_STEADY_SECONDS = 10.0
"""A process that ran for so long starts again with the first pause."""


@dataclass(frozen=True)
class Program:
    """One program of the set."""

    name: str
    argv: tuple[str, ...]
    """The first is the path of the executable."""
    ready: Probe
    ready_seconds: float = 30.0
    """The bound of `wait_ready`."""
    stop_seconds: float = 5.0
    """How long SIGTERM may take before SIGKILL."""
    restart: bool = False
    """Whether it is started again when it ends by itself, as a kubelet would."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's environment."""


class Process:
    """One program of a set and its current child process. Made by `ProcessSet.start`."""

    def __init__(self, program: Program, log: Path, spawn: Callable[["Process"], None]) -> None:
        self.program = program
        self.log = log
        """Standard output and error of all its runs, one after another."""
        self.restarts = 0
        """How often it was started again after it had ended by itself."""
        self.wanted = False
        """Whether it should be running."""
        self._spawn = spawn
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._restart_at = 0.0
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run that ended; negative: a signal's number."""
        return self._child.poll() if self._child is not None else None

    def start(self) -> None:
        """Start it unless it runs."""
        if self.pid is None:
            self._spawn(self)
        self.wanted = True

    def wait_ready(self) -> None:
        """Wait until the probe says yes.

        Raises:
            DevError: it ended or was not ready within its bound; the text has its log's path and tail.
        """
        until = time.monotonic() + self.program.ready_seconds
        while reason := self.program.ready():
            if self.pid is None and not self.program.restart:
                raise DevError(
                    f"{self._name} ended with exit code {self.exit_code} before it was ready.\n{self.tail()}"
                )
            if time.monotonic() > until:
                raise DevError(
                    f"{self._name} was not ready within {self.program.ready_seconds:.0f} s: {reason}\n"
                    f"{self.tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when that takes too long. Does nothing where it does not run."""
        self.wanted = False
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not self._wait(self.program.stop_seconds):
            self.kill()

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would; it is not started again until `start`."""
        self.wanted = False
        self.signal(signal.SIGKILL)
        self._wait(self.program.stop_seconds)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): it keeps its connections and answers nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send it a signal; nothing where it does not run."""
        if self._child is not None:
            self._child.send_signal(number)

    def tail(self) -> str:
        """Name the log and give its last lines."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if self.log.exists() else []
        return "\n".join([f"Log: {self.log}", *(f"  {line[:400]}" for line in lines)])

    @property
    def _name(self) -> str:
        return self.program.name

    def _wait(self, seconds: float) -> bool:
        if self._child is None:
            return True
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def spawn(self) -> None:
        """Start the child. Called by the set's own thread only."""
        environment = {**os.environ, **self.program.environment}
        command = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *self.program.argv]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._started_at = time.monotonic()

    def keep(self, now: float) -> None:
        """Start it again where it ended by itself. Called by the set's own thread, often."""
        if not (self.wanted and self.program.restart) or self.pid is not None:
            return
        if self._restart_at == 0.0:
            self._failures = 0 if now - self._started_at > _STEADY_SECONDS else self._failures + 1
            pause = _BACKOFF_SECONDS[min(max(self._failures - 1, 0), len(_BACKOFF_SECONDS) - 1)]
            self._restart_at = now + pause
        elif now >= self._restart_at:
            self._restart_at = 0.0
            self.restarts += 1
            self.spawn()


@dataclass(frozen=True)
class ProcessRecord:
    """What is written down of a process, whenever one of the set was started."""

    name: str
    pid: int | None
    restarts: int


def write_records(directory: Path, records: Iterable[ProcessRecord]) -> None:
    """Write records into a cluster's directory, whole or not at all."""
    temporary = directory / f".{_RECORDS}"
    temporary.write_text(json.dumps([asdict(record) for record in records], indent=2))
    temporary.replace(directory / _RECORDS)


def read_records(directory: Path) -> list[ProcessRecord]:
    """Read what was last written; nothing where there is no cluster."""
    try:
        return [ProcessRecord(**values) for values in json.loads((directory / _RECORDS).read_text())]
    except FileNotFoundError:
        return []


class ProcessSet:
    """The processes of one cluster, in the order they were started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs = directory / "logs"
        self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._processes: dict[str, Process] = {}
        self._requests: queue.SimpleQueue[tuple[Process, Future[None]] | None] = queue.SimpleQueue()
        self._keeper = threading.Thread(target=self._keep, name="makeway-dev-processes", daemon=True)
        self._keeper.start()

    def start(self, program: Program) -> Process:
        """Start a program; it is not waited for."""
        process = Process(program, self._logs / f"{program.name}.log", self._ask)
        self._processes[program.name] = process
        process.start()
        return process

    def __getitem__(self, name: str) -> Process:
        """The process of that name.

        Raises:
            KeyError: no such program was started.
        """
        return self._processes[name]

    def __iter__(self) -> Iterator[Process]:
        """All processes, in the order they were started."""
        return iter(self._processes.values())

    def stop(self) -> None:
        """End all, the last started first, then the thread."""
        for process in reversed(list(self)):
            process.stop()
        self._record()
        self._requests.put(None)
        self._keeper.join()

    def _ask(self, process: Process) -> None:
        """Have the set's thread start a child, and wait for it."""
        done: Future[None] = Future()
        self._requests.put((process, done))
        done.result()

    def _keep(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                self._keep_up()
                continue
            if request is None:
                return
            process, done = request
            try:
                process.spawn()
            except OSError as error:
                done.set_exception(DevError(f"{process.program.name} could not be started: {error}"))
            else:
                self._record()
                done.set_result(None)

    def _keep_up(self) -> None:
        """Start again what has ended by itself."""
        for process in list(self):
            restarts = process.restarts
            process.keep(time.monotonic())
            if process.restarts != restarts:
                self._record()

    def _record(self) -> None:
        """Write down the processes, for `dev status` in another process."""
        records = [ProcessRecord(process.program.name, process.pid, process.restarts) for process in self]
        write_records(self._directory, records)
