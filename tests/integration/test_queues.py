"""Lowered quotas on the real control plane: when somebody goes, who, and what is said of it."""

import asyncio

import pytest

from integration.arming import HOLD, KILL, STOP, Crashes, Failpoints, until_one_leads
from integration.asking import ask, run, until_recording
from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, QUEUES_CONFIGMAP, control_state, events_on, put, put_queues
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.gating import until_waiting
from integration.invariants import assert_invariants
from integration.preempting import run_victims
from integration.queueing import (
    in_queue,
    living,
    never,
    queue,
    queues_yaml,
    quota_decisions,
    quota_orders,
    run_in_queue,
    state_of,
    until_ended,
    until_state,
)
from integration.space import Space, open_space
from integration.test_evictors_breaker import breaker_open
from integration.waiting import until, until_seen
from makeway.bus.queue_report import QueueState
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER
from narrowing import there


@pytest.fixture
def space(limited_space: Space) -> Space:
    """Run in a cluster where only makeway preempts."""
    return limited_space


def path(space: Space) -> str:
    """The queue of the space's namespace."""
    return f"root.{space.namespace}"


async def test_a_lowered_quota_takes_the_least_after_its_delay_and_says_so(space: Space) -> None:
    await until_recording(space.cluster)
    await run_in_queue(space, 2, 2, 2, 2, 2, 1)
    await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=20, delay="1s")))
    await until_ended(space.cluster, path(space))

    before = asyncio.get_running_loop().time()
    await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=5, delay="2s")))
    ended = await until_state(
        space.cluster, path(space), "it is enforced", lambda state: bool(state.last and state.last.evicted)
    )

    assert asyncio.get_running_loop().time() - before >= 2
    assert sorted((await living(space)).values()) == [1, 2, 2]
    assert ended.last is not None
    assert (ended.last.result, ended.last.evicted) == ("success", 3)
    (order,) = await quota_orders(space, path(space))
    assert {victim.rule for victim in order.victims} == {"quota"}
    record = (await quota_decisions(space, path(space)))[-1]
    assert record.quota is not None
    assert (record.quota.result, record.quota.need["cpu"]) == ("success", 6000)
    victim = order.victims[0]
    code, why, _ = await run(space.cluster, "why", f"{victim.namespace}/{victim.name}")
    assert code == 0
    assert f"for:   queue {path(space)}, whose maximum was lowered" in why
    assert "freed: cpu 6 of cpu 6 too much" in why
    again = await ask(space.cluster, "replay", order.order_id)
    assert again["same"], again["differences"]

    await until_seen(
        "the ConfigMap has an Event",
        lambda: events_on(space.cluster, QUEUES_CONFIGMAP),
        lambda events: "QuotaEnforced" in events,
    )


async def test_a_guarantee_leaves_something_over_and_is_named(space: Space) -> None:
    await run_in_queue(space, 20, 20, 20, 20, 20)

    await put_queues(space.cluster, queues_yaml(queue(space.namespace, guaranteed=50, max=55, delay="1s")))
    state = await until_ended(space.cluster, path(space), "bestEffort", 2)

    assert [blocked.reason for blocked in state.blocked] == ["queue-guaranteed"]
    assert f"{path(space)}: cpu 50" in state.message
    assert len(await living(space)) == 3


async def test_where_the_api_server_refuses_one_pod_another_goes_and_the_cause_is_named(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu(100))
    await space.run(*(in_queue(name, 5).priority("mid") for name in ("p1", "p2")))
    await run_victims(space, in_queue("first", 5).label(*UNDELETABLE))

    async with deletes_refused(space, "first"):
        await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=10, delay="1s")))
        state = await until_ended(space.cluster, path(space), "success", 1)

        taken = [one.name for order in await quota_orders(space, path(space)) for one in order.victims]
        assert taken.count("first") == 1
        assert len(await living(space)) == 2
    assert f"could not be evicted: {space.namespace}/first: " in state.message
    assert "this pod may not be deleted" in state.message


async def test_a_restart_begins_every_timer_anew(crash_cluster: RunningCluster, space: Space) -> None:
    await run_in_queue(space, 10, 10)
    await put_queues(crash_cluster, queues_yaml(queue(space.namespace, max=15, delay="4s")))
    before = (await until_state(crash_cluster, path(space), "a timer", lambda s: s.timer is not None)).timer
    assert before is not None

    await crash_cluster.kill(PLANNER)
    await crash_cluster.start(PLANNER)
    state = await until_state(crash_cluster, path(space), "a timer", lambda s: s.timer is not None)

    assert there(state.timer).since > before.since
    await until_ended(crash_cluster, path(space))
    assert len(await living(space)) == 1


async def test_a_configuration_that_makes_no_sense_leaves_the_last_good_one_in_force(space: Space) -> None:
    good = queues_yaml(queue(space.namespace, max=30, delay="60s"))
    await put_queues(space.cluster, good)
    in_force = await control_state(space.cluster)

    bad = queues_yaml(queue(space.namespace, guaranteed=20, max=20, delay="1s"), queue("x", max="-1"))
    await put(space.cluster, {"queues.yaml": bad}, QUEUES_CONFIGMAP)

    assert "partitions[0].queues[1].resources.max.vcore: '-1' is negative" in await until_seen(
        "it is refused",
        lambda: events_on(space.cluster, QUEUES_CONFIGMAP),
        lambda events: "ConfigRefused" in events,
    )
    assert await control_state(space.cluster) == in_force
    assert (await state_of(space.cluster, path(space))).max == {"cpu": 30_000}


