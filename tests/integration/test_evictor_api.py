"""The evictor against a real API server and a real NATS: what it relies on, and one whole order.

There is no scheduler here: the tests write nominations and orders themselves. Every call of the
first part is made with the evictor's own service account, so that its role is shown to suffice.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from builders_bus import make_preemptor, victim_of
from integration.builders import PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.configuring import NAMESPACE
from integration.space import Space
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.bus import ids
from makeway.bus.client import Bus
from makeway.bus.messages import EvictionOrder, Fence, Outcome, Victim
from makeway.bus.nats.publishing import Published
from makeway.core.k8s.disruption import disruption_target, preemption_mark
from makeway.core.k8s.objects import Pod
from makeway.dev import kwok
from makeway.dev.services import TEST_FENCE
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.brake import BrakeMetrics, BrakeReader
from makeway.runtime.config_metrics import ConfigMetrics
from makeway.runtime.kube import Api
from narrowing import as_a, there

MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


@pytest.fixture
def cluster(evictor_cluster: RunningCluster) -> RunningCluster:
    """Give a control plane without scheduler and planner, so that nobody else evicts or nominates."""
    return evictor_cluster


def edge_to(api: Api, registry: CollectorRegistry) -> Cluster:
    """The edge as an evictor puts it together."""
    brake = BrakeReader(api, BrakeMetrics(registry), ConfigMetrics(registry), namespace=NAMESPACE)
    return Cluster(api, EvictorMetrics(registry), brake.fresh)


@pytest_asyncio.fixture
async def edge(cluster: RunningCluster, space: Space) -> AsyncIterator[Cluster]:
    """Give the evictor's edge under its own service account; no order stands behind what is done with it."""
    space.judged = False
    async with cluster.connect("evictor") as api:
        yield edge_to(api, CollectorRegistry())


def as_victim(pod: Pod, uid: str = "") -> Victim:
    found = victim_of(pod, grace_period_seconds=1)
    return msgspec.structs.replace(found, uid=uid) if uid else found


def waiting_pod(name: str) -> PodBuilder:
    """A pod that no scheduler looks at."""
    return make_pod(name).priority("high").spec(schedulerName="nobody")


async def run_one(space: Space, pod: PodBuilder | None = None) -> Pod:
    await space.add_nodes(make_node("n1"))
    [found] = await space.run((pod or make_pod("a")).on("n1"))
    return found


async def nominate(space: Space, name: str, node: str) -> None:
    await space.patch(name, {"status": {"nominatedNodeName": node}}, "status")


async def the(space: Space, name: str) -> Pod:
    return there(await space.pod(name))


async def marked(edge: Cluster, pod: Pod) -> str:
    """Mark a pod, without which the admission policies let no evictor delete it; give its version."""
    found = there(await edge.mark(as_victim(pod), pod.metadata.resource_version, MESSAGE, datetime.now(UTC)))
    return found.metadata.resource_version


# ----------------------------------------------------------------------------------- what the edge relies on


async def test_a_mark_and_its_removal_leave_other_conditions(space: Space, edge: Cluster) -> None:
    pod = await run_one(space)
    kinds_before = {c.type for c in pod.status.conditions or ()}
    now = datetime.now(UTC)

    marked = there(await edge.mark(as_victim(pod), pod.metadata.resource_version, MESSAGE, now))

    condition = there(disruption_target(marked))
    assert (condition.reason, condition.message) == ("PreemptionByScheduler", MESSAGE)
    assert condition.last_transition_time == now.replace(microsecond=0)
    assert {c.type for c in marked.status.conditions or ()} == kinds_before | {"DisruptionTarget"}

    await edge.clear_mark(marked)

    after = await the(space, "a")
    assert {c.type for c in after.status.conditions or ()} == kinds_before


async def test_neither_mark_nor_delete_touches_another_uid(space: Space, edge: Cluster) -> None:
    pod = await run_one(space)
    earlier = as_victim(pod, uid="00000000-0000-0000-0000-000000000000")

    assert await edge.mark(earlier, pod.metadata.resource_version, MESSAGE, datetime.now(UTC)) is None
    assert await edge.delete(earlier, pod.metadata.resource_version) is None

    assert (await the(space, "a")).metadata.resource_version == pod.metadata.resource_version


async def test_an_absent_pod_is_gone_for_every_call(space: Space, edge: Cluster) -> None:
    [pod] = await space.create(waiting_pod("a"))
    await space.remove("a", grace_seconds=0)

    assert await edge.get_pod(space.namespace, "a") is None
    assert await edge.mark(as_victim(pod), pod.metadata.resource_version, MESSAGE, datetime.now(UTC)) is None
    assert await edge.delete(as_victim(pod), pod.metadata.resource_version) is None
    await edge.clear_nomination(pod)


