"""Whether the clocks that an order's `notAfter` is read by agree. Pure.

The plugin opens its gate 2 s after `notAfter` by its own clock, and an evictor begins nothing after
`notAfter` by its own. Clocks further apart than those 2 s void that margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway.cli.check.result import CheckResult

NAME: Final = "clocks"
MARGIN_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Reading:
    """A clock that was asked: it said `at` somewhere between `before` and `after` of the local one.

    `resolution_seconds`: what it cuts off; 1 for an HTTP Date.
    """

    name: str
    at: datetime
    before: datetime
    after: datetime
    resolution_seconds: float = 0.0

    def ahead_seconds(self) -> float:
        """How far it is ahead of the local clock at the least; negative: behind; 0 where it may agree."""
        early = (self.at - self.after).total_seconds()
        late = (self.at - self.before).total_seconds() + self.resolution_seconds
        return early if early > 0 else min(late, 0.0)


def judge(readings: Sequence[Reading]) -> Iterator[CheckResult]:
    """Judge them: those apart from one another are wrong; where all differ alike, it is this machine's."""
    if not readings:
        return
    ahead = {reading.name: reading.ahead_seconds() for reading in readings}
    apart = max(ahead.values()) - min(ahead.values())
    if apart > MARGIN_SECONDS:
        remedy = "keep every node's clock by NTP: orders expire too early or too late"
        yield CheckResult(NAME, "wrong", f"up to {apart:.1f} s apart: {_told(ahead)}", remedy)
    elif any(abs(seconds) > MARGIN_SECONDS for seconds in ahead.values()):
        remedy = "ages and --since are off here; makeway itself is not touched"
        yield CheckResult(
            NAME, "warning", f"this machine's clock differs from the cluster's: {_told(ahead)}", remedy
        )
    else:
        yield CheckResult(NAME, "ok", f"within {MARGIN_SECONDS:.0f} s: {', '.join(ahead)}, this machine")


def _told(ahead: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:+.1f} s" for name, seconds in ahead.items() if seconds) or "none"
