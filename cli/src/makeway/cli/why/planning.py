"""Planning again for a pod that is pending. Loaded only then: it is what needs the planner's arrays."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from makeway.bus.client import Bus
from makeway.cli.why.story import ledger_of
from makeway.core.k8s.objects import Pod
from makeway.planner.offline.live import read_world
from makeway.planner.offline.pending import pending
from makeway.planner.offline.results import Pending
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings

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
    in_flight, leaving = ledger.in_flight((), now, asking=uid), ledger.leaving(now)
    return pending(world, raw, now, in_flight=in_flight, leaving=leaving)