async def test_pods_of_a_megabyte_are_read_in_pages_that_are_not_too_long(space: Space) -> None:
    large = [{"name": "main", "image": "none", "args": ["x" * 1_000_000]}]
    await space.create(*(waiting_pod(f"large-{one}").spec(containers=large) for one in range(40)))
    registry = CollectorRegistry()

    async with space.cluster.connect("evictor") as api:
        await edge_to(api, registry).members(space.namespace)

    def requests(result: str) -> float | None:
        asked = {"operation": "list_pods", "result": result}
        return registry.get_sample_value("makeway_evictor_api_requests_total", asked)

    # 500, 250, 125 and 62 pods at once are above 32 MiB; 31 are not, and then the other 9.
    assert (requests("temporary"), requests("ok")) == (4, 2)


async def test_a_delete_keeps_the_pods_own_grace_period(space: Space, edge: Cluster) -> None:
    pod = await run_one(space, make_pod("a").grace(77).leaves(kwok.NEVER))

    deleted = there(await edge.delete(as_victim(pod), await marked(edge, pod)))

    assert deleted.grace_period_seconds == 77
    assert (await the(space, "a")).metadata.deletion_grace_period_seconds == 77


async def test_a_pod_without_a_grace_period_goes_at_once(space: Space, edge: Cluster) -> None:
    pod = await run_one(space, make_pod("a").grace(0))

    deleted = there(await edge.delete(as_victim(pod), await marked(edge, pod)))

    assert deleted.grace_period_seconds == 0
    await space.until_gone("a")


async def test_delete_and_mark_are_a_compare_and_set_on_what_was_read(space: Space, edge: Cluster) -> None:
    pod = await run_one(space)
    await space.patch("a", {"metadata": {"labels": {"changed": "since"}}})

    with pytest.raises(TemporaryError) as deleted:
        await edge.delete(as_victim(pod), pod.metadata.resource_version)
    with pytest.raises(TemporaryError) as marked:
        await edge.mark(as_victim(pod), pod.metadata.resource_version, MESSAGE, datetime.now(UTC))

    assert deleted.value.reason == marked.value.reason == "conflict"
    after = await the(space, "a")
    assert (after.metadata.deletion_timestamp, disruption_target(after)) == (None, None)


async def test_clearing_is_a_compare_and_set_on_what_was_read(space: Space, edge: Cluster) -> None:
    await space.create(waiting_pod("a"))
    await nominate(space, "a", "node-1")
    read = await the(space, "a")
    await nominate(space, "a", "node-2")

    with pytest.raises(TemporaryError) as caught:
        await edge.clear_nomination(read)
    assert caught.value.reason == "conflict"
    with pytest.raises(TemporaryError):
        await edge.clear_mark(read)

    await edge.clear_nomination(await the(space, "a"))
    assert (await the(space, "a")).status.nominated_node_name is None


async def test_fence_node_and_cluster_uid_can_be_read_and_other_leases_cannot(
    space: Space, edge: Cluster, cluster: RunningCluster
) -> None:
    [node] = await space.add_nodes(make_node("n1"))

    found = there(await edge.get_node(node))
    assert found.metadata.uid
    assert await edge.get_node("absent") is None
    assert await edge.lease_epoch("kube-system", "makeway-scheduler") is None
    with pytest.raises(PermanentError) as caught:
        await edge.lease_epoch("kube-system", "kube-controller-manager")
    assert caught.value.reason == "Forbidden"
    async with cluster.connect("evictor") as api:
        assert await api.cluster_uid()


async def test_orders_side_by_side_share_the_reads_of_fence_class_and_node(space: Space) -> None:
    space.judged = False
    [node] = await space.add_nodes(make_node("n1"))
    registry = CollectorRegistry()
    async with space.cluster.connect("evictor") as api:
        edge = edge_to(api, registry)
        nodes, classes, epochs = await asyncio.gather(
            asyncio.gather(*(edge.get_node(node) for _ in range(20))),
            asyncio.gather(*(edge.get_priority_class("high") for _ in range(20))),
            asyncio.gather(*(edge.lease_epoch("kube-system", "makeway-scheduler") for _ in range(20))),
        )

    def requests(operation: str, result: str) -> float | None:
        labels = {"operation": operation, "result": result}
        return registry.get_sample_value("makeway_evictor_api_requests_total", labels)

    assert {n is not None and n.metadata.name == node for n in nodes} == {True}
    assert {c is not None and c.metadata.name for c in classes} == {"high"}
    assert set(epochs) == {None}
    assert requests("get_node", "ok") == 2
    assert requests("get_priority_class", "ok") == 2
    assert requests("get_lease", "gone") == 2


async def events_of(space: Space, name: str) -> list[dict[str, Any]]:
    path = f"/apis/events.k8s.io/v1/namespaces/{space.namespace}/events"
    items = json.loads(await space.api.request("GET", path))["items"]
    return [e for e in items if e["regarding"]["name"] == name and e["reportingController"] != "kubelet"]


