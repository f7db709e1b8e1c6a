"""Planning again for a group by other orders of the terms. Loaded only then: it needs arrays."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from makeway.bus.client import Bus
from makeway.bus.messages import DecisionRecord
from makeway.cli.offline.finding import recording
from makeway.planner.offline.replaying import Replay
from makeway.planner.offline.results import OtherOrders
from makeway.planner.recording.entries import GroupDecided, RecordingError

_SECONDS: Final = 10.0
"""How long other orders are looked at; one that was begun is planned to its end."""


async def orders_instead(bus: Bus, record: DecisionRecord) -> OtherOrders | None:
    """Return what a recorded plan for a group would have cost by other orders; None where it is not kept.

    Reads the recording up to the decision. Raises BusError.
    """
    own = record.group_plan.price if record.group_plan is not None else None
    if own is None or not record.recording:
        return None
    replay = Replay()
    try:
        async with aclosing(recording(bus, record.recording)) as parts:
            async for part in parts:
                for decided in replay.read(part):
                    if decided.decision_id == record.decision_id and isinstance(decided, GroupDecided):
                        return replay.other_orders(decided, own, _time_left())
    except (RecordingError, ValueError):
        pass
    return None


def _time_left() -> Callable[[], bool]:
    until = time.monotonic() + _SECONDS
    return lambda: time.monotonic() < until
