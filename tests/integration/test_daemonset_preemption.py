"""Room for pods that a real DaemonSet has bound to one node, through plan, order and evictor."""

import asyncio
from typing import Any

import pytest

from integration.builders import PodBuilder, make_node, make_pod
from integration.configuring import policy
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.preempting import deletes_of, run_victims, settle, sized, until_ordered
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import Pod
from makeway.dev.kwok import AFTER_GRACE

pytestmark = pytest.mark.both_forms(by_target=True)

START_DELAY_SECONDS = 1
ON = {
    "enabled": True,
    "namespaces": ["*"],
    "beyond_own_namespace": ["*"],
    "preemption_start_delay": START_DELAY_SECONDS,
}
OPTED_OUT = "yunikorn.apache.org/allow-preemption"


def forged(space: Space, **owner: Any) -> dict[str, Any]:
    """A pod that says it is a DaemonSet's and bound to n1, as any user may write it."""
    field = {"key": "metadata.name", "operator": "In", "values": [space.node_name("n1")]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    pod = make_pod("forged").priority("low").cpu("150m").spec(affinity=affinity).label("app", "x").build()
    reference = {"kind": "DaemonSet", "controller": True, **owner}
    spec = space.pod_spec(pod["spec"])
    return {"metadata": {**pod["metadata"], "ownerReferences": [reference]}, "spec": spec}


async def daemon(space: Space, priority: str, cpu: int) -> Pod:
    """Create a DaemonSet for node n1 and wait until its controller has made the pod."""
    space.simple_preemptor = True
    pod = make_pod("logs").priority(priority).cpu(f"{cpu}m").label("app", "logs").build()
    selector = {"kubernetes.io/hostname": space.node_name("n1")}
    spec = space.pod_spec({**pod["spec"], "nodeSelector": selector})
    await space.post(
        f"/apis/apps/v1/namespaces/{space.namespace}/daemonsets",
        {
            "metadata": {"name": "logs"},
            "spec": {
                "selector": {"matchLabels": {"app": "logs"}},
                "template": {"metadata": {"labels": {"app": "logs"}}, "spec": spec},
            },
        },
    )

    async def made() -> Pod:
        pods = await space.pods()
        found = [pod for name, pod in pods.items() if name.startswith("logs-")]
        if not found:
            raise NotYet("the DaemonSet has no pod yet")
        return found[0]

    return await until("the DaemonSet has its pod", made)


def on_n1(name: str, priority: str, cpu: int) -> PodBuilder:
    return sized(name, priority, cpu).on("n1")


def opted_out(name: str, priority: str, cpu: int) -> PodBuilder:
    return on_n1(name, priority, cpu).label(OPTED_OUT, "false")


async def test_free_room_counts_and_one_small_pod_goes_after_the_start_delay(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("1000m"), make_node("n2"))
    pods = await space.run(
        on_n1("p1", "low", 100),
        on_n1("p2", "low", 80),
        on_n1("p3", "mid", 100),
        on_n1("p4", "low", 50),
        on_n1("p5", "neg", 50),
        opted_out("p6", "low", 100),
        opted_out("p7", "low", 80),
        opted_out("p8", "mid", 100),
        on_n1("p9", "low", 50),
        on_n1("p10", "neg", 50),
    )
    owners = [pod for pod in pods if pod.metadata.name in {"p9", "p10"}]
    await run_victims(space, make_pod("helper").owned_by(*owners).on("n2"))

    async with policy(space.cluster, daemonSets=ON):
        pod = await daemon(space, "high", 250)
        order = await until_ordered(space, pod)
        assert await space.until_bound(pod.metadata.name) == "n1"

    assert [(victim.name, victim.rule) for victim in order.victims] == [("p5", "daemonset-multiple")]
    created = microseconds(pod.metadata.creation_timestamp)
    assert microseconds(order.created_at) - created >= START_DELAY_SECONDS * 1_000_000
    early, *_, last = await space.bus.decisions(pod.metadata.uid)
    assert early.diagnosis is not None
    assert early.diagnosis.reason == "DaemonSetStartDelay"
    assert last.victims[0].detail == "regular, gives cpu 50m of 10m needed; one of 1, at most 10"
    assert set(await space.pods()) >= {f"p{number}" for number in range(1, 11) if number != 5}


async def test_a_pod_of_equal_priority_goes_once_and_nobody_is_ordered_while_it_leaves(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("200m"))
    await run_victims(space, on_n1("busy", "low", 150).grace(3).leaves(AFTER_GRACE))

    async with policy(space.cluster, daemonSets=ON):
        pod = await daemon(space, "low", 150)
        order = await until_ordered(space, pod)
        assert await space.until_bound(pod.metadata.name) == "n1"

    assert [victim.name for victim in order.victims] == ["busy"]
    assert len(await space.bus.orders(pod.metadata.uid)) == 1
    assert len(deletes_of(space, "busy")) == 1


async def test_where_the_first_choice_may_not_be_deleted_the_other_pod_goes(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("200m"))
    await run_victims(space, on_n1("kept", "neg", 100).label(*UNDELETABLE), on_n1("other", "low", 100))

    async with policy(space.cluster, daemonSets=ON), deletes_refused(space, "kept"):
        pod = await daemon(space, "high", 100)
        assert await space.until_bound(pod.metadata.name) == "n1"

    orders = await space.bus.orders(pod.metadata.uid)
    assert [[victim.name for victim in order.victims] for order in orders] == [["kept"], ["other"]]
    assert await space.pod("kept") is not None


async def test_nobody_goes_where_room_appears_before_the_start_delay_is_over(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("200m"))
    await run_victims(space, on_n1("busy", "low", 150), on_n1("idle", "low", 0))

    async with policy(space.cluster, daemonSets={**ON, "preemption_start_delay": 3}):
        pod = await daemon(space, "low", 150)
        await settle()
        await space.delete("busy")
        assert await space.until_bound(pod.metadata.name, seconds=2.5) == "n1"
        await asyncio.sleep(3)

    assert not await space.bus.orders(pod.metadata.uid)
    assert await space.pod("idle") is not None
