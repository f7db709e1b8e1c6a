"""Play drawn sequences on two real control planes at once: kube-scheduler's and makeway's."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from integration.builders import NodeBuilder, PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.drawing import ZONE
from integration.extending import OFFERED, asking, extenders
from integration.preempting import settle
from integration.priority_classes import CLASSES
from integration.sequences import (
    LATEST_SECONDS,
    OWN_CLASS,
    RESTART_AT,
    ZONES,
    Bound,
    Held,
    Room,
    Sequence,
    Step,
    judge,
)
from integration.space import Space, open_space
from makeway.dev.audit_log import AuditLog
from makeway.dev.options import SCHEDULER
from makeway.runtime.kube import ApiError

_WAITED_SECONDS = 8.0
"""How long after the last step kube-scheduler may bind a pod that then counts: three of its tries or more."""
_POLL_SECONDS = 0.25
_MERGE = "application/merge-patch+json"
_CLOSED = "tests.makeway.dev/closed"
_WAITING = "sequences-wait"
"""The StorageClass whose volumes are bound once a pod uses the claim."""
_SPACE = "tests.makeway.dev/space"


@dataclass(frozen=True)
class Pair:
    """The two control planes that play."""

    makeway: RunningCluster
    kube_scheduler: RunningCluster


@dataclass(frozen=True)
class Outcome:
    """What both bound, and what is wrong with that: "" for nothing."""

    sequence: Sequence
    theirs: Bound
    mine: Bound
    wrong: str

    @property
    def told(self) -> str:
        """The seed that draws it again, when pods were bound, in seconds, and what is wrong."""
        first, second = (
            ", ".join(f"{name} {after:.1f}" for name, after in sorted(bound.items())) or "none"
            for bound in (self.theirs, self.mine)
        )
        kinds = ", ".join(self.sequence.kinds)
        return f"seed {self.sequence.seed} ({kinds}): kube-scheduler {first}; makeway {second}; {self.wrong}"


@asynccontextmanager
async def prepared(pair: Pair) -> AsyncIterator[None]:
    """Have both schedulers ask the extenders, and both clusters hold what sequences share."""
    waiting = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _WAITING},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    both = (pair.makeway, pair.kube_scheduler)
    with extenders() as configured:
        async with AsyncExitStack() as stack:
            for cluster in both:
                await asyncio.to_thread(cluster.owned.api.apply, waiting)
            await asyncio.gather(
                *(stack.enter_async_context(asking(cluster, configured)) for cluster in both)
            )
            yield


class _Stage:
    """One sequence in a space of one control plane."""

    def __init__(self, space: Space, sequence: Sequence, *, plain: bool) -> None:
        self._space = space
        self._sequence = sequence
        self._plain = plain
        self._own_class = f"{space.namespace}-{OWN_CLASS}"

    async def build(self) -> None:
        """Make what is there at the beginning, and wait until all of it is."""
        space, sequence = self._space, self._sequence
        if any(pod.priority == OWN_CLASS for pod in sequence.pods):
            await space.post(CLASSES, {"metadata": {"name": self._own_class}, "value": 10})
        for pod in sequence.preemptors:
            if pod.claim:
                await self._volume(pod)
        await space.add_nodes(*map(_node, sequence.nodes))
        await space.create(*map(self._builder, sequence.pods))
        for pod in sequence.pods:
            await space.until_running(pod.name)
        await settle()

    def _builder(self, pod: Held) -> PodBuilder:
        return pod.builder(plain=self._plain, own_class=self._own_class)

    async def _volume(self, pod: Held) -> None:
        """Make a volume of the first zone, for the pod's claim or for any of the space's that waits."""
        space = self._space
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [ZONES[0]]}]}
        its = {"claimRef": {"namespace": space.namespace, "name": pod.name}} if pod.claim == "bound" else {}
        name = f"{space.namespace}-{pod.name}"
        await space.post(
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": name, "labels": {_SPACE: space.namespace}},
                "spec": {
                    **its,
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "" if its else _WAITING,
                    "capacity": {"storage": "1Gi"},
                    "csi": {"driver": "drawn.example.com", "volumeHandle": name},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
            },
        )

    async def run(self, begin: float) -> None:
        """Do each step at its time; `begin` is by the monotonic clock."""
        for step in self._sequence.steps:
            await asyncio.sleep(begin + step.at - time.monotonic())
            await self._do(step)

    async def _do(self, step: Step) -> None:
        space = self._space
        match step.act, step.subject:
            case "comes", Held() as pod:
                await space.create(self._builder(pod))
            case "joins", Room() as node:
                await space.add_nodes(_node(node))
            case "ends", str(name):
                await space.delete(name, grace_seconds=0)
            case "is let go", str(name):
                await space.patch(name, {"metadata": {"finalizers": None}})
            case "loses its taint", str(name):
                await self._open(f"/api/v1/nodes/{space.node_name(name)}")
            case "loses its class", _:
                await self._delete(f"{CLASSES}/{self._own_class}")
            case "is claimed", str(name):
                await self._claim(name)
            case _:
                raise AssertionError(f"{step} cannot be done")

    async def _open(self, node: str) -> None:
        taints = json.loads(await self._space.api.request("GET", node))["spec"]["taints"]
        left = [taint for taint in taints if taint["key"] != _CLOSED]
        body = json.dumps({"spec": {"taints": left}}).encode()
        await self._space.api.request("PATCH", node, body=body, content_type=_MERGE)

    async def _claim(self, name: str) -> None:
        space = self._space
        (pod,) = (pod for pod in self._sequence.preemptors if pod.name == name)
        its = (
            {"storageClassName": "", "volumeName": f"{space.namespace}-{name}"}
            if pod.claim == "bound"
            else {"storageClassName": _WAITING, "selector": {"matchLabels": {_SPACE: space.namespace}}}
        )
        size = {"requests": {"storage": "1Gi"}}
        claim = {
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": size, **its},
        }
        await space.post(f"/api/v1/namespaces/{space.namespace}/persistentvolumeclaims", claim)

    async def bound(self) -> list[str]:
        """Return the preemptors that are bound."""
        pods = await self._space.pods()
        return [one.name for one in self._sequence.preemptors if pods[one.name].spec.node_name]

    async def said(self) -> str:
        """Return what is said of the preemptors that are not bound."""
        waiting = [pod for pod in (await self._space.pods()).values() if not pod.spec.node_name]
        return "; ".join(
            f"{pod.metadata.name} {one.type}={one.status} {one.message or ''}"
            for pod in waiting
            for one in pod.status.conditions or ()
        )

    async def until(self, count: int, deadline: float) -> None:
        """Wait until so many preemptors are bound, or for as long as that."""
        while len(await self.bound()) < count:
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def clear(self) -> None:
        """Remove what the space itself does not remove."""
        await self._delete(f"{CLASSES}/{self._own_class}")
        selector = {"labelSelector": f"{_SPACE}={self._space.namespace}"}
        await self._space.api.request("DELETE", "/api/v1/persistentvolumes", query=selector)

    async def _delete(self, path: str) -> None:
        try:
            await self._space.api.request("DELETE", path)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


def _node(room: Room) -> NodeBuilder:
    node = make_node(room.name).cpu("1").label(ZONE, room.zone)
    for name in OFFERED:
        node.resource(name, 110)
    return node.taint(_CLOSED) if room.closed else node


class _Lot:
    """Sequences that are played at once, and what they share: the beginning, and the restart of a part."""

    def __init__(self, pair: Pair, sequences: list[Sequence]) -> None:
        self._pair = pair
        self._sequences = sequences
        self._built = asyncio.Barrier(len(sequences))
        self._begin = asyncio.get_running_loop().create_future()
        self._restarted = asyncio.Event()
        self._away = 0.0
        self._logs = (pair.kube_scheduler.audit(), pair.makeway.audit())

    async def play(self) -> list[Outcome]:
        """Play them all."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(sequence)) for sequence in self._sequences]
            group.create_task(self._restart())
        return [task.result() for task in tasks]

    async def _one(self, sequence: Sequence) -> Outcome:
        async with open_space(self._pair.makeway) as ours, open_space(self._pair.kube_scheduler) as others:
            mine, theirs = _Stage(ours, sequence, plain=False), _Stage(others, sequence, plain=True)
            try:
                await asyncio.gather(mine.build(), theirs.build())
                begin = await self._begin_together()
                at = datetime.now(UTC)
                await asyncio.gather(mine.run(begin), theirs.run(begin))
                await theirs.until(len(sequence.preemptors), time.monotonic() + _WAITED_SECONDS)
                await self._restarted.wait()
                bound = await theirs.bound()
                await mine.until(len(bound), time.monotonic() + LATEST_SECONDS + self._away)
                said = await mine.said()
            finally:
                await asyncio.gather(mine.clear(), theirs.clear())
            other, own = await asyncio.gather(
                *(
                    asyncio.to_thread(_bindings, log, space.namespace, at)
                    for log, space in zip(self._logs, (others, ours), strict=True)
                )
            )
        in_time = {name: after for name, after in other.items() if name in bound}
        wrong = judge(in_time, own, away_seconds=self._away)
        return Outcome(sequence, in_time, own, f"{wrong}: {said}" if wrong else "")

    async def _begin_together(self) -> float:
        await self._built.wait()
        if not self._begin.done():
            self._begin.set_result(time.monotonic())
        return await asyncio.shield(self._begin)

    async def _restart(self) -> None:
        """Stop a part at its time and start it again; where it is the scheduler, on both."""
        if part := self._sequences[0].restart:
            await asyncio.sleep(await asyncio.shield(self._begin) + RESTART_AT - time.monotonic())
            both = part == SCHEDULER
            ours, theirs = await asyncio.gather(
                _restarted(self._pair.makeway, part),
                _restarted(self._pair.kube_scheduler, part) if both else asyncio.sleep(0, 0.0),
            )
            self._away = max(ours - theirs, 0.0)
        self._restarted.set()


async def _restarted(cluster: RunningCluster, part: str) -> float:
    """Stop and start a part; return how many seconds it was away."""
    begin = time.monotonic()
    await cluster.stop(part)
    await cluster.start(part)
    return time.monotonic() - begin


def _bindings(log: AuditLog, namespace: str, begin: datetime) -> Bound:
    """Read from the audit log when the pods of a namespace were bound."""
    events = log.events(about=(f"/namespaces/{namespace}/pods/",), subresource="binding")
    return {event.name: (event.at - begin).total_seconds() for event in events if event.accepted}


async def play(pair: Pair, lot: list[Sequence]) -> list[Outcome]:
    """Play sequences at once on both control planes; one part of makeway, or none, is restarted meanwhile.

    Raises:
        ExceptionGroup: a control plane did not do a step.
    """
    return await _Lot(pair, lot).play()
