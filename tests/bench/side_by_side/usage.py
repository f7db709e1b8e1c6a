"""CPU time and peak memory of processes, from /proc, from a moment on."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from stolen import stolen_seconds

_EVERY_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process used. `peak_mib`: the most of its resident memory, from its start on."""

    cpu_seconds: float
    peak_mib: float


def usage(pid: int) -> Usage | None:
    """Read a process's usage; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if peak is None:  # it is ending
        return None
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(peak[1]) / 1024)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read at a moment, in seconds since 1970. `stolen`: from this machine since it started."""

    at: float
    used: dict[str, Usage]
    stolen: float


@dataclass(slots=True)
class Meter:
    """Reads some processes, by name, until it is closed or they have ended."""

    pids: dict[str, int]
    _samples: list[Sample] = field(default_factory=list)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Meter:
        self._read()
        self._thread = threading.Thread(target=self._run, name="meter")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._read()

    def used(self, since: float = 0.0, until: float = math.inf) -> dict[str, Usage]:
        """Give what each process used between two moments, as far as it was running."""
        samples = [sample for sample in self._samples if since <= sample.at <= until]
        found = {}
        for name in self.pids:
            seen = [sample.used[name] for sample in samples if name in sample.used]
            if seen:
                found[name] = Usage(seen[-1].cpu_seconds - seen[0].cpu_seconds, seen[-1].peak_mib)
        return found

    def stolen(self, since: float = 0.0, until: float = math.inf) -> float:
        """Give the CPU seconds that the machine lost to others between two moments."""
        stolen = [sample.stolen for sample in self._samples if since <= sample.at <= until]
        return stolen[-1] - stolen[0] if stolen else 0.0

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            self._read()

    def _read(self) -> None:
        used = {name: found for name, pid in self.pids.items() if (found := usage(pid)) is not None}
        self._samples.append(Sample(time.time(), used, stolen_seconds()))