async def test_nobody_goes_while_the_feature_is_off(crash_cluster: RunningCluster, space: Space) -> None:
    await run_in_queue(space, 10, 10)

    await put_queues(crash_cluster, queues_yaml(queue(space.namespace, max=15, delay="1s"), enabled=False))

    await never(3, "an order was written", lambda: quota_orders(space, path(space)))


# ------------- lowered quotas on the real control plane that have to wait, and pods whose successors nothing


async def until_waits(cluster: RunningCluster, space: Space, reason: str) -> QueueState:
    """Wait until a queue's process waits for something."""

    def waits(state: QueueState) -> bool:
        waiting = state.process.waiting if state.process is not None else None
        return waiting is not None and waiting.reason == reason

    return await until_state(cluster, path(space), f"it waits for {reason}", waits)


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

    await space.run(in_queue("past", 1))  # on its node, without the scheduler
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
        await space.run(*(in_queue(f"p{place}", 1) for place in range(6)))
        try:
            await put_queues(external_cluster, queues_yaml(queue(space.namespace, max=2, delay="1s")))

            state = await until_waits(external_cluster, space, "no-queue-gate")

            assert "4 pods with cpu 4" in there(there(state.process).waiting).message
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


# ------------- processes that die or freeze while a quota is enforced


ROUND_THE_ORDER = ("planner.before-quota-order", "planner.after-quota-order")
RECOVERY_SECONDS = 40


async def four_pods_at_their_max(cluster: RunningCluster, space: Space) -> None:
    """A queue of 40 cores with four pods of ten each."""
    await run_in_queue(space, 10, 10, 10, 10)
    await put_queues(cluster, queues_yaml(queue(space.namespace, max=40, delay="1s")))
    await until_ended(cluster, path(space))


async def lower(cluster: RunningCluster, space: Space) -> None:
    """Lower it to 15 cores, 10 of them guaranteed: exactly one pod may stay, and one has to."""
    lowered = queues_yaml(queue(space.namespace, guaranteed=10, max=15, delay="1s"))
    await put(cluster, {"queues.yaml": lowered}, QUEUES_CONFIGMAP)


async def assert_one_stays(cluster: RunningCluster, space: Space) -> None:
    """Three pods were ordered, each once, and one stays for good."""
    await until_state(
        cluster,
        path(space),
        "within its maximum",
        lambda state: state.usage["cpu"] <= 15_000,
        seconds=RECOVERY_SECONDS,
    )

    async def fewer() -> bool:
        return len(await living(space)) < 1

    await never(3, "more pods went", fewer)
    victims = [victim.uid for order in await quota_orders(space, path(space)) for victim in order.victims]
    assert len(victims) == len(set(victims)) == 3
    assert len(await living(space)) == 1


@pytest.mark.wide
@pytest.mark.parametrize("point", ROUND_THE_ORDER)
async def test_the_planner_killed(crash_cluster: RunningCluster, space: Space, point: str) -> None:
    await four_pods_at_their_max(crash_cluster, space)

    async with Crashes(crash_cluster, PLANNER).at(point, KILL):
        await lower(crash_cluster, space)

    await assert_one_stays(crash_cluster, space)


@pytest.mark.parametrize(
    "hit", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
async def test_the_evictor_killed(crash_cluster: RunningCluster, space: Space, hit: int) -> None:
    await four_pods_at_their_max(crash_cluster, space)

    async with Crashes(crash_cluster, EVICTOR).at("evictor.after-delete", KILL, hit=hit):
        await lower(crash_cluster, space)

    await assert_one_stays(crash_cluster, space)


@pytest.mark.wide
async def test_nats_killed(crash_cluster: RunningCluster, space: Space) -> None:
    await four_pods_at_their_max(crash_cluster, space)

    await lower(crash_cluster, space)
    await asyncio.sleep(0.9)
    await crash_cluster.kill("nats")
    await asyncio.sleep(1.5)
    await crash_cluster.start("nats")

    await assert_one_stays(crash_cluster, space)


async def test_the_scheduler_killed_and_its_gate_neither_open_nor_shut_for_good(
    space: Space, failpoints: Failpoints
) -> None:
    await four_pods_at_their_max(space.cluster, space)
    failpoints.arm("evictor.before-delete", HOLD)

    await lower(space.cluster, space)
    await failpoints.fired("evictor.before-delete")
    await space.cluster.kill(SCHEDULER)
    failpoints.let_go("evictor.before-delete")
    await space.create(make_pod("late").priority("low").cpu(10))
    await space.cluster.start(SCHEDULER)

    await assert_one_stays(space.cluster, space)
    await until_waiting(space, "late", f"queue {path(space)}: cpu 10 of 15 used")
    await put_queues(space.cluster, queues_yaml(queue(space.namespace, max=20, delay="60s")))
    await space.until_bound("late", seconds=RECOVERY_SECONDS)


@pytest.mark.parametrize("action", [KILL, STOP])
@pytest.mark.parametrize("point", ROUND_THE_ORDER)
@pytest.mark.slow
async def test_another_planner_goes_on(replicated_cluster: RunningCluster, point: str, action: str) -> None:
    """A planner frozen round its order wakes up when another has long enforced the quota."""
    async with open_space(replicated_cluster) as space:
        try:
            await four_pods_at_their_max(replicated_cluster, space)

            async def enforced() -> None:
                await assert_one_stays(replicated_cluster, space)

            async with Crashes(replicated_cluster, PLANNER, at_once=1).at(
                point, action, while_frozen=enforced
            ):
                await lower(replicated_cluster, space)

            await assert_one_stays(replicated_cluster, space)
            await until_one_leads(replicated_cluster)
        finally:
            await put_queues(replicated_cluster, NO_LIMITS)
        await assert_invariants(space, wait=False)
