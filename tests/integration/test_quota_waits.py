"""Lowered quotas on the real control plane that have to wait, and pods whose successors nothing holds."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, QUEUES_CONFIGMAP, events_on, policy, put_queues
from integration.invariants import assert_invariants
from integration.queueing import (
    in_queue,
    living,
    never,
    queue,
    queues_yaml,
    quota_decisions,
    quota_orders,
    run_in_queue,
    until_ended,
    until_state,
)
from integration.space import Space, open_space
from integration.test_evictors_breaker import breaker_open
from integration.waiting import until
from makeway.bus.queue_report import QueueState
from narrowing import there


@pytest_asyncio.fixture
async def space(crash_cluster: RunningCluster, crash_space: Space) -> AsyncIterator[Space]:
    """Give a space in a cluster where nobody preempts but makeway; no limits are left behind."""
    yield crash_space
    await put_queues(crash_cluster, NO_LIMITS)
    if crash_space.judged:
        await assert_invariants(crash_space, wait=False)


def path(space: Space) -> str:
    """The queue of the space's namespace."""
    return f"root.{space.namespace}"


async def until_waits(cluster: RunningCluster, space: Space, reason: str) -> QueueState:
    """Wait until a queue's process waits for something."""

    def waits(state: QueueState) -> bool:
        waiting = state.process.waiting if state.process is not None else None
        return waiting is not None and waiting.reason == reason

    return await until_state(cluster, path(space), f"it waits for {reason}", waits)


@pytest.mark.wide
async def test_a_quota_that_the_caps_hold_up_waits_and_comes_down_wholly(space: Space) -> None:
    await run_in_queue(space, *(1,) * 8)
    async with policy(space.cluster, limits={"victimsPerMinute": 5}):
        await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=2, delay="1s")))

        state = await until_waits(space.cluster, space, "victims-per-minute")
        assert state.process is not None
        assert state.process.evicted <= 4  # fewer where tests before have evicted pods within the minute
        assert len(await living(space)) >= 4
        await until_ended(space.cluster, path(space), "success", 6, seconds=210)

    assert len(await living(space)) == 2
    assert "QuotaWaits" in await events_on(space.cluster, QUEUES_CONFIGMAP)


async def test_a_quota_waits_for_an_open_breaker_and_comes_down_after_its_reset(space: Space) -> None:
    await run_in_queue(space, 1, 1, 1)
    async with breaker_open(space.cluster):
        await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=1, delay="1s")))
        await until_waits(space.cluster, space, "breaker-open")

        async def ended_or_evicted() -> bool:
            state = await until_state(space.cluster, path(space), "is known", lambda _: True)
            return state.last is not None or len(await living(space)) < 3

        await never(15, "the process ended, or a pod went", ended_or_evicted)

    await until_ended(space.cluster, path(space), "success", 2, seconds=100)


async def test_a_success_is_undone_where_pods_are_made_past_the_gate(space: Space) -> None:
    space.judged = False  # a pod that no queue's maximum has room for
    await run_in_queue(space, 1, 1)
    await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=1, delay="1s")))
    state = await until_ended(space.cluster, path(space))
    assert state.result == "success"

    await space.run(in_queue(space, "past", 1))  # on its node, without the scheduler
    found = await until_state(
        space.cluster,
        path(space),
        "its success is undone",
        lambda found: found.last is not None and found.last.result == "undone",
        seconds=120,
    )

    assert [one.reason for one in there(found.last).blocked] == ["made-anew"]
    assert len(await quota_orders(space, path(space))) == 1


async def test_without_a_gate_a_quota_is_planned_and_evicts_no_pod(external_cluster: RunningCluster) -> None:
    async with open_space(external_cluster) as space:
        await space.add_nodes(make_node("n1").cpu(100))
        await space.run(*(in_queue(space, f"p{place}", 1) for place in range(6)))
        try:
            await put_queues(external_cluster, queues_yaml(queue(space.namespace, max=2, delay="1s")))

            state = await until_waits(external_cluster, space, "no-queue-gate")

            assert state.process is not None
            assert "4 pods with cpu 4" in there(state.process.waiting).message
            (record,) = await until(
                "the decision is stored", lambda: quota_decisions(space, path(space)), seconds=10
            )
            assert len(record.victims) == 4

            async def evicted() -> bool:
                return len(await living(space)) < 6 or bool(await quota_orders(space, path(space)))

            await never(10, "a pod went", evicted)
            assert "QuotaWaits" in await events_on(external_cluster, QUEUES_CONFIGMAP)
        finally:
            await put_queues(external_cluster, NO_LIMITS)
