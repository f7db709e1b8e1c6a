"""Karpenter's NodeClaims, followed where the API server serves them: which nodes are being made.

Discovery tells whether they are served; where they are not, nothing is listed and no right is needed. Where
they may not be read no node is promised, and a delay is time alone.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import NoReturn

import msgspec
import structlog

from makeway.core.k8s.node_claims import GROUP, PLURAL, VERSION, NodeClaim
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource

_log = structlog.get_logger()

DISCOVERY_SECONDS = 300.0
"""How often it is asked whether they are served: Karpenter may be installed, or go."""

NODE_CLAIMS = Resource(PLURAL, f"/apis/{GROUP}/{VERSION}/{PLURAL}", NodeClaim)


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


_decode = msgspec.json.Decoder(_Resources).decode


class _ServedNoMore(Exception):  # noqa: N818 - not an error, a turn that the loop takes
    """They are not served any more."""


class NodeClaimWatch:
    """Follows NodeClaims where they are served. `run` is a part of the process."""

    def __init__(
        self, api: ObjectReader, coming: ComingNodes, metrics: PlannerMetrics, timings: ListWatchTimings
    ) -> None:
        self._api = api
        self._coming = coming
        self._metrics = metrics
        self._timings = timings

    async def run(self) -> NoReturn:
        """Follow them for ever, where and while they are served."""
        while True:
            if not await self._served():
                await asyncio.sleep(DISCOVERY_SECONDS)
                continue
            part = ListWatch(self._api, NODE_CLAIMS, self._coming, self._metrics, self._timings)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(part.run())
                    tasks.create_task(self._until_served_no_more())
            except* _ServedNoMore:
                self._coming.retain(set())

    async def _served(self) -> bool:
        try:
            body = await self._api.request("GET", f"/apis/{GROUP}/{VERSION}")
            return any(one.name == PLURAL for one in _decode(body).resources)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                _log.warning("node_claims_undiscovered", error=str(error))
        except (ApiUnavailable, msgspec.DecodeError) as error:
            _log.warning("node_claims_undiscovered", error=str(error))
        return False

    async def _until_served_no_more(self) -> NoReturn:
        """Wait until discovery does not have them. Raises _ServedNoMore."""
        while True:
            await asyncio.sleep(DISCOVERY_SECONDS)
            if not await self._served():
                raise _ServedNoMore
