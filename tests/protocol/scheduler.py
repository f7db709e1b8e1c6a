"""A model of kube-scheduler with the plugin: a queue, cycles, nominations, commits, and the in-flight state.

What an event leads to is the exported table's to say (`inflight`); the steps between follow
plugin/plugin/commit.go and outcomes.go.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from builders_bus import victim_of as made_victim
from makeway.bus import codec
from makeway.bus.commit import SUPERSEDED, CommitReply, CommitRequest
from makeway.bus.errors import BusError, Malformed
from makeway.bus.messages import (
    API_VERSION,
    Awaited,
    Fence,
    OrderedGroup,
    Outcome,
    Placement,
    StreamPosition,
    Victim,
    VictimFacts,
)
from makeway.bus.nats.jetstream import StoredMessage
from makeway.core.k8s.disruption import is_disrupted
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import group_of
from makeway.planner.orders.pauses import FIRST_FAILED, TRIES
from makeway.runtime.kube import ApiError, ApiUnavailable
from protocol.cluster import CLUSTER, NAMESPACE, Cluster, ClusterApi
from protocol.inflight import REVERTS, Activation, Entry, InFlight
from protocol.leading import Leading
from protocol.loop import START, Process
from protocol.streams import SUBJECTS, Nats, SimulatedBus
from protocol.table import Table
from protocol.world import UnansweredError, World

LEASE = "makeway-scheduler"
PLAN_TIMEOUT_SECONDS = 0.1


class OrderLivesError(Exception):
    """Another order for the preemptor was stored before its own. `stored`: the last message there."""

    def __init__(self, stored: StoredMessage) -> None:
        super().__init__("another order was stored before it")
        self.stored = stored


class UnstoredError(Exception):
    """The order is certainly not in the stream, or its time is over."""


@dataclass(frozen=True)
class Preemptor:
    """A pod, or the members of a group that wait, under the UID of the pod or the group."""

    uid: str
    name: str
    pods: tuple[Pod, ...]
    group: str = ""

    @property
    def subject(self) -> str:
        """That of its orders."""
        return SUBJECTS.orders_of("group" if self.group else "pod", self.uid)

    @property
    def priority(self) -> int:
        """That of each of its pods."""
        return priority(self.pods[0])


@dataclass(frozen=True)
class Question:
    """A plan request."""

    preemptor: Preemptor
    nodes: tuple[str, ...]
    nominated: dict[str, str]
    assumed: dict[str, str]
    outcomes_read: StreamPosition | None


@dataclass(frozen=True)
class Candidate:
    """Nodes that would do, by pod: whom to evict, and on whose leaving it counts."""

    places: dict[str, str]
    victims: tuple[str, ...]
    awaited: dict[str, str]
    offer: str = ""


def size(pod: Pod) -> int:
    """How much room a pod takes."""
    return int((pod.metadata.labels or {}).get("size", "1"))


def priority(pod: Pod) -> int:
    """A pod's priority."""
    return pod.spec.priority or 0


def victim_of(pod: Pod) -> Victim:
    """A pod as a victim of an order."""
    facts = None if is_disrupted(pod) else VictimFacts(resource_version=pod.metadata.resource_version)
    grace = pod.spec.termination_grace_period_seconds or 0
    return made_victim(pod, grace_period_seconds=grace, facts=facts)


