"""The question about a pod, as the nominator writes it."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.messages import API_VERSION, StreamPosition
from makeway.bus.plan import PlanReply, PlanRequest
from makeway.core.k8s.objects import Pod
from makeway.nominator.cluster import StoredPod
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods
from makeway.nominator.questions import Questions

POD: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "urgent", "uid": "P"},
    "spec": {"priority": 1000, "containers": [{"name": "c"}]},
}


async def test_it_tells_how_far_the_outcomes_of_orders_were_read_when_it_was_asked() -> None:
    asked: list[PlanRequest] = []

    async def request_plan(data: bytes, timeout_seconds: float) -> bytes:
        asked.append(codec.decode(PlanRequest, data))
        return codec.encode(
            PlanReply(api_version=API_VERSION, request_id=asked[-1].request_id, planner="p", status="refused")
        )

    streams = SimpleNamespace(outcomes_read=None)
    parts = SimpleNamespace(
        bus=SimpleNamespace(request_plan=request_plan),
        pods=PendingPods(),
        metrics=NominatorMetrics(CollectorRegistry()),
        writer=SimpleNamespace(cluster_uid="cluster-1"),
        streams=streams,
        shadow=None,
    )
    questions = Questions(cast("NominatorParts", parts))
    raw = msgspec.json.encode(POD)
    stored = StoredPod(pod=msgspec.json.decode(raw, type=Pod), raw=raw)

    await questions.ask(stored, "enforce")
    streams.outcomes_read = StreamPosition(created="2026-01-30T08:15:00Z", sequence=512)
    await questions.ask(stored, "enforce")

    assert [one.outcomes_read for one in asked] == [None, streams.outcomes_read]
