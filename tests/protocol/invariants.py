"""What must hold at every step, and once all is quiet, judged by the API server and the streams alone."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from makeway.bus import codec
from makeway.bus.commit import CommitReply
from makeway.bus.messages import EvictionOrder, Outcome, StreamPosition
from makeway.core.k8s.disruption import lives_on_marked
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import group_of
from narrowing import there
from protocol.cluster import Cluster, Delete
from protocol.inflight import Entry
from protocol.loop import START
from protocol.scheduler import LEASE, Question, Scheduler, priority, size
from protocol.streams import SUBJECTS, Nats, Stored
from protocol.world import ViolationError, World

FRESH_SECONDS = 5.05
"""How old what a delete rests on may be when it is sent: evictor's CHECK_LASTS, and rounding."""

GATE_SLACK_SECONDS = 2.0
CLOCKS_DIFFER_SECONDS = 2.5
"""More than two clocks differ by, jumps included."""

UNTOUCHED = ("other-cluster", "incomplete-order", "invalid-name", "not-after-too-far")


@dataclass
class Known:
    """An order that was stored at any time."""

    order: EvictionOrder
    stored: Stored
    outcome: Outcome | None = None
    ended_at: float = 0.0
    lost: bool = False
    outcome_lost: bool = False
    stored_again: bool = False


