"""Committing: nominate a pod, and have the planner store its order; or leave nothing behind.

Each runs beside the rounds. Every step is bounded: a patch, the time in which the order is stored, the time
in which the planner answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from msgspec import structs

from makeway.bus import codec
from makeway.bus.commit import NOTHING, CommitReply, CommitRequest
from makeway.bus.errors import BusError, Malformed
from makeway.bus.messages import PAST_DEADLINE, EvictionOrder, Void
from makeway.bus.records import Last
from makeway.core.k8s.objects import Pod
from makeway.core.policy.external import NEVER
from makeway.nominator import decide
from makeway.nominator.cluster import Changed, StoredPod
from makeway.nominator.decide import SETTLES
from makeway.nominator.in_flight import OrderInFlight, OrdersInFlight
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPod
from makeway.nominator.steady import steady_now
from makeway.runtime.failpoints import failpoint
from makeway.runtime.kube import ApiError, ApiUnavailable

ANSWER_SECONDS: Final = 2.0
"""How long one question waits for its answer, before it is asked again."""

ASKS_AGAIN_SECONDS: Final = 0.25
"""Between two questions where the first came to nothing at once."""

ANSWERED_WITHIN: Final = timedelta(seconds=2)
"""How long after the time by which an order had to be stored an answer is still waited for."""

NOMINATES_AGAIN: Final = 3
"""How often a pod is nominated anew that changes meanwhile."""

_log = structlog.get_logger()


ORPHAN_AFTER: Final = timedelta(seconds=5)
"""How old a nomination without an order is before it is looked at: its order may be about to be read."""

NODE_AGAIN: Final = timedelta(seconds=5)
"""How long after its room was made, and between two looks, the node of a pod that is not bound is read."""

MOST_LOOKED_AT: Final = 50
"""Nominations without an order, whoever wrote them, and rooms that were made, that one round reads; the
others have their turn in the next."""

WAITED_FOR_SECONDS: Final = 0.25
"""How long a round waits at the most until a nomination is taken back."""

VICTIMS_A_LOOK: Final = 10
"""So many of one order are read at the most; a look ends at the first that is there."""


@dataclass(eq=False)
class Commits:
    """Those of one nominator, while it leads.

    `failed` is called with the UID of each pod whose order was not stored, `wake` when a commit has ended.
    """

    parts: NominatorParts
    in_flight: OrdersInFlight
    failed: Callable[[str], None]
    nominations: Nominations
    wake: Callable[[], None]
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(
        self,
        commit: CommitRequest,
        order: EvictionOrder,
        stored: StoredPod,
        waits_until: datetime | None = None,
    ) -> OrderInFlight:
        """Begin to commit an order for a pod as it was read; one that waits is never stored."""
        begun = self.in_flight.begin(order, waits_until=waits_until)
        task = asyncio.create_task(self._commit(begun, commit, stored), name="commit")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return begun

    async def stop(self) -> None:
        """End what is under way, as it is."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self.nominations.stop(), return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task_failed_unexpectedly", task=task.get_name(), error=str(error), exc_info=error)
        self.wake()

    async def _commit(self, one: OrderInFlight, commit: CommitRequest, stored: StoredPod) -> None:
        """Nominate the pod, and have its order stored; or take the nomination back."""
        try:
            last = await self.parts.bus.last_order(one.uid)
            if isinstance(last, Last) and await self._is_live(last.message):
                self._give_up(one, "changed", "another order for this pod is in the stream")
                return
            await failpoint("nominator.before-nominate", commit.order_id)
            await self._nominate(stored.pod, commit.node)
            self.nominations.written(one.uid)
            _log.info("preemptor_nominated", order_id=commit.order_id, pod_uid=one.uid, node=commit.node)
            await failpoint("nominator.after-nominate", commit.order_id)
            after = last.sequence if last is not None else 0
            one.stored = one.waits or await self._is_stored(one, structs.replace(commit, after=after))
        except Changed as changed:
            self._give_up(one, "changed", str(changed))
        except Malformed as error:
            self._give_up(one, "not_stored", f"the pod's last order cannot be read: {error}")
        except (ApiError, ApiUnavailable, BusError) as error:
            await self._take_back(one, "not_stored", str(error))

    async def _nominate(self, pod: Pod, node: str) -> None:
        """Nominate a pod, as it is by now where it has changed since it was planned for. Raises Changed.

        Its scheduler writes its condition now and then, and its author whatever they like.
        """
        for _ in range(NOMINATES_AGAIN):
            try:
                return await self.parts.cluster.nominate(pod, node)
            except Changed:
                there = await self.parts.cluster.pod(pod.metadata.namespace, pod.metadata.name)
                if there is None or not decide.still_waits(there.pod, pod.metadata.uid):
                    raise
                pod = there.pod
        return await self.parts.cluster.nominate(pod, node)

    async def _is_stored(self, one: OrderInFlight, commit: CommitRequest) -> bool:
        """Have the planner store an order; report whether it is stored, or the room is there without it."""
        reply = await self._answer(commit)
        if reply is None:
            await self._take_back(one, "not_stored", "no planner has answered in time")
            return False
        if reply.order is None:
            why = reply.void or Void(reason="unknown", message="the planner did not say why")
            if why.reason == NOTHING:
                one.wait(datetime.now(UTC) + SETTLES)
                return True
            await self._take_back(one, "not_stored", f"{why.reason}: {why.message}")
            return False
        one.is_stored(reply.order)
        _log.info(
            "order_committed",
            order_id=commit.order_id,
            decision_id=one.order.decision_id,
            pod=f"{commit.preemptor.namespace}/{commit.preemptor.name}",
            pod_uid=one.uid,
            node=commit.node,
            victims=len(reply.order.victims),
            awaited=len(reply.order.awaited),
        )
        return True

    async def _answer(self, commit: CommitRequest) -> CommitReply | None:
        """Ask with the same id until there is an answer; None where none has come in time."""
        loop, data = asyncio.get_running_loop(), codec.encode(commit)
        until = loop.time() + (commit.store_by + ANSWERED_WITHIN - steady_now()).total_seconds()
        await failpoint("nominator.before-commit", commit.order_id)
        while (left := until - loop.time()) > 0:
            try:
                asked = self.parts.bus.request_commit(data, min(ANSWER_SECONDS, left))
                reply = codec.decode(CommitReply, await asked)
            except (BusError, Malformed) as error:
                _log.warning("commit_not_answered", order_id=commit.order_id, reason=str(error))
            else:
                if reply.order_id == commit.order_id:
                    await failpoint("nominator.after-commit", commit.order_id)
                    return reply
            await asyncio.sleep(ASKS_AGAIN_SECONDS)
        return None

    async def _is_live(self, order: EvictionOrder) -> bool:
        if order.void is not None or datetime.now(UTC) >= order.not_after + PAST_DEADLINE:
            return False
        return await self.parts.bus.outcome(order.order_id) is None

    def _give_up(self, one: OrderInFlight, result: str, why: str) -> None:
        """Forget an order that is not stored, of which nothing is left."""
        self.parts.metrics.orders.labels(result).inc()
        self.in_flight.end(one)
        one.preemption.end(why, result=result)
        self.failed(one.uid)
        _log.info("order_dropped", order_id=one.order.order_id, pod_uid=one.uid, reason=why)

    async def _take_back(self, one: OrderInFlight, result: str, why: str) -> None:
        """Remove the nomination of an order that is not stored, where it is still the nominator's."""
        self._give_up(one, result, why)
        if one.order.preemptor is not None:
            await self.nominations.clear(
                one.order.preemptor.namespace, one.order.preemptor.name, one.uid, result
            )


