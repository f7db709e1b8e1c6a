"""Answering plan requests: receive, decode, check, plan, reply, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import structlog

from makeway.bus import codec, tracing
from makeway.bus.commit import Offer, offered
from makeway.bus.errors import Malformed
from makeway.bus.ids import decision_id
from makeway.bus.plan import PlanReply, PlanRequest
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import Decision, decision_of
from makeway.planner.plan.reply import reply_of, unplanned
from makeway.planner.plan.request import NamelessPodError, Question, question_of
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.plan.unfiltered import answering
from makeway.planner.service.decisions import Decisions
from makeway.planner.service.freshness import FirstFailures, StaleRefusals
from makeway.planner.service.orders.ledger import Ledger
from makeway.planner.service.orders.not_now import Asker, NotNow
from makeway.planner.service.orders.pauses import elsewhere
from makeway.planner.service.orders.pledges import pledge_of
from makeway.planner.service.plan_requests import NotPlannedError, PlanRequests, with_places
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.failpoints import failpoint

_log = structlog.get_logger()


class Planner:
    """Answers one request at a time on the event loop, which alone changes the snapshot in between.

    It holds the loop for some 10 ms at most: a plan pauses after every few thousand nodes.

    `requests`: the checks that every request goes through, shared with those about groups.
    `observe` is told of every decision of mode observe, before the scheduler is.
    `hold_back` leaves out of a plan what goes on with a preemption loop, and what waits for a node.
    `behind(seen)` says whether a scheduler that has seen these versions, by resource, knows more.
    """

    def __init__(
        self,
        requests: PlanRequests,
        *,
        snapshot: Snapshot,
        ledger: Ledger,
        decisions: Decisions,
        metrics: PlannerMetrics,
        behind: Callable[[Mapping[str, int]], bool],
        observe: Callable[[Decision], None] = lambda _: None,
        hold_back: Callable[[Question, Plan, datetime], Plan | PlanRefusal] = lambda _, plan, now: plan,
    ) -> None:
        self._requests = requests
        self._facts = requests.facts
        self._snapshot = snapshot
        self._cache = PlanCache()
        self._records = PodRecords()
        self._ledger = ledger
        self._decisions = decisions
        self._metrics = metrics
        self._behind = behind
        self._observe = observe
        self._hold_back = hold_back
        self._stale_refusals = StaleRefusals()
        self._first_failures = FirstFailures()

    async def handle(self, data: bytes, sender: str = "") -> bytes:
        """Answer one plan request. Never raises for what a request may contain.

        `sender`: the process with one clock, as far as that is known.
        """
        await failpoint("planner.request-received")
        now = datetime.now(UTC)
        try:
            request = codec.decode(PlanRequest, data)
        except Malformed as error:
            return self._decline("malformed", "MalformedRequest", str(error), codec.request_id_of(data))
        try:
            reply = await self._answer(request, sender, now)
        except NotPlannedError as error:
            return self._decline(error.label, error.reason, error.message, request.request_id)
        await failpoint("planner.before-reply")
        return reply

    async def _answer(self, request: PlanRequest, sender: str, now: datetime) -> bytes:
        await self._requests.check(request, sender, now)
        # Only budgets and queues look at them, and where orders come fast there are hundreds.
        asked = len(self._snapshot.budgets) or self._snapshot.queues.tree is not None
        leaving = self._ledger.leaving(now) if asked else frozenset[str]()
        try:
            question = question_of(request, {}, leaving, records=self._records)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            raise NotPlannedError("malformed", "MalformedPod", str(error)) from error
        self._requests.check_brake(question.preemptor.namespace)
        self._requests.check_commits(request.mode, commits=request.commits)
        enforced = request.mode == "enforce"
        asking, ledger = question.preemptor.uid, self._ledger
        pledged = question.preemptor.priority if enforced else None
        question = replace(
            question,
            in_flight=ledger.in_flight(request.live_orders, now, asking=asking, pledged=pledged),
            nominations=with_places(
                request.nominations, ledger.places(now, asking=asking) if enforced else {}
            ),
        ).leaving_out(ledger.left_out(asking, request.live_orders, now))
        if question.daemonset_node:
            question = replace(
                question, unfit_since=self._first_failures.note(asking, question.unfit_since, now)
            )
        return await self._plan(request, question, now)

    async def _plan(self, request: PlanRequest, question: Question, now: datetime) -> bytes:
        began = time.perf_counter()
        steps = answering(self._snapshot, question, now, self._cache)
        result: Plan | PlanRefusal = await self._requests.run(steps, request, began)
        seconds = time.perf_counter() - began
        looked_at_again = held_back = False
        if isinstance(result, Plan) and request.mode == "enforce":
            planned = result
            result = self._unless_not_now(request, question, planned, now)
            held_back = result is not planned
        if isinstance(result, PlanRefusal) and not held_back:
            behind = self._behind(request.seen) or bool(self._snapshot.undecided)
            first = result
            result = self._stale_refusals.with_retry(result, question.preemptor.uid, now, behind=behind)
            looked_at_again = result is not first
        decision = decision_of(
            self._snapshot,
            request,
            question,
            result,
            decision_id=decision_id(now),
            planner=self._facts.identity,
            at=now,
            duration_seconds=seconds,
            looked_at_again=looked_at_again,
            held_back=held_back,
        )
        reply = reply_of(
            result,
            request_id=request.request_id,
            planner=self._facts.identity,
            decision_id=decision.decision_id,
            policy_revision=self._snapshot.exemptions.revision,
        )
        if request.mode == "enforce":
            pledge = None
            if isinstance(result, Plan):
                reply = msgspec.structs.replace(reply, offer=self._offer(decision, result))
                if not request.ahead:  # most of those fit as they are
                    pledge = pledge_of(question.preemptor, result, decision.decision_id, now)
            self._ledger.pledges.pledge(question.preemptor.uid, pledge)
        self._decisions.put(decision)
        if request.mode == "observe":
            self._observe(decision)
        self._count(result, seconds)
        self._log(decision, reply)
        return codec.encode(reply)

    def _offer(self, decision: Decision, plan: Plan) -> str:
        """Write what a commit may name. Raises NotPlannedError where it cannot be signed."""
        question = decision.asked
        one = Offer(
            decision_id=decision.decision_id,
            cluster_uid=self._facts.cluster_uid,
            preemptor_uid=question.preemptor.uid,
            at=decision.at,
            pods=offered(
                (candidate.node, pod.pod.uid)
                for candidate in (*plan.candidates, *plan.unmodelled)
                for pod in candidate.removable
            ),
            daemonset_node=question.daemonset_node,
            unfit_since=question.unfit_since if question.daemonset_node else None,
        )
        return self._requests.sealed(one)

    def _unless_not_now(
        self, request: PlanRequest, question: Question, plan: Plan, now: datetime
    ) -> Plan | PlanRefusal:
        """Return a plan, on other nodes than where room came to nothing, or why it is not carried out now."""
        preemptor, pauses, snapshot = question.preemptor, self._ledger.pauses, self._snapshot
        asking = Asker(preemptor.uid, preemptor.namespace, preemptor.priority)
        if (why := pauses.of(asking, snapshot, now)) is not None:
            return _refusal(plan, why)
        left = elsewhere(plan, pauses.tried(asking, snapshot, question.nominations))
        result = self._hold_back(question, left, now)
        if isinstance(result, PlanRefusal):
            return result
        why = self._ledger.limit(asking, result, request.live_orders, snapshot, now)
        return result if why is None else _refusal(result, why)

    def _count(self, result: Plan | PlanRefusal, seconds: float) -> None:
        if isinstance(result, PlanRefusal):
            label = "refused"
            self._metrics.refusals.labels(result.reason).inc()
        elif result.candidates:
            label = "candidates"
            self._metrics.victims.observe(len(result.candidates[0].victims))
        else:
            label = "unmodelled"
        for constraint in result.left_out:
            self._metrics.left_out.labels(constraint).inc()
        self._metrics.attempts.labels(label).inc()
        self._metrics.plan_seconds.labels(label).observe(seconds)

    def _log(self, decision: Decision, reply: PlanReply) -> None:
        preemptor = decision.asked.preemptor
        best = reply.candidates[0] if reply.candidates else None
        tracing.tell(request_id=reply.request_id, decision_id=reply.decision_id, status=reply.status)
        _log.debug(
            "planned",
            pod=f"{preemptor.namespace}/{preemptor.name}",
            pod_uid=preemptor.uid,
            request_id=decision.request.request_id,
            decision_id=decision.decision_id,
            status=reply.status,
            reason=reply.refusal.reason if reply.refusal else "",
            node=best.node if best else "",
            victims=sum(one.victim for one in best.removable) if best else 0,
            awaited=len(best.awaited) if best else 0,
            candidates=len(reply.candidates),
            unmodelled=reply.unmodelled_total,
            snapshot_revision=reply.snapshot_revision,
            plan_milliseconds=round(decision.duration_seconds * 1000, 3),
        )

    def _decline(self, label: str, reason: str, message: str, request_id: str) -> bytes:
        """Return why there is no plan. No refusal: nothing was decided, so the scheduler may help itself."""
        self._metrics.attempts.labels(label).inc()
        if label == "malformed":
            self._metrics.undecodable("plan")
        tracing.tell(message, request_id=request_id, reason=reason)
        _log.warning("plan_not_made", request_id=request_id, reason=reason, message=message)
        reply = unplanned(
            PlanReply, request_id=request_id, planner=self._facts.identity, reason=reason, message=message
        )
        return codec.encode(reply)


def _refusal(plan: Plan, why: NotNow) -> PlanRefusal:
    """Return the refusal of a plan that is not carried out now."""
    return PlanRefusal(
        scope=plan.scope,
        reason=why.reason,
        message=why.message,
        retry_at=why.retry_at,
        depends_on=why.depends_on,
        left_out=plan.left_out,
    )
