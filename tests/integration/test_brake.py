"""The brake on the real control plane: it stops makeway with the policy refused, and with NATS away."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest_asyncio

from integration.asking import run
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import NAMESPACE, NO_POLICY, put, put_policy
from integration.preempting import assert_stays_pending, deletes_of, outcome_of_order, sized, until_ordered
from integration.space import Space
from makeway.dev.options import EVICTOR, NATS

TYPO = f"{NO_POLICY}protections: {{}}\n"


@pytest_asyncio.fixture
async def enforcing(crash_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """Give a cluster where only makeway preempts, with a policy that enforces; no brake after it."""
    await put_policy(crash_cluster, NO_POLICY)
    yield crash_cluster
    await crash_cluster.kubectl("delete", "configmap", "makeway-brake", "-n", NAMESPACE, "--ignore-not-found")
    await put_policy(crash_cluster, NO_POLICY)


async def a_full_node(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await space.run(sized("low", "low", 500))


async def test_the_brake_works_while_the_policy_is_refused_and_its_release_brings_makeway_back(
    enforcing: RunningCluster, crash_space: Space
) -> None:
    await a_full_node(crash_space)
    await put(enforcing, {"policy.yaml": TYPO})

    code, out, err = await run(enforcing, "mode", "off", "--reason", "too many evictions", "-o", "json")

    assert code == 0, err
    report = json.loads(out)
    assert (report["mode"], report["by"], report["brake"]["reason"]) == ("off", "brake", "too many evictions")
    assert "did you mean protection" in report["policyProblems"][0]
    assert {(one["component"], one["mode"], one["brake"]) for one in report["components"]} == {
        (component, "off", "everywhere") for component in ("evictor", "planner", "scheduler")
    }
    await crash_space.create(sized("urgent", "high", 500))
    await assert_stays_pending(crash_space, "urgent", seconds=4)
    assert deletes_of(crash_space, "low") == []

    code, out, err = await run(enforcing, "mode")
    assert code == 0, err
    assert "mode: off, by the brake since" in out
    assert "policy: refused, the last good one stays effective" in out

    code, _, err = await run(enforcing, "mode", "--release")
    assert code == 0, err
    await crash_space.until_bound("urgent")
    assert len(deletes_of(crash_space, "low")) == 1
    code, out, _ = await run(enforcing, "mode")
    assert out.startswith("mode: enforce, by the last good policy"), out


async def test_an_order_that_was_stored_before_is_not_carried_out_though_nats_was_away_when_the_brake_was_set(
    enforcing: RunningCluster, crash_space: Space
) -> None:
    await a_full_node(crash_space)
    async with enforcing.frozen(EVICTOR):
        (urgent,) = await crash_space.create(sized("urgent", "high", 500))
        await until_ordered(crash_space, urgent)
        async with enforcing.without(NATS):
            code, out, err = await run(enforcing, "mode", "off")
            assert code == 3, err
            assert "the brake is set everywhere" in out
            assert "every evictor reads the brake from the API server" in err

    _, outcome = await outcome_of_order(crash_space, urgent, seconds=60)
    assert (outcome.result, outcome.reason) == ("refused", "mode-off")
    assert "the brake is set everywhere" in outcome.message
    await asyncio.sleep(2)
    assert deletes_of(crash_space, "low") == []
