"""Karpenter's NodeClaims, followed where the API server serves them: which nodes are being made.

Discovery tells whether they are served; where they are not, nothing is listed and no right is needed. Where
they may not be read no node is promised, and a delay is time alone.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from makeway.core.k8s.node_claims import GROUP, PLURAL, VERSION, NodeClaim
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.promised import ComingNodes
from makeway.planner.service.where_served import WhereServed
from makeway.runtime.kube import ApiError
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Resource

NODE_CLAIMS: Final = Resource(PLURAL, f"/apis/{GROUP}/{VERSION}/{PLURAL}", NodeClaim)


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


_decode = msgspec.json.Decoder(_Resources).decode


def node_claim_watch(
    api: ObjectReader, coming: ComingNodes, metrics: PlannerMetrics, timings: ListWatchTimings
) -> WhereServed[bool]:
    """Return what follows NodeClaims where they are served; no node is coming any more where they are not."""

    async def served() -> bool:
        try:
            body = await api.request("GET", f"/apis/{GROUP}/{VERSION}")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return any(one.name == PLURAL for one in _decode(body).resources)

    def parts(served: bool) -> list[ListWatch[NodeClaim]]:
        if not served:
            coming.retain(set())
            return []
        return [ListWatch(api, NODE_CLAIMS, coming, metrics, timings)]

    return WhereServed(PLURAL, served, parts)
