"""A test's own corner of a shared cluster: a namespace, and nodes that no other test's pods are put on."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from integration.builders import Manifest, NodeBuilder, PodBuilder
from integration.bus_reader import BusReader
from integration.cluster import RunningCluster
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.core.k8s.objects import Node, Pod
from makeway.dev.audit_log import AuditLog
from makeway.dev.checker.history import InForce
from makeway.dev.options import NATS
from makeway.runtime.kube import Api, ApiError

_TAINT = "tests.makeway.dev/space"
_MERGE = "application/merge-patch+json"
_REMOVED_A_SECOND = 20
_REMOVE_SECONDS = 30.0
_WORKLOADS = (
    "apis/apps/v1:deployments",
    "apis/apps/v1:daemonsets",
    "apis/apps/v1:statefulsets",
    "apis/apps/v1:replicasets",
    "apis/batch/v1:jobs",
)

_decode_pod = msgspec.json.Decoder(Pod).decode
_decode_node = msgspec.json.Decoder(Node).decode


class _PodList(msgspec.Struct):
    items: list[Pod]


_decode_pods = msgspec.json.Decoder(_PodList).decode


class Space:
    """Names of nodes are the test's own ("n1"); in the cluster they have the namespace in front.

    Every pod gets the toleration for the space's nodes and is kept to them by a node selector.
    """

    def __init__(self, cluster: RunningCluster, api: Api, bus: BusReader | None) -> None:
        self.cluster = cluster
        self.api = api
        self._bus = bus
        self.namespace = f"t-{secrets.token_hex(4)}"
        self.judged = True
        """Whether the checker judges this space at its end; a test that writes as the evictor says no."""
        self.simple_preemptor = False
        """Whether a policy turns the simple preemptor on while the test runs."""
        self.in_force = InForce()
        """What else of policy and queues the checker has to know."""
        self.opened_at = datetime.now(UTC)
        self.audit: AuditLog = cluster.audit()
        """The audit log from the test's begin."""

    @property
    def bus(self) -> BusReader:
        """Orders, outcomes and decisions of the whole cluster; ask by preemptor."""
        assert self._bus is not None, "this cluster has no NATS"
        return self._bus

    def node_name(self, name: str) -> str:
        """The name in the cluster of a node of the test."""
        return f"{self.namespace}-{name}"

    async def open(self) -> None:
        """Make the namespace and wait until pods can be created in it."""
        await self.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

        async def service_account() -> bool:
            try:
                await self.api.request("GET", f"{self._core}/serviceaccounts/default")
            except ApiError as error:
                raise NotYet(str(error)) from error
            return True

        await until("the namespace has its default service account", service_account)

    async def add_nodes(self, *nodes: NodeBuilder) -> list[str]:
        """Make nodes and wait until pods can be put on them; gives their names in the cluster."""
        return list(await asyncio.gather(*(self._add_node(node) for node in nodes)))

    async def _add_node(self, builder: NodeBuilder) -> str:
        name = self.node_name(builder.name)
        builder.label(_TAINT, self.namespace).taint(_TAINT, self.namespace)
        await self.post("/api/v1/nodes", builder.build(name))

        async def usable() -> bool:
            node = _decode_node(await self.api.request("GET", f"/api/v1/nodes/{name}"))
            taints = [taint.key for taint in node.spec.taints or ()]
            if any(key.startswith("node.kubernetes.io/") for key in taints):
                raise NotYet(f"taints {taints}")
            return True

        await until(f"node {builder.name} is ready", usable)
        return name

    async def create(self, *pods: PodBuilder) -> list[Pod]:
        """Create pods, one after another."""
        return [_decode_pod(await self.post(f"{self._core}/pods", self.manifest(pod))) for pod in pods]

    async def run(self, *pods: PodBuilder) -> list[Pod]:
        """Create pods and wait until all run."""
        await self.create(*pods)
        return [await self.until_running(pod.name) for pod in pods]

    def manifest(self, builder: PodBuilder) -> Manifest:
        """Complete a pod: namespace, toleration, node selector, node."""
        manifest = builder.build()
        manifest["metadata"]["namespace"] = self.namespace
        return {**manifest, "spec": self.pod_spec(manifest["spec"], builder.node)}

    def pod_spec(self, spec: Manifest, node: str = "") -> Manifest:
        """Keep a pod's spec, or that of a template, to the space's nodes."""
        tolerations = [*spec.get("tolerations", []), {"key": _TAINT, "value": self.namespace}]
        selector = {**spec.get("nodeSelector", {}), _TAINT: self.namespace}
        bound = {"nodeName": self.node_name(node)} if node else {}
        return {**spec, "tolerations": tolerations, "nodeSelector": selector, **bound}

    async def disruption_budget(self, name: str, labels: dict[str, str], **spec: Any) -> None:
        """Make a PodDisruptionBudget (`minAvailable=1`, `maxUnavailable=0`) and wait until it is counted."""
        await self.post(
            self._budgets, {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, **spec}}
        )

        async def counted() -> bool:
            budget = json.loads(await self.api.request("GET", f"{self._budgets}/{name}"))
            return bool(budget.get("status", {}).get("observedGeneration"))

        await until(f"budget {name} is counted", counted)

    async def mark_disrupted(self, budget: str, *pods: str) -> None:
        """Let a budget's status say that these pods' evictions have been processed."""
        disrupted = {name: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" for name in pods}
        await self.merge(f"{self._budgets}/{budget}/status", {"status": {"disruptedPods": disrupted}})

    async def until_disruptions_allowed(self, budget: str, count: int) -> None:
        """Wait until a budget allows so many disruptions."""

        async def allowed() -> bool:
            status = json.loads(await self.api.request("GET", f"{self._budgets}/{budget}")).get("status", {})
            if status.get("disruptionsAllowed") != count:
                raise NotYet(str(status))
            return True

        await until(f"budget {budget} allows {count} disruptions", allowed)

    async def post(self, path: str, manifest: Manifest) -> bytes:
        """Create any object."""
        return await self.api.request("POST", path, body=json.dumps(manifest).encode())

    async def pod(self, name: str) -> Pod | None:
        """A pod as it is now; None where it is gone."""
        try:
            return _decode_pod(await self.api.request("GET", f"{self._core}/pods/{name}"))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def pods(self) -> dict[str, Pod]:
        """All pods by name."""
        found = _decode_pods(await self.api.request("GET", f"{self._core}/pods"))
        return {pod.metadata.name: pod for pod in found.items}

    async def node_of(self, name: str) -> str:
        """The node a pod is bound to, in the test's own words; empty where it is not bound or gone."""
        pod = await self.pod(name)
        return self.short(pod.spec.node_name) if pod else ""

    def short(self, node_name: str | None) -> str:
        """A node's name in the test's own words."""
        return (node_name or "").removeprefix(f"{self.namespace}-")

    async def until_bound(self, name: str, *, seconds: float = PATIENT_SECONDS) -> str:
        """Wait until a pod is bound; gives the node in the test's own words."""

        async def bound() -> str:
            pod = await self.pod(name)
            if pod is None:
                raise NotYet("no such pod")
            if not pod.spec.node_name:
                raise NotYet(_described(pod))
            return self.short(pod.spec.node_name)

        return await until(f"pod {name} is bound", bound, seconds=seconds)

    async def until_running(self, name: str, *, seconds: float = PATIENT_SECONDS) -> Pod:
        """Wait until a pod runs."""

        async def running() -> Pod:
            pod = await self.pod(name)
            if pod is None or pod.status.phase != "Running":
                raise NotYet("no such pod" if pod is None else _described(pod))
            return pod

        return await until(f"pod {name} runs", running, seconds=seconds)

    async def until_gone(self, name: str, *, uid: str = "", seconds: float = PATIENT_SECONDS) -> None:
        """Wait until a pod is gone, or where a UID is given, until another has its name."""

        async def gone() -> bool:
            pod = await self.pod(name)
            if pod is not None and uid in ("", pod.metadata.uid):
                raise NotYet(_described(pod))
            return True

        await until(f"pod {name} is gone", gone, seconds=seconds)

    async def until_nominated(self, name: str, *, seconds: float = PATIENT_SECONDS) -> str:
        """Wait until a pod is nominated or bound; gives the node in the test's own words."""

        async def nominated() -> str:
            pod = await self.pod(name)
            if pod is None:
                raise NotYet("no such pod")
            if not (node := pod.status.nominated_node_name or pod.spec.node_name):
                raise NotYet(_described(pod))
            return self.short(node)

        return await until(f"pod {name} is nominated", nominated, seconds=seconds)

    async def delete(self, name: str, *, grace_seconds: int | None = None) -> None:
        """Delete a pod; nothing where it is gone."""
        query = {} if grace_seconds is None else {"gracePeriodSeconds": str(grace_seconds)}
        await self._ignoring_absence("DELETE", f"{self._core}/pods/{name}", query)

    async def remove(self, name: str, *, grace_seconds: int | None = None) -> None:
        """Delete a pod, and wait until it is gone."""
        await self.delete(name, grace_seconds=grace_seconds)
        await self.until_gone(name)

    async def delete_pods(self) -> None:
        """Delete all pods at once, without a grace period, and wait until they are gone."""
        seconds = await self._seconds_to_remove()
        await self.api.request(
            "DELETE", f"{self._core}/pods", query={"gracePeriodSeconds": "0"}, timeout_seconds=seconds
        )

        async def emptied() -> bool:
            if left := await self.pods():
                raise NotYet(", ".join(left))
            return True

        await until(f"the pods of {self.namespace} are gone", emptied, seconds=seconds)

    async def _seconds_to_remove(self) -> float:
        return _REMOVE_SECONDS + len(await self.pods()) / _REMOVED_A_SECOND

    async def patch(self, name: str, patch: Manifest, subresource: str = "") -> None:
        """Merge a patch into a pod."""
        await self.merge(f"{self._core}/pods/{name}{f'/{subresource}' if subresource else ''}", patch)

    async def merge(self, path: str, patch: Manifest) -> None:
        """Merge a patch into any object."""
        await self.api.request("PATCH", path, body=json.dumps(patch).encode(), content_type=_MERGE)

    async def bind(self, name: str, node: str) -> None:
        """Bind a pod to a node, by its name in the cluster, as another client than the scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        await self.post(f"{self._core}/pods/{name}/binding", {"metadata": {"name": name}, "target": target})

    async def cordon(self, name: str) -> None:
        """Let no pod be scheduled to a node of the test."""
        await self.merge(f"/api/v1/nodes/{self.node_name(name)}", {"spec": {"unschedulable": True}})

    async def delete_node(self, name: str) -> None:
        """Delete a node of the test."""
        await self._ignoring_absence("DELETE", f"/api/v1/nodes/{self.node_name(name)}", {})

    async def close(self) -> None:
        """Remove everything and wait until pods and nodes are gone; the namespace ends a little later."""
        for workload in _WORKLOADS:
            group, _, kind = workload.partition(":")
            path = f"/{group}/namespaces/{self.namespace}/{kind}"
            await self.api.request("DELETE", path, query={"propagationPolicy": "Background"})

        async def emptied() -> bool:
            left = await self.pods()
            for name, pod in left.items():
                if pod.metadata.finalizers:
                    await self._ignoring_absence("PATCH", f"{self._core}/pods/{name}", {}, _NO_FINALIZERS)
                await self.delete(name, grace_seconds=0)
            if left:
                raise NotYet(", ".join(left))
            return True

        seconds = await self._seconds_to_remove()
        await until(f"the pods of {self.namespace} are gone", emptied, seconds=seconds, every=0.1)
        selector = {"labelSelector": f"{_TAINT}={self.namespace}"}
        await self.api.request("DELETE", "/api/v1/nodes", query=selector, timeout_seconds=seconds)

        async def no_nodes() -> bool:
            return not json.loads(await self.api.request("GET", "/api/v1/nodes", query=selector))["items"]

        await until(f"the nodes of {self.namespace} are gone", no_nodes, seconds=_REMOVE_SECONDS)
        await self._ignoring_absence("DELETE", f"/api/v1/namespaces/{self.namespace}", {})

    async def _ignoring_absence(
        self, method: str, path: str, query: dict[str, str], patch: Manifest | None = None
    ) -> None:
        body = None if patch is None else json.dumps(patch).encode()
        content_type = "application/json" if patch is None else _MERGE
        try:
            await self.api.request(method, path, query=query, body=body, content_type=content_type)
        except ApiError as error:
            if error.status != 404:
                raise

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def _budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"


@asynccontextmanager
async def open_space(cluster: RunningCluster) -> AsyncIterator[Space]:
    """Open a space in a cluster, and remove it after the block."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(cluster.connect())
        with_bus = NATS in cluster.owned.options.components
        bus = await stack.enter_async_context(cluster.bus()) if with_bus else None
        space = Space(cluster, api, bus)
        await space.open()
        try:
            yield space
        finally:
            await space.close()


@asynccontextmanager
async def another_namespace(space: Space) -> AsyncIterator[str]:
    """Make a second namespace for the length of a block; its pods are deleted without grace."""
    other = f"{space.namespace}-other"
    await space.post("/api/v1/namespaces", {"metadata": {"name": other}})

    async def service_account() -> bool:
        try:
            await space.api.request("GET", f"/api/v1/namespaces/{other}/serviceaccounts/default")
        except ApiError as error:
            raise NotYet(str(error)) from error
        return True

    await until(f"pods can be created in {other}", service_account)
    try:
        yield other
    finally:
        pods = f"/api/v1/namespaces/{other}/pods"
        await space.api.request("DELETE", pods, query={"gracePeriodSeconds": "0"})
        await space.api.request("DELETE", f"/api/v1/namespaces/{other}")


_NO_FINALIZERS: Manifest = {"metadata": {"finalizers": None}}


def _described(pod: Pod) -> str:
    """What a person would look at first."""
    conditions = [
        f"{condition.type}={condition.status} {condition.reason or ''}: {condition.message or ''}"
        for condition in pod.status.conditions or ()
    ]
    leaving = ", being deleted" if pod.metadata.deletion_timestamp else ""
    nominated = f", nominated to {pod.status.nominated_node_name}" if pod.status.nominated_node_name else ""
    return f"phase {pod.status.phase}{leaving}{nominated}; {'; '.join(conditions)}"