class Nominations:
    """Those of one nominator, while it leads. One that another wrote is never touched."""

    def __init__(self, parts: NominatorParts, in_flight: OrdersInFlight) -> None:
        self._parts = parts
        self._cluster_uid = parts.writer.cluster_uid
        self._in_flight = in_flight
        self._clearing: dict[str, asyncio.Task[bool]] = {}
        self._orphans: dict[str, datetime] = {}
        self._not_ours: dict[str, str] = {}

    def __contains__(self, uid: str) -> bool:
        """Report whether a pod has a nomination without an order."""
        return uid in self._orphans

    def are_busy_with(self, uid: str) -> bool:
        """Report whether a pod has an order in flight, or its nomination is being taken back."""
        taken_back = uid in self._clearing and not self._clearing[uid].done()
        return taken_back or self._in_flight.of(uid) is not None

    async def stop(self) -> None:
        """End what is under way, as it is."""
        for task in self._clearing.values():
            task.cancel()
        await asyncio.gather(*self._clearing.values(), return_exceptions=True)

    def written(self, uid: str) -> None:
        """Take note that a pod's nomination is the nominator's, whoever wrote one to that node before."""
        self._not_ours.pop(uid, None)

    async def yield_to(self, order: EvictionOrder) -> None:
        """Take note of who has lost a place to an order's pod, which has left: it may be bound there, or not.

        Raises ApiError, ApiUnavailable.
        """
        taken_from, about = self._in_flight.outnominated_by(order), order.preemptor
        if not taken_from or about is None:
            return
        there = await self._parts.cluster.pod(about.namespace, about.name)
        if there is not None and decide.has_its_place(there.pod, order):
            for lower in taken_from:
                lower.lost = lower.lost or "yielded"

    async def look_for_orphans(self, now: datetime) -> None:
        """Go on with the orders of nominators before; take back nominations that no order is behind.

        Raises BusUnavailable.
        """
        external = self._parts.classes.external
        nominated = {
            pod.uid: pod
            for pod in self._parts.pods.nominated()
            # Its class may have been opted in when it was nominated.
            if (pod.class_name in external or pod.policy == NEVER)
            and self._in_flight.of(pod.uid) is None
            and self._not_ours.get(pod.uid) != pod.nominated
        }
        for uid in [uid for uid in self._orphans if uid not in nominated]:
            del self._orphans[uid]
        for uid in [uid for uid in self._not_ours if uid not in self._parts.pods.by_uid]:
            del self._not_ours[uid]
        for uid in [uid for uid, task in self._clearing.items() if task.done()]:
            if uid not in nominated and self._in_flight.of(uid) is None:
                del self._clearing[uid]
        for uid in nominated:
            self._orphans.setdefault(uid, now)
        due = [uid for uid in nominated if now - self._orphans[uid] >= ORPHAN_AFTER]
        for uid in sorted(due, key=self._orphans.__getitem__)[:MOST_LOOKED_AT]:
            self._orphans[uid] = now
            if not await self._adopt(nominated[uid]):
                await self.take_back(nominated[uid], "orphaned")

    async def _adopt(self, pod: PendingPod) -> bool:
        """Go on with the order behind a pod's nomination; report whether there is one that is not over."""
        try:
            last = await self._parts.bus.last_order(pod.uid)
            order = last.message if isinstance(last, Last) else None
            if order is None or order.void is not None or not order.is_external:
                return False
            if (order.cluster_uid, order.node) != (self._cluster_uid, pod.nominated):
                return False
            one = self._in_flight.begin(order, stored=True)  # an outcome that comes from now on is heard
            try:
                outcome = await self._parts.bus.outcome(order.order_id)
            except BusError:
                self._in_flight.end(one)  # one that came before is not
                raise
        except Malformed:
            return False
        one.shown = True
        one.outcome = one.outcome or (outcome.message if outcome is not None else None)
        if decide.is_over(order, one.outcome, datetime.now(UTC)):
            self._in_flight.end(one)
            return False
        _log.info("order_adopted", order_id=order.order_id, pod_uid=pod.uid, node=order.node)
        return True

    async def look_at_room(self, one: OrderInFlight, now: datetime) -> bool:
        """Look at the room that was made for a pod; report whether its node has come to be none for it.

        Once all victims have left, the pod is bound soon or not at all, whatever their grace periods were.
        """
        one.looks_at = now + NODE_AGAIN
        about, node, cluster = one.order.preemptor, one.order.node, self._parts.cluster
        if about is None:
            return False
        try:
            if await cluster.keeps_out(about.namespace, about.name, node):
                return True
            for victim in one.leaving[:VICTIMS_A_LOOK]:
                if not await cluster.has_left(victim):
                    break
                one.leaving.remove(victim)
                if not one.leaving:
                    one.until = min(one.until, now + SETTLES)
        except (ApiError, ApiUnavailable) as error:
            _log.warning("node_not_read", node=node, pod_uid=one.uid, error=str(error))
        return False

    async def take_back(self, pod: PendingPod, reason: str) -> bool:
        """Clear a nomination beside the rounds; return whether that is known to have worked by now.

        The API server may take as long as the webhooks of one namespace, and others must not wait for those:
        a round waits for one that it begins, for a moment, where no other is under way.
        """
        task = self._clearing.get(pod.uid)
        if task is None:
            alone = all(one.done() for one in self._clearing.values())
            clear = self.clear(pod.namespace, pod.name, pod.uid, reason)
            task = self._clearing[pod.uid] = asyncio.create_task(clear, name="take-back")
            if alone:
                await asyncio.wait({task}, timeout=WAITED_FOR_SECONDS)
        if not task.done():
            return False
        del self._clearing[pod.uid]
        return task.result()

    async def clear(self, namespace: str, name: str, uid: str, reason: str) -> bool:
        """Remove a nomination of the nominator's, tried a few times. Return whether none of its is left."""
        for _ in range(3):
            try:
                stored = await self._parts.cluster.pod(namespace, name)
                if stored is None or stored.pod.metadata.uid != uid or stored.pod.spec.node_name:
                    return True
                if not stored.nominated_by_us():
                    if stored.pod.status.nominated_node_name:
                        self._not_ours[uid] = stored.pod.status.nominated_node_name
                    return True
                await self._parts.cluster.clear_nomination(stored.pod)
            except Changed:
                continue
            except (ApiError, ApiUnavailable) as error:
                _log.warning("nomination_not_cleared", pod=f"{namespace}/{name}", error=str(error))
                return False  # looked at again as one without an order
            self._parts.metrics.cleared.labels(reason).inc()
            _log.info("nomination_cleared", pod=f"{namespace}/{name}", pod_uid=uid, reason=reason)
            return True
        return False
