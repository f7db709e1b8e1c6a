"""Hard disruption budgets on the real control plane: the API server counts, whatever happens meanwhile."""

import asyncio
import json

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.preempting import ordered, outcome_of_order, run_victims, sized
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.dev.audit_log import AuditEvent

WEB = {"app": "web"}
FROZEN_SECONDS = 2.0


@pytest.mark.both_forms(by_target=True)
async def test_a_hard_budget_holds_though_another_eviction_comes_between_plan_and_delete(
    cluster: RunningCluster, space: Space
) -> None:
    await space.add_nodes(make_node("n1").cpu("500m").label("group", "a"), make_node("n2").cpu("1"))
    await run_victims(
        space,
        sized("web-1", "low", 500).on("n1").label("app", "web"),
        sized("web-2", "low", 500).on("n2").label("app", "web"),
    )
    await space.disruption_budget("web", WEB, minAvailable=1)
    await space.until_disruptions_allowed("web", 1)
    async with policy(cluster, disruptionBudgets="hard", hardBudgetNamespaces=[space.namespace]):
        async with cluster.frozen("evictor"):
            urgent = await ordered(space, sized("urgent", "high", 500).spec(nodeSelector={"group": "a"}))
            await evict(space, "web-2")
            await asyncio.sleep(FROZEN_SECONDS)

        await until("the evictor was told not now", lambda: refused(space, "web-1"))
        assert (await healthy(space, "web"))[0] >= 1
        await run_victims(space, sized("web-3", "low", 500).on("n2").label("app", "web"))

        assert await space.until_bound("urgent") == "n1"
        _, outcome = await outcome_of_order(space, urgent)
        assert [(one.name, one.result) for one in outcome.victims] == [("web-1", "deleted")]
        current, desired = await healthy(space, "web")
        assert current >= desired == 1


async def evict(space: Space, name: str) -> None:
    """Evict a pod as `kubectl drain` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{space.namespace}/pods/{name}/eviction"
    await space.api.request("POST", path, body=json.dumps(body).encode())
    await space.until_gone(name)


async def healthy(space: Space, budget: str) -> tuple[int, int]:
    """Read how many healthy pods a budget has, and how many it needs."""
    path = f"/apis/policy/v1/namespaces/{space.namespace}/poddisruptionbudgets/{budget}"
    status = json.loads(await space.api.request("GET", path))["status"]
    return status["currentHealthy"], status["desiredHealthy"]


async def refused(space: Space, name: str) -> list[AuditEvent]:
    """Give the evictions of a pod that its budget refused the evictor."""
    found = [
        event
        for event in space.audit.events(verb="create", resource="pods", namespace=space.namespace, name=name)
        if event.subresource == "eviction" and event.code == 429 and "evictor" in event.user
    ]
    if not found:
        raise NotYet("no eviction was refused")
    return found
