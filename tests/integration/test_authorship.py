"""Whose a preemption is: makeway's own, carried out or refused, is told as no other scheduler's."""

import asyncio
import json
import os
from typing import Any

import pytest

from integration.asking import ask
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.preempting import EVICTOR_USER, KUBELET_USER, outcome_of_order, run_victims, settle, sized
from integration.scraping import scrape
from integration.space import Space, open_space
from integration.test_observe import compared
from integration.waiting import until
from makeway.core.k8s.authorship import EVICTOR
from makeway.core.k8s.objects import Pod

MANY = int(os.environ.get("MAKEWAY_PREEMPTIONS", "500"))
_NODE = "tests.makeway.dev/node"
_AT_ONCE = 4


@pytest.mark.timeout(240)
async def test_own_preemptions_half_of_them_refused_are_compared_with_nothing(space: Space) -> None:
    await preempt_and_look(space, 40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_so_many_own_preemptions_half_of_them_refused_are_compared_with_nothing(space: Space) -> None:
    await preempt_and_look(space, MANY)


async def preempt_and_look(space: Space, count: int) -> None:
    """Preempt on as many nodes, a few at a time; every second victim may not be deleted."""
    names = [f"n{number}" for number in range(count)]
    await space.add_nodes(*[make_node(name).cpu("500m").label(_NODE, name) for name in names])
    victims = [sized(f"v{number}", "low", 500).on(f"n{number}") for number in range(count)]
    kept = {number for number in range(count) if number % 2}
    await run_victims(
        space, *[one.label(*UNDELETABLE) if number in kept else one for number, one in enumerate(victims)]
    )

    async def preempt(number: int) -> Pod:
        builder = sized(f"p{number}", "high", 500).spec(nodeSelector={_NODE: f"n{number}"})
        (pod,) = await space.create(builder)
        if number not in kept:
            await space.until_bound(f"p{number}", seconds=60)
            return pod
        _, outcome = await outcome_of_order(space, pod, seconds=60)
        assert outcome.result == "failed"
        await space.delete(f"p{number}", grace_seconds=0)
        return pod

    async with deletes_refused(space, "v1"):
        preemptors: list[Pod] = []
        for first in range(0, count, _AT_ONCE):
            these = range(first, min(first + _AT_ONCE, count))
            preemptors += await asyncio.gather(*(preempt(number) for number in these))
        await asyncio.sleep(5)  # what was not told by then is not told at all: QUIET, and some
        await settle()

    for pod in preemptors:
        assert await space.bus.comparisons(pod.metadata.uid) == [], pod.metadata.name
    metrics = await scrape(space.cluster.info.planner_url)
    assert metrics.total("makeway_planner_preemption_loops") == 0
    rows: Any = await ask(space.cluster, "history", "--namespace", space.namespace, "--since", "1h")
    results = {row["result"] for row in rows}
    assert "preempted" not in results, results
    taken = sorted(
        victim["name"] for row in rows if row["result"] == "succeeded" for victim in row["victims"]
    )
    refused = {victim["name"] for row in rows if row["result"] == "failed" for victim in row["victims"]}
    deleted = sorted(
        event.name
        for event in space.audit.events(
            verb="delete", resource="pods", subresource="", namespace=space.namespace, user=EVICTOR_USER
        )
        if event.accepted
    )
    assert taken == deleted == sorted(f"v{number}" for number in range(count) if number not in kept)
    assert refused == {f"v{number}" for number in kept}
    others = [
        event
        for event in space.audit.events(
            verb="delete", resource="pods", subresource="", namespace=space.namespace
        )
        if event.accepted and event.name.startswith("v") and event.user not in (EVICTOR_USER, KUBELET_USER)
    ]
    assert others == []


async def mark_of(space: Space, name: str) -> dict[str, Any]:
    """Wait until a pod carries DisruptionTarget; its entries of managedFields that own it, by manager."""

    async def look() -> dict[str, Any]:
        path = f"/api/v1/namespaces/{space.namespace}/pods/{name}"
        pod = json.loads(await space.api.request("GET", path))
        return {
            entry["manager"]: entry
            for entry in pod["metadata"]["managedFields"]
            if 'k:{"type":"DisruptionTarget"}'
            in entry["fieldsV1"].get("f:status", {}).get("f:conditions", {})
        }

    return await until(f"{name} is marked", look)


async def marked_by(space: Space) -> dict[str, Any]:
    """Have a pod preempted that takes its time to leave, and look who marked it."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("victim", "low", 500).on("n1").spec(terminationGracePeriodSeconds=30))
    await space.patch("victim", {"metadata": {"finalizers": ["tests.makeway.dev/hold"]}})
    (preemptor,) = await space.create(sized("urgent", "high", 500))
    found = await mark_of(space, "victim")
    if EVICTOR not in found:
        comparison = await compared(space, preemptor)
        assert comparison.default_preemption is not None
        assert [one.name for one in comparison.default_preemption.victims] == ["victim"]
    await space.patch("victim", {"metadata": {"finalizers": None}})
    return found


async def test_the_api_server_notes_the_evictor_as_the_writer_of_its_mark(space: Space) -> None:
    found = await marked_by(space)

    assert found.keys() == {EVICTOR}
    assert found[EVICTOR]["subresource"] == "status"


async def test_it_notes_the_schedulers_binary_where_default_preemption_acts(space: Space) -> None:
    async with policy(space.cluster, mode="observe"):
        found = await marked_by(space)

    (manager,) = found
    assert manager == "makeway-scheduler"
    assert found[manager]["subresource"] == "status"


async def test_it_notes_kube_scheduler_where_the_binary_is_stock(observed_cluster: RunningCluster) -> None:
    async with open_space(observed_cluster) as space:
        found = await marked_by(space)

    (manager,) = found
    assert manager == "kube-scheduler"