class Scheduler:
    """One scheduler process."""

    def __init__(self, world: World, cluster: Cluster, nats: Nats, process: Process, table: Table) -> None:
        self.world, self.cluster, self.process, self.table = world, cluster, process, table
        self.seconds = table.seconds
        self.api = ClusterApi(world, cluster, process)
        self.bus = SimulatedBus(nats, process, "scheduler")
        self.nats = nats
        self.changed = asyncio.Event()
        self.queued = asyncio.Event()
        self.inflight = InFlight(table, self.changed.set, lambda text: world.note(process.identity, text))
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, str] = {}
        self.queue: dict[str, float] = {}
        self.reverted: dict[str, str] = {}
        self.failures: dict[str, tuple[int, float]] = {}
        self.epoch: int | None = None
        self.outcomes_read: StreamPosition | None = None
        self.orders = 0
        self.not_after = 12.0
        self.stored = set[str]()
        """Ids of its orders that it knows to be stored, and has not given up."""
        self.read: dict[str, int] = {}
        """The last message of each subject of orders, as far as it was read."""
        self.begun: list[Any] = []
        """Called with each order that is begun."""
        self.answered: list[Any] = []
        """Called with the answer to each commit."""
        self.leading = Leading(world, cluster, process, LEASE)

    def start(self) -> None:
        """Begin."""
        self.cluster.watch(self.process, self._pod_changed)
        for task in (
            self.leading.run(self._lost),
            self._cycles(),
            self._activator(),
            self._follow_orders(),
            self._follow_outcomes(),
        ):
            self.process.spawn(task)

    def _lost(self) -> None:
        """A scheduler that loses its Lease exits."""
        self.world.kill(self.process)

    def now(self) -> float:
        """Its clock."""
        return self.world.loop.virtual + self.process.offset

    def note(self, text: str) -> None:
        """Write to the trace."""
        self.world.note(self.process.identity, text)

    def _when(self, at: float) -> datetime:
        return START + timedelta(seconds=round(at, 6))

    # ----------------------------------------------------------------------------------- informers

    def _pod_changed(self, kind: str, pod: Pod) -> None:
        uid = pod.metadata.uid
        if kind == "DELETED":
            self.pods.pop(uid, None)
            self.assumed.pop(uid, None)
            self.queue.pop(uid, None)
            self.inflight.deleted(uid, self.now())
            self._forget(uid)
            self._wake_all()
        else:
            self.pods[uid] = pod
            if pod.spec.node_name:
                self.assumed.pop(uid, None)
                self.queue.pop(uid, None)
                self._forget(uid)
            else:
                if kind == "ADDED" and uid not in self.queue:
                    for other, one in self.pods.items() if group_of(pod) else ():
                        if group_of(one) == group_of(pod) and other in self.queue:
                            self._queue(other, 0.0)
                    self._queue(uid, 0.0)
                self.inflight.nominated_to(uid, pod.status.nominated_node_name or "", self.now())

    def _forget(self, uid: str) -> None:
        self.inflight.pod_event(uid, "preemptorGone")
        for memory in (self.reverted, self.failures):
            memory.pop(uid, None)

    def pending(self, uid: str) -> Pod | None:
        """The pod, where it waits for a node."""
        pod = self.pods.get(uid)
        if pod is not None and not pod.spec.node_name:
            return pod
        self._forget(uid)
        return None

    # --------------------------------------------------------------------------------------- queue

    def _queue(self, uid: str, delay: float) -> None:
        self.queue[uid] = self.now() + delay
        self.queued.set()

    def _wake_all(self) -> None:
        for uid in self.queue:
            self.queue[uid] = min(self.queue[uid], self.now() + 0.1)
        self.queued.set()

    def _activate(self, uid: str) -> None:
        if self.pending(uid) is not None:
            self.inflight.activated(uid, self.now())
            self._queue(uid, 0.0)

    async def _cycles(self) -> None:
        while True:
            await self.process.run_on()
            self.queued.clear()
            now = self.now()
            ready, later = [], [now + 5.0]
            for uid, at in self.queue.items():
                pod = self.pods.get(uid)
                if pod is None or pod.spec.node_name or uid in self.assumed:
                    continue
                preemptor = f"{group_of(pod)}-uid" if group_of(pod) else uid
                if (entry := self.inflight.by_pod.get(preemptor)) and self.inflight.gate(preemptor, now):
                    later.append(entry.opens_at)
                elif at <= now:
                    ready.append((-priority(pod), at, uid))
                else:
                    later.append(at)
            if self.leading.leads and ready:
                await self._cycle(self.pods[min(ready)[2]])
                await self.process.sleep(0.001)
                continue
            try:
                async with asyncio.timeout(max(0.001, min(later) - now)):
                    await self.queued.wait()
            except TimeoutError:
                pass

    def _preemptor(self, pod: Pod) -> Preemptor:
        """A pod, or the members of its group that wait."""
        group = group_of(pod)
        if not group:
            return Preemptor(pod.metadata.uid, pod.metadata.name, (pod,))
        waiting = (
            other
            for uid, other in sorted(self.pods.items())
            if group_of(other) == group and not other.spec.node_name and uid not in self.assumed
        )
        return Preemptor(f"{group}-uid", group, tuple(waiting), group)

    async def _cycle(self, pod: Pod) -> None:
        """One scheduling cycle, of a pod or of all members of its group that wait."""
        preemptor = self._preemptor(pod)
        for one in preemptor.pods:
            self.queue[one.metadata.uid] = self.now() + 60.0
        on: dict[str, list[Pod]] = {name: [] for name in self.cluster.nodes}
        for other in self.pods.values():
            node = other.spec.node_name or self.assumed.get(other.metadata.uid)
            if node:
                on[node].append(other)
        if preemptor.group and self._missing(preemptor, on):
            return
        places = self._nominations()
        if all(one.metadata.deletion_timestamp is None for one in preemptor.pods):
            chosen = self._fitting(preemptor, on, places)
            if chosen is not None:
                for one in preemptor.pods:
                    self._bind(one, chosen[one.metadata.uid])
                return
        nominated = await self._post_filter(preemptor, on, places)
        self.inflight.pod_event(preemptor.uid, "cycleEnded")
        if not nominated:
            for one in preemptor.pods:
                self.pending(one.metadata.uid)

    def _missing(self, preemptor: Preemptor, on: dict[str, list[Pod]]) -> bool:
        """Whether a gang has fewer pods than it needs: the scheduler does not try it."""
        placed = sum(group_of(other) == preemptor.group for there in on.values() for other in there)
        return len(preemptor.pods) + placed < self.cluster.gangs[preemptor.group].size

    def _fitting(
        self, preemptor: Preemptor, on: dict[str, list[Pod]], places: dict[str, str]
    ) -> dict[str, str] | None:
        """Where all pods fit side by side, on their nominated nodes if they can; None where not all do."""
        there = {node: [*pods] for node, pods in on.items()}
        chosen: dict[str, str] = {}
        for pod in preemptor.pods:
            uid, others = pod.metadata.uid, {u: n for u, n in places.items() if not self._is_of(u, preemptor)}
            fitting = [node for node in there if self._fits(pod, there[node], others, node)]
            if not fitting:
                return None
            own = places.get(uid)
            chosen[uid] = own if own in fitting else fitting[0]
            there[chosen[uid]].append(pod)
        return chosen

    def _is_of(self, uid: str, preemptor: Preemptor) -> bool:
        return any(pod.metadata.uid == uid for pod in preemptor.pods)

    def _nominations(self) -> dict[str, str]:
        places = {
            p.metadata.uid: p.status.nominated_node_name
            for p in self.pods.values()
            if p.status.nominated_node_name and not p.spec.node_name
        }
        for uid, node in self.reverted.items():
            if places.get(uid) == node:
                del places[uid]
        return places | self.inflight.nominated()

    def _fits(self, pod: Pod, there: list[Pod], places: dict[str, str], node: str) -> bool:
        used = sum(size(other) for other in there)
        for uid, place in places.items():
            other = self.pods.get(uid)
            if place == node and other is not None and uid != pod.metadata.uid and uid not in self.assumed:
                used += size(other) if priority(other) >= priority(pod) else 0
        return used + size(pod) <= self.cluster.capacity[node]

    def _bind(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        self.assumed[uid] = node
        self.note(f"binds {pod.metadata.name} to {node}")

        async def bind() -> None:
            def act() -> None:
                now = self.cluster.by_uid(uid)
                if now is None or now.spec.node_name:
                    raise ApiError(409, "Conflict", "gone or bound")
                self.cluster.bind(now, node, self.process.identity)

            try:
                await self.api.do(act)
            except (ApiError, ApiUnavailable):
                if self.assumed.pop(uid, None):
                    self._queue(uid, 1.0)

        self.process.spawn(bind())

    # ---------------------------------------------------------------------------------- PostFilter

    async def _post_filter(
        self, preemptor: Preemptor, on: dict[str, list[Pod]], places: dict[str, str]
    ) -> bool:
        uid, now = preemptor.uid, self.now()
        after = self.read.get(preemptor.subject, 0)

        def still_there(node: str, victim: str) -> bool:
            nodes = (node,) if node else tuple(on)  # of a group: whichever
            return any(other.metadata.uid == victim for one in nodes for other in on.get(one, ()))

        nominated = [pod for pod in preemptor.pods if pod.status.nominated_node_name]
        own = {pod.status.nominated_node_name for pod in nominated}
        there = {other: self.pods.get(other) for other, node in places.items() if node in own}
        beside = [
            other
            for other, one in there.items()
            if one and not self._is_of(other, preemptor) and priority(one) >= preemptor.priority
        ]
        if (entry := self.inflight.by_pod.get(uid)) is not None:
            self._look_at_places(entry)
        if self.inflight.refuse(uid, now, still_there, beside):
            return False
        if any(
            other.metadata.deletion_timestamp is not None and priority(other) < preemptor.priority
            for pod in nominated
            for other in on.get(pod.status.nominated_node_name or "", ())
        ):
            self._again(preemptor, 1.0)
            return False
        _, paused = self.failures.get(uid, (0, 0.0))
        if now < paused:
            self._again(preemptor, paused - now)
            await self._clear_reverted(preemptor)
            return False
        question = Question(preemptor, tuple(on), places, dict(self.assumed), self.outcomes_read)
        candidates = await self._ask(question)
        if candidates is None:
            self._again(preemptor, 1.0)
            await self._clear_reverted(preemptor)
            return False
        for candidate in candidates:
            if not self._stands(preemptor, candidate, on, places):
                continue
            self._nominate(preemptor, candidate, after)
            return True
        self._again(preemptor, 5.0)
        for pod in nominated:
            await self._patch_nomination(pod, None)
        return False

    def _again(self, preemptor: Preemptor, seconds: float) -> None:
        for pod in preemptor.pods:
            self._queue(pod.metadata.uid, seconds)

    async def _clear_reverted(self, preemptor: Preemptor) -> None:
        for pod in preemptor.pods:
            if self.reverted.get(pod.metadata.uid) == (pod.status.nominated_node_name or ""):
                del self.reverted[pod.metadata.uid]
                await self._patch_nomination(pod, None)

    def _stands(
        self, preemptor: Preemptor, candidate: Candidate, on: dict[str, list[Pod]], places: dict[str, str]
    ) -> bool:
        """The scheduler's own filters over what would be left."""
        there = {node: {other.metadata.uid: other for other in pods} for node, pods in on.items()}
        known = {other.metadata.uid: node for node, pods in on.items() for other in pods}
        for victim in candidate.victims:
            if victim not in known or priority(there[known[victim]].pop(victim)) >= preemptor.priority:
                return False
        for awaited in known.keys() & candidate.awaited.keys():
            there[known[awaited]].pop(awaited)
        others = {uid: node for uid, node in places.items() if not self._is_of(uid, preemptor)}
        for pod in preemptor.pods:
            node = candidate.places.get(pod.metadata.uid, "")
            if node not in there or not self._fits(pod, [*there[node].values()], others, node):
                return False
            there[node][pod.metadata.uid] = pod
        return True

    async def _ask(self, question: Question) -> list[Candidate] | None:
        """One request over core NATS; None where no planner answers in time."""
        answer: asyncio.Future[list[Candidate]] = self.world.loop.create_future()

        def reply(candidates: list[Candidate]) -> None:
            if not answer.done():
                answer.set_result(candidates)

        def send() -> None:
            for planner, handler in tuple(self.nats.planners.items()):
                if planner.alive and not self.world.is_cut(planner.name, "nats"):
                    self.world.loop.call_later(self.world.latency(), planner.call, handler, question, reply)

        try:
            await self.world.request(self.process, "nats", send, PLAN_TIMEOUT_SECONDS, counted=False)
            async with asyncio.timeout(PLAN_TIMEOUT_SECONDS):
                found = await answer
        except (TimeoutError, UnansweredError):
            found = None
        await self.process.run_on()
        return found

    def _nominate(self, preemptor: Preemptor, chosen: Candidate, after: int) -> None:
        self.orders += 1
        now, order_id = self.now(), f"ord-{self.process.identity}-{self.orders}"
        self.reverted.pop(preemptor.uid, None)
        entry = Entry(
            order_id,
            preemptor.uid,
            preemptor.name,
            "" if preemptor.group else chosen.places[preemptor.uid],
            now,
            now + self.seconds["storedWithin"] + self.seconds["answeredWithin"] + self.seconds["gateSlack"],
            list(chosen.victims),
            dict(chosen.awaited),
            chosen.places if preemptor.group else {},
        )
        for listener in self.begun:
            listener(self, entry)
        names = [self.pods[v].metadata.name for v in chosen.victims if v in self.pods]
        where = ", ".join(chosen.places.values())
        self.note(f"nominates {preemptor.name} to {where} by {order_id}: {names} {chosen.awaited}")
        self.inflight.begin(entry)
        for pod in preemptor.pods:
            self.process.spawn(self._patch_nomination(pod, chosen.places[pod.metadata.uid]))
        self.process.spawn(self._commit_recovered(preemptor, chosen, entry, after))

    async def _patch_nomination(self, pod: Pod, node: str | None) -> None:
        """What kube-scheduler writes by itself; a failure is not tried again."""

        def act() -> None:
            now = self.cluster.by_uid(pod.metadata.uid)
            if now is not None and not now.spec.node_name:
                self.cluster.nominate(now, node, self.process.identity)

        with contextlib.suppress(ApiError, ApiUnavailable):
            await self.api.do(act)

    # -------------------------------------------------------------------------------------- commit

    async def _commit_recovered(
        self, preemptor: Preemptor, chosen: Candidate, entry: Entry, after: int
    ) -> None:
        order_id, store_by = entry.order_id, entry.created_at + self.seconds["storedWithin"]
        try:
            await self._commit(preemptor, chosen, order_id, store_by, after)
        except OrderLivesError as error:
            self.note(f"{order_id} is not committed: {error}")
            self.inflight.happened(order_id, "superseded")
            self._take_order(error.stored)
            places, group = dict(chosen.places), bool(preemptor.group)
            self._apply(Activation(order_id, preemptor.uid, places, True, str(error), of_group=group))
        except (UnstoredError, BusError, ApiError, ApiUnavailable) as error:
            self.note(f"{order_id} is not committed: {type(error).__name__} {error}")
            if self.inflight.fail(order_id, str(error), self.now(), 0.0) is not None:
                self._failed(preemptor.uid)

    async def _commit(
        self, preemptor: Preemptor, chosen: Candidate, order_id: str, store_by: float, after: int
    ) -> None:
        """Have the planner store the order: ask with the same id until it answers, or the time is over."""
        uid, group = preemptor.uid, None
        if preemptor.group:
            group = OrderedGroup(
                namespace=NAMESPACE,
                name=preemptor.group,
                uid=uid,
                priority=preemptor.priority,
                scheduler_name="makeway",
                must_place=len(preemptor.pods),
                min_count=self.cluster.gangs[preemptor.group].size,
            )
        epoch = await self._fence()
        commit = CommitRequest(
            api_version=API_VERSION,
            order_id=order_id,
            cluster_uid=CLUSTER,
            bridge=f"makeway/scheduler/{self.process.identity}",
            fence=Fence(kind="lease", namespace="kube-system", name=LEASE, epoch=epoch),
            offer=chosen.offer,
            placements=tuple(
                Placement(
                    namespace=NAMESPACE,
                    name=pod.metadata.name,
                    uid=pod.metadata.uid,
                    node=node,
                    node_uid=f"{node}-uid",
                )
                for pod in preemptor.pods
                for node in [chosen.places[pod.metadata.uid]]
            ),
            group=group,
            store_by=self._when(store_by),
            after=after,
            victims=chosen.victims,
            awaited=tuple(Awaited(uid=u, order_id=o) for u, o in sorted(chosen.awaited.items())),
        )
        until = store_by + self.seconds["answeredWithin"]
        while self.now() < until:
            reply = await self._ask_for_order(codec.encode(commit))
            if reply is None:
                await self.process.sleep(0.2)
                continue
            if reply.order is None:
                last = await self._last(SUBJECTS.orders_stream, preemptor.subject)
                if last is not None and reply.void is not None and reply.void.reason == SUPERSEDED:
                    raise OrderLivesError(last)
                if last is not None:
                    self.read[preemptor.subject] = last.sequence
                raise UnstoredError(f"void: {reply.void}")
            if (entry := self.inflight.get(order_id)) is not None and entry.phase not in REVERTS:
                self.stored.add(order_id)
            self.inflight.commit(order_id, self._local(reply.order.not_after) + self.seconds["gateSlack"])
            if (outcome := self.inflight.outcomes.get(order_id)) is not None:
                self._apply_outcome(outcome)
            return
        raise UnstoredError("no planner has answered in time")

    async def _ask_for_order(self, data: bytes) -> CommitReply | None:
        """One request to all planners that lead; the first answer, None where none comes in time."""
        answer: asyncio.Future[CommitReply] = self.world.loop.create_future()

        async def handle(handler: Callable[[bytes], Any]) -> None:
            try:
                reply = codec.decode(CommitReply, await handler(data))
            except BusError:
                return  # what becomes of the order is not known here
            for listener in self.answered:
                listener(reply)
            if not self.world.chance(self.world.faults.lose_answer, "answers lost"):
                self.world.loop.call_later(self.world.latency(), heard, reply)

        def heard(reply: CommitReply) -> None:
            if not answer.done():
                answer.set_result(reply)

        def begin(planner: Process, handler: Callable[[bytes], Any]) -> None:
            planner.spawn(handle(handler))

        def send() -> None:
            for planner, handler in tuple(self.nats.committers.items()):
                if planner.alive and not self.world.is_cut(planner.name, "nats"):
                    at = self.world.latency()
                    self.world.loop.call_later(at, planner.call, begin, planner, handler)

        try:
            await self.world.request(self.process, "nats", send, 2.0)
            async with asyncio.timeout(2.0):
                found: CommitReply | None = await answer
        except (TimeoutError, UnansweredError):
            found = None
        await self.process.run_on()
        return found

    async def _fence(self) -> int:
        """The epoch, read once, where this process holds the Lease."""
        if self.epoch is None:
            lease = self.cluster.leases.get(LEASE)
            held = await self.api.do(
                lambda: (lease.holder, lease.transitions) if lease is not None else ("", 0)
            )
            if held[0] != self.process.identity:
                raise UnstoredError("the Lease is another's")
            self.epoch = held[1]
        return self.epoch

    async def _last(self, stream: str, subject: str) -> StoredMessage | None:
        return await self.bus.jetstream.last_message(stream, subject)

    def _local(self, at: datetime) -> float:
        return (at - START).total_seconds()

    # ------------------------------------------------------------------------------------ outcomes

    async def _follow_orders(self) -> None:
        async for message in self.bus.follow(SUBJECTS.orders_stream):
            self._take_order(message)

    async def _follow_outcomes(self) -> None:
        def reached(position: StreamPosition) -> None:
            self.outcomes_read = position

        stream = SUBJECTS.outcomes_stream
        async for message in self.bus.follow(stream, reached=reached):
            self._take_outcome(message.data)

    def _take_order(self, message: StoredMessage) -> None:
        """Adopt an order that this process did not write, where it is alive and its pod is pending."""
        try:
            order = codec.unwrap_order(message.data)
        except Malformed:
            return
        self.read[message.subject] = message.sequence
        about = order.room_for
        if about is None or order.void is not None or message.subject != SUBJECTS.order(order):
            return
        if self.inflight.get(order.order_id) is not None:
            return
        waiting = (self.pods.get(one.uid) for one in order.placements)
        if not any(pod is not None and not pod.spec.node_name for pod in waiting):
            return
        opens_at = self._local(order.not_after) + self.seconds["gateSlack"]
        outcome = self.inflight.outcomes.get(order.order_id)
        if outcome is not None:
            if outcome.result != "succeeded":
                return
            opens_at = self._leaving_until(outcome, min(self._local(outcome.finished_at), self.now()))
        entry = Entry(
            order.order_id,
            about.uid,
            about.name,
            order.node,
            self._local(order.created_at),
            opens_at,
            [v.uid for v in order.victims],
            {a.uid: a.order_id for a in order.awaited},
            {one.uid: one.node for one in order.members},
        )
        if not self.inflight.adopt(entry, self.now()):
            return
        for uid in entry.places:
            self._activate(uid)
        if outcome is not None:
            self._apply_outcome(outcome)

    def _take_outcome(self, data: bytes) -> None:
        outcome = codec.unwrap_outcome(data)
        self.inflight.outcomes[outcome.order_id] = outcome
        self._apply_outcome(outcome)

    def _apply_outcome(self, outcome: Outcome) -> None:
        if outcome.result == "succeeded":
            self._succeeded(outcome)
            return
        text = f"outcome {outcome.result}: {outcome.reason}"
        entry = self.inflight.fail(outcome.order_id, text, self.now(), self.seconds["revertWait"])
        if entry is None:
            return
        self._failed(entry.uid)
        self._look_at_places(entry)

    def _look_at_places(self, entry: Entry) -> None:
        for uid in entry.places:
            if (pod := self.pods.get(uid)) is not None:
                self.inflight.nominated_to(uid, pod.status.nominated_node_name or "", self.now())

    def _failed(self, uid: str) -> None:
        in_a_row = self.failures.get(uid, (0, 0.0))[0] + 1
        over = in_a_row - TRIES
        pause = FIRST_FAILED.total_seconds() * 2 ** min(over, 4) if over >= 0 else 0.0
        self.failures[uid] = (in_a_row, self.now() + pause)
        entry = self.inflight.by_pod.get(uid)
        for member in (uid,) if entry is None else entry.places:
            self.pending(member)

    def _succeeded(self, outcome: Outcome) -> None:
        now = self.now()
        self.failures.pop(outcome.preemptor_uid, None)

        def left(uid: str) -> bool:
            pod = self.pods.get(uid)
            return pod is None or not pod.spec.node_name

        self.inflight.succeed(outcome.order_id, now, self._leaving_until(outcome, now), left)
        if (entry := self.inflight.get(outcome.order_id)) is not None:
            self._look_at_places(entry)

    def _leaving_until(self, outcome: Outcome, since: float) -> float:
        grace = max((v.grace_period_seconds for v in outcome.victims), default=0)
        return since + grace + self.seconds["leavingSlack"]

    # ----------------------------------------------------------------------- activator, reconciling

    async def _activator(self) -> None:
        while True:
            await self.process.run_on()
            self.changed.clear()
            activations, again = self.inflight.due(self.now())
            for activation in activations:
                self._apply(activation)
            if self.changed.is_set():
                continue
            wait = None if again is None else max(0.001, again - self.now())
            try:
                async with asyncio.timeout(wait):
                    await self.changed.wait()
            except TimeoutError:
                pass

    def _apply(self, activation: Activation) -> None:
        """Let a pod be tried again, after deleting its nomination where that is asked for."""
        uid = activation.uid
        if activation.revert and self.world.chance(self.world.faults.refuse, "reverts failed"):
            at = self.now() + 1.0
            self.inflight.activation_failed(activation.order_id, at)
            self.queue[uid] = at
            return
        if activation.revert and activation.of_group:
            self.process.spawn(self._revert_group(activation))
            return
        if activation.revert:
            pod, node = self.pods.get(uid), activation.places[uid]
            nominated = pod.status.nominated_node_name if pod is not None else ""
            if activation.unpublished or nominated == node:
                self.reverted[uid] = node
                self.pending(uid)
            self.inflight.happened(activation.order_id, "reverted")
        for member in activation.places:
            self._activate(member)

    async def _revert_group(self, activation: Activation) -> None:
        """Clear in the API what it shows of the nominations, then open the gate."""
        adopted = self.inflight.by_pod.get(activation.uid)
        for uid, node in activation.places.items():
            pod = self.pods.get(uid)
            if adopted is not None and adopted.order_id != activation.order_id:
                break  # the nominations are that order's
            if pod is not None and pod.status.nominated_node_name == node:
                await self._patch_nomination(pod, None)
        self.inflight.happened(activation.order_id, "reverted")
        for uid in activation.places:
            self._activate(uid)
