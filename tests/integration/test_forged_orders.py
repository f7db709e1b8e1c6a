"""Orders that a stolen login writes, also with its key, on the chart as it is: what they name stays."""

import json
import secrets
from datetime import UTC, datetime, timedelta

import msgspec
import nats

from builders_bus import victim_of
from integration.builders import make_node, make_pod
from integration.charting import NAMESPACE
from integration.configuring import NO_LIMITS, QUEUES_CONFIGMAP
from integration.installing import Installed
from integration.queueing import in_queue, queue, queues_yaml
from integration.space import Space
from integration.waiting import NotYet, until, until_seen
from makeway.bus import codec, ids
from makeway.bus.messages import EvictionOrder, Fence, Outcome
from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects
from makeway.core.k8s.objects import Pod
from makeway.runtime.kube import ApiError

SYSTEM = "kube-system"


async def forged(space: Space, path: str, *pods: Pod) -> EvictionOrder:
    """An order for a queue's quota as the leading planner would write it, of pods as they are."""
    cluster_uid = json.loads(await space.api.request("GET", f"/api/v1/namespaces/{SYSTEM}"))["metadata"][
        "uid"
    ]
    path_of_lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/makeway-planner"

    async def read_lease() -> tuple[int]:
        try:
            lease = json.loads(await space.api.request("GET", path_of_lease))
        except ApiError as error:
            raise NotYet(str(error)) from error
        return (int(lease["spec"].get("leaseTransitions") or 0),)

    (epoch,) = await until("a planner leads", read_lease)
    now = datetime.now(UTC)
    return EvictionOrder(
        order_id=ids.order_id(now),
        kind="quota",
        cluster_uid=cluster_uid,
        fence=Fence(kind="lease", namespace=NAMESPACE, name="makeway-planner", epoch=epoch),
        writer="makeway/planner/forger",
        created_at=now,
        not_after=now + timedelta(seconds=60),
        queue=path,
        victims=tuple(victim_of(pod, grace_period_seconds=0, rule="quota") for pod in pods),
    )


async def write(installed: Installed, order: EvictionOrder, data: bytes) -> None:
    """Write an order with the planner's login."""
    connection = await nats.connect(installed.release.url("planner"), tls=installed.release.tls("planner"))
    await connection.publish(Subjects().order(order), data)
    await connection.flush()
    await connection.close()


async def carried_out(installed: Installed, order: EvictionOrder) -> Outcome:
    """Write an order with the planner's login and its key; what an evictor made of it."""
    secret = installed.release.secret("makeway-signing-planner", "order.pem")
    key = SigningKey.from_pem(secret["order.pem"].encode())
    signatures = Signatures(signing={SigningKind.ORDER: key})
    await write(installed, order, signatures.wrap(order, order.writer, Subjects().order(order)))
    async with installed.bus() as bus:

        async def ended() -> Outcome:
            if not (outcomes := await bus.outcomes(order.order_id)):
                raise NotYet("no outcome")
            return outcomes[0]

        return await until(f"order {order.order_id} has ended", ended)


async def put_queues(installed: Installed, text: str) -> None:
    """Write queues as a person would."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": QUEUES_CONFIGMAP, "namespace": NAMESPACE},
        "data": {"queues.yaml": text},
    }
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    await installed.cluster.kubectl(*apply, stdin=json.dumps(manifest))


async def until_read(installed: Installed, space: Space, text: str) -> None:
    """Write queues, and wait until planner and evictor keep to them: a quota order is not refused for it."""
    await put_queues(installed, text)

    async def read() -> Outcome:
        return await carried_out(installed, await forged(space, f"root.{space.namespace}"))

    await until_seen("the evictors have read the queues", read, lambda one: one.result == "succeeded")


async def system_pod(space: Space) -> Pod:
    """Run a pod in kube-system, which is left there: nothing may evict it."""
    name = f"forged-{secrets.token_hex(4)}"
    manifest = make_pod(name).priority("low").cpu(1).on("n1").build()
    spec = space.pod_spec(manifest["spec"]) | {"nodeName": space.node_name("n1")}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    path = f"/api/v1/namespaces/{SYSTEM}/pods"
    await space.api.request("POST", path, body=json.dumps(body).encode())
    return await _pod(space, SYSTEM, name)


async def _pod(space: Space, namespace: str, name: str) -> Pod:
    return msgspec.json.decode(
        await space.api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}"), type=Pod
    )


async def test_a_quota_order_by_the_planners_key_deletes_only_what_queues_allow(installed: Installed) -> None:
    await installed.start_services()
    async with installed.space() as space:
        await space.add_nodes(make_node("n1").cpu(10))
        own = f"root.{space.namespace}"
        inside, outside = await space.run(in_queue("inside", 1), in_queue("outside", 1, "root.default"))
        system = await system_pod(space)
        pods = (inside, outside, system)
        try:
            without_queues = await carried_out(installed, await forged(space, own, *pods))
            await until_read(installed, space, queues_yaml(queue(space.namespace, max=1, delay="1h")))
            in_the_system = await carried_out(installed, await forged(space, own, system, outside))
            elsewhere = await carried_out(installed, await forged(space, "root.default", outside, system))
            allowed = await carried_out(installed, await forged(space, own, *pods))
        finally:
            await put_queues(installed, NO_LIMITS)
            stays = await _pod(space, SYSTEM, system.metadata.name)
            await space.api.request(
                "DELETE",
                f"/api/v1/namespaces/{SYSTEM}/pods/{system.metadata.name}",
                body=b'{"gracePeriodSeconds": 0}',
            )

        assert (without_queues.result, without_queues.reason) == ("refused", "queues-not-read")
        assert (in_the_system.result, in_the_system.reason) == ("refused", "victim-spared")
        assert [victim.reason for victim in in_the_system.victims] == ["exempt-namespace", "not-in-queue"]
        assert (elsewhere.result, elsewhere.reason) == ("refused", "quota-not-enforced")
        assert [victim.result for victim in allowed.victims] == ["deleted", "spared", "spared"]
        assert (stays.metadata.uid, stays.metadata.deletion_timestamp) == (system.metadata.uid, None)
        assert (await _pod(space, space.namespace, "outside")).metadata.uid == outside.metadata.uid
    deletes = {
        event.name
        for event in installed.events("makeway-evictor")
        if event.verb == "delete"
        and event.resource == "pods"
        and event.name in {p.metadata.name for p in pods}
    }
    assert deletes == {"inside"}


async def test_an_order_by_the_planners_login_without_its_key_deletes_nothing(installed: Installed) -> None:
    await installed.start_services()
    async with installed.space() as space:
        await space.add_nodes(make_node("n1").cpu(10))
        own = f"root.{space.namespace}"
        (pod,) = await space.run(in_queue("pod", 1))
        await until_read(installed, space, queues_yaml(queue(space.namespace, max=1, delay="1h")))
        try:
            unsigned = await forged(space, own, pod)
            await write(installed, unsigned, codec.wrap(unsigned, unsigned.writer))
            after = await carried_out(installed, await forged(space, own))
        finally:
            await put_queues(installed, NO_LIMITS)

        assert after.result == "succeeded"
        async with installed.bus() as bus:
            assert await bus.outcomes(unsigned.order_id) == []
        stays = await _pod(space, space.namespace, pod.metadata.name)
        assert (stays.metadata.uid, stays.metadata.deletion_timestamp) == (pod.metadata.uid, None)
