"""Preemption delay on the real control plane: a pod waits before it preempts, as its class says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from integration.asking import run
from integration.builders import PodBuilder, make_node, make_pod
from integration.preempting import (
    assert_stays_pending,
    deletes_of,
    outcome_of_order,
    run_victims,
    settle,
    sized,
)
from integration.priority_classes import Classes
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.objects import Pod
from makeway.core.policy.delay import PREEMPTION_DELAY
from makeway.dev.options import PLANNER
from makeway.runtime.kube import ApiError

PRIORITY = 1000
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_LOOKED_AT_AGAIN_SECONDS = 10


async def delaying(space: Space, classes: Classes, delay: str) -> PodBuilder:
    """A node that a pod of low priority fills, and a pod that needs its room, of a class that delays."""
    patient = await classes.annotated("patient", PRIORITY, {PREEMPTION_DELAY: delay})
    await space.add_nodes(make_node("n1").cpu("500m"))
    await settle()  # so that admission knows the class
    await run_victims(space, sized("victim", "low", 500).on("n1"))
    return make_pod("urgent").spec(priorityClassName=patient).cpu("500m")


async def told(space: Space, text: str) -> Pod:
    """Wait until the condition of the pod that needs room has a text."""

    async def ask() -> Pod:
        pod = await space.pod("urgent")
        messages = " ".join(one.message or "" for one in pod.status.conditions or ()) if pod else ""
        if pod is None or text not in messages:
            raise NotYet(messages)
        return pod

    return await until(f"the condition says {text!r}", ask)


async def test_a_pod_preempts_when_its_delay_is_over_and_not_before(space: Space, classes: Classes) -> None:
    delay = timedelta(seconds=8)
    pod = await delaying(space, classes, "8s")

    began = datetime.now(UTC)
    (urgent,) = await space.create(pod)
    await told(space, "makeway: preemption is delayed until ")
    code, why, error = await run(space.cluster, "why", f"{space.namespace}/urgent")

    assert code == 0, error
    assert f"PriorityClass {classes.names[0]} has {PREEMPTION_DELAY} 8s" in why
    assert "planned again now:\n" in why
    assert " would preempt on " in why
    assert await space.bus.decisions(urgent.metadata.uid) == []
    assert await space.until_bound("urgent") == "n1"
    order, _ = await outcome_of_order(space, urgent)
    assert delay <= order.created_at - began < delay + timedelta(seconds=5)


@asynccontextmanager
async def node_claims(space: Space) -> AsyncIterator[None]:
    """Have the API server serve NodeClaims inside the block, and a planner that knows of it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {
        "plural": "nodeclaims",
        "singular": "nodeclaim",
        "kind": "NodeClaim",
        "listKind": "NodeClaimList",
    }
    definition = {
        "metadata": {"name": "nodeclaims.karpenter.sh"},
        "spec": {"group": "karpenter.sh", "scope": "Cluster", "names": names, "versions": [version]},
    }
    await space.post(_DEFINITIONS, definition)

    async def served() -> bool:
        try:
            await space.api.request("GET", _CLAIMS)
        except ApiError as error:
            raise NotYet(str(error)) from error
        return True

    try:
        await until("NodeClaims are served", served)
        async with space.cluster.without(PLANNER):
            pass
        yield
    finally:
        await space.api.request("DELETE", f"{_DEFINITIONS}/nodeclaims.karpenter.sh")


@pytest.mark.both_forms(by_target=True)
async def test_a_pod_waits_for_a_node_that_is_being_made_for_it(space: Space, classes: Classes) -> None:
    pod = await delaying(space, classes, "4s")
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": space.namespace},
        "spec": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
    }
    async with node_claims(space):
        (urgent,) = await space.create(pod)
        await told(space, "Insufficient cpu")
        await space.post(_CLAIMS, claim)

        await assert_stays_pending(space, "urgent", seconds=8)
        (*_, last) = await space.bus.decisions(urgent.metadata.uid)
        assert last.diagnosis is not None
        assert last.diagnosis.reason == "RoomPromised"
        assert f"NodeClaim {space.namespace} promises room" in last.diagnosis.message
        assert deletes_of(space, "victim") == []

        await space.api.request("DELETE", f"{_CLAIMS}/{space.namespace}")
        assert await space.until_bound("urgent", seconds=2 * _LOOKED_AT_AGAIN_SECONDS) == "n1"
