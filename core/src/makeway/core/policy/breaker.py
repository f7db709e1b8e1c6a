"""What the evictors' breaker has stopped, as ConfigMap `makeway-breaker` keeps it. Pure.

A key is a cause, or `CAUSE.NAMESPACE` where only preemptors of that namespace are stopped; its value is since
when, and why. `resetAt` is when an administrator closed it last: nothing older holds. The evictors write it,
`makeway breaker reset` empties it. It outlives the processes, so that a crash closes no breaker. The plugin
reads it too: both are tested with the same cases (`bus/testdata/breaker/cases.json`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from makeway.core.text import one_line

CONFIGMAP: Final = "makeway-breaker"
RESET_AT: Final = "resetAt"

LONGEST_DETAIL: Final = 500
"""Characters that are read of what was found, or of what is not understood."""

Cause = Literal["wasted-victims", "mismatches", "signatures", "clock-skew"]
"""Why the breaker opens; docs/reliability.md has them with their thresholds."""

CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

RESET_AHEAD: Final = timedelta(hours=1)
"""How far the clock of whoever resets the breaker may be ahead."""

LASTS: Final = timedelta(minutes=10)
"""How long the breaker stays open for a namespace. Open for all, it stays so until it is reset."""


@dataclass(frozen=True)
class Trip:
    """One thing for which the breaker is open. `namespace`: of the preemptors; empty: for all.

    `since`: None where what is stored does not say it. `detail`: on one line.
    """

    cause: Cause
    namespace: str
    since: datetime | None
    detail: str = ""

    @property
    def key(self) -> str:
        """The ConfigMap's."""
        return f"{self.cause}.{self.namespace}" if self.namespace else self.cause

    def holds(self, now: datetime) -> bool:
        """Report whether the breaker is open for it still."""
        return not self.namespace or self.since is None or now - self.since < LASTS

    def was_reset(self, at: datetime | None) -> bool:
        """Report whether a reset at that time has closed it."""
        return at is not None and self.since is not None and self.since <= at

    def describe(self, verb: str = "is") -> str:
        """Return a sentence about it for a person. `verb`: was, where it no longer holds."""
        scope = f"for namespace {self.namespace}" if self.namespace else "everywhere"
        since = f" since {_written(self.since)}" if self.since else ""
        said = f"the breaker {verb} open {scope}{since}: {self.cause}"
        return f"{said}: {self.detail}" if self.detail else said


def data_of(trip: Trip) -> dict[str, str]:
    """Return what the ConfigMap says of it."""
    return {trip.key: f"{_written(trip.since) if trip.since else ''} {trip.detail}".strip()}


def parse_breaker(data: Mapping[str, str], now: datetime) -> tuple[dict[str, Trip], datetime | None]:
    """Return what is open by key, and when it was reset.

    A known cause whose value cannot be read is open. A reset that lies more than `RESET_AHEAD` in the future
    is none: it would keep the breaker from opening until then.
    """
    reset_at = _time(data.get(RESET_AT, ""))
    if reset_at is not None and reset_at - now > RESET_AHEAD:
        reset_at = None
    trips = {}
    for key, value in data.items():
        name, _, namespace = key.partition(".")
        cause = next((one for one in CAUSES if one == name), None)
        if cause is None:
            continue
        first, _, rest = value.partition(" ")
        since = _time(first)
        detail = one_line((value if since is None else rest).strip(), LONGEST_DETAIL)
        trip = Trip(cause, namespace, since, detail)
        if not trip.was_reset(reset_at):
            trips[key] = trip
    return trips, reset_at


def _written(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.strip())
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
