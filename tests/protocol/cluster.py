"""A model of the API server: pods by UID and version, preconditions, graceful deletion, leases, watches."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from makeway.core.k8s.disruption import DISRUPTION_TARGET
from makeway.core.k8s.objects import Metadata, Node, Pod, PodCondition, PodSpec, PodStatus, SchedulingGroup
from makeway.core.k8s.pod_groups import GROUP, POD_GROUP_VERSIONS
from makeway.runtime.kube import ApiError, ApiUnavailable
from protocol.loop import Process
from protocol.world import UnansweredError, World
from typed_calls import FakeApis

NAMESPACE = "default"
CLUSTER = "cluster-1"
_encode = msgspec.json.encode


@dataclass
class Lease:
    """A Lease of coordination.k8s.io."""

    holder: str = ""
    transitions: int = 0
    acquired: datetime | None = None
    renewed: float = 0.0
    version: int = 0


@dataclass(frozen=True)
class Delete:
    """A delete as it was sent: by whom, for which order, when by the sender's clock and in truth."""

    process: str
    order_id: str
    name: str
    issued: float
    local: datetime
    options: dict[str, Any]


@dataclass(frozen=True)
class Gang:
    """A PodGroup, all of whose pods are needed."""

    size: int
    priority: int


Watcher = Callable[[str, Pod], None]


