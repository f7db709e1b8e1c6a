"""Play a drawn cluster on a real control plane: build it, let the preemptor come, see which pods are gone."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass

from integration.cluster import RunningCluster
from integration.drawing import CLASSES, DEVICE_CLASS, DRIVER, GUARDED, Drawn, DrawnPod
from integration.preempting import settle
from integration.space import Space, open_space
from integration.volumes import VOLUMES, bound_claim, volume_of
from makeway.runtime.kube import ApiError

_POLL_SECONDS = 0.25
_HOPELESS_SECONDS = 6.0
"""How long a pod that kube-scheduler did not even nominate is waited for: it tries again with each second."""
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Played:
    """What became of a drawn cluster. `node` is where the preemptor is bound, "" where it is not."""

    node: str
    gone: frozenset[str]
    condition: str

    @property
    def placed(self) -> bool:
        """Whether the preemptor was bound."""
        return bool(self.node)


async def prepare(cluster: RunningCluster) -> None:
    """Make what all drawn clusters of one control plane share: classes, and the protected namespace."""
    for manifest in (
        *CLASSES,
        DEVICE_CLASS,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GUARDED}},
    ):
        await asyncio.to_thread(cluster.owned.api.apply, manifest)


class Stage:
    """One drawn cluster in a space of its own."""

    def __init__(self, space: Space, drawn: Drawn) -> None:
        self._space = space
        self._drawn = drawn
        self._uids: dict[str, str] = {}

    async def build(self) -> None:
        """Make nodes, volumes, devices, budgets and running pods, and wait until all are there."""
        space, drawn = self._space, self._drawn
        await space.add_nodes(*drawn.nodes)
        if drawn.volume_zones:
            await bound_claim(space, drawn.volume_zones)
        for node in drawn.dra_nodes:
            await self._devices(space.node_name(node))
        await asyncio.gather(*(self._run(pod) for pod in drawn.pods))
        if covered := [pod for pod in drawn.pods if pod.rule == "hard-budget"]:
            await space.disruption_budget("covered", {"drawn/covered": "yes"}, minAvailable=len(covered))
        await settle()

    async def _run(self, pod: DrawnPod) -> None:
        manifest = self._space.manifest(pod.builder)
        if pod.guarded:
            manifest["metadata"]["namespace"] = GUARDED
            manifest["metadata"]["name"] = self._name(pod)
        path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
        created = json.loads(await self._space.post(path, manifest))
        self._uids[pod.builder.name] = created["metadata"]["uid"]
        for _ in range(120):
            if (await self._read(pod)).get("status", {}).get("phase") == "Running":
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise AssertionError(f"pod {pod.builder.name} does not run")

    async def _devices(self, node: str) -> None:
        """Offer one device of the driver on a node."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        await self._space.post(
            "/apis/resource.k8s.io/v1/resourceslices",
            {
                "metadata": {"name": f"{node}-gpu"},
                "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]},
            },
        )

    async def play(self, *, patience_seconds: float, hopeless: asyncio.Event | None = None) -> Played:
        """Let the preemptor come; wait until it is bound, or for so long, or for as long as there is hope."""
        await self._space.create(self._drawn.preemptor)
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience_seconds
        while clock() < deadline and not await self._space.node_of("preemptor"):
            if hopeless is not None and hopeless.is_set():
                deadline = min(deadline, clock() + 2)
            await asyncio.sleep(_POLL_SECONDS)
        return await self._played()

    async def play_until_hopeless(self, *, patience_seconds: float) -> Played:
        """The same, but end once the pod has been without a nomination for some of its scheduler's tries."""
        await self._space.create(self._drawn.preemptor)
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience_seconds
        hope = clock() + _HOPELESS_SECONDS
        while clock() < min(deadline, hope) and not await self._space.node_of("preemptor"):
            pod = await self._space.pod("preemptor")
            if pod is None or pod.status.nominated_node_name or not pod.status.conditions:
                hope = clock() + _HOPELESS_SECONDS
            await asyncio.sleep(_POLL_SECONDS)
        return await self._played()

    async def _played(self) -> Played:
        pod = await self._space.pod("preemptor")
        assert pod is not None, "the preemptor is gone"
        conditions = pod.status.conditions or ()
        return Played(
            node=await self._space.node_of("preemptor"),
            gone=frozenset([one.builder.name for one in self._drawn.pods if await self._is_gone(one)]),
            condition="; ".join(f"{one.type}={one.status} {one.message or ''}" for one in conditions),
        )

    async def _is_gone(self, pod: DrawnPod) -> bool:
        metadata = (await self._read(pod)).get("metadata", {})
        return metadata.get("uid") != self._uids[pod.builder.name] or "deletionTimestamp" in metadata

    async def _read(self, pod: DrawnPod) -> dict[str, dict[str, str]]:
        namespace = GUARDED if pod.guarded else self._space.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{self._name(pod)}"
        try:
            return dict(json.loads(await self._space.api.request("GET", path)))
        except ApiError as error:
            if error.status == 404:
                return {}
            raise

    def _name(self, pod: DrawnPod) -> str:
        return f"{self._space.namespace}-{pod.builder.name}" if pod.guarded else pod.builder.name

    async def clear(self) -> None:
        """Remove what the space itself does not remove."""
        space = self._space
        paths = [
            f"/api/v1/namespaces/{GUARDED}/pods/{self._name(pod)}" for pod in self._drawn.pods if pod.guarded
        ]
        if self._drawn.volume_zones:
            paths.append(f"{VOLUMES}/{volume_of(space)}")
        paths += [
            f"/apis/resource.k8s.io/v1/resourceslices/{space.node_name(node)}-gpu"
            for node in self._drawn.dra_nodes
        ]
        for path in paths:
            query = {"gracePeriodSeconds": "0"} if "/pods/" in path else {}
            try:
                await space.api.request("DELETE", path, query=query)
            except ApiError as error:
                if error.status != 404:
                    raise


async def stage(stack: AsyncExitStack, cluster: RunningCluster, drawn: Drawn) -> Stage:
    """Build a drawn cluster in a space that the stack removes."""
    space = await stack.enter_async_context(open_space(cluster))
    built = Stage(space, drawn)
    stack.push_async_callback(built.clear)
    await built.build()
    return built
