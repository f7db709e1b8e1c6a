"""A policy on the real control plane: reloaded while everything runs, refused, gone; and what it stops."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
import pytest
import pytest_asyncio

from integration.asking import run
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import (
    CONFIGMAP,
    NAMESPACE,
    NO_POLICY,
    control_state,
    policy,
    policy_text,
    put,
    put_policy,
    readings,
)
from integration.faults import Faults
from integration.invariants import assert_invariants
from integration.preempting import deletes_of, outcome_of_order, settle, sized, until_ordered
from integration.space import Space
from integration.waiting import NotYet, until, until_seen
from makeway.core.policy.brake import CONFIGMAP as BRAKE
from makeway.dev.fault_rules import FaultRule
from makeway.dev.options import EVICTOR, PLANNER
from makeway.runtime.config import revision_of
from narrowing import there


@pytest_asyncio.fixture
async def configured(fault_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """Give a cluster where only makeway preempts, with a policy that says nothing before and after."""
    await put_policy(fault_cluster, NO_POLICY)
    yield fault_cluster
    await put_policy(fault_cluster, NO_POLICY)


async def until_described(cluster: RunningCluster, *wanted: str) -> str:
    """Wait until kubectl shows all of this about the ConfigMap, as a person would look for it."""

    async def described() -> str:
        text = await cluster.kubectl("describe", "configmap", CONFIGMAP, "-n", NAMESPACE)
        events = text.partition("\nEvents:")[2]
        if not all(part in events for part in wanted):
            raise NotYet(events)
        return events

    return await until(f"{wanted} is in the Events of the ConfigMap", described)


async def test_a_policy_is_in_force_once_it_is_written_and_all_say_so(configured: RunningCluster) -> None:
    before = await control_state(configured)
    text = policy_text(mode="observe", namespaceModes={"team-a": "enforce"}, limits={"ordersInFlight": 7})

    await put_policy(configured, text)

    state = await control_state(configured)
    assert state.revision > before.revision
    assert (state.mode, state.namespace_modes) == ("observe", {"team-a": "enforce"})
    assert (there(state.limits).orders_in_flight, state.policy_revision) == (7, revision_of(text))
    await until_described(configured, "Normal", "ConfigAccepted", revision_of(text))


async def test_a_refused_policy_leaves_the_last_in_force_and_says_why(configured: RunningCluster) -> None:
    good = policy_text(mode="observe")
    await put_policy(configured, good)

    await put(configured, {"policy.yaml": policy_text(mode="enforced", limit={})})

    await until_described(
        configured,
        "Warning",
        "ConfigRefused",
        "mode: 'enforced' is not allowed; write one of enforce, observe, off",
        "limits?",
    )
    for samples in await readings(configured):
        assert samples.total("makeway_config_last_reload_successful", config="policy") == 0
        assert samples.total("makeway_config_info", config="policy", revision=revision_of(good)) == 1
        assert samples.total("makeway_config_reloads_total", config="policy", result="refused") >= 1
    assert (await control_state(configured)).policy_revision == revision_of(good)


async def test_a_deleted_policy_stays_in_force_and_holds_up_later_starts(configured: RunningCluster) -> None:
    text = policy_text(protection={"namespaces": ["team-a"]})
    await put_policy(configured, text)

    await configured.kubectl("delete", "configmap", CONFIGMAP, "-n", NAMESPACE)

    async def gone() -> bool:
        for samples in await readings(configured):
            if not samples.total("makeway_config_reloads_total", config="policy", result="gone"):
                raise NotYet("not noticed")
            assert samples.total("makeway_config_info", config="policy", revision=revision_of(text)) == 1
        return True

    await until("both have noticed", gone)
    assert (await control_state(configured)).policy_revision == revision_of(text)

    await configured.stop(PLANNER)
    configured.process(PLANNER).start()

    await until_seen(
        "the planner that starts says what it waits for",
        lambda: readiness(configured.info.planner_url),
        lambda checks: (
            f"policy {revision_of(text)} was effective and ConfigMap {NAMESPACE}/{CONFIGMAP} is gone"
            in checks
        ),
    )
    await put_policy(configured, NO_POLICY)
    await configured.start(PLANNER)


async def readiness(url: str) -> str:
    """What a process says of its readiness; empty where it does not listen yet."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            return await answer.text()
    except aiohttp.ClientConnectionError:
        return ""


def off_by_policy(cluster: RunningCluster) -> AbstractAsyncContextManager[None]:
    return policy(cluster, mode="off")


@asynccontextmanager
async def off_by_brake(cluster: RunningCluster) -> AsyncIterator[None]:
    code, _, err = await run(cluster, "mode", "off")
    assert code == 0, err
    try:
        yield
    finally:
        await run(cluster, "mode", "--release")


@pytest.mark.parametrize("off", [off_by_policy, off_by_brake])
async def test_off_stops_a_running_order_before_its_next_delete_and_rolls_it_back(
    configured: RunningCluster,
    fault_space: Space,
    faults: Faults,
    off: Callable[[RunningCluster], AbstractAsyncContextManager[None]],
) -> None:
    await fault_space.add_nodes(make_node("n1").cpu("500m"))
    await fault_space.run(sized("low-1", "low", 250), sized("low-2", "low", 250))
    busy = FaultRule(
        component="evictor",
        action="answer",
        method="DELETE",
        path=rf"/namespaces/{fault_space.namespace}/pods/.*",
        status=503,
        count=10_000,
    )
    await faults.add(busy)
    (urgent,) = await fault_space.create(sized("urgent", "high", 500))
    await until_ordered(fault_space, urgent)
    await until("a delete was answered 503", faults.applied)

    async with off(configured):
        # Two seconds are the promise.
        _, outcome = await outcome_of_order(fault_space, urgent, seconds=2.0)
        await faults.clear()

        written = [
            event
            for event in fault_space.audit.events(resource="configmaps")
            if event.accepted
            and event.verb in ("create", "patch", "update")
            and event.name in (CONFIGMAP, BRAKE)
        ]
        assert (outcome.finished_at - written[-1].at).total_seconds() < 2
        assert (outcome.result, outcome.reason) == ("refused", "mode-off")
        assert there(outcome.rollback).nomination_reverted
        await settle()
        for name in ("low-1", "low-2"):
            assert deletes_of(fault_space, name) == []
            pod = there(await fault_space.pod(name))
            assert "DisruptionTarget" not in {c.type for c in pod.status.conditions or ()}

    assert await fault_space.until_bound("urgent") == "n1"
    await assert_invariants(fault_space, wait=False)


async def test_mode_names_who_does_not_confirm_and_keeps_comments(configured: RunningCluster) -> None:
    commented = f"# ours\n{NO_POLICY}mode: enforce  # since May\n"
    await put(configured, {"policy.yaml": commented, "notes": "kept"})
    evictor = configured.process(EVICTOR)
    evictor.pause()
    try:
        code, _, err = await run(configured, "mode", "observe", "--timeout=3s")
    finally:
        evictor.resume()

    assert code == 1
    assert "no evictor answers" in err
    code, out, err = await run(configured, "mode", "observe", "-n", "default")
    assert code == 0, err
    assert "observe for namespace default" in out
    stored = await configured.kubectl("get", "configmap", CONFIGMAP, "-n", NAMESPACE, "-o", "json")
    changed = f"# ours\n{NO_POLICY}mode: observe  # since May\nnamespaceModes:\n  default: observe\n"
    assert json.loads(stored)["data"] == {"notes": "kept", "policy.yaml": changed}
