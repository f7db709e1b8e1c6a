"""A Job that ignores disruptions counts no eviction by makeway as a failure, whichever way its pod goes."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.preempting import settle, sized
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.objects import Pod
from makeway.dev import kwok

JOB = "batch"

Path = Callable[[RunningCluster, Space], AbstractAsyncContextManager[None]]


def job(space: Space) -> dict[str, Any]:
    """A Job of one pod, all of node n1, that fails with the first failure which it counts."""
    pod = sized("template", "low", 500).label("app", JOB).leaves(kwok.AS_KUBELET)
    template = space.manifest(pod.spec(restartPolicy="Never"))
    disruptions = {"type": "DisruptionTarget", "status": "True"}
    ignoring = {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disruptions]}]}}
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": JOB},
        "spec": {"backoffLimit": 0, "template": {"metadata": metadata, "spec": template["spec"]}, **ignoring},
    }


def jobs(space: Space) -> str:
    return f"/apis/batch/v1/namespaces/{space.namespace}/jobs"


async def status(space: Space) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await space.api.request("GET", f"{jobs(space)}/{JOB}"))["status"]
    return found


async def pods_of_job(space: Space) -> list[Pod]:
    found = (await space.pods()).values()
    return [pod for pod in found if (pod.metadata.labels or {}).get("app") == JOB]


async def running(space: Space) -> Pod:
    """Run the Job; return its pod."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    await space.post(jobs(space), job(space))

    async def runs() -> Pod:
        for pod in await pods_of_job(space):
            if pod.status.phase == "Running":
                return pod
        raise NotYet("no pod runs")

    pod = await until("the Job's pod runs", runs)
    await settle()
    return pod


@asynccontextmanager
async def planned(cluster: RunningCluster, space: Space) -> AsyncIterator[None]:
    """A plan, and a delete by the evictor."""
    await space.create(sized("urgent", "high", 500))
    yield


@asynccontextmanager
async def under_hard_budgets(cluster: RunningCluster, space: Space) -> AsyncIterator[None]:
    """A plan, and an eviction by the eviction API."""
    await space.disruption_budget("batch", {"app": JOB}, minAvailable=0)
    await space.until_disruptions_allowed("batch", 1)
    async with policy(cluster, disruptionBudgets="hard", hardBudgetNamespaces=[space.namespace]):
        await space.create(sized("urgent", "high", 500))
        yield
    evictions = space.audit.events(verb="create", resource="pods", namespace=space.namespace)
    assert any(event.subresource == "eviction" and event.code == 201 for event in evictions)


async def until_replaced(space: Space, evicted: Pod) -> None:
    """Wait until the Job has made another pod in place of the one that was evicted."""

    async def replaced() -> bool:
        uids = {pod.metadata.uid for pod in await pods_of_job(space)}
        if not uids or evicted.metadata.uid in uids:
            raise NotYet(f"pods {uids}; {await status(space)}")
        return True

    await until("another pod is in its place", replaced)


@pytest.mark.wide
@pytest.mark.parametrize("path", [planned, under_hard_budgets])
async def test_an_eviction_is_no_failure_of_a_job_that_ignores_disruptions(space: Space, path: Path) -> None:
    evicted = await running(space)

    async with path(space.cluster, space):
        await until_replaced(space, evicted)

    found = await status(space)
    assert not found.get("failed")
    assert "Failed" not in {one["type"] for one in found.get("conditions", ())}
