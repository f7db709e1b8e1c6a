"""CPU time and peak memory of processes, from /proc, from a moment on."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

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


def stolen_seconds() -> float:
    """Read the CPU time that a hypervisor has kept from this machine, of all cores, since it started."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / _TICKS


@dataclass(slots=True)
class Meter:
    """Reads some processes until it is closed; keeps what was read last, since they may have ended then.

    `stolen`: once closed, the CPU seconds that the machine lost to others meanwhile.
    """

    pids: dict[str, int]
    stolen: float = 0.0
    _began: dict[str, Usage] = field(default_factory=dict)
    _last: dict[str, Usage] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Meter:
        self.stolen = -stolen_seconds()
        self._read(self._began)
        self._thread = threading.Thread(target=self._run, name="meter")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.stolen += stolen_seconds()

    def used(self) -> dict[str, Usage]:
        """Give what each used since the beginning."""
        return {
            name: Usage(last.cpu_seconds - self._began[name].cpu_seconds, last.peak_mib)
            for name, last in self._last.items()
        }

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            self._read(self._last)

    def _read(self, into: dict[str, Usage]) -> None:
        for name, pid in self.pids.items():
            found = usage(pid)
            if found is not None:
                into[name] = found
