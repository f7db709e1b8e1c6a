"""How fast an evictor carries out orders, against a real API server and NATS: `make bench BENCH=evictor`.

    PYTHONPATH=tests .venv/bin/python -m bench.evictor_throughput --orders 200 --victims 3 --rate 20

There is no scheduler: preemptors, nominations and orders are written here. Each order is for a node of its
own, and its victims have no grace period, so that the API server ends them at once. First all orders are
given at the same time, and deletes a second are counted until the last outcome, once with orders that carry
their victims' facts and once without; then they come at a rate, and the time from an order's creation until
its last delete is accepted is taken. API server, etcd and NATS share the machine.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.options import read_options
from bench.side_by_side.usage import Meter
from builders_bus import make_order, make_preemptor, make_victim
from makeway.bus import ids
from makeway.bus.client import Bus
from makeway.bus.messages import EvictionOrder, Fence, Outcome, VictimFacts
from makeway.bus.signing.keys import SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.dev import signing_keys
from makeway.dev.cluster import DevCluster
from makeway.dev.options import EVICTOR, LIFTED_RATES, NATS, ClusterOptions
from makeway.dev.services import TEST_FENCE
from makeway.runtime.kube import Api

NAMESPACE = "default"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CONNECTIONS = 16
_PATIENCE_SECONDS = 120.0

ROUNDS = 2
"""Of each kind of orders, in turn."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What orders are written with."""

    api: Api
    bus: Bus
    cluster_uid: str

    async def orders(self, name: str, count: int, victims: int, *, facts: bool = True) -> list[EvictionOrder]:
        """Make preemptors and victims, on a node for each; give orders for them, not published yet."""
        free = asyncio.Semaphore(_CONNECTIONS)

        async def one(number: int) -> EvictionOrder:
            async with free:
                own = f"{name}-{number}"
                node = await self._create("/api/v1/nodes", "Node", own)
                preemptor = await self._pod(own, priority=1000)
                body = json.dumps({"status": {"nominatedNodeName": own}}).encode()
                await self.api.request(
                    "PATCH", f"{_PODS}/{own}/status", body=body, content_type="application/merge-patch+json"
                )
                victim_names = [f"{own}-victim-{index}" for index in range(victims)]
                made = [await self._pod(victim, priority=0, node=own) for victim in victim_names]
            return self._order(preemptor["uid"], own, node["uid"], made, facts=facts)

        return list(await asyncio.gather(*(one(number) for number in range(count))))

    async def _pod(self, name: str, *, priority: int, node: str = "") -> dict[str, Any]:
        """Create a pod that no scheduler looks at; give its metadata."""
        spec: dict[str, Any] = {
            "schedulerName": "nobody",
            "priority": priority,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        }
        if node:
            spec["nodeName"] = node
        if priority:
            spec["priorityClassName"] = "high"
        return await self._create(_PODS, "Pod", name, spec=spec)

    async def _create(self, path: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        """Create an object; give its metadata."""
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}
        answer = json.loads(await self.api.request("POST", path, body=json.dumps(body).encode()))
        metadata: dict[str, Any] = answer["metadata"]
        return metadata

    def _order(
        self, preemptor_uid: str, name: str, node_uid: str, victims: list[dict[str, Any]], *, facts: bool
    ) -> EvictionOrder:
        """An order for the preemptor and the node of this name."""
        now = datetime.now(UTC)
        return make_order(
            order_id=ids.order_id(now),
            cluster_uid=self.cluster_uid,
            fence=Fence(kind="kv", name=TEST_FENCE, epoch=0),
            created_at=now,
            not_after=now + timedelta(minutes=10),
            preemptor=make_preemptor(preemptor_uid, namespace=NAMESPACE, name=name),
            node=name,
            node_uid=node_uid,
            victims=tuple(
                make_victim(
                    victim["name"],
                    namespace=NAMESPACE,
                    uid=victim["uid"],
                    node=name,
                    grace_period_seconds=0,
                    facts=VictimFacts(resource_version=victim["resourceVersion"]) if facts else None,
                )
                for victim in victims
            ),
        )

    async def outcomes(self, orders: list[EvictionOrder]) -> list[Outcome]:
        """Wait for the outcomes of orders."""
        found: list[Outcome] = []
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for order in orders:
            while (last := await self.bus.outcome(order.order_id)) is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"order {order.order_id} has no outcome")
                await asyncio.sleep(0.02)
            found.append(last.message)
        return found


