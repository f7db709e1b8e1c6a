"""Following what an API server serves at the moment."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from background import background
from makeway.core.k8s.node_claims import GROUP, VERSION
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.planner.service import watch as where_served
from makeway.planner.service.watch import node_claim_watch
from makeway.runtime.kube import ApiUnavailable
from makeway.runtime.listwatch import ListWatchTimings
from unit.planner.test_watch import Served

CLAIM = {"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"}, "spec": {}, "status": {}}


class Discovering(Served):
    """An API server whose discovery tells one thing after the other, then the last for ever."""

    def __init__(self, told: Iterator[bool | None]) -> None:
        super().__init__({}, CLAIM)
        self._told = told
        self._served: bool | None = False

    async def request(self, method: str, path: str, **options: object) -> bytes:
        if path == f"/apis/{GROUP}/{VERSION}":
            self._served = next(self._told, self._served)
            if self._served is None:
                raise ApiUnavailable("down")
            self.versions = {VERSION: ["nodeclaims"]} if self._served else {}
        return await super().request(method, path, **options)


async def lists(monkeypatch: pytest.MonkeyPatch, *told: bool | None) -> int:
    """Return how often NodeClaims are listed while discovery tells this."""
    monkeypatch.setattr(where_served, "DISCOVERY_SECONDS", 0.02)
    monkeypatch.setattr(where_served, "RETRY_SECONDS", 0.01)
    api, timings = Discovering(iter(told)), ListWatchTimings(pause=0.01)
    watch = node_claim_watch(api, ComingNodes(), PlannerMetrics(CollectorRegistry()), timings)
    async with background(watch.run()):
        await asyncio.sleep(0.3)
    return sum(path.endswith("/nodeclaims") for path in api.asked if "watch" not in path)


async def test_what_is_not_served_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await lists(monkeypatch, False) == 0


async def test_what_comes_to_be_served_is_followed_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await lists(monkeypatch, False, False, True) > 0


async def test_while_discovery_is_silent_what_is_followed_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    once = await lists(monkeypatch, True)

    assert await lists(monkeypatch, True, None, None, True) == once