@dataclass
class Checker:
    """Watches one simulation; raises ViolationError at the step that breaks an invariant."""

    world: World
    cluster: Cluster
    nats: Nats
    orders: dict[str, Known] = field(default_factory=dict)
    by_preemptor: dict[str, list[Known]] = field(default_factory=dict)
    nominated: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """By UID: since when the API has shown it nominated where; bound or gone is `-`."""
    answers: dict[str, str] = field(default_factory=dict)
    voids: set[str] = field(default_factory=set)
    marks: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By UID: since when a pod is marked, and for which order."""
    victims_of_deletes: dict[str, str] = field(default_factory=dict)
    checked: int = 0
    problem: str = ""
    most_victims: int = 0
    streams_lost: bool = False
    """How many victims the policy allows an order; 0 where it says nothing."""
    broken: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.cluster.changed.append(self._changed)
        self.cluster.deleting.append(self._deleting)
        self.nats.taken.append(self._stored)

    def fail(self, invariant: str, detail: str) -> None:
        """Note the first violation; the simulation ends with it."""
        if not self.problem:
            self.problem = f"{invariant}: {detail}"
            self.broken.set()
            self.world.note("VIOLATION", self.problem)
        raise ViolationError(self.problem)

    def expect(self, holds: bool, invariant: str, detail: str) -> None:
        """Check one invariant."""
        self.checked += 1
        if not holds:
            self.fail(invariant, detail)

    # -------------------------------------------------------------------------------- API server

    def _changed(self, by: str, old: Pod | None, new: Pod | None) -> None:
        pod = there(new or old)
        uid, now = pod.metadata.uid, self.world.loop.virtual
        shown = "-" if new is None or new.spec.node_name else new.status.nominated_node_name or ""
        history = self.nominated.setdefault(uid, [])
        if not history or history[-1][1] != shown:
            history.append((now, shown))
        if new is None or not lives_on_marked(new):
            self.marks.pop(uid, None)
        elif uid not in self.marks:
            self.marks[uid] = (now, by)

    def _deleting(self, sent: Delete, pod: Pod) -> None:
        known = self.orders.get(sent.order_id)
        what = f"{pod.metadata.name} ({pod.metadata.uid}) by {sent.process} for {sent.order_id or 'nothing'}"
        self.expect(known is not None, "a pod is deleted only for a committed order", what)
        assert known is not None
        order = known.order
        victims = {v.uid for v in order.victims}
        self.expect(pod.metadata.uid in victims, "a pod is deleted only as a victim of its order", what)
        wanted = sent.options.get("preconditions", {})
        contested = self.cluster.conflicts[pod.metadata.name] >= 2
        named = "uid" in wanted and ("resourceVersion" in wanted or contested)
        self.expect(named, "a delete names the UID, and the version that was judged where that holds", what)
        self.expect(sent.local < order.not_after, "no delete is sent after notAfter", what)
        about = there(order.room_for)
        allowed = not self.most_victims or len(victims) <= self.most_victims
        self.expect(allowed, "an order has no more victims than the policy allows", what)
        lower = priority(pod) < about.priority
        self.expect(lower, "a victim has a lower priority than its preemptor", what)
        ended = (
            known.outcome is not None
            and not known.outcome_lost
            and known.ended_at < sent.issued - FRESH_SECONDS
        )
        self.expect(not ended, "nothing is deleted for an order that has its outcome", what)
        since = sent.issued - FRESH_SECONDS
        shown = sum(self._was_nominated(one.uid, one.node, since, sent.issued) for one in order.placements)
        enough = 1 if order.group is None else order.group.must_place
        self.expect(shown >= enough, "a delete follows a fresh look at the nomination", what)
        self.expect(
            self._fence_held(known, since, sent.issued), "a delete follows a fresh look at the fence", what
        )
        self.victims_of_deletes[pod.metadata.uid] = sent.order_id
        self.world.note("api", f"deletes {what}")

    def _was_nominated(self, uid: str, node: str, since: float, until: float) -> bool:
        history = self.nominated.get(uid, [])
        for number, (at, shown) in enumerate(history):
            end = history[number + 1][0] if number + 1 < len(history) else until
            if shown == node and at <= until and end >= since:
                return True
        return False

    def _fence_held(self, known: Known, since: float, until: float) -> bool:
        """Whether at any moment of the window the order's epoch was valid, or older than its successor's."""
        epochs = self.cluster.epochs.get(LEASE, [])
        for number, (at, epoch) in enumerate(epochs):
            end = epochs[number + 1][0] if number + 1 < len(epochs) else until
            if (
                at <= until
                and end >= since
                and (epoch <= known.order.fence.epoch or known.stored.at < at + 1.5)
            ):
                return True
        return False

    def _fence_is_current(self, order: EvictionOrder, stored: Stored) -> bool:
        """Whether an evictor could take an order for one of the leader, or of a leader until just before."""
        since, epoch = self.cluster.epochs[LEASE][-1]
        return order.fence.epoch >= epoch or stored.at < since + 1.5

    # ------------------------------------------------------------------------------------- streams

    def _stored(self, stream: str, stored: Stored) -> None:
        if stream == SUBJECTS.orders_stream:
            self._order(codec.unwrap_order(stored.data), stored)
        elif stream == SUBJECTS.outcomes_stream:
            self._outcome(codec.unwrap_outcome(stored.data), stored)
        else:
            self.world.note("nats", f"control state {stored.sequence} by {stored.by}")

    def answered(self, reply: CommitReply) -> None:
        """A planner answers a commit: as every other, and as the streams have it."""
        id_, known = reply.order_id, self.orders.get(reply.order_id)
        first = self.answers.setdefault(id_, reply.status)
        self.expect(first == reply.status or self.streams_lost, "a commit has one answer", f"{id_}: {first}")
        stored = known is not None or self.streams_lost
        self.expect(reply.status == "void" or stored, "what is answered is stored", id_)
        void = known is None or self.streams_lost
        self.expect(
            reply.status == "stored" or void, "an order that is answered by a void is not stored", id_
        )

    def _order(self, order: EvictionOrder, stored: Stored) -> None:
        if order.void is not None:
            self.world.note("nats", f"stores void of {order.order_id}: {order.void.reason} by {stored.by}")
            nothing = order.order_id not in self.orders or self.streams_lost
            self.expect(nothing, "an order is stored or voided", order.order_id)
            self.voids.add(order.order_id)
            return
        voided = order.order_id in self.voids and not self.streams_lost
        self.expect(not voided, "an order is stored or voided", order.order_id)
        answered = self.answers.get(order.order_id) == "void" and not self.streams_lost
        self.expect(not answered, "an order that is answered by a void is not stored", order.order_id)
        self.world.note("nats", f"stores order {stored.sequence} {order.order_id} of {stored.by}")
        now, uid = self.world.now(), order.preemptor_uid
        again = self.orders.get(order.order_id)
        earlier = [k for k in self.by_preemptor.get(uid, []) if k.order.order_id != order.order_id]
        alive = [
            k.order.order_id
            for k in earlier
            if k.outcome is None and not k.lost and now < k.order.not_after + timedelta(seconds=1.0)
        ]
        # New streams count from 1 again, so a writer that was stopped between its read and its write may find
        # the number that it expects. Its fence keeps such an order from being carried out.
        fenced_off = self.streams_lost and not self._fence_is_current(order, stored)
        self.expect(
            not alive or fenced_off, "a preemptor has one live order", f"{order.order_id} beside {alive}"
        )
        unseen = [
            one.uid
            for one in order.placements
            if not any(place == one.node for _, place in self.nominated.get(one.uid, []))
        ]
        self.expect(
            again is not None or not unseen,
            "an order is stored after its nomination shows",
            f"{order.order_id}: {unseen}",
        )
        unknown = {one.order_id for one in order.awaited} - self.orders.keys()
        self.expect(
            not unknown or self.streams_lost or order.store_by is None,
            "an order of the planner counts on stored orders alone",
            f"{order.order_id}: {sorted(unknown)}",
        )
        known = Known(order, stored)
        if again is not None:
            again.lost, again.stored_again = False, True
            return
        self.orders[order.order_id] = known
        self.by_preemptor.setdefault(uid, []).append(known)

    def _outcome(self, outcome: Outcome, stored: Stored) -> None:
        self.world.note(
            "nats", f"stores outcome of {outcome.order_id}: {outcome.result} {outcome.reason} by {stored.by}"
        )
        known = self.orders.get(outcome.order_id)
        self.expect(known is not None, "an outcome has its order", outcome.order_id)
        assert known is not None
        self.expect(known.outcome is None or known.outcome_lost, "an order has one outcome", outcome.order_id)
        known.outcome, known.ended_at, known.outcome_lost = outcome, self.world.loop.virtual, False
        if outcome.result == "succeeded":
            staying = [v.uid for v in known.order.victims if self._stays(v.uid)]
            self.expect(
                not staying, "an order succeeds once its victims leave", f"{outcome.order_id}: {staying}"
            )
            return
        if outcome.reason in UNTOUCHED or "not rolled back" in outcome.message:
            return
        # With the streams lost, evictors see other last orders than there were: only the end is judged then.
        if not known.lost and not known.stored_again:
            self._rolled_back(known, outcome)

    def _stays(self, uid: str) -> bool:
        pod = self.cluster.by_uid(uid)
        return pod is not None and pod.metadata.deletion_timestamp is None

    def _later(self, known: Known) -> list[Known]:
        of = self.by_preemptor[known.order.preemptor_uid]
        return [k for k in of if k.stored.at > known.stored.at]

    def _rolled_back(self, known: Known, outcome: Outcome) -> None:
        """The outcome of an order that makes no room comes after its nomination and marks are gone."""
        order, later = known.order, self._later(known)
        pending = self.nats.waiting.get(known.stored.sequence)
        once = pending is not None and pending.message is known.stored and pending.deliveries == 1
        began = (outcome.started_at - START).total_seconds() - CLOCKS_DIFFER_SECONDS
        for place in order.placements:
            since, shown = self.nominated.get(place.uid, [(0.0, "")])[-1]
            left = shown == place.node and since <= known.stored.at and not later
            self.expect(not left, "a failed order's nomination is taken back first", order.order_id)
        relied = {v.uid for k in later for v in k.order.victims}
        for victim in order.victims:
            since, by = self.marks.get(victim.uid, (0.0, ""))
            # Whoever has the order in hand as well may mark the victim until it hears of the outcome.
            own = once or since < began
            left = by.partition("/")[2] == order.order_id and victim.uid not in relied and own
            self.expect(
                not left, "a failed order's marks are taken off first", f"{order.order_id}: {victim.name}"
            )

    def wiped(self) -> None:
        """The streams were lost: what they held may come again."""
        self.streams_lost = True
        for known in self.orders.values():
            known.lost, known.outcome_lost = True, known.outcome is not None

    # ---------------------------------------------------------------------------------- schedulers

    def begun(self, scheduler: Scheduler, entry: Entry) -> None:
        """A scheduler nominates a pod: an order for it that it knows to be stored has ended."""
        for known in self.by_preemptor.get(entry.uid, []):
            mine = known.order.order_id in scheduler.stored
            over = scheduler.process.now() >= known.order.not_after + timedelta(seconds=GATE_SLACK_SECONDS)
            self.expect(
                not mine or known.outcome is not None or known.lost or over,
                "a preemptor waits for its order's end",
                f"{entry.order_id} is begun while {known.order.order_id} lives",
            )

    # ------------------------------------------------------------------------------------ planners

    def planned(self, question: Question, read: StreamPosition | None, waited: bool) -> None:
        """A planner plans: it has read the outcomes that the scheduler has read, or has waited for them."""
        seen = question.outcomes_read
        same_stream = seen is not None and read is not None and read.created == seen.created
        knows = seen is None or read is None or not same_stream or read.sequence >= seen.sequence
        self.expect(
            knows or waited,
            "a plan knows the outcomes that its scheduler knows",
            f"{question.preemptor.name}: {read}, not {seen}",
        )

    # ------------------------------------------------------------------------------------ quiescence

    def unsettled(self, schedulers: Iterable[Scheduler]) -> str:
        """What is not settled yet, with faults ended; empty where all is."""
        for scheduler in schedulers:
            for entry in scheduler.inflight.by_pod.values():
                if entry.phase != "released":
                    where = f"{entry.order_id} is {entry.phase} in {scheduler.process.identity}"
                    return f"every entry in flight ends: {where}"
        if self.nats.waiting:
            return f"every order is acknowledged: {sorted(self.nats.waiting)}"
        for known in self.orders.values():
            if known.outcome is None and not known.lost:
                return f"every order has an outcome: {known.order.order_id}"
        for pod in self.cluster.pods.values():
            if pod.metadata.deletion_timestamp is not None:
                return f"pods that are deleted leave: {pod.metadata.name}"
            if not pod.spec.node_name and pod.status.nominated_node_name:
                return f"a nomination is cleared or served: {pod.metadata.name}"
            if pod.metadata.uid in self.marks:
                return f"no mark stays on a pod that lives on: {pod.metadata.name}"
        return self._unplaced()

    def _unplaced(self) -> str:
        """A pod for which room can be made is bound in the end; not told where the policy limits that.

        A group where the largest of its pods has room on one node as often as it has pods.
        """
        for pod in () if self.most_victims else self.cluster.pods.values():
            mates = [
                one for one in self.cluster.pods.values() if group_of(one) and group_of(one) == group_of(pod)
            ]
            waiting = [one for one in mates or [pod] if not one.spec.node_name]
            for node, capacity in self.cluster.capacity.items() if not pod.spec.node_name else ():
                keep = [
                    p
                    for p in self.cluster.pods.values()
                    if p.spec.node_name == node
                    and (priority(p) >= priority(pod) or p.metadata.name in self.cluster.refused)
                ]
                if sum(size(p) for p in (*keep, *waiting)) <= capacity:
                    return f"a pod for which room can be made is bound: {pod.metadata.name} on {node}"
        return ""