class Scene:
    """One node with running victims and a preemptor nominated to it, and the order for that."""

    def __init__(self, space: Space, bus: Bus) -> None:
        self.space = space
        self.bus = bus
        self.node = ""

    async def set(self, *victims: PodBuilder) -> None:
        [self.node] = await self.space.add_nodes(make_node("n1"))
        await self.space.run(*(v.on("n1") for v in victims))
        await self.space.create(waiting_pod("urgent"))
        await nominate(self.space, "urgent", self.node)

    async def order(self, *victims: str, seconds: float = 30, **changes: Any) -> EvictionOrder:
        now = datetime.now(UTC)
        preemptor = await the(self.space, changes.pop("preemptor_name", "urgent"))
        node = json.loads(await self.space.api.request("GET", f"/api/v1/nodes/{self.node}"))
        fields: dict[str, Any] = {
            "order_id": ids.order_id(now),
            "kind": "pod",
            "cluster_uid": await self.space.api.cluster_uid(),
            "fence": Fence(kind="kv", name=TEST_FENCE, epoch=0),
            "writer": "test",
            "created_at": now,
            "not_after": now + timedelta(seconds=seconds),
            "preemptor": make_preemptor(
                preemptor.metadata.uid, namespace=self.space.namespace, name=preemptor.metadata.name
            ),
            "node": self.node,
            "node_uid": node["metadata"]["uid"],
            "victims": tuple([as_victim(await the(self.space, v)) for v in victims]),
        }
        return EvictionOrder(**fields | changes)

    async def give(self, order: EvictionOrder) -> None:
        last = await self.bus.last_order(there(order.preemptor).uid)
        as_a(Published, await self.bus.publish_order(order, last.sequence if last else 0))

    async def outcome(self, order: EvictionOrder, *, seconds: float = PATIENT_SECONDS) -> Outcome:
        async def ended() -> Outcome:
            last = await self.bus.outcome(order.order_id)
            if last is None:
                raise NotYet("no outcome")
            return last.message

        return await until(f"order {order.order_id} ends", ended, seconds=seconds)

    def deletes(self) -> list[str]:
        return [
            e.name
            for e in self.space.audit.events(
                verb="delete", resource="pods", subresource="", namespace=self.space.namespace
            )
            if e.user.endswith(":makeway-evictor")
        ]


@pytest.fixture
def scene(space: Space, bus: Bus) -> Scene:
    """Give a test its stage."""
    return Scene(space, bus)


# ---------------------------------------------------------------------------------------------- whole orders


async def test_victims_are_marked_and_deleted_by_uid_and_events_written(scene: Scene) -> None:
    await scene.set(*(make_pod(n).leaves(kwok.NEVER).grace(60) for n in ("a", "b", "c")))
    order = await scene.order("a", "b", "c")

    await scene.give(order)
    outcome = await scene.outcome(order)

    assert outcome.result == "succeeded", outcome
    assert {v.result for v in outcome.victims} == {"deleted"}
    assert {v.grace_period_seconds for v in outcome.victims} == {60}
    assert scene.deletes()[-1] == "c"
    for request in scene.space.audit.events(
        verb="delete", resource="pods", subresource="", namespace=scene.space.namespace
    ):
        assert request.precondition_uid == (await the(scene.space, request.name)).metadata.uid
    for name in ("a", "b", "c"):
        assert preemption_mark(await the(scene.space, name)) == MESSAGE

    async def told() -> bool:
        victim = [e["reason"] for e in await events_of(scene.space, "a")]
        preemptor = {e["reason"] for e in await events_of(scene.space, "urgent")}
        if victim != ["Preempted"] or preemptor != {"RoomMade"}:
            raise NotYet(f"{victim} {preemptor}")
        return True

    await until("events are written", told)


async def test_the_process_is_ready_and_its_metrics_tell_of_the_orders(
    scene: Scene, cluster: RunningCluster
) -> None:
    await scene.set(make_pod("a"))
    order = await scene.order("a")
    await scene.give(order)
    await scene.outcome(order)

    async with aiohttp.ClientSession(cluster.info.evictor_url) as http:
        ready = await (await http.get("/readyz?verbose")).text()
        metrics = await (await http.get("/metrics")).text()

    assert ready.splitlines() == [
        *(f"[+]{check} ok" for check in ("nats", "orders", "kubernetes", "configuration")),
        "[+]brake ok",
        "[+]breaker ok",
        "[+]keys ok",
        "readyz check passed",
    ]
    succeeded = 'makeway_preemption_executions_total{operation="evict",result="succeeded"}'
    assert any(line.startswith(succeeded) for line in metrics.splitlines())
    assert "makeway_bus_connected 1.0" in metrics
