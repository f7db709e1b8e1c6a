"""Named points between two side effects, at which a test may kill, freeze or delay the process.

Inert unless the environment variable `MAKEWAY_FAILPOINTS` names a directory when the process starts:
a file there that has a point's name arms it, with one line `ACTION HIT SECONDS`:

* `kill 1 0`: SIGKILL at the first hit, as a crash would end it;
* `stop 3 0`: SIGSTOP at the third hit; nothing runs until somebody sends SIGCONT;
* `delay 1 2.5`: wait 2.5 s there; everything else in the process goes on.

A point fires once: the process that fires takes the file to `fired/`, with its pid in it, before it acts,
so that the process started in its place goes on. Hits are counted by each process, from the arming on.
The scheduler's points are `plugin/bridge/failpoint.go`, with the same directory and lines.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

VARIABLE: Final = "MAKEWAY_FAILPOINTS"
FIRED: Final = "fired"

EVICTOR: Final = (
    "evictor.order-received",
    "evictor.before-mark",
    "evictor.after-mark",
    "evictor.before-delete",
    "evictor.after-delete",
    "evictor.before-clear",
    "evictor.before-rollback",
    "evictor.before-revert",
    "evictor.after-revert",
    "evictor.before-unmark",
    "evictor.after-unmark",
    "evictor.before-outcome",
    "evictor.before-ack",
    "evictor.before-repair",
    "evictor.after-repair",
)
"""In the order in which an order passes them; the last two are of the repair of a mark left behind."""

PLANNER: Final = (
    "planner.request-received",
    "planner.before-reply",
    "planner.before-record",
    "planner.after-record",
    "planner.before-proposal",
)
"""In the order in which a request passes them; the last is of the repair of a mark left behind."""

NAMES: Final = frozenset((*EVICTOR, *PLANNER))


class Failpoints:
    """The points of one process, armed by files in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hits: Counter[str] = Counter()

    async def hit(self, name: str) -> None:
        """Do what the point is armed with, if anything.

        Raises:
            ValueError: there is no point of this name, or its file is no such line.
        """
        if name not in NAMES:
            raise ValueError(f"no failpoint is called {name!r}")
        action, seconds = self._take(name)
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif action == "delay":
            await asyncio.sleep(seconds)

    def _take(self, name: str) -> tuple[str, float]:
        """Count a hit; where the point fires, disarm it and give the action and its seconds."""
        armed = self._directory / name
        try:
            action, hit, seconds = armed.read_text().split()
        except FileNotFoundError:
            self._hits.pop(name, None)
            return "", 0.0
        self._hits[name] += 1
        if self._hits[name] < int(hit):
            return "", 0.0
        fired = self._directory / FIRED / name
        try:
            # Of several processes that reach the point, one gets the file.
            armed.rename(fired)
        except FileNotFoundError:
            return "", 0.0
        fired.write_text(str(os.getpid()))
        return action, float(seconds)


_directory: Final = os.environ.get(VARIABLE, "")
_active: Final = Failpoints(Path(_directory)) if _directory else None


async def failpoint(name: str) -> None:
    """Pass a point. Without `MAKEWAY_FAILPOINTS` this does nothing and lets nobody else run."""
    if _active is not None:
        await _active.hit(name)
