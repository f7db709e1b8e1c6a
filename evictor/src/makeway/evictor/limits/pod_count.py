"""How many pods an evictor believes there are: the leading planner's word, within bounds. Pure.

The share of all pods that may be victims in ten minutes is counted of it, and an evictor may not list pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DOUBLES_SECONDS: Final = 600.0
"""In this time what is believed at most doubles: the span of the share itself."""

ALWAYS_BELIEVED: Final = 2_000
"""Up to so many pods any word is believed: by default their share is what may always go."""


@dataclass(frozen=True)
class PodCount:
    """What is believed: `pods`. `base`: what was at the time `since`, in seconds."""

    pods: int
    base: int
    since: float


def believed(before: PodCount | None, told: int, now: float) -> PodCount:
    """Return what is believed once the planner names so many pods. The first word after a start is taken."""
    if before is None:
        return PodCount(told, told, now)
    base, since = before.base, before.since
    if now - since >= DOUBLES_SECONDS:
        base, since = before.pods, now
    return PodCount(min(told, 2 * max(base, ALWAYS_BELIEVED // 2)), base, since)
