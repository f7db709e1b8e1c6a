"""Planning again for a pod that is pending. Loaded only then: it is what needs the planner's arrays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from makeway.bus.client import Bus
from makeway.bus.codec import unwrap_outcome
from makeway.bus.following import past_messages
from makeway.cli.offline.finding import orders
from makeway.planner.offline.live import read_world
from makeway.planner.offline.pending import asked_about, pending
from makeway.planner.offline.results import Pending
from makeway.planner.orders.ledger import Ledger
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings

_LOOKED_BACK: Final = timedelta(minutes=15)
"""How far back orders may still matter to a plan: the longest deadline and what is remembered after it."""


async def planned_again(bus: Bus, api: Api, settings: ConfigSettings, raw: bytes) -> Pending:
    """Say what would become of a pod now, and what would unblock it.

    `raw`: the v1.Pod. Reads the cluster once and the orders in flight. Raises ApiError, ApiUnavailable,
    BusError.
    """
    world = await read_world(api, settings)
    now = datetime.now(UTC)
    return pending(world, raw, now, *asked_about(world, raw, now, await ledger_of(bus, now)))


async def ledger_of(bus: Bus, now: datetime) -> Ledger:
    """Read which orders are alive and which have just ended, as a planner does when it starts."""
    ledger = Ledger()
    since = now - _LOOKED_BACK
    async for order in orders(bus, since=since):
        ledger.ordered(order)
    async for outcome in past_messages(bus, bus.subjects.outcomes_stream, unwrap_outcome, since=since):
        ledger.ended(outcome)
    return ledger
