"""Clients that write to a victim all the time keep it no longer than they would by kube-scheduler."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from background import background
from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import policy
from integration.preempting import run_victims, sized
from integration.space import Space
from integration.test_evictor_api import MESSAGE, as_victim, edge_to, the
from makeway.core.k8s.disruption import disruption_target, preemption_mark
from makeway.evictor.retry import TemporaryError
from makeway.runtime.kube import ApiError

WRITERS = 4
"""Clients that write to the victim side by side, each as soon as its last write was answered."""


@asynccontextmanager
async def written_all_the_time(space: Space, name: str) -> AsyncIterator[list[int]]:
    """Write an annotation of a pod as fast as the API server takes it; gives what was written."""
    numbers, written = itertools.count(1), list[int]()

    async def write() -> None:
        while True:
            number = next(numbers)
            try:
                await space.patch(name, {"metadata": {"annotations": {"example.com/beat": str(number)}}})
            except ApiError as error:
                if error.status == 404:
                    return
                continue
            written.append(number)

    async with background(*(write() for _ in range(WRITERS))):
        yield written


async def seconds_until_bound(space: Space) -> float:
    """Let a pod ask for the room of a victim that is written all the time; how long it waits."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("a", "low", 500).on("n1"))
    async with written_all_the_time(space, "a") as written:
        await asyncio.sleep(1)
        since, before = time.monotonic(), len(written)
        await space.create(sized("urgent", "high", 500))
        assert await space.until_bound("urgent") == "n1"
        took = time.monotonic() - since
        assert before > 0
        who = "makeway" if space.cluster.owned.options.plugin else "kube-scheduler"
        print(f"{who}: {took:.2f} s, {before} writes in the second before")
        return took


async def test_a_victim_that_is_written_all_the_time_goes_as_it_does_by_kube_scheduler(
    space: Space, plain_space: Space
) -> None:
    await seconds_until_bound(plain_space)
    await seconds_until_bound(space)


async def test_a_victim_with_a_hard_budget_that_is_written_all_the_time_goes_as_well(space: Space) -> None:
    async with policy(space.cluster, disruptionBudgets="hard", hardBudgetNamespaces=[space.namespace]):
        await seconds_until_bound(space)


async def test_a_mark_by_uid_keeps_the_other_conditions_and_meets_no_pod_that_is_leaving(
    cluster: RunningCluster, space: Space
) -> None:
    space.judged = False
    await space.add_nodes(make_node("n1"))
    [a, b] = await space.run(
        make_pod("a").on("n1"), make_pod("b").on("n1").spec(terminationGracePeriodSeconds=30)
    )
    kinds = {c.type for c in a.status.conditions or ()}
    async with cluster.connect("evictor") as api:
        edge = edge_to(api, CollectorRegistry())

        marked = await edge.mark(as_victim(a), "", MESSAGE, datetime.now(UTC))

        assert marked is not None
        assert preemption_mark(marked) == MESSAGE
        assert {c.type for c in marked.status.conditions or ()} == kinds | {"DisruptionTarget"}
        another = as_victim(a, uid="00000000-0000-0000-0000-000000000000")
        assert await edge.mark(another, "", MESSAGE, datetime.now(UTC)) is None
        assert await edge.delete(another, "") is None
        assert await edge.delete(as_victim(a), "") is not None
        await space.patch("b", {"metadata": {"finalizers": ["example.com/stay"]}})
        await space.delete("b")
        with pytest.raises(TemporaryError, match="422"):
            await edge.mark(as_victim(b), "", MESSAGE, datetime.now(UTC))
        assert disruption_target(await the(space, "b")) is None
        await space.patch("b", {"metadata": {"finalizers": None}})
