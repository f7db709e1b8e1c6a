"""One program and its child process: started, asked whether it is ready, signalled, started again, ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from makeway.dev import guard
from makeway.dev.errors import DevError
from makeway.dev.probes import Probe

_POLL_SECONDS = 0.05
_TAIL_LINES = 20
_BACKOFF_SECONDS = (0.2, 1.0, 2.0, 5.0)
"""Pauses before the first, second, ... restart in a row; the last one repeats."""
_HOPELESS_RESTARTS = 2
"""What waits for a process to be ready ends when it ends again after so many restarts."""
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
    base: bool = False
    """Whether others of the set are served by it, so that it ends after them."""
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
        self._changing = threading.Lock()
        """Held while it is decided whether it should run, and while that is acted on."""

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
        self._spawn(self)

    def wait_ready(self) -> None:
        """Wait until the probe says yes.

        Raises:
            DevError: it ended or was not ready within its bound; the text has its log's path and tail.
        """
        until = time.monotonic() + self.program.ready_seconds
        hopeless = self.restarts + _HOPELESS_RESTARTS
        while reason := self.program.ready():
            if self.pid is None and (not self.program.restart or self.restarts >= hopeless):
                raise DevError(
                    f"{self._name} ended with exit code {self.exit_code} before it was ready.\n{self.tail()}"
                )
            if time.monotonic() > until:
                raise DevError(
                    f"{self._name} was not ready within {self.program.ready_seconds:.0f} s: {reason}\n"
                    f"{self.tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, also where it is paused, and do not wait; it is not started again until `start`."""
        self._abandon()
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when that takes too long. Does nothing where it does not run."""
        self.ask_to_stop()
        self.end()

    def end(self) -> None:
        """Wait for what was asked to stop, and kill it when that takes too long."""
        if not self._wait(self.program.stop_seconds):
            self.kill()

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would; it is not started again until `start`."""
        self._abandon()
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

    def _abandon(self) -> None:
        """It shall not run any more, and is not started again."""
        with self._changing:
            self.wanted = False

    def spawn(self) -> None:
        """Start the child unless it runs. Called by the set's own thread only.

        Raises:
            OSError: there is no such executable, or no process can be made.
        """
        with self._changing:
            if self.pid is None:
                self._start_child()
            self.wanted = True

    def keep(self, now: float) -> bool:
        """Start it again where it ended by itself; whether it did. Called by the set's own thread, often."""
        with self._changing:
            if not (self.wanted and self.program.restart) or self.pid is not None:
                return False
            if self._restart_at == 0.0:
                self._failures = 0 if now - self._started_at > _STEADY_SECONDS else self._failures + 1
                self._restart_at = now + _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS) - 1)]
            if now < self._restart_at:
                return False
            try:
                self._start_child()
            except OSError:
                # No process can be made just now; the next pause is longer.
                self._failures += 1
                self._restart_at = 0.0
                return False
            self.restarts += 1
            return True

    def _start_child(self) -> None:
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
        self._restart_at = 0.0
