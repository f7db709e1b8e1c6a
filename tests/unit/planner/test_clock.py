"""A planner whose clock is off says so, and leaves the Lease to another one."""

import asyncio
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from prometheus_client import CollectorRegistry

from background import background
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service.parts import Parts, PlannerContext
from makeway.runtime import server_clock as clock
from makeway.runtime.kube import ApiUnavailable
from makeway.runtime.lease import LeaseSettings
from makeway.runtime.server_clock import HeldClock
from makeway.runtime.settings import ConfigSettings
from narrowing import there
from unit.planner.building import NOW

SECOND = timedelta(seconds=1)


def parts() -> Parts:
    """A planner's, of which nothing runs."""
    return Parts(
        PlannerContext(
            identity="planner",
            mode="enforce",
            lease=LeaseSettings(namespace="makeway-system", name="makeway-planner"),
            config=ConfigSettings(),
            api=MagicMock(),
            bus=MagicMock(),
            cluster_uid="cluster",
            remembered=None,
            registry=CollectorRegistry(),
        )
    )


async def test_a_clock_is_read_until_it_agrees_and_an_api_server_that_is_away_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "READ_SECONDS", 0.0)
    monkeypatch.setattr(clock, "AGAIN_SECONDS", 0.0)
    api, registry, seen = AsyncMock(), CollectorRegistry(), list[str]()
    api.server_time.side_effect = [NOW, NOW - 8 * SECOND, ApiUnavailable("away"), NOW + 30 * SECOND, NOW]
    one = HeldClock(api, "planner", PlannerMetrics(registry).clock_ahead, lambda: NOW)

    async with background(one.read_forever()):
        while api.server_time.await_count < 5:
            await asyncio.sleep(0)
            if one.impaired() not in seen:
                seen.append(one.impaired())
    await asyncio.sleep(0)

    ahead, behind = (
        f"this planner's clock is {off} the API server's" for off in ("7 s ahead of", "30 s behind")
    )
    assert seen == ["", ahead, behind]
    assert (one.impaired(), one.unfit()) == ("", "")
    assert registry.get_sample_value("makeway_planner_clock_ahead_seconds") == 0


@pytest.mark.parametrize(
    ("ahead", "impaired", "unfit"), [(2, False, False), (5, True, False), (-5, True, False), (11, True, True)]
)
def test_a_planner_whose_clock_is_off_is_not_ready_and_leads_only_where_no_other_does(
    ahead: int, impaired: bool, unfit: bool
) -> None:
    planner = parts()
    seen = planner.seen
    seen.watch, seen.in_flight, seen.configuration = MagicMock(), MagicMock(), MagicMock()
    seen.watch.unhealthy.return_value = seen.in_flight.unhealthy.return_value = ""
    seen.configuration.unhealthy.return_value = seen.configuration.unsynced.return_value = ""
    bus: Any = planner._context.bus
    bus.disconnected.return_value = bus.healthy.return_value = bus.signatures.unpublished.return_value = ""
    leadership = there(planner.leadership)
    assert (planner.checks()["clock"], leadership._impaired(), leadership._unfit()) == ("", "", "")

    seen.clock.ahead = ahead * SECOND

    told = planner.checks()["clock"]
    assert (bool(told), leadership._impaired(), leadership._unfit()) == (
        impaired,
        told if impaired else "",
        told if unfit else "",
    )
