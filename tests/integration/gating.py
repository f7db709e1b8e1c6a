"""What tests of the queue gate do: say which limits are in force, make pods of a queue, and count."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from integration.builders import PodBuilder, make_pod
from integration.cluster import RunningCluster
from integration.scraping import scrape
from integration.signing import signatures_of
from integration.space import Space
from integration.waiting import PATIENT_SECONDS, NotYet, until, until_seen
from makeway.bus.client import Bus
from makeway.bus.control import ControlState, QueueLimit
from makeway.bus.nats.publishing import Published
from makeway.bus.streams.configs import ensure_streams
from makeway.core.policy.mode import Mode
from makeway.runtime.kube import Api


class Control:
    """Says what is in force, as a leading planner would. The cluster must have none."""

    def __init__(self, cluster: RunningCluster, bus: Bus, cluster_uid: str) -> None:
        self._cluster = cluster
        self._bus = bus
        self._cluster_uid = cluster_uid

    async def publish(self, *queues: QueueLimit, mode: Mode = "enforce") -> int:
        """Put limits in force, none for no queues; gives the revision."""
        last, sequence = await self._bus.control()
        state = ControlState(
            revision=last.revision + 1 if last else 1,
            mode=mode,
            cluster_uid=self._cluster_uid,
            queues_revision="tests" if queues else "",
            queues=queues,
        )
        answer = await self._bus.publish_control(state, sequence, datetime.now(UTC))
        assert isinstance(answer, Published)
        return state.revision

    async def put(self, *queues: QueueLimit, mode: Mode = "enforce") -> None:
        """The same, and wait until the scheduler has it."""
        revision = await self.publish(*queues, mode=mode)
        await self.until_read(revision)

    async def until_read(self, revision: int) -> None:
        """Wait until the scheduler has read a revision."""

        async def read() -> bool:
            samples = await scrape(self._cluster.info.scheduler_url)
            seen = samples.total("makeway_scheduler_control_revision")
            if seen != revision:
                raise NotYet(f"revision {seen}")
            return True

        await until(f"the scheduler follows revision {revision}", read)


@asynccontextmanager
async def controlling(cluster: RunningCluster, api: Api) -> AsyncIterator[Control]:
    """Speak as a planner. Afterwards no queues are in force."""
    uid = await namespace_uid(api, "kube-system")
    bus = await Bus.connect(cluster.info.nats_url, name="planner/tests", signatures=signatures_of(cluster))
    try:
        await ensure_streams(bus.jetstream, bus.subjects)
        control = Control(cluster, bus, uid)
        yield control
        await control.put()
    finally:
        await bus.close()


async def namespace_uid(api: Api, name: str) -> str:
    """A namespace's UID; that of kube-system names the cluster."""
    return str(json.loads(await api.request("GET", f"/api/v1/namespaces/{name}"))["metadata"]["uid"])


def queued(name: str, queue: str) -> PodBuilder:
    """A pod of a queue that requests ten milli-CPU."""
    return make_pod(name).cpu("10m").label("yunikorn.apache.org/queue", queue)


class Elsewhere:
    """A pod in another namespace that is kept to a space's nodes."""

    def __init__(self, space: Space, path: str) -> None:
        self._space = space
        self._path = path

    async def until_bound(self) -> None:
        """Wait until the pod has a node."""

        async def asked() -> bool:
            found = json.loads(await self._space.api.request("GET", self._path))
            if not found["spec"].get("nodeName"):
                raise NotYet(json.dumps(found["status"]))
            return True

        await until(f"{self._path} is bound", asked)


@asynccontextmanager
async def elsewhere(
    space: Space, pod: PodBuilder, namespace: str, priority_class: str = ""
) -> AsyncIterator[Elsewhere]:
    """Create a pod in another namespace, and delete it at the end."""
    manifest = pod.build()
    name = f"{space.namespace}-{pod.name}"
    manifest["metadata"] |= {"name": name, "namespace": namespace}
    manifest["spec"] = space.pod_spec(manifest["spec"])
    if priority_class:
        manifest["spec"].pop("priority", None)
        manifest["spec"]["priorityClassName"] = priority_class
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await space.post(pods, manifest)
    try:
        yield Elsewhere(space, f"{pods}/{name}")
    finally:
        await space.api.request("DELETE", f"{pods}/{name}", query={"gracePeriodSeconds": "0"})


async def bound(space: Space) -> list[str]:
    """The names of the pods that are on a node."""
    return sorted(name for name, pod in (await space.pods()).items() if pod.spec.node_name)


async def until_bound_count(space: Space, count: int, *, seconds: float = PATIENT_SECONDS) -> None:
    """Wait until exactly so many pods are on a node."""

    await until_seen(
        f"{count} pods are on a node",
        lambda: bound(space),
        lambda names: len(names) == count,
        seconds=seconds,
    )


async def until_waiting(space: Space, name: str, *parts: str) -> str:
    """Wait until a pod's condition says that it does not fit, with these words; gives the message."""

    async def said() -> str:
        pod = await space.pod(name)
        conditions = (pod.status.conditions or ()) if pod else ()
        message = next((c.message or "" for c in conditions if c.type == "PodScheduled"), "")
        if not all(part in message for part in parts):
            raise NotYet(message or "no condition")
        return message

    return await until(f"pod {name} waits", said)


def most_at_once(space: Space) -> int:
    """Read the audit log: how many of the space's pods were on a node at once, at the least.

    A pod counts from the answer to its binding to the request of its last delete.
    """
    changes: list[tuple[datetime, int]] = []
    ends: dict[str, datetime] = {}
    for event in space.audit.events(about=(space.namespace,), resource="pods", namespace=space.namespace):
        if event.verb == "create" and event.subresource == "binding" and event.accepted:
            changes.append((event.answered_at, 1))
        if event.verb == "delete" and not event.subresource and event.accepted:
            ends[event.name] = event.at
    changes += [(at, -1) for at in ends.values()]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
