"""`makeway mode` on the real control plane: who confirms, who does not, and how soon `off` is kept to."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.commanding import mode
from integration.configuring import CONFIGMAP, NAMESPACE, NO_POLICY, put, put_policy
from integration.faults import Faults
from integration.preempting import deletes_of, outcome_of_order, settle, sized, until_ordered
from integration.space import Space
from integration.waiting import until
from makeway.core.policy.brake import CONFIGMAP as BRAKE
from makeway.dev.fault_rules import FaultRule
from makeway.dev.options import EVICTOR


@pytest_asyncio.fixture
async def configured(fault_cluster: RunningCluster) -> AsyncIterator[RunningCluster]:
    """Give a cluster where nobody preempts but makeway, with a policy that says nothing before and after."""
    await put_policy(fault_cluster, NO_POLICY)
    yield fault_cluster
    await fault_cluster.kubectl("delete", "configmap", BRAKE, "-n", NAMESPACE, "--ignore-not-found")
    await put_policy(fault_cluster, NO_POLICY)


async def test_off_stops_a_running_order_within_two_seconds_and_before_its_next_delete(
    configured: RunningCluster, fault_space: Space, faults: Faults
) -> None:
    await fault_space.add_nodes(make_node("n1").cpu("500m"))
    await fault_space.run(sized("low-1", "low", 250), sized("low-2", "low", 250))
    path = rf"/namespaces/{fault_space.namespace}/pods/.*"
    busy = FaultRule(
        component="evictor", action="answer", method="DELETE", path=path, status=503, count=10_000
    )
    await faults.add(busy)
    (urgent,) = await fault_space.create(sized("urgent", "high", 500))
    await until_ordered(fault_space, urgent)

    await until("a delete was answered 503", faults.applied)

    code, out, err = await mode(configured, "off", "-o", "json")

    assert code == 0, err
    assert [(one["component"], one["mode"]) for one in json.loads(out)["components"]] == [
        ("evictor", "off"),
        ("planner", "off"),
        ("scheduler", "off"),
    ]
    _, outcome = await outcome_of_order(fault_space, urgent)
    assert (outcome.result, outcome.reason) == ("refused", "mode-off")
    written = [
        event
        for event in fault_space.audit.events(verb="patch", resource="configmaps", name=BRAKE)
        if event.accepted
    ]
    assert (outcome.finished_at - written[-1].at).total_seconds() < 2
    await faults.clear()
    await settle()
    assert deletes_of(fault_space, "low-1") == deletes_of(fault_space, "low-2") == []


async def test_who_does_not_confirm_is_named_and_comments_stay(configured: RunningCluster) -> None:
    commented = f"# ours\n{NO_POLICY}mode: enforce  # since May\n"
    await put(configured, {"policy.yaml": commented, "notes": "kept"})
    evictor = configured.process(EVICTOR)
    evictor.pause()
    try:
        code, _, err = await mode(configured, "observe", "--timeout=3s")
    finally:
        evictor.resume()

    assert code == 1
    assert "no evictor answers" in err
    code, out, err = await mode(configured, "observe", "-n", "default")
    assert code == 0, err
    assert "observe for namespace default" in out
    data = json.loads(await configured.kubectl("get", "configmap", CONFIGMAP, "-n", NAMESPACE, "-o", "json"))[
        "data"
    ]
    assert data["notes"] == "kept"
    assert data["policy.yaml"] == (
        f"# ours\n{NO_POLICY}mode: observe  # since May\nnamespaceModes:\n  default: observe\n"
    )


@pytest.mark.parametrize("arguments", [[], ["-o", "yaml"]])
async def test_without_a_mode_it_shows_what_is_in_force(
    configured: RunningCluster, arguments: list[str]
) -> None:
    code, out, err = await mode(configured, *arguments)

    assert code == 0, err
    assert "enforce" in out
    for component in ("planner", "evictor", "scheduler"):
        assert component in out