class Cluster:
    """The API server with its store, and the kubelets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.capacity: dict[str, int] = {}
        self.leases: dict[str, Lease] = {}
        self.version = 1
        self.conflicts: Counter[str] = Counter()
        """How many writes to a pod were answered 409, by its name."""
        self.epochs: dict[str, list[tuple[float, int]]] = {}
        """Since when each Lease has had which epoch."""
        self.gangs: dict[str, Gang] = {}
        self.refused: set[str] = set()
        """Names of pods whose deletion an admission policy refuses."""
        self.born = 0
        self._watchers: dict[Process, tuple[Watcher, float]] = {}
        self.changed: list[Callable[[str, Pod | None, Pod | None], None]] = []
        """Called with every change: who made it, the pod before and after."""
        self.deleting: list[Callable[[Delete, Pod], None]] = []
        """Called right before a delete takes effect."""
        self.writer = ""

    # ---------------------------------------------------------------------------------- the store

    def put(self, old: Pod | None, new: Pod, by: str) -> Pod:
        """Store a pod, under a new version, and tell the watchers."""
        self.version += 1
        new = replace(new, metadata=replace(new.metadata, resource_version=str(self.version)))
        self.pods[new.metadata.name] = new
        for listener in self.changed:
            listener(by, old, new)
        self._tell("MODIFIED" if old is not None else "ADDED", new)
        return new

    def drop(self, pod: Pod, by: str) -> None:
        """Remove a pod from the store."""
        del self.pods[pod.metadata.name]
        self.version += 1
        for listener in self.changed:
            listener(by, pod, None)
        self._tell("DELETED", pod)

    def create(
        self, name: str, *, priority: int, size: int, node: str = "", grace: int = 0, group: str = ""
    ) -> Pod:
        """Make a pod, bound where a node is given, in a group where one is named."""
        self.born += 1
        pod = Pod(
            metadata=Metadata(
                name=name, namespace=NAMESPACE, uid=f"{name}-u{self.born}", labels={"size": str(size)}
            ),
            spec=PodSpec(
                node_name=node or None,
                priority=priority,
                scheduler_name="makeway",
                termination_grace_period_seconds=grace,
                scheduling_group=SchedulingGroup(pod_group_name=group) if group else None,
            ),
            status=PodStatus(phase="Running" if node else "Pending"),
        )
        return self.put(None, pod, "world")

    def add_node(self, name: str, capacity: int) -> None:
        """Make a node."""
        self.nodes[name] = Node(metadata=Metadata(name=name, uid=f"{name}-uid"))
        self.capacity[name] = capacity

    def delete(self, pod: Pod, by: str) -> int:
        """Begin or finish a pod's deletion; the grace period that is left."""
        grace = (pod.spec.termination_grace_period_seconds or 0) if pod.spec.node_name else 0
        if pod.metadata.deletion_timestamp is not None:
            return pod.metadata.deletion_grace_period_seconds or 0
        if grace == 0:
            self.drop(pod, by)
            return 0
        at = self.world.now() + timedelta(seconds=grace)
        metadata = replace(pod.metadata, deletion_timestamp=at, deletion_grace_period_seconds=grace)
        self.put(pod, replace(pod, metadata=metadata), by)
        self.world.loop.call_later(self.world.rng.uniform(0.05, grace), self._ended, pod.metadata.uid)
        return grace

    def _ended(self, uid: str) -> None:
        pod = next((p for p in self.pods.values() if p.metadata.uid == uid), None)
        if pod is not None:
            self.drop(pod, "kubelet")

    def bind(self, pod: Pod, node: str, by: str) -> None:
        """Bind a pod; its nomination goes."""
        spec, status = replace(pod.spec, node_name=node), replace(pod.status, nominated_node_name=None)
        self.put(pod, replace(pod, spec=spec, status=replace(status, phase="Running")), by)

    def nominate(self, pod: Pod, node: str | None, by: str) -> None:
        """Write or remove a pod's nomination."""
        if (pod.status.nominated_node_name or None) != node:
            self.world.note(by, f"nomination of {pod.metadata.name} is now {node or 'none'} in the API")
            self.put(pod, replace(pod, status=replace(pod.status, nominated_node_name=node)), by)

    def lease_taken(self, name: str, lease: Lease) -> None:
        """A Lease has another holder."""
        self.epochs.setdefault(name, []).append((self.world.loop.virtual, lease.transitions))

    def by_uid(self, uid: str) -> Pod | None:
        """The pod of a UID."""
        return next((p for p in self.pods.values() if p.metadata.uid == uid), None)

    # ------------------------------------------------------------------------------------- watches

    def watch(self, process: Process, take: Watcher) -> None:
        """List, then tell a process of every change, in order and late."""
        for pod in self.pods.values():
            take("ADDED", pod)
        self._watchers[process] = (take, self.world.loop.virtual)

    def _tell(self, kind: str, pod: Pod) -> None:
        for process, (take, last) in tuple(self._watchers.items()):
            if not process.alive:
                del self._watchers[process]
                continue
            at = max(last + 1e-6, self.world.loop.virtual + self.world.latency())
            if self.world.is_cut(process.name, "api"):
                at = max(at, self.world.cut[process.name, "api"])
            self._watchers[process] = (take, at)
            self.world.loop.call_at(at, process.call, take, kind, pod)

    # ------------------------------------------------------------------------------------ requests

    def handle(self, method: str, path: str, body: bytes | None, sent: Delete | None, by: str) -> bytes:
        """Answer one request; raises ApiError."""
        parts = path.partition("?")[0].strip("/").split("/")
        if method != "GET" and self.world.chance(self.world.faults.refuse, "refused"):
            status = self.world.rng.choice((409, 429, 500, 503))
            self.conflicts.update([parts[-1], parts[-2]] if status == 409 else ())
            raise ApiError(status, "Injected", "injected", 1.0 if status == 429 else None)
        if "leases" in parts:
            return self._lease(parts[-1])
        if "nodes" in parts:
            node = self.nodes.get(parts[-1])
            if node is None:
                raise _not_found(parts[-1])
            return _encode(node)
        if GROUP in parts:
            return self._pod_group(parts)
        if "events" in parts:
            return b"{}"
        if parts[-1] == "pods":
            place = unquote(path).partition("spec.nodeName=")[2].partition("&")[0]
            there = [pod for _, pod in sorted(self.pods.items()) if (pod.spec.node_name or "") == place]
            return _encode({"items": there})
        if "pods" in parts:
            name = parts[parts.index("pods") + 1]
            pod = self.pods.get(name)
            if pod is None:
                raise _not_found(name)
            if method == "GET":
                return _encode(pod)
            if method == "PATCH":
                return _encode(self._patch(pod, json.loads(body or b"{}"), by))
            if method == "DELETE" and sent is not None:
                return self._delete(pod, sent, by)
        raise _not_found(path)

    def _pod_group(self, parts: list[str]) -> bytes:
        """Tell what is served, or of one group."""
        name, gang = parts[-1], self.gangs.get(parts[-1])
        if parts[2:] == [POD_GROUP_VERSIONS[0]]:
            return _encode({"resources": [{"name": "podgroups"}]})
        if gang is None:
            raise _not_found(name)
        spec = {"priority": gang.priority, "schedulingPolicy": {"gang": {"minCount": gang.size}}}
        return _encode(
            {"metadata": {"namespace": NAMESPACE, "name": name, "uid": f"{name}-uid"}, "spec": spec}
        )

    def _patch(self, pod: Pod, body: Any, by: str) -> Pod:
        if isinstance(body, list):
            return self._mark_by_uid(pod, body, by)
        metadata, status = body.get("metadata", {}), pod.status
        if metadata.get("uid", pod.metadata.uid) != pod.metadata.uid:
            raise ApiError(422, "Invalid", "metadata.uid: field is immutable")
        version = metadata.get("resourceVersion", pod.metadata.resource_version)
        if version != pod.metadata.resource_version:
            raise self._conflict(pod, "the object has been modified")
        wanted = body["status"]
        if "nominatedNodeName" in wanted:
            status = replace(status, nominated_node_name=wanted["nominatedNodeName"])
        for condition in wanted.get("conditions", ()):
            others = tuple(c for c in status.conditions or () if c.type != DISRUPTION_TARGET)
            if condition.get("$patch") != "delete":
                others += (msgspec.convert(condition, PodCondition),)
            status = replace(status, conditions=others)
        if status == pod.status:
            return pod
        return self.put(pod, replace(pod, status=status), by)

    def _mark_by_uid(self, pod: Pod, body: list[dict[str, Any]], by: str) -> Pod:
        """Apply the JSON patch of a mark, where its tests hold."""
        tests = {one["path"]: one["value"] for one in body if one["op"] == "test"}
        conditions = json.loads(_encode(pod))["status"].get("conditions")
        shown = {
            "/metadata/uid": pod.metadata.uid,
            "/metadata/deletionTimestamp": pod.metadata.deletion_timestamp,
            "/status/conditions": conditions,
        }
        if shown != tests:
            raise ApiError(422, "Invalid", "testing value failed")
        marked = msgspec.convert(body[-1]["value"], tuple[PodCondition, ...])
        return self.put(pod, replace(pod, status=replace(pod.status, conditions=marked)), by)

    def _conflict(self, pod: Pod, message: str) -> ApiError:
        self.conflicts[pod.metadata.name] += 1
        return ApiError(409, "Conflict", message)

    def _delete(self, pod: Pod, sent: Delete, by: str) -> bytes:
        wanted = sent.options.get("preconditions", {})
        if wanted.get("uid", pod.metadata.uid) != pod.metadata.uid:
            raise ApiError(409, "Conflict", "Precondition failed: UID")
        if wanted.get("resourceVersion", pod.metadata.resource_version) != pod.metadata.resource_version:
            raise self._conflict(pod, "Precondition failed: ResourceVersion")
        if pod.metadata.name in self.refused:
            raise ApiError(403, "Forbidden", "an admission policy says no")
        if sent.options.get("dryRun"):
            return _encode({"metadata": {}})
        for listener in self.deleting:
            listener(sent, pod)
        grace = self.delete(pod, by)
        return _encode({"metadata": {"deletionGracePeriodSeconds": grace}})

    def _lease(self, name: str) -> bytes:
        lease = self.leases.get(name)
        if lease is None:
            raise _not_found(name)
        acquired = lease.acquired.isoformat().replace("+00:00", "Z") if lease.acquired else None
        return _encode({"spec": {"leaseTransitions": lease.transitions, "acquireTime": acquired}})


