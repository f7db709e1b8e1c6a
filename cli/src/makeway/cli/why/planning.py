"""Planning again for a pod that is pending. Loaded only then: it is what needs the planner's arrays."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from makeway.bus.client import Bus
from makeway.bus.codec import unwrap_outcome
from makeway.bus.errors import Malformed
from makeway.bus.nats.follow import Start
from makeway.cli.offline.finding import orders
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.live import read_world
from makeway.planner.offline.pending import pending
from makeway.planner.offline.results import Pending
from makeway.planner.service.orders.ledger import Ledger
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings

_LOOKED_BACK: Final = timedelta(minutes=15)
"""How far back orders may still matter to a plan: the longest deadline and what is remembered after it."""

_decode_pod = msgspec.json.Decoder(Pod).decode


async def planned_again(bus: Bus, api: Api, settings: ConfigSettings, raw: bytes) -> Pending:
    """Say what would become of a pod now, and what would unblock it.

    `raw`: the v1.Pod. Reads the cluster once and the orders in flight. Raises ApiError, ApiUnavailable,
    BusError.
    """
    world = await read_world(api, settings)
    now = datetime.now(UTC)
    ledger = await ledger_of(bus, now)
    uid = _decode_pod(raw).metadata.uid
    return pending(
        world,
        raw,
        now,
        in_flight=ledger.in_flight(now, asking=uid),
        leaving=ledger.leaving(now),
        left_out=ledger.pauses.left_out(uid, now),
    )


async def ledger_of(bus: Bus, now: datetime) -> Ledger:
    """Read which orders are alive and which have just ended, as a planner does when it starts."""
    ledger = Ledger()
    since = now - _LOOKED_BACK
    async with aclosing(orders(bus, since=since)) as all_of_them:
        async for order in all_of_them:
            ledger.ordered(order)
    async with aclosing(
        bus.follow(  # type: ignore[type-var] # it returns an async generator
            bus.subjects.outcomes_stream, start=Start.at_time(since), stop_at_end=True
        )
    ) as messages:
        async for message in messages:
            try:
                ledger.ended(unwrap_outcome(message.data))
            except Malformed:
                continue
    return ledger
