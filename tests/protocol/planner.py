"""A planner process: the real ledger, followers, marks and control state; a small plan of its own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.bus.commit import NOTHING, CommitRequest, Offer, offered
from makeway.bus.control import ControlState
from makeway.bus.messages import Awaited, NominationToClear, Placement, Void
from makeway.bus.orders import OrderWriter
from makeway.core.k8s.objects import Pod
from makeway.core.policy.mode import Mode
from makeway.planner.commit.committer import Committer
from makeway.planner.commit.judge import Accepted, draft
from makeway.planner.commit.nominated import NominatedPods
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker
from makeway.planner.orders.pledges import LASTS, Pledge
from makeway.planner.service.configuration.control import Control
from makeway.planner.service.orders.follower import OrderFollower
from makeway.planner.service.orders.marks import ROUND_SECONDS, Marks, RepairProposer
from protocol.cluster import CLUSTER, NAMESPACE, Cluster
from protocol.leading import Leading
from protocol.loop import Process
from protocol.scheduler import PLAN_TIMEOUT_SECONDS, Candidate, Preemptor, Question, priority, size, victim_of
from protocol.streams import SUBJECTS, Nats, SimulatedBus
from protocol.world import World

LEASE = "makeway-planner"


@dataclass(frozen=True)
class _Room:
    """A node on which a pod would fit: whom to evict, who leaves, and who might go."""

    node: str
    victims: tuple[str, ...]
    awaited: dict[str, str]
    removable: tuple[str, ...]


_METRICS = PlannerMetrics(CollectorRegistry())


class Planner:
    """One planner process. `mode()`: what its policy says."""

    def __init__(
        self, world: World, cluster: Cluster, nats: Nats, process: Process, mode: Callable[[], Mode]
    ) -> None:
        self.world, self.cluster, self.nats, self.process = world, cluster, nats, process
        self.bus = bus = SimulatedBus(nats, process, "planner")
        self.not_after = 12.0
        self.ledger = Ledger(self._stays)
        self.marks = Marks(lambda: world.loop.virtual)
        self.follower = OrderFollower(bus, self.ledger, _METRICS, process.now())
        self.repairs = RepairProposer(
            CLUSTER,
            marks=self.marks,
            ledger=self.ledger,
            bus=bus.repairs,
            synced=lambda: self.follower.synced,
        )
        self.control = Control(
            bus,
            CLUSTER,
            lambda: ControlState(revision=0, mode=mode(), cluster_uid=CLUSTER),
            _METRICS,
            now=process.now,
        )
        self.plans = 0
        self.planned: list[Any] = []
        """Called with each question, how far the outcomes are read, and whether the wait for more is over."""
        self.pods: dict[str, Pod] = {}
        self.nominated = NominatedPods()
        self.committer = Committer(
            cluster_uid=CLUSTER,
            identity=process.identity,
            subjects=SUBJECTS,
            signatures=bus.signatures,
            unsynced=lambda: "" if self.follower.synced else "the streams are not read",
            pod=self._record,
            now=process.now,
            judge=self._judge,
            ledger=self.ledger,
            writer=OrderWriter(bus, sleep=process.sleep),
            metrics=_METRICS,
        )
        self.nominated.tell = self.committer.changed
        self.follower.lost = self.committer.restore
        self.leading = Leading(world, cluster, process, LEASE)

    def start(self) -> None:
        """Begin."""
        self.cluster.watch(self.process, self._pod_changed)
        for task in (
            self.leading.run(lambda: None, self._serve),
            self.follower.follow_orders(),
            self.follower.follow_outcomes(),
            self._propose(),
            self._publish_control(),
        ):
            self.process.spawn(task)

    def _pod_changed(self, kind: str, pod: Pod) -> None:
        if kind == "DELETED":
            self.pods.pop(pod.metadata.uid, None)
            self.marks.drop(pod)
            self.nominated.drop(pod)
        else:
            self.pods[pod.metadata.uid] = pod
            self.marks.put(pod)
            self.nominated.put(pod)

    def _stays(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return pod is not None and bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None

    def _serve(self) -> None:
        if self.leading.leads:
            self.nats.planners[self.process] = self._answer
            self.nats.committers[self.process] = self.committer.handle
            self.committer.leading = True
        else:
            self.nats.planners.pop(self.process, None)
            if self.nats.committers.pop(self.process, None) is not None:
                self.process.spawn(self.committer.stop())

    async def _propose(self) -> None:
        while True:
            await self.process.sleep(ROUND_SECONDS)
            if len(self.marks) and self.follower.synced:
                await self.repairs.propose_once(self.process.now())

    async def _publish_control(self) -> None:
        """`Control.publish_forever` while leading: it is cancelled where the Lease is lost."""
        while True:
            await self.process.sleep(1.0)
            if self.leading.leads:
                task = self.process.spawn(self.control.publish_forever())
                while self.leading.leads and not task.done():
                    await self.process.sleep(2.0)
                task.cancel()

    # ------------------------------------------------------------------------------------ a commit

    def _record(self, uid: str) -> Any:
        pod = self.pods.get(uid)
        return pod and SimpleNamespace(priority=priority(pod), scheduler_name=pod.spec.scheduler_name)

    def _judge(
        self, commit: CommitRequest, offer: Offer, now: datetime, before: Accepted | None = None
    ) -> Accepted | Void:
        """`makeway.planner.commit.judge`, with the small rules of this plan."""
        uid = commit.preemptor.uid
        pods = [self.pods.get(one.uid) for one in commit.placements]
        self.ledger.pledges.withdraw(uid)
        if any(
            pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None for pod in pods
        ):
            return Void(reason="preemptor-gone", message=uid)
        mine = min(priority(pod) for pod in pods if pod is not None)
        in_flight = self.ledger.in_flight(now, asking=uid)
        pledged = self.ledger.pledges.victims(now, asking=uid)
        victims, awaited = [], []
        for name in (*commit.victims, *(one.uid for one in commit.awaited)):
            other = self.pods.get(name)
            if other is None or other.metadata.deletion_timestamp is not None:
                continue
            if name in in_flight:
                awaited.append(Awaited(uid=name, order_id=in_flight[name]))
            elif name not in commit.victims and name in pledged:
                awaited.append(Awaited(uid=name, order_id=pledged[name]))
            elif name not in commit.victims or priority(other) >= mine:
                return Void(reason="victim-spared", message=name)
            else:
                victims.append(victim_of(other))
        if not victims and not awaited:
            return Void(reason=NOTHING, message="they leave anyway")
        nodes = {one.node for one in commit.placements}
        order = replace(
            draft(commit, offer.decision_id, self._record(commit.placements[0].uid), now),
            not_after=now + timedelta(seconds=self.not_after),
            victims=tuple(victims),
            awaited=tuple(awaited),
            nominations_to_clear=tuple(
                NominationToClear(
                    namespace=NAMESPACE,
                    name=p.metadata.name,
                    uid=u,
                    node=node if commit.group is not None else "",
                )
                for u, node in sorted(self.nominated.by_uid.items())
                if node in nodes and (p := self.pods.get(u)) and priority(p) < mine
            ),
        )
        shown = all(self.nominated.by_uid.get(one.uid) == one.node for one in commit.placements)
        waits_for = "" if shown else "the nomination"
        if busy := self.ledger.live_beside(uid, commit.order_id, now):
            waits_for = busy
        unstored = self.ledger.reserved() | frozenset(pledged.values())
        if not unstored.isdisjoint(one.order_id for one in awaited):
            waits_for = "an order that it counts on"
        return Accepted(order, waits_for)

    # -------------------------------------------------------------------------------------- a plan

    def _answer(self, question: Question, reply: Callable[[list[Candidate]], None]) -> None:
        self.process.spawn(self._plan_once_read(question, reply))

    async def _plan_once_read(self, question: Question, reply: Callable[[list[Candidate]], None]) -> None:
        """`Planner.handle`: a ledger behind the scheduler's outcomes is waited for, half the time at most."""
        loop = self.world.loop
        read, until = question.outcomes_read, loop.virtual + PLAN_TIMEOUT_SECONDS / 2
        while (in_time := loop.virtual <= until) and not self.ledger.has_read(read):
            await self.process.sleep(0.01)
        if not self.follower.synced:
            return
        for listener in self.planned:
            listener(question, self.ledger.outcomes_read, not in_time)
        found = self._plan(question)
        self._pledge(question.preemptor, found[0] if found else None)
        self.world.loop.call_later(self.world.latency(), reply, found)

    def _pledge(self, preemptor: Preemptor, best: Candidate | None) -> None:
        """`makeway.planner.orders.pledges.pledge_of`, of this plan."""
        pledge = None
        if best is not None:
            self.plans += 1
            places = tuple(
                Placement(namespace=NAMESPACE, name=pod.metadata.name, uid=pod.metadata.uid, node=node)
                for pod in preemptor.pods
                for node in [best.places[pod.metadata.uid]]
            )
            asking = Asker(preemptor.uid, NAMESPACE, preemptor.priority, is_pod=not preemptor.group)
            id_, until = f"dec-{self.process.identity}-{self.plans}", self.process.now() + LASTS
            nodes = frozenset(best.places.values())
            pledge = Pledge(id_, asking, places, best.victims, until, nodes=nodes)
        self.ledger.pledges.pledge(preemptor.uid, pledge)

    def _offer(self, uid: str, node: str, pods: Iterable[str]) -> str:
        offer = Offer(
            decision_id=f"dec-{uid}",
            cluster_uid=CLUSTER,
            preemptor_uid=uid,
            at=self.process.now(),
            pods=offered((node, one) for one in pods),
        )
        return self.bus.signatures.wrap(offer, self.bus.source, SUBJECTS.commit).decode()

    def _plan(self, question: Question) -> list[Candidate]:
        """Where the pods would fit without some pods of lower priority, best first.

        Of a group one member after the other, each on its best node beside those before.
        """
        asking, now = question.preemptor, self.process.now()
        in_flight = self.ledger.in_flight(now, asking=asking.uid, pledged=asking.priority)
        placed: dict[str, str] = {}
        gone: set[str] = set()
        found: list[_Room] = []
        for pod in asking.pods:
            rooms = self._rooms(question, pod, placed, gone, in_flight)
            if not rooms:
                return []
            if not asking.group:
                return [self._candidate(asking, {pod.metadata.uid: one.node}, [one]) for one in rooms[:2]]
            found.append(rooms[0])
            placed[pod.metadata.uid] = rooms[0].node
            gone.update(rooms[0].victims)
        room = any(one.victims or one.awaited for one in found)
        return [self._candidate(asking, placed, found)] if room else []

    def _candidate(self, asking: Preemptor, places: dict[str, str], rooms: list[_Room]) -> Candidate:
        victims = tuple(uid for one in rooms for uid in one.victims)
        offered = (uid for one in rooms for uid in one.removable)
        node = "" if asking.group else rooms[0].node
        awaited = {uid: id_ for one in rooms for uid, id_ in one.awaited.items()}
        return Candidate(places, victims, awaited, self._offer(asking.uid, node, offered))

    def _rooms(
        self, question: Question, pod: Pod, placed: dict[str, str], gone: set[str], in_flight: dict[str, str]
    ) -> list[_Room]:
        """The nodes on which a pod would fit, best first, beside members placed and without pods that go."""
        asking, mine = question.preemptor, {one.metadata.uid for one in question.preemptor.pods}
        nominated = dict(question.nominated)
        places = self.ledger.places(self.process.now(), asking=asking.uid)
        nominated |= {one.uid: one.node for one in places.values()}
        left_out = self.ledger.left_out(
            asking.uid, self.process.now(), pledged=asking.priority, nominated=question.nominated
        )
        ranked: list[tuple[tuple[int, int, str], _Room]] = []
        for node in (one for one in question.nodes if one not in left_out.nodes | left_out.pledged):
            there = [
                p
                for p in self.pods.values()
                if (p.spec.node_name or question.assumed.get(p.metadata.uid)) == node
                and p.metadata.uid not in gone
            ]
            used = sum(size(p) for p in there if p.metadata.uid not in in_flight)
            used += sum(size(one) for one in asking.pods if placed.get(one.metadata.uid) == node)
            for other, place in nominated.items():
                known = self.pods.get(other)
                if place == node and other not in mine and known is not None and not known.spec.node_name:
                    used += size(known) if priority(known) >= priority(pod) else 0
            removable = [
                p
                for p in there
                if priority(p) < priority(pod)
                and p.metadata.uid not in in_flight
                and p.metadata.uid not in left_out.victims
                and p.metadata.deletion_timestamp is None
                and p.spec.node_name
            ]
            removable.sort(key=lambda p: (priority(p), -size(p), p.metadata.uid))
            offered = tuple(p.metadata.uid for p in removable)
            victims: list[Pod] = []
            while used + size(pod) > self.cluster.capacity[node] and removable:
                victims.append(removable.pop(0))
                used -= size(victims[-1])
            awaited = {
                p.metadata.uid: in_flight[p.metadata.uid] for p in there if p.metadata.uid in in_flight
            }
            helped = bool(victims or awaited or asking.group)
            if used + size(pod) <= self.cluster.capacity[node] and helped:
                highest = max((priority(v) for v in victims), default=-1)
                room = _Room(node, tuple(v.metadata.uid for v in victims), awaited, offered)
                ranked.append(((highest, len(victims), node), room))
        ranked.sort(key=lambda entry: entry[0])
        return [room for _, room in ranked]
