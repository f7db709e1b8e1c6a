"""Traces of preemptions: one goes over plugin or nominator, planner and evictor; none holds anything up."""

import socket

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.collecting import CollectedSpan, Collector
from integration.conftest import PLUGIN_FORM
from integration.lifetimes import EXTERNAL_FORM
from integration.preempting import run_victims, sized
from integration.space import Space, open_space
from integration.waiting import NotYet, until
from makeway.core.k8s.objects import Pod
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER

BEGINS = {PLUGIN_FORM: "makeway-scheduler", EXTERNAL_FORM: "makeway-nominator"}
"""The service that begins a trace, by form."""

MADE = ("succeeded", "bound")
"""How a preemption that made room ends: a nominator may see its pod bound before it hears of the outcome."""


async def preempt_two(space: Space) -> Pod:
    """Have a pod take the room of two others."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("a", "low", 250).on("n1"), sized("b", "low", 250).on("n1"))
    (urgent,) = await space.create(sized("urgent", "high", 500))
    await space.until_bound("urgent")
    return urgent


@pytest.mark.both_forms(by_target=True)
async def test_one_trace_goes_over_all_parts(
    traced_cluster: RunningCluster, collector: Collector, form: str
) -> None:
    begins = BEGINS[form]
    async with open_space(traced_cluster) as space:
        urgent = await preempt_two(space)
        (order,) = await space.bus.orders(urgent.metadata.uid)

    async def whole() -> list[CollectedSpan]:
        carried_out = (span for span in collector.spans() if span.said.get("order_id") == order.order_id)
        found = [span for one in carried_out if one.name == "evict" for span in collector.spans(one.trace)]
        made = [span for span in found if span.said.get("result") in MADE and not span.parent]
        if not made or "plan" not in {span.name for span in found}:
            said = [(span.service, span.name, span.said) for span in found or collector.spans()[-20:]]
            raise NotYet(f"{len(collector.spans())} spans, {said}")
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
    (commit,) = (span for span in spans if (span.service, span.name) == ("makeway-planner", "commit"))
    asked = [span for span in spans if (span.service, span.name) == (begins, "commit")]
    assert [span.parent for span in asked] == ([root.id] if form == "plugin" else [])
    assert commit.parent == (asked[0].id if asked else root.id)
    assert (publish.service, publish.parent) == ("makeway-planner", commit.id)
    assert (evict.service, evict.parent) == ("makeway-evictor", publish.id)
    assert [(span.service, span.parent) for span in deletes] == [("makeway-evictor", evict.id)] * 2
    assert {span.said["victim_uid"] for span in deletes} == {victim.uid for victim in order.victims}
    assert evict.said["order_id"] == order.order_id
    assert evict.said["result"] == "succeeded"
    assert not any(span.failed for span in spans)


async def test_a_collector_that_is_away_holds_nothing_up(
    traced_cluster: RunningCluster, collector: Collector
) -> None:
    with collector.away():
        with pytest.raises(ConnectionRefusedError), socket.create_connection(collector.address):
            pass
        for part in (PLANNER, EVICTOR, SCHEDULER):
            async with traced_cluster.without(part):
                pass  # it starts while the collector is away
        async with open_space(traced_cluster) as space:
            await preempt_two(space)
