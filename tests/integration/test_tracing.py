"""Traces of preemptions: one goes over plugin or nominator, planner and evictor; none holds anything up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from integration.builders import make_node
from integration.collecting import CollectedSpan, Collector, collecting
from integration.conftest import PrivateCluster
from integration.preempting import run_victims, sized
from integration.space import Space, open_space
from integration.waiting import NotYet, until
from makeway.dev.options import NOMINATOR, USUAL, ClusterOptions

FORMS = {
    "makeway-scheduler": ClusterOptions(fallback=False),
    "makeway-nominator": ClusterOptions(
        components=frozenset({*USUAL, NOMINATOR}), plugin=False, fallback=False
    ),
}
"""By the service that begins a trace."""

MADE = ("succeeded", "bound")
"""How a preemption that made room ends: a nominator may see its pod bound before it hears of the outcome."""


def tracing_to(endpoint: str, options: ClusterOptions, monkeypatch: pytest.MonkeyPatch) -> ClusterOptions:
    """Have every part of a cluster trace."""
    monkeypatch.setenv("MAKEWAY_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    arguments = (("tracing", {"endpoint": endpoint}),) if options.plugin else ()
    return replace(options, plugin_arguments=arguments)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Give a collector."""
    with collecting() as running:
        yield running


async def preempt_two(space: Space) -> None:
    """Have a pod take the room of two others."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("a", "low", 250).on("n1"), sized("b", "low", 250).on("n1"))
    await space.create(sized("urgent", "high", 500))
    await space.until_bound("urgent")


@pytest.mark.parametrize("begins", FORMS)
async def test_one_trace_goes_over_all_parts(
    private_cluster: PrivateCluster, collector: Collector, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    cluster = await private_cluster(tracing_to(collector.endpoint, FORMS[begins], monkeypatch))

    async with open_space(cluster) as space:
        await preempt_two(space)
        async with cluster.bus() as bus:
            (order,) = (o for o in await bus.orders() if o.preemptor and o.preemptor.name == "urgent")

    async def whole() -> list[CollectedSpan]:
        made = [
            span.trace for span in collector.spans() if span.said.get("result") in MADE and not span.parent
        ]
        found = collector.spans(made[0]) if made else []
        if not {"plan", "evict"} <= {span.name for span in found}:
            raise NotYet(f"{collector.spans()}")
        return found

    spans = await until("the trace is there", whole)
    (root,) = (span for span in spans if not span.parent)
    (request,) = (span for span in spans if span.name == "request")
    (plan,) = (span for span in spans if span.name == "plan")
    (publish,) = (span for span in spans if span.name == "publish")
    (evict,) = (span for span in spans if span.name == "evict")
    deletes = [span for span in spans if span.name == "delete"]
    assert (root.service, root.name) == (begins, "preemption")
    assert (request.service, request.parent) == (begins, root.id)
    assert (plan.service, plan.parent) == ("makeway-planner", request.id)
    assert (publish.service, publish.parent) == (begins, root.id)
    assert (evict.service, evict.parent) == ("makeway-evictor", publish.id)
    assert [(span.service, span.parent) for span in deletes] == [("makeway-evictor", evict.id)] * 2
    assert {span.said["victim_uid"] for span in deletes} == {victim.uid for victim in order.victims}
    assert evict.said["order_id"] == order.order_id
    assert evict.said["result"] == "succeeded"
    assert not any(span.failed for span in spans)


async def test_a_collector_that_is_away_holds_nothing_up(
    private_cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens to none
        away = f"http://127.0.0.1:{taken.getsockname()[1]}"
        cluster = await private_cluster(tracing_to(away, FORMS["makeway-scheduler"], monkeypatch))

        async with open_space(cluster) as space:
            await preempt_two(space)
