"""What a quota process waits for: causes that may pass. None of them ends a process. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.messages import Outcome
from makeway.bus.queue_report import OTHER_WAIT, QUOTA_WAITS

RETRY: Final = timedelta(seconds=2)
"""Before a process plans again whose order did not do what it should; doubled with every further one."""

MOST_PAUSE: Final = timedelta(minutes=1)
"""The longest such pause."""

MOST_WAIT: Final = timedelta(minutes=15)
"""The longest wait that an outcome may name: longer than the windows of all caps."""

_JUDGED_ONE_BY_ONE: Final = frozenset({"incomplete", "victim-spared"})
"""Reasons of outcomes whose victims say why each of them stayed."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that keeps a process from going on: a constant in kebab-case, and a sentence with numbers.

    `until`: when it will have passed, where that is known. `room`: how many pods may go then, 0 where that is
    not known.
    """

    reason: str
    message: str
    until: datetime | None = None
    room: int = 0


def cause_of(outcome: Outcome | None, *, moved: bool) -> Cause | None:
    """Return what of an order's end may pass; None where nothing does.

    `moved`: pods went, or it was learned of some that they stay. An order that moved nothing is no obstacle
    by itself: what stands in the way for good is known of each pod, which the next plan leaves out.
    """
    if outcome is None:
        return Cause("no-evictor", "no evictor carried the order out in time")
    if outcome.result == "succeeded" or (moved and outcome.reason in _JUDGED_ONE_BY_ONE):
        return None
    failed = next((one for one in outcome.victims if one.result == "failed"), None)
    if outcome.reason in _JUDGED_ONE_BY_ONE and failed is not None:
        reason, said = failed.reason, f"{failed.namespace}/{failed.name}: {failed.message}"
    else:
        reason, said = outcome.reason, outcome.message
    reason = reason or outcome.result
    return Cause(
        reason if reason in QUOTA_WAITS else OTHER_WAIT,
        f"the order was {outcome.result} ({reason})" + (f": {said}" if said else ""),
        outcome.retry_at,
        outcome.room,
    )


def tries_again(cause: Cause, tried: int, now: datetime) -> datetime:
    """Return when to try again. `tried`: how often in a row this has not helped.

    A time that is over already, as of an evictor whose clock is behind, says nothing.
    """
    if cause.until is not None and cause.until > now:
        return max(now + RETRY, min(cause.until, now + MOST_WAIT))
    return now + min(RETRY * (1 << min(tried, 10)), MOST_PAUSE)
