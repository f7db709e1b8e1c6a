"""Answering plan requests, about a pod or a pod group: receive, decode, check, plan, reply, record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Generic, TypeAlias

import msgspec
import structlog

from makeway.bus import codec, tracing
from makeway.bus.errors import Malformed
from makeway.bus.group_plan import GroupPlanReply, GroupPlanRequest
from makeway.bus.ids import decision_id
from makeway.bus.plan import PlanReply, PlanRequest
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.decision import Decision, decision_of
from makeway.planner.plan.gang.planner import NOT_SEEN
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.reply import offer_of, reply_of, unplanned
from makeway.planner.plan.request import NamelessPodError, Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.service.decisions import Decisions
from makeway.planner.service.freshness import StaleRefusals
from makeway.planner.service.orders.ledger import Ledger
from makeway.planner.service.orders.not_now import Asker, NotNow
from makeway.planner.service.plan_requests import NotPlannedError, PlanRequests, with_places
from makeway.planner.service.searches import A, Q, R, Search, names_any
from makeway.planner.snapshot.state import Snapshot

_LOOK_AGAIN_SECONDS: Final = 0.01
"""Pause between two looks whether the watch has told of the pods that are asked about."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""How long a question may wait for the watch, whatever time-out it names: it is milliseconds behind."""

_log = structlog.get_logger()


