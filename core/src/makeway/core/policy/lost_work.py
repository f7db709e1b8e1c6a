"""What an eviction loses: the work that a pod has not saved, weighed by how much of the request it holds.

A pod is taken to save nothing until it ends, unless it says otherwise; the policy and the pod's PriorityClass
bound how much counts, so that silence is worth no more than what admins grant. What a pod says of itself only
lowers what its own eviction costs. All are whole seconds and thousandths, so that sums are exact. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec

from makeway.core.config.duration import DurationError, parse_duration
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Metadata
from makeway.core.k8s.resources import PODS

CHECKPOINTED_AT: Final = "makeway.dev/checkpointed-at"
"""Annotation of a pod: when it last saved its work, as RFC 3339 has times."""

CHECKPOINT_INTERVAL: Final = "makeway.dev/checkpoint-interval"
"""Annotation of a PriorityClass: its pods save so often, whether they say so or not; as Go has durations."""

NO_BOUND: Final = 2**40
"""Seconds of a pod whose work counts however old it is."""

NEVER_SAVED: Final = 0
"""When a pod last saved that does not say so, in microseconds since 1970."""

WHOLE: Final = 1000
"""The share of a pod that holds as much as is asked for."""

MOST_SHARE: Final = 1_000_000
"""Of a pod that holds a thousand times as much, or more: so sums over thousands of pods stay within int64."""

_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class UnsavedWork:
    """A pod's work at any moment. `requests`: by resource, milli-CPU, bytes, units.

    `since`: seconds since 1970 from which on nothing is saved. `longest`: no more seconds than these count.
    """

    requests: Mapping[str, int]
    since: int
    longest: int = NO_BOUND

    def lost(self, needs: Mapping[str, int], longest: int, restart: int, now: int) -> int:
        """Return what its eviction loses, in thousandths of seconds of a pod that asks for `needs`.

        `restart`: seconds that another start takes.
        """
        unsaved = max(0, min(now - self.since, self.longest, longest))
        return share(self.requests, needs) * (unsaved + restart)


def checkpointed_at(metadata: Metadata) -> int:
    """Return when a pod says that it last saved, in microseconds since 1970; NEVER_SAVED where it does not.

    What is no time counts as absent.
    """
    text = (metadata.annotations or {}).get(CHECKPOINTED_AT)
    if text is None:
        return NEVER_SAVED
    try:
        return microseconds(msgspec.convert(text, _Moment))
    except (msgspec.ValidationError, OverflowError):
        return NEVER_SAVED


def checkpoint_interval(priority_class: Metadata | None) -> int:
    """Return the seconds between two saves that a class grants its pods; NO_BOUND where it says nothing.

    Rounded up; 0: its pods lose nothing. What is no duration counts as absent.
    """
    text = (priority_class.annotations or {}).get(CHECKPOINT_INTERVAL) if priority_class else None
    if text is None:
        return NO_BOUND
    try:
        return whole_seconds(parse_duration(text))
    except DurationError:
        return NO_BOUND


def interval_problem(priority_class: Metadata) -> str:
    """Return why the annotation of a class cannot be read; empty where it can, or is absent."""
    text = (priority_class.annotations or {}).get(CHECKPOINT_INTERVAL, "0")
    try:
        parse_duration(text)
    except DurationError as error:
        return f"annotation {CHECKPOINT_INTERVAL}: {text[:80]!r} {error}"
    return ""


def unsaved_since(start_micros: int, checkpointed_micros: int) -> int:
    """Return from which second on nothing is saved: since the start, or the last save after it.

    A pod that has not started has nothing to lose, and neither has one that says it will save later.
    """
    return max(start_micros, checkpointed_micros) // _SECOND


def share(requests: Mapping[str, int], needs: Mapping[str, int]) -> int:
    """Return how much of what is asked for a pod holds, in thousandths: of all resources the most.

    `pods` is left out: each pod is one.
    """
    held = (requests.get(name, 0) * WHOLE // need for name, need in needs.items() if need and name != PODS)
    return min(max(held, default=0), MOST_SHARE)


def seconds_of(longest: timedelta) -> int:
    """Return a bound in whole seconds, rounded up; NO_BOUND for 0."""
    return whole_seconds(longest) or NO_BOUND


def whole_seconds(duration: timedelta) -> int:
    """Return a duration in seconds, rounded up."""
    return -(-duration // timedelta(seconds=1))


_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
