"""The nominator's loop: for each pod that waits ask, choose, nominate, commit an order; then see it bound.

What the plugin does inside kube-scheduler, from outside it. One pod is planned for at a time, so that each
plan knows the nominations of those before; the API server and the streams are waited for beside that. Nothing
is deleted here. Every step is bounded: a request, a patch, an order's life.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

import structlog
from msgspec.structs import replace

from makeway.bus import tracing
from makeway.bus.commit import named_order
from makeway.bus.errors import BusError
from makeway.bus.ids import order_id
from makeway.bus.messages import Outcome
from makeway.bus.plan import TOO_LATE, Candidate, PlanReply
from makeway.nominator import decide
from makeway.nominator.attempts import LONGEST_PAUSE, Attempts, AttemptsByPod, LostNominations
from makeway.nominator.cluster import StoredPod
from makeway.nominator.commits import MOST_LOOKED_AT, NODE_AGAIN, Commits, Nominations
from makeway.nominator.in_flight import OrderInFlight, OrdersInFlight
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPod
from makeway.nominator.questions import NoAnswer, Questions
from makeway.nominator.steady import steady_now
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.process import until_set

TICK_SECONDS: Final = 0.25
"""Between two rounds where nothing is heard."""

MOST_IN_FLIGHT: Final = 1000
"""Orders without an outcome at the most. The planner allows no more, and says who waits: by priority and by
namespace, of which the nominator knows nothing."""

OBSERVED_AGAIN: Final = timedelta(minutes=5)
"""Between two plans for a pod in mode observe, which changes nothing."""

UNANSWERED: Final = 3
"""So many orders in a row without an outcome mean that no evictor is at work: then one goes at a time."""

CLEARS_AGAIN: Final = timedelta(seconds=1)
"""Between two attempts to take back the nomination of an order that is over."""

SOON: Final = timedelta(seconds=5)
"""How long a pod waits at the most for what has nothing to do with it."""

MOST_NAMED: Final = 10
"""PriorityClasses that one line of the log names."""

ROUND_SECONDS: Final = 1.0
"""How long one round plans for pods, before what is in flight is looked at again."""

_log = structlog.get_logger()


class Nominator:
    """One process's. `lead` while it holds the Lease."""

    def __init__(self, parts: NominatorParts) -> None:
        self._parts = parts
        self._wake = asyncio.Event()
        self._begin()

    def _begin(self) -> None:
        """Remember nothing of an earlier lead."""
        self.in_flight = OrdersInFlight()
        self._attempts = AttemptsByPod()
        self._questions = Questions(self._parts)
        self._nominations = Nominations(self._parts, self.in_flight)
        self._commits = Commits(self._parts, self.in_flight, self._pause, self._nominations, self._wake.set)
        self._losses = LostNominations()
        self._unanswered = 0
        self._revision = 0
        self._told_of: frozenset[str] | None = None

    # ------------------------------------------------------------------------------ what is heard

    def changed(self, uid: str) -> None:
        """Take note that a pod came, changed or left."""
        one, pod = self.in_flight.of(uid), self._parts.pods.by_uid.get(uid)
        if one is not None and pod is not None and pod.nominated == one.order.node:
            one.shown = True
        known = uid in self._attempts or uid in self._nominations or one is not None
        if known or (pod is not None and pod.class_name in self._parts.classes.external):
            self._wake.set()

    def ended(self, outcome: Outcome) -> None:
        """Take note of an outcome of an order. The first counts."""
        if (one := self.in_flight.get(outcome.order_id)) is not None:
            one.outcome = one.outcome or outcome
            self._unanswered = 0
            self._wake.set()

    def trouble(self) -> str:
        """Return why nothing is planned at the moment; empty where something may be."""
        if missing := self._parts.synced():
            return missing
        if not self._parts.classes.external:
            return ""
        if self._unanswered >= UNANSWERED:
            return f"{self._unanswered} orders in a row had no outcome: is an evictor running?"
        if self._parts.shadow is not None and self._parts.shadow.away:
            return "the shadow scheduler does not answer: pods that only filters can judge are refused"
        return self._losses.describe(datetime.now(UTC))

    # ------------------------------------------------------------------------------------- leading

    async def lead(self) -> NoReturn:
        """Preempt while this process leads; ends by being cancelled."""
        self._begin()
        try:
            while True:
                self._wake.clear()
                if not self._parts.synced():
                    try:
                        await self._round()
                    except (BusError, ApiError, ApiUnavailable) as error:
                        _log.warning("round_failed", error=str(error))
                await until_set(self._wake, TICK_SECONDS)
        finally:
            self._unanswered = 0  # another one sees to the orders
            self._parts.metrics.rests()
            await self._commits.stop()

    async def _round(self) -> None:
        """See what became of the orders in flight, then plan for the pods that are due."""
        now = datetime.now(UTC)
        self._tell_of_classes()
        self._try_again_after_a_change(now)
        looked_at = self.in_flight.to_look_at(now, MOST_LOOKED_AT)
        for one in self.in_flight:
            await self._look_after(one, now, looks=one.uid in looked_at)
        await self._nominations.look_for_orphans(now)
        self._parts.metrics.classes.set(len(self._parts.classes.external))
        until = time.monotonic() + ROUND_SECONDS
        for pod, attempts in self._in_turn():
            # What is in flight has its turn again, and a planner that does not answer costs one wait a round.
            if self._full() or time.monotonic() > until or self._questions.quiet():
                break
            try:
                await self._attempt(pod, attempts)
            except (ApiError, ApiUnavailable):
                # It may be this one pod that cannot be read.
                attempts.pause(datetime.now(UTC), longest=SOON)
                raise
        self._parts.metrics.in_flight.set(len(self.in_flight))

    def _tell_of_classes(self) -> None:
        """Say whose pods are made room for, and that there are none, once each time that it changes."""
        external = self._parts.classes.external
        if external == self._told_of:
            return
        self._told_of = external
        if external:
            _log.info("classes_opted_in", classes=len(external), some=sorted(external)[:MOST_NAMED])
        else:
            _log.info("no_class_opted_in", effect="pods are watched, and no plan is asked for")

    def _try_again_after_a_change(self, now: datetime) -> None:
        """Wait no longer for any pod where policy, mode or queues are others than when it was refused."""
        state = self._parts.streams.state
        revision = state.revision if state is not None else 0
        if revision == self._revision:
            return
        self._revision = revision
        self._attempts.retry(now)

    def _in_turn(self) -> list[tuple[PendingPod, Attempts]]:
        """Return the pods to make room for now, in their order."""
        external, now = self._parts.classes.external, datetime.now(UTC)
        self._attempts.keep(self._parts.pods.by_uid)
        waiting = [
            pod
            for pod in self._parts.pods.of_classes(external)
            if not self._nominations.are_busy_with(pod.uid) and not decide.refusal_of(pod, external)
        ]
        self._parts.metrics.waiting.set(len(waiting))
        return self._attempts.in_turn(waiting, now, lambda pod: self._parts.classes.may_preempt_at(pod, now))

    def _full(self) -> bool:
        """Report whether as many orders wait for their outcome as one nominator looks after."""
        most = MOST_IN_FLIGHT if self._unanswered < UNANSWERED else 1
        return self.in_flight.without_outcome() >= most

    # ------------------------------------------------------------------------------ one pod's plan

    async def _attempt(self, pod: PendingPod, attempts: Attempts) -> None:
        """Plan for a pod and begin an order, or remember why not. Raises ApiError, ApiUnavailable."""
        mode = self._parts.streams.mode(pod.namespace)
        now = datetime.now(UTC)
        if mode == "off" or (await self._parts.brake.fresh()).holds(pod.namespace):
            attempts.pause(now, longest=SOON)
            return
        stored = await self._parts.cluster.pod(pod.namespace, pod.name)
        if stored is None or not decide.still_waits(stored.pod, pod.uid):
            return  # the watch is about to say so
        preemption = tracing.begin("preemption", preemptor=pod, preemptor_uid=pod.uid)
        with preemption.current():
            begun = await self._plan(pod, stored, mode, attempts)
        if begun is None:
            preemption.end(result="no-order")
        else:
            begun.preemption = preemption

    async def _plan(
        self, pod: PendingPod, stored: StoredPod, mode: str, attempts: Attempts
    ) -> OrderInFlight | None:
        """Ask for a plan and begin an order by it; None where there is none. Raises as `_attempt`."""
        reply = await self._questions.ask(stored, mode)
        if isinstance(reply, NoAnswer):
            attempts.pause(datetime.now(UTC), longest=reply.longest)
            if reply.reason:
                _log_refusal(pod, reply.reason, reply.message)
            return None
        now = datetime.now(UTC)
        if reply.refusal is not None or not reply.candidates:
            self._refused(pod, reply, attempts, now)
            return None
        if mode == "observe":
            self._parts.metrics.plans.labels("observed").inc()
            attempts.next_at = now + OBSERVED_AGAIN
            return None
        self._parts.metrics.plans.labels("candidates").inc()
        return await self._order(pod, stored, reply.candidates[0], reply, attempts)

    def _refused(self, pod: PendingPod, reply: PlanReply, attempts: Attempts, now: datetime) -> None:
        refusal, not_synced = reply.refusal, reply.status == "notSynced"
        self._parts.metrics.plans.labels("not_synced" if not_synced else "refused").inc()
        # A plan that takes too long keeps others from theirs meanwhile.
        passes = not_synced and (refusal is None or refusal.reason != TOO_LATE)
        attempts.pause(now, longest=SOON if passes else LONGEST_PAUSE)
        if refusal is not None and refusal.retry_at is not None:
            attempts.again_at(max(now, refusal.retry_at))
        if refusal is not None:
            _log_refusal(pod, refusal.reason, refusal.message, reply.decision_id)

    async def _order(
        self,
        pod: PendingPod,
        stored: StoredPod,
        candidate: Candidate,
        reply: PlanReply,
        attempts: Attempts,
    ) -> OrderInFlight | None:
        """Begin to commit an order for a candidate; None where it cannot be."""
        now, steady = datetime.now(UTC), steady_now()
        node = await self._parts.cluster.node(candidate.node)
        if node is None:
            self._parts.metrics.orders.labels("changed").inc()
            attempts.pause(now)
            why = f"node {candidate.node} does not exist any more"
            _log_refusal(pod, "PlanChanged", why, reply.decision_id)
            return None
        commit = decide.commit_of(
            self._parts.writer,
            order_id=order_id(steady),
            offer=reply.offer,
            preemptor=stored.pod,
            candidate=candidate,
            node_uid=node.metadata.uid,
            now=steady,
        )
        waits = decide.waits_until(candidate, now)
        order = named_order(
            commit,
            decision_id=reply.decision_id,
            priority=pod.priority,
            scheduler_name=stored.pod.spec.scheduler_name or "default-scheduler",
            now=now,
        )
        if not waits:
            lower = decide.outnominated(self._parts.pods.nominated(), candidate.node, pod)
            order = replace(order, nominations_to_clear=lower)
        begun = self._commits.begin(commit, order, stored, waits)
        begun.since = attempts.first_seen
        return begun

    def _pause(self, uid: str, *, anew: bool = False) -> None:
        """Have a pod wait whose order came to nothing; `anew`: as after the first."""
        if (pod := self._parts.pods.by_uid.get(uid)) is not None:
            now = datetime.now(UTC)
            attempts = self._attempts.of(pod, now)
            attempts.failures = 0 if anew else attempts.failures
            attempts.pause(now)

    # -------------------------------------------------------------------------- orders in flight

    async def _look_after(self, one: OrderInFlight, now: datetime, *, looks: bool) -> None:
        """See what has become of an order that is in its stream; `looks`: at its room, too.

        Raises ApiError, ApiUnavailable.
        """
        if not one.stored:
            return
        order, pod = one.order, self._parts.pods.by_uid.get(one.uid)
        outcome = one.outcome
        if pod is None:
            await self._left(one, now)
            return
        if one.shown and one.lost != "yielded" and pod.nominated != order.node:
            higher = decide.is_outranked(self._parts.pods.nominated(), order.node, pod)
            by_others = "changed" if pod.nominated else "cleared"
            one.lose("yielded" if higher or self.in_flight.clears(one.uid) else by_others, now)
        if outcome is not None and not one.made:
            if outcome.result == "succeeded":
                one.made = True
                one.preemption.end(result=outcome.result)
                one.until = decide.settles_until(outcome, now)
                one.looks_at, one.leaving = now + NODE_AGAIN, list(order.victims)
            else:
                await self._over(one, outcome.result, now, outcome.message)
                return
        kept_out = looks and await self._nominations.look_at_room(one, now)
        if one.made and (one.makes_no_room(now) or now >= one.until or kept_out):
            await self._over(one, "waited" if one.waits else "succeeded", now)
        elif not one.made and now >= one.until:
            await self._over(one, "expired", now)

    async def _left(self, one: OrderInFlight, now: datetime) -> None:
        """The pod was bound or deleted; an order without an outcome ends by itself. Raises as above."""
        await self._nominations.yield_to(one.order)
        self.in_flight.end(one)
        one.preemption.end(result=one.outcome.result if one.outcome is not None else "bound")
        self._parts.metrics.orders.labels("bound").inc()
        if one.since is not None and one.outcome is not None:
            self._parts.metrics.bound_seconds.observe((now - one.since).total_seconds())
        _log.info("preemptor_gone", order_id=one.order.order_id, pod_uid=one.uid)

    async def _over(self, one: OrderInFlight, result: str, now: datetime, message: str = "") -> None:
        """End an order after which its pod is not bound, once its nomination is taken back."""
        pod = self._parts.pods.by_uid.get(one.uid)
        if pod is not None and pod.nominated == one.order.node:
            if now < one.clears_at:
                return
            one.clears_at = now + CLEARS_AGAIN
            if not await self._nominations.take_back(pod, "over"):
                return
        self._unanswered += result == "expired" and one.outcome is None
        self.in_flight.end(one)
        one.preemption.end(message or result, result=result)
        self._parts.metrics.orders.labels(result).inc()
        if one.is_lost_to_others:
            self._losses.add(now)
            self._parts.metrics.lost.labels(one.lost).inc()
            _log.warning(
                "nomination_lost",
                order_id=one.order.order_id,
                pod_uid=one.uid,
                node=one.order.node,
                how=one.lost,
            )
        # Who waits for terminating pods is planned for again now and then: without its place for moments.
        self._pause(one.uid, anew=one.waits and not one.lost)
        _log.info("order_over", order_id=one.order.order_id, pod_uid=one.uid, result=result)


def _log_refusal(pod: PendingPod, reason: str, message: str, decision_id: str = "") -> None:
    _log.info(
        "no_plan", pod=str(pod), pod_uid=pod.uid, reason=reason, message=message, decision_id=decision_id
    )