class Planner(Generic[R, Q, A]):
    """Answers the requests of one form, on the event loop, which alone changes the snapshot in between.

    `requests`: the checks that every request goes through, shared with those of the other form.
    `observe` hears of every decision of mode observe, before the scheduler does.
    `behind(seen)` says whether a scheduler that has seen these versions, by resource, knows more.
    """

    def __init__(
        self,
        requests: PlanRequests,
        search: Search[R, Q, A],
        *,
        snapshot: Snapshot,
        ledger: Ledger,
        decisions: Decisions,
        metrics: PlannerMetrics,
        behind: Callable[[Mapping[str, int]], bool],
        observe: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self._requests = requests
        self._search = search
        self._facts = requests.facts
        self._snapshot = snapshot
        self._ledger = ledger
        self._decisions = decisions
        self._metrics = metrics
        self._behind = behind
        self._observe = observe
        self._stale_refusals = StaleRefusals()

    async def handle(self, data: bytes, sender: str = "") -> bytes:
        """Answer one plan request. Never raises for what a request may contain.

        `sender`: the process with one clock, as far as that is known.
        """
        await self._search.received()
        now = datetime.now(UTC)
        try:
            request = codec.decode(self._search.request, data)
        except Malformed as error:
            return self._decline("malformed", "MalformedRequest", str(error), codec.request_id_of(data))
        try:
            reply = await self._answer(request, sender, now)
        except NotPlannedError as error:
            return self._decline(error.label, error.reason, error.message, request.request_id)
        await self._search.replying()
        return codec.encode(reply)

    async def _answer(self, request: R, sender: str, now: datetime) -> PlanReply | GroupPlanReply:
        began = time.perf_counter()
        left = await self._requests.check(request, sender, now)
        async with self._search.turn():
            asker, question = self._question(request, now)
            if self._search.seen(question):
                return await self._plan(request, asker, question, now, began)
        # The other groups' plans go on meanwhile.
        until = began + min(left / 2, LONGEST_WAIT_SECONDS)
        while not self._search.seen(question):
            if time.perf_counter() > until:
                break
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        async with self._search.turn():
            now = datetime.now(UTC)
            return await self._plan(request, *self._question(request, now), now, began)

    def _question(self, request: R, now: datetime) -> tuple[Asker, Q]:
        """Decode what is asked about, with what orders and pledges take. Raises NotPlannedError."""
        # Only budgets and queues look at them, and where orders come fast there are hundreds.
        asked = len(self._snapshot.budgets) or self._snapshot.queues.tree is not None
        ledger = self._ledger
        leaving = ledger.leaving(now) if asked else frozenset[str]()
        try:
            asker, question = self._search.read(request, leaving, now)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            raise NotPlannedError("malformed", "MalformedPod", str(error)) from error
        self._requests.check_brake(asker.namespace)
        self._requests.check_commits(request.mode, commits=request.commits)
        enforced = request.mode == "enforce"
        pledged = asker.priority if enforced else None
        in_flight = ledger.in_flight(now, asking=asker.uid, pledged=pledged)
        placed = ledger.places(now, asking=asker.uid) if enforced else {}
        places = with_places(request.nominations, placed)
        left_out = ledger.left_out(asker.uid, now)
        return asker, self._search.around(question, in_flight, places, left_out)

    async def _plan(
        self, request: R, asker: Asker, question: Q, now: datetime, began: float
    ) -> PlanReply | GroupPlanReply:
        """Answer a question."""
        search, planning_since = self._search, time.perf_counter()
        result: A | PlanRefusal = await self._requests.run(search.plan(question, now), request, began)
        seconds = time.perf_counter() - planning_since
        looked_at_again = held_back = False
        if not isinstance(result, PlanRefusal) and request.mode == "enforce":
            planned = result
            result = self._unless_not_now(request, asker, question, planned, now)
            held_back = result is not planned
        if isinstance(result, PlanRefusal) and not held_back:
            behind = self._behind(request.seen) or bool(self._snapshot.undecided) or result.reason == NOT_SEEN
            behind = behind or (request.mode == "enforce" and self._counts_on_pledges(asker, question, now))
            first = result
            result = self._stale_refusals.with_retry(first, asker.uid, now, behind=behind)
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
        offer = ""
        if request.mode == "enforce":
            pledge = None
            if not isinstance(result, PlanRefusal):
                offer = self._requests.sealed(offer_of(decision, self._facts.cluster_uid))
                pledge = search.pledge(asker, question, result, decision)
            self._ledger.pledges.pledge(asker.uid, pledge)
        self._decisions.put(decision)
        if request.mode == "observe":
            self._observe(decision)
        search.count(result, seconds)
        self._tell(decision)
        return reply_of(decision, offer)

    def _counts_on_pledges(self, asker: Asker, question: Q, now: datetime) -> bool:
        """Report whether others have pledges on nodes that may help: no event tells where no commit comes."""
        taken = {
            place.node
            for one in self._ledger.pledges.live(now, asking=asker.uid)
            if one.preemptor.priority >= asker.priority
            for place in one.places
        }
        return bool(taken) and any(names_any(one, taken) for one in self._search.selections(question))

    def _unless_not_now(
        self, request: R, asker: Asker, question: Q, plan: A, now: datetime
    ) -> A | PlanRefusal:
        """Return a plan, on other nodes than where room came to nothing, or why it is not carried out now."""
        if (why := self._ledger.pauses.of(asker, self._snapshot, now)) is not None:
            return _refusal(plan, why)
        result = self._search.not_held(asker, question, plan, now)
        if isinstance(result, PlanRefusal):
            return result
        why = self._ledger.limit(asker, result, self._snapshot, now)
        if why is None:
            return result
        self._requests.check_carried_out(why)
        return _refusal(result, why)

    def _tell(self, decision: Decision) -> None:
        refusal, preemptor = decision.refusal, decision.preemptor
        reason, request_id = refusal.reason if refusal else "", decision.request.request_id
        status = "refused" if refusal else "candidates"
        if refusal is not None:
            self._metrics.refusals.labels(reason).inc()
        for constraint in decision.result.left_out:
            self._metrics.left_out.labels(constraint).inc()
        tracing.tell(request_id=request_id, decision_id=decision.decision_id, status=status)
        _log.debug(
            "planned",
            preemptor=f"{preemptor.namespace}/{preemptor.name}",
            preemptor_uid=preemptor.uid,
            request_id=request_id,
            decision_id=decision.decision_id,
            status=status,
            reason=reason,
            victims=len(decision.chosen or ()),
            snapshot_revision=decision.result.scope.revision,
            plan_milliseconds=round(decision.duration_seconds * 1000, 3),
        )

    def _decline(self, label: str, reason: str, message: str, request_id: str) -> bytes:
        """Return why there is no plan. No refusal: nothing was decided, so the scheduler may help itself."""
        self._search.attempts.labels(label).inc()
        if label == "malformed":
            self._metrics.undecodable("plan")
        tracing.tell(message, request_id=request_id, reason=reason)
        _log.warning("plan_not_made", request_id=request_id, reason=reason, message=message)
        reply = unplanned(
            self._search.reply,
            request_id=request_id,
            planner=self._facts.identity,
            reason=reason,
            message=message,
        )
        return codec.encode(reply)


def _refusal(plan: Plan | GangPlan, why: NotNow) -> PlanRefusal:
    """Return the refusal of a plan that is not carried out now."""
    return PlanRefusal(
        scope=plan.scope,
        reason=why.reason,
        message=why.message,
        retry_at=why.retry_at,
        depends_on=why.depends_on,
        left_out=plan.left_out,
    )


PodPlanner: TypeAlias = Planner[PlanRequest, Question, Plan]
GroupPlanner: TypeAlias = Planner[GroupPlanRequest, GangQuestion, GangPlan]
