"""What failpoints do: a test may kill or freeze the process there, or hold it up.

`python -m makeway.dev.failpoints planner ...` is the `makeway` command with the points in force. The
environment variable `MAKEWAY_FAILPOINTS` names a directory; a file there with a point's name arms it, by one
line `ACTION HIT`:

* `kill 1`: SIGKILL there, as a crash would end it;
* `stop 3`: SIGSTOP; nothing runs until SIGCONT is sent;
* `hold 1`: wait there until the file in `fired/` is removed; everything else in the process goes on.

A point fires once: the process that fires takes the file to `fired/`, with its pid in it, before it acts,
so that the process started in its place goes on. HIT is for points that one order passes for each of its
victims: which of these passes it is, of whichever order; at all others it is 1. The scheduler's points are
`plugin/internal/failpoints/failpoints.go`, with the same directory and lines.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from makeway.runtime.failpoints import act_on_failpoints

VARIABLE: Final = "MAKEWAY_FAILPOINTS"
FIRED: Final = "fired"

EVICTOR: Final = (
    "evictor.order-received",
    "evictor.before-mark",
    "evictor.after-mark",
    "evictor.before-dry-run",
    "evictor.barrier-passed",
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
"""In the order in which an order passes them; the last two are of the repair of a mark left behind. An order
that tries its deletions first passes `before-dry-run`, one for a group `barrier-passed` as well."""

PLANNER: Final = (
    "planner.request-received",
    "planner.before-reply",
    "planner.before-record",
    "planner.after-record",
    "planner.group-request-received",
    "planner.before-group-reply",
    "planner.commit-received",
    "planner.order-stored",
    "planner.before-proposal",
    "planner.before-quota-order",
    "planner.after-quota-order",
)
"""In the order in which a request passes them, and one about a group; then of a commit, the repair of a mark
left behind, and of quotas."""

NOMINATOR: Final = (
    "nominator.before-nominate",
    "nominator.after-nominate",
    "nominator.before-commit",
    "nominator.after-commit",
)
"""In the order in which an order passes them."""

NAMES: Final = frozenset((*EVICTOR, *PLANNER, *NOMINATOR))

_HOLD_POLL_SECONDS: Final = 0.02


class Failpoints:
    """The points of one process, armed by files in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hits: Counter[tuple[str, str]] = Counter()

    async def hit(self, name: str, of: str = "") -> None:
        """Do what the point is armed with, if anything. `of`: the order whose hits are counted.

        Raises:
            ValueError: there is no point of this name, or its file is no such line.
        """
        if name not in NAMES:
            raise ValueError(f"no failpoint is called {name!r}")
        action = self._take(name, of)
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif action == "hold":
            # Another process removes the file; there is nothing to be woken by.
            while (self._directory / FIRED / name).exists():  # noqa: ASYNC110
                await asyncio.sleep(_HOLD_POLL_SECONDS)

    def _take(self, name: str, of: str) -> str:
        """Count a hit; where the point fires, disarm it and give the action."""
        if of:
            self._hits[name, of] += 1
        armed = self._directory / name
        try:
            action, hit = armed.read_text().split()
        except FileNotFoundError:
            return ""
        if of and self._hits[name, of] != int(hit):
            return ""
        fired = self._directory / FIRED / name
        taken = fired.with_name(f".{name}")
        try:
            # Of several processes that reach the point, one gets the file.
            armed.rename(taken)
        except FileNotFoundError:
            return ""
        taken.write_text(str(os.getpid()))
        taken.rename(fired)  # a reader finds the pid there, never the line
        return action


def main() -> None:
    """Run the `makeway` command with the points armed by the directory of `MAKEWAY_FAILPOINTS`."""
    act_on_failpoints(Failpoints(Path(os.environ[VARIABLE])).hit)
    (makeway,) = entry_points(group="console_scripts", name="makeway")
    makeway.load()()


if __name__ == "__main__":
    main()