def _not_found(name: str) -> ApiError:
    return ApiError(404, "NotFound", f"{name} not found")


class ClusterApi(FakeApis):
    """`makeway.runtime.kube.Api` of one process, as far as it is used."""

    def __init__(
        self, world: World, cluster: Cluster, process: Process, order_of: Callable[[], str] = lambda: ""
    ) -> None:
        self._world, self._cluster, self._process, self._order_of = world, cluster, process, order_of

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 10.0, **_: Any
    ) -> bytes:
        """One request."""
        sent = None
        if method == "DELETE":
            name = path.partition("?")[0].rpartition("/")[2]
            sent = Delete(
                self._process.identity,
                self._order_of(),
                name,
                self._world.loop.virtual,
                self._process.now(),
                json.loads(body or b"{}"),
            )
            self._world.note(self._process.identity, f"sends DELETE {name} for {sent.order_id}")
        by = f"{self._process.identity}/{self._order_of()}"
        try:
            return await self._world.request(
                self._process,
                "api",
                lambda: self._cluster.handle(method, path, body, sent, by),
                timeout_seconds,
            )
        except UnansweredError as error:
            raise ApiUnavailable("no answer") from error

    async def do(self, act: Callable[[], Any], timeout_seconds: float = 5.0) -> Any:
        """Something at the server that is not modelled as HTTP."""
        try:
            return await self._world.request(self._process, "api", act, timeout_seconds)
        except UnansweredError as error:
            raise ApiUnavailable("no answer") from error
