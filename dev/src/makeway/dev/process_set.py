"""Run a set of programs: start each, start again what may be, end all in reverse order.

All children are started by one thread that lives as long as the process: Linux sends PR_SET_PDEATHSIG when
the *thread* that started the child ends, so a thread of a pool, or a test's, would take its children with it.
"""

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from makeway.dev.errors import DevError
from makeway.dev.processes import Process, Program
from makeway.dev.records import ProcessRecord, write_records

_POLL_SECONDS = 0.05


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
        """All processes of this moment, in the order they were started; others may start some meanwhile."""
        return iter(tuple(self._processes.values()))

    def stop(self) -> None:
        """End all at once, then the base, the last started first, then the thread."""
        served = [process for process in self if not process.program.base]
        for process in served:
            process.ask_to_stop()
        for process in served:
            process.end()
        for process in reversed(tuple(self)):
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
        started = [process for process in self if process.keep(time.monotonic())]
        if started:
            self._record()

    def _record(self) -> None:
        """Write down the processes, for `dev status` in another process."""
        records = [ProcessRecord(process.program.name, process.pid, process.restarts) for process in self]
        # Where the directory has been taken away, nothing reads them.
        with suppress(FileNotFoundError):
            write_records(self._directory, records)
