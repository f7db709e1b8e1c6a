"""A cluster, a bus and a clock that live in memory. The cluster follows the API server's rules on UIDs."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.messages import Begun, EvictionOrder, Outcome, Victim
from makeway.bus.subjects import Subjects
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.objects import Namespace, Node, Pod, PodCondition, PriorityClass
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.toleration_record import NO_RECORD, TolerationRecord
from makeway.evictor.act.awaiting import Awaiting
from makeway.evictor.act.calls import CALL_TIMEOUT_SECONDS
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.act.events import Events
from makeway.evictor.act.records import OrderDelivery, OrderRecords
from makeway.evictor.act.work import EvictorParts
from makeway.evictor.judge.members import GroupMember, Members, add_members
from makeway.evictor.judge.verdicts import Deleted, Epoch
from makeway.evictor.limits.caps import Caps
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.queue_guard import QueueGuard
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import Clock, PermanentError, TemporaryError
from makeway.runtime.config import Config
from makeway.runtime.config_kinds import QUEUES
from makeway.runtime.config_metrics import ConfigMetrics
from makeway.runtime.pod_group_api import PodGroupApi
from recorded_events import RecordedEvents
from unit.evictor.building import EPOCH, NODE, NOW, changed, make_node, preemptor_pod

Effect = Callable[[], object]


class VirtualClock:
    """Sleeping costs no time; the time of whoever sleeps is then now. `late`: how long after it was due."""

    def __init__(self) -> None:
        self.time = NOW
        self.late = timedelta(0)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.time + timedelta(seconds=seconds) + self.late
        await asyncio.sleep(0)
        self.time = max(self.time, until)


def no_queues() -> QueueGuard:
    """Where no queues are configured: every order of a quota is refused."""
    config = Config(QUEUES, ConfigMetrics(CollectorRegistry()))
    config.withdraw("ConfigMap makeway-system/makeway-queues")
    return QueueGuard(config, lambda: "", frozenset)


class FakeCluster(Cluster):
    """Pods by name. `fail` and `before` script what goes wrong, and what happens behind our back."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {p.metadata.name: p for p in (preemptor_pod().build(), *pods)}
        self.nodes: dict[str, Node] = {NODE: make_node()}
        self.classes: dict[str, PriorityClass] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.tolerations = NO_RECORD
        self.daemonsets: dict[tuple[str, str], DaemonSetOwner] = {}
        self.group_api = PodGroupApi()
        self.groups: dict[GroupKey, GroupRecord] = {}
        self.epoch: int | None = EPOCH
        self.epoch_since: datetime | None = None
        self.brake = RELEASED
        """As the API server has it."""
        self.seen_brake = RELEASED
        """As it was read last."""
        self.calls: list[tuple[str, str]] = []
        self.patience: list[tuple[str, float]] = []
        """How long each write might have taken, by operation."""
        self.followed: Callable[[str, int], Members | None] = lambda namespace, since: None
        """What a watch of a namespace's pods has; nothing where it is not followed."""
        self.slow: dict[tuple[str, str], int] = {}
        """Calls that take so many turns of the event loop more than the others."""
        self._failures: dict[tuple[str, str], deque[Exception]] = defaultdict(deque)
        self._standing: dict[tuple[str, str], Exception] = {}
        self._before: dict[tuple[str, str], deque[Effect]] = defaultdict(deque)

    # -------------------------------------------------------------------------------- scripting

    def fail(self, operation: str, name: str, *errors: Exception) -> None:
        self._failures[operation, name].extend(errors)

    def always_fail(self, operation: str, name: str, error: Exception) -> None:
        self._standing[operation, name] = error

    def repair(self, operation: str, name: str) -> None:
        self._standing.pop((operation, name))

    def before(self, operation: str, name: str, effect: Effect) -> None:
        self._before[operation, name].append(effect)

    def put(self, pod: Pod) -> None:
        self.pods[pod.metadata.name] = pod

    def remove(self, name: str) -> None:
        del self.pods[name]

    def leave(self, name: str) -> None:
        self._change(self.pods[name], "metadata", deletion_timestamp=NOW, deletion_grace_period_seconds=30)

    def changed(self, name: str, *, mark: bool = True) -> Pod:
        """Let somebody write the pod's status; without `mark` its DisruptionTarget is gone."""
        conditions = self.pods[name].status.conditions or ()
        extended = tuple(c for c in conditions if mark or c.type != "DisruptionTarget")
        return self._change(self.pods[name], "status", conditions=extended)

    def deletes(self) -> list[str]:
        return [name for operation, name in self.calls if operation == "delete"]

    def evictions(self) -> list[str]:
        return [name for operation, name in self.calls if operation == "evict"]

    def marks(self) -> list[str]:
        return [name for operation, name in self.calls if operation == "mark"]

    def is_marked(self, name: str) -> bool:
        return any(c.type == "DisruptionTarget" for c in self.pods[name].status.conditions or ())

    # ------------------------------------------------------------------------------- the edge

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        await self._called("get_pod", name)
        return self.pods.get(name)

    async def get_node(self, name: str) -> Node | None:
        await self._called("get_node", name)
        return self.nodes.get(name)

    async def get_priority_class(self, name: str) -> PriorityClass | None:
        await self._called("get_priority_class", name)
        return self.classes.get(name)

    async def get_namespace(self, name: str) -> Namespace | None:
        await self._called("get_namespace", name)
        return self.namespaces.get(name)

    async def read_tolerations(self) -> TolerationRecord:
        await self._called("read_tolerations", "")
        return self.tolerations

    async def get_daemonset(self, namespace: str, name: str) -> DaemonSetOwner | None:
        await self._called("get_daemonset", name)
        return self.daemonsets.get((namespace, name))

    async def pod_group_api(self) -> PodGroupApi:
        await self._called("discovery", "")
        return self.group_api

    async def get_pod_group(self, api: PodGroupApi, key: GroupKey) -> GroupRecord | None:
        await self._called("get_pod_group", key.name)
        return self.groups.get(key)

    async def members(self, namespace: str) -> Members:
        await self._called("list_pods", namespace)
        return self.members_now(namespace)

    async def followed_members(self, namespace: str, since: int) -> Members | None:
        await self._called("followed", namespace)
        return self.followed(namespace, since)

    def members_now(self, namespace: str) -> Members:
        found: defaultdict[GroupKey, list[GroupMember]] = defaultdict(list)
        add_members(found, (pod for pod in self.pods.values() if pod.metadata.namespace == namespace))
        return found

    async def pods_on(self, namespace: str, node: str, limit: int, most_bytes: int) -> Sequence[Pod]:
        await self._called("list_pods", f"{namespace}/{node}")
        found = [
            pod
            for pod in sorted(self.pods.values(), key=lambda pod: pod.metadata.name)
            if (pod.metadata.namespace, pod.spec.node_name or "") == (namespace, node)
        ]
        return found[:limit]

    async def lease_epoch(self, namespace: str, name: str) -> Epoch | None:
        await self._called("get_lease", name)
        return None if self.epoch is None else Epoch(self.epoch, since=self.epoch_since)

    async def read_brake(self) -> Brake:
        await self._called("read_brake", "")
        self.seen_brake = self.brake
        return self.brake

    async def mark(
        self,
        victim: Victim,
        resource_version: str,
        message: str,
        now: datetime,
        *,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> Pod | None:
        self.patience.append(("mark", timeout_seconds))
        await self._called("mark", victim.name)
        pod = self._judged(victim, resource_version)
        if pod is None:
            return None
        others = [c for c in pod.status.conditions or () if c.type != "DisruptionTarget"]
        mark = PodCondition(
            type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=message
        )
        return self._change(pod, "status", conditions=(*others, mark))

    async def delete(
        self, victim: Victim, resource_version: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS
    ) -> Deleted | None:
        self.patience.append(("delete", timeout_seconds))
        await self._called("delete", victim.name)
        if self._judged(victim, resource_version) is None:
            return None
        self.leave(victim.name)
        return Deleted(30)

    async def evict(
        self, victim: Victim, resource_version: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS
    ) -> bool:
        self.patience.append(("evict", timeout_seconds))
        await self._called("evict", victim.name)
        if self._judged(victim, resource_version) is None:
            return False
        self.leave(victim.name)
        return True

    async def dry_run(
        self,
        victim: Victim,
        resource_version: str,
        *,
        eviction: bool,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> bool:
        self.patience.append(("dry_run", timeout_seconds))
        await self._called("dry_run", victim.name)
        return self._judged(victim, resource_version) is not None

    async def set_condition(self, pod: Pod, condition: dict[str, Any]) -> None:
        await self._called("condition", pod.metadata.name)
        current = self._as_it_is(pod)
        conditions = [one for one in current.status.conditions or () if one.type != condition["type"]]
        if "$patch" not in condition:
            kept = {key: condition[key] for key in ("type", "status", "reason", "message")}
            conditions.append(PodCondition(**kept))
        self._change(current, "status", conditions=tuple(conditions))

    async def clear_mark(self, pod: Pod) -> None:
        await self._called("clear_mark", pod.metadata.name)
        current = self._as_it_is(pod)
        extended = tuple(c for c in current.status.conditions or () if c.type != "DisruptionTarget")
        self._change(current, "status", conditions=extended)

    async def clear_nomination(self, pod: Pod) -> None:
        await self._called("clear_nomination", pod.metadata.name)
        self._change(self._as_it_is(pod), "status", nominated_node_name=None)

    async def _called(self, operation: str, name: str) -> None:
        key = operation, name
        for _ in range(1 + self.slow.get(key, 0)):
            await asyncio.sleep(0)
        self.calls.append(key)
        if self._before[key]:
            self._before[key].popleft()()
        if key in self._standing:
            raise self._standing[key]
        if self._failures[key]:
            raise self._failures[key].popleft()

    def _judged(self, victim: Victim, resource_version: str) -> Pod | None:
        """The victim in the version that was judged; None where it is gone, or another has its name."""
        pod = self.pods.get(victim.name)
        if pod is None or pod.metadata.uid != victim.uid:
            return None
        return self._unchanged(pod, resource_version or pod.metadata.resource_version)

    def _as_it_is(self, pod: Pod) -> Pod:
        return self._unchanged(self.pods[pod.metadata.name], pod.metadata.resource_version)

    def _unchanged(self, pod: Pod, resource_version: str) -> Pod:
        if pod.metadata.resource_version != resource_version:
            raise TemporaryError("conflict", "the object has been modified")
        return pod

    def _change(self, pod: Pod, part: str, **fields: object) -> Pod:
        version = str(int(pod.metadata.resource_version) + 1)
        pod = changed(changed(pod, part, **fields), "metadata", resource_version=version)
        self.pods[pod.metadata.name] = pod
        return pod


class FakeRecords(OrderRecords):
    """The streams: outcomes by order, the last order by preemptor."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.begun_orders: dict[str, Begun] = {}
        self.begin_failures: deque[Exception] = deque()
        self.orders: dict[str, EvictionOrder] = {}
        self.epochs: dict[str, int] = {}
        self.failures: deque[Exception] = deque()
        self.parked: list[tuple[bytes, str]] = []
        self.park_failures: deque[Exception] = deque()
        self.looked_for: list[str] = []
        self.on_look: dict[str, deque[Effect]] = defaultdict(deque)
        self.awaiting = Awaiting()

    async def outcome(self, order_id: str) -> Outcome | None:
        await asyncio.sleep(0)
        self.looked_for.append(order_id)
        if self.on_look[order_id]:
            self.on_look[order_id].popleft()()
        return self.outcomes.get(order_id)

    async def last_order(self, order: EvictionOrder) -> EvictionOrder | None:
        await asyncio.sleep(0)
        return self.orders.get(order.preemptor_uid or order.queue)

    async def epoch(self, name: str) -> int:
        await asyncio.sleep(0)
        return self.epochs.get(name, 0)

    async def begun(self, order_id: str) -> Begun | None:
        await asyncio.sleep(0)
        return self.begun_orders.get(order_id)

    async def begin(self, begun: Begun) -> None:
        await asyncio.sleep(0)
        if self.begin_failures:
            raise self.begin_failures.popleft()
        self.begun_orders[begun.order_id] = begun

    async def publish(self, outcome: Outcome) -> Outcome:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.popleft()
        self.awaiting.tell(outcome.order_id)
        return self.outcomes.setdefault(outcome.order_id, outcome)

    async def quarantine(self, delivery: OrderDelivery, reason: str, detail: str) -> None:
        await asyncio.sleep(0)
        if self.park_failures:
            raise self.park_failures.popleft()
        self.parked.append((delivery.data, reason))


class FakeDelivery:
    """One delivery, and what was said to end it."""

    def __init__(self, order: EvictionOrder | bytes, deliveries: int = 1, subject: str = "") -> None:
        own = "" if isinstance(order, bytes) else Subjects().order(order)
        self.subject = subject or own or Subjects().orders_of("pod", "nobody")
        self.sequence = 1
        self.published_at = NOW
        self.data = order if isinstance(order, bytes) else codec.wrap(order, "makeway/scheduler/test")
        self.deliveries = deliveries
        self.traceparent = ""
        self.said: list[str] = []

    async def ack_sync(self) -> None:
        self.said.append("ack")

    async def in_progress(self) -> None:
        """Take no note: it is said every 3 s of real time, and so depends on how fast the machine is."""

    async def nak(self, delay_seconds: float = 0.0) -> None:
        self.said.append("nak")

    async def term(self, reason: str) -> None:
        self.said.append(f"term {reason.partition(':')[0]}")


FORBIDDEN = PermanentError("Forbidden", "403 Forbidden: not while I live")
UNAVAILABLE = TemporaryError("unavailable", "timed out")
SERVER_ERROR = TemporaryError("server-error", "500")


def parts_of(
    cluster: Cluster,
    records: OrderRecords,
    clock: Clock,
    metrics: EvictorMetrics,
    guard: ModeGuard,
    *,
    identity: str = "evictor-1",
) -> EvictorParts:
    """What an evictor works with that enforces, and knows no queues."""
    return EvictorParts(
        cluster=cluster,
        records=records,
        metrics=metrics,
        events=Events(RecordedEvents()),
        mode_guard=guard,
        queue_guard=no_queues(),
        caps=Caps(guard.rates, identity, metrics),
    )