@asynccontextmanager
async def scene(cluster: DevCluster) -> AsyncIterator[Scene]:
    """Connect as the administrator, and make the PriorityClass."""
    api = await Api.connect(kubeconfig=str(cluster.info.kubeconfig), user_agent="bench")
    key = signing_keys.read(cluster.directory, SigningKind.ORDER)
    signatures = Signatures(signing={SigningKind.ORDER: key} if key else {})
    bus = await Bus.connect(cluster.info.nats_url, name="scheduler/bench", signatures=signatures)
    try:
        cluster.api.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            }
        )
        yield Scene(api, bus, await api.cluster_uid())
    finally:
        await bus.close()
        await api.close()


async def all_at_once(on: Scene, pid: int, orders: int, victims: int, number: int) -> None:
    """Give all orders at once, with their victims' facts where `number` is odd; print deletes a second."""
    facts = number % 2 == 1
    given = await on.orders(f"at-once-{number}", orders, victims, facts=facts)
    with Meter({EVICTOR: pid}) as meter:
        began = time.monotonic()
        await asyncio.gather(*(on.bus.publish_order(order, 0) for order in given))
        outcomes = await on.outcomes(given)
        took = time.monotonic() - began
        await asyncio.sleep(0.5)  # for the meter's last look
    deletes = sum(one.result == "deleted" for outcome in outcomes for one in outcome.victims)
    cpu = meter.used()[EVICTOR].cpu_seconds / deletes * 1000
    told = "with facts" if facts else "without facts"
    print(
        f"{orders} orders at once, {told}: {deletes} pods deleted in {took:.1f} s, {deletes / took:.0f} a "
        f"second, {cpu:.1f} ms of the evictor's CPU each"
    )


async def at_a_rate(on: Scene, orders: int, victims: int, rate: float) -> None:
    """Give so many orders a second; print how long each took until its last delete was accepted."""
    given = await on.orders("at-a-rate", orders, victims)
    created: dict[str, datetime] = {}
    began = time.monotonic()
    async with asyncio.TaskGroup() as publishing:
        for number, order in enumerate(given):
            await asyncio.sleep(began + number / rate - time.monotonic())
            created[order.order_id] = datetime.now(UTC)
            publishing.create_task(on.bus.publish_order(order, 0))
    seconds = sorted(
        (max(one.deleted_at for one in outcome.victims if one.deleted_at) - created[outcome.order_id])
        / timedelta(seconds=1)
        for outcome in await on.outcomes(given)
    )
    p50, p90, p99 = (seconds[min(len(seconds) - 1, int(share * len(seconds)))] for share in (0.5, 0.9, 0.99))
    print(
        f"{orders} orders at {rate:g} a second: until the last delete is accepted "
        f"p50 {p50 * 1000:.0f} ms, p90 {p90 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"
    )


async def measure(cluster: DevCluster, orders: int, victims: int, rate: float) -> None:
    """Warm up, then measure both."""
    pid = cluster.process(EVICTOR).pid
    assert pid is not None
    async with scene(cluster) as on:
        warm = await on.orders("warm-up", 10, victims)
        await asyncio.gather(*(on.bus.publish_order(order, 0) for order in warm))
        await on.outcomes(warm)
        for number in range(2 * ROUNDS):
            await all_at_once(on, pid, orders, victims, number)
        await at_a_rate(on, orders, victims, rate)


def main() -> None:
    """Start a control plane with an evictor and nothing else, measure, end it."""
    given = read_options(__doc__, orders=200, victims=3, rate=20.0)
    with tempfile.TemporaryDirectory(prefix="makeway-bench-") as directory:
        options = ClusterOptions(components=frozenset({NATS, EVICTOR}), limits=LIFTED_RATES)
        with DevCluster(Path(directory) / "cluster", options).start() as cluster:
            asyncio.run(measure(cluster, given.orders, given.victims, given.rate))


if __name__ == "__main__":
    main()
