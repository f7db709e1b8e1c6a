"""A steady stream of pods: room is short all the time, and the urgent pods alone always fit.

Tenants create what is evicted and what needs room; pods end by themselves after a while, as jobs do. What a
hostile tenant creates comes in between. All of it is drawn from the run's seed; when exactly a request is
answered depends on the machine.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from campaign import grammar
from campaign.settings import NODE_CPU
from integration.cluster import RunningCluster
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import milli_value, parse
from makeway.runtime.kube import Api, ApiError, ApiUnavailable

TICK_SECONDS = 1.0
URGENT_SHARE = 0.45
"""Of what the nodes have, that urgent pods may request at a time."""
SPARED_SHARE = 0.15
"""Of what the nodes have, that pods may request whom a rule of the policy spares."""
MOST_WAITING = 6
"""Pods of a namespace that are there to be evicted and wait for room, or for their queue."""
MOST_HOSTILE = 30
LIVES_SECONDS = (20.0, 90.0)
"""How long an urgent pod runs."""

_MERGE = "application/merge-patch+json"


class _PodList(msgspec.Struct):
    items: list[Pod]


_decode = msgspec.json.Decoder(_PodList).decode


class Load:
    """Creates, changes and ends pods until it is stopped. `counts`: what it did."""

    def __init__(self, api: Api, seed: int, nodes: int, rate: float) -> None:
        self._api = api
        self._chance = random.Random(seed + 1)
        self._capacity = nodes * NODE_CPU
        self._rate = rate
        self._numbers: Counter[str] = Counter()
        self._ends: dict[tuple[str, str], float] = {}
        self.counts: Counter[str] = Counter()
        self.seen: list[Pod] = []
        """The pods as they were seen last."""

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            try:
                await self._tick()
            except (ApiError, ApiUnavailable, TimeoutError) as error:
                # The API server is away, or refuses what a hostile tenant wants.
                self.counts[f"refused {getattr(error, 'status', 'unavailable')}"] += 1
            await asyncio.sleep(TICK_SECONDS)

    async def fill(self) -> None:
        """Fill the nodes before anything is broken, so that urgent pods need room from the beginning."""
        requested = 0
        spared = 0
        while requested < self._capacity:
            manifest = self._victim(spared)
            cpu = await self._create(manifest)
            requested += cpu
            spared += cpu if _may_be_spared(manifest) else 0
            self.counts["other pods created"] += 1

    async def pods(self) -> list[Pod]:
        """All pods of the tenants."""
        found = _decode(await self._api.request("GET", "/api/v1/pods"))
        ours = (*grammar.TENANTS, grammar.PROTECTED, grammar.SYSTEM)
        return [pod for pod in found.items if pod.metadata.namespace in ours]

    async def drain(self) -> None:
        """End what waits for room and is not urgent, and whom a rule spares: then all urgent pods fit."""
        for pod in await self.pods():
            if not is_urgent(pod) and (not pod.spec.node_name or is_spared(pod)):
                await self._delete(pod, grace_seconds=0)

    async def _tick(self) -> None:
        pods = self.seen = await self.pods()
        now = asyncio.get_running_loop().time()
        for pod in pods:
            key = (pod.metadata.namespace, pod.metadata.name)
            if is_urgent(pod) and pod.spec.node_name:
                ends = self._ends.setdefault(key, now + self._chance.uniform(*LIVES_SECONDS))
                if ends < now and pod.metadata.deletion_timestamp is None:
                    await self._delete(pod)
                    self.counts["urgent pods ended"] += 1
        urgent = sum(_milli_cpu(pod) for pod in pods if is_urgent(pod))
        waiting = Counter(
            pod.metadata.namespace for pod in pods if not is_urgent(pod) and not pod.spec.node_name
        )
        for _ in range(_times(self._chance, self._rate)):
            if urgent < URGENT_SHARE * self._capacity:
                namespace = self._chance.choice(grammar.TENANTS[:3])
                urgent += await self._create(grammar.preemptor(self._chance, namespace, self._name("urgent")))
                self.counts["urgent pods created"] += 1
        spared = sum(_milli_cpu(pod) for pod in pods if is_spared(pod))
        for _ in range(_times(self._chance, 3 * self._rate)):
            manifest = self._victim(spared)
            namespace = manifest["metadata"]["namespace"]
            if waiting[namespace] < MOST_WAITING:
                cpu = await self._create(manifest)
                spared += cpu if _may_be_spared(manifest) else 0
                self.counts["other pods created"] += 1
                waiting[namespace] += 1
        agents = [pod for pod in pods if pod.metadata.namespace == grammar.SYSTEM]
        if agents and self._chance.random() < self._rate / 4:
            await self._delete(self._chance.choice(agents))
            self.counts["pods of a DaemonSet made anew"] += 1
        if self._chance.random() < self._rate / 2:
            await self._be_hostile([pod for pod in pods if pod.metadata.namespace == grammar.HOSTILE])

    async def _be_hostile(self, mine: list[Pod]) -> None:
        namespace = f"/api/v1/namespaces/{grammar.HOSTILE}"
        choice = self._chance.random()
        if choice < 0.5:
            if len(mine) >= MOST_HOSTILE:
                await self._delete(self._chance.choice(mine))
            await self._create(grammar.hostile(self._chance, self._name("hostile")))
            self.counts["hostile pods created"] += 1
        elif choice < 0.8 and mine:
            name = self._chance.choice(mine).metadata.name
            body = json.dumps(grammar.change(self._chance)).encode()
            self.counts["hostile changes"] += 1
            await self._api.request("PATCH", f"{namespace}/pods/{name}", body=body, content_type=_MERGE)
        elif choice < 0.9 and mine:
            self.counts["hostile pods made anew"] += 1
            pod = self._chance.choice(mine)
            await self._delete(pod, grace_seconds=0)
            again = grammar.victim(self._chance, grammar.HOSTILE, pod.metadata.name)
            await self._create(again)
        else:
            self.counts["hostile budgets"] += 1
            path = f"/apis/policy/v1/namespaces/{grammar.HOSTILE}/poddisruptionbudgets"
            name = f"budget-{self._chance.randrange(3)}"
            with suppress(ApiError):
                await self._api.request("DELETE", f"{path}/{name}")
            await self._api.request(
                "POST", path, body=json.dumps(grammar.budget(self._chance, name)).encode()
            )

    def _victim(self, spared: int) -> dict[str, Any]:
        """A pod that is there to be evicted; none whom a rule spares, where there are enough of those."""
        while True:
            namespace = self._chance.choice((*grammar.TENANTS[:5], grammar.PROTECTED))
            manifest = grammar.victim(self._chance, namespace, self._name("victim"))
            if spared < SPARED_SHARE * self._capacity or not _may_be_spared(manifest):
                return manifest

    def _name(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}-{self._numbers[kind]}"

    async def _create(self, manifest: dict[str, Any]) -> int:
        """Create a pod; gives its milli-CPU."""
        namespace = manifest["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/pods"
        await self._api.request("POST", path, body=json.dumps(manifest).encode())
        cpu: str = manifest["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        return int(cpu.removesuffix("m"))

    async def _delete(self, pod: Pod, grace_seconds: int | None = None) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        query = {} if grace_seconds is None else {"gracePeriodSeconds": str(grace_seconds)}
        try:
            await self._api.request("DELETE", path, query=query)
        except ApiError as error:
            if error.status != 404:
                raise


def is_urgent(pod: Pod) -> bool:
    """Whether it is one of those that need room, and always find some."""
    return pod.metadata.name.startswith("urgent-")


def is_spared(pod: Pod) -> bool:
    """Whether a rule of the policy may spare it, or kube-scheduler's own: whoever needs its room."""
    return (
        pod.metadata.namespace in grammar.SPARED_NAMESPACES
        or pod.spec.priority_class_name in grammar.SPARED_CLASSES
    )


def _may_be_spared(manifest: dict[str, Any]) -> bool:
    return (
        manifest["metadata"]["namespace"] in grammar.SPARED_NAMESPACES
        or manifest["spec"]["priorityClassName"] in grammar.SPARED_CLASSES
    )


def _milli_cpu(pod: Pod) -> int:
    resources = pod.spec.containers[0].resources
    return milli_value(parse(str(((resources and resources.requests) or {}).get("cpu", "0"))))


def _times(chance: random.Random, rate: float) -> int:
    """How often something happens in one tick that happens `rate` times a second."""
    return int(rate * TICK_SECONDS) + (chance.random() < rate * TICK_SECONDS % 1)


@asynccontextmanager
async def loaded(cluster: RunningCluster, seed: int, nodes: int, rate: float) -> AsyncIterator[Load]:
    """Have the load inside the block."""
    async with cluster.connect() as api:
        load = Load(api, seed, nodes, rate)
        await load.fill()
        # Where the load ends by an error, so does the block.
        async with asyncio.TaskGroup() as group:
            task = group.create_task(load.run())
            try:
                yield load
            finally:
                task.cancel()
