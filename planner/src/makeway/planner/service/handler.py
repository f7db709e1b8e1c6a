"""Answering plan requests, about a pod or a pod group: receive, decode, check, plan, reply, record."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from makeway.bus import codec, tracing
from makeway.bus.commit import Offer
from makeway.bus.errors import BusError, Malformed
from makeway.bus.ids import decision_id
from makeway.bus.plan import TOO_LATE, NodeSelection, PlanReply, PlanRequest
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.core.policy.brake import RELEASED, Brake
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.breakers import NO_EVICTOR, NOT_STORED
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker
from makeway.planner.orders.pledges import pledge_of
from makeway.planner.plan.decision import Decision, decision_of
from makeway.planner.plan.gang.planner import NOT_SEEN
from makeway.planner.plan.reply import offer_of, reply_of, unplanned
from makeway.planner.plan.request import NamelessPodError, Question
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.recording.decisions import Decisions
from makeway.planner.service.freshness import RequestAges, StaleRefusals
from makeway.planner.service.pending_updates import until_applied
from makeway.planner.service.searches import A, Q, Search
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.failpoints import failpoint

_LOOK_AGAIN_SECONDS: Final = 0.01
"""Pause between two looks whether what the scheduler has seen has been seen here."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""How long a question may wait for that, whatever time-out it names: it is milliseconds behind."""

_PART_OF_TIME: Final = 0.9
"""The part of a question's time that a plan may take: an asker reads that there is none before it takes the
planner for one that is away."""

_log = structlog.get_logger()


class NotPlannedError(Exception):
    """Why a request is not planned: the metric's label, a constant and a sentence. No refusal."""

    def __init__(self, label: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.label = label
        self.reason = reason
        self.message = message


@dataclass(eq=False)
class Planner:
    """Answers plan requests on the event loop, which alone changes the snapshot in between.

    `identity`: its own name. `unsynced()` says what is still missing before there is anything to plan on;
    empty where nothing is. `behind(seen)` says whether a scheduler that has seen these versions, by resource,
    knows more. `brake()`: nothing is planned in namespaces that it holds, also where the plugin has not heard
    of it yet. `seal` writes the offer of a plan whose order is asked for by a commit; raises BusError.
    `observe` hears of every decision of mode observe, before the scheduler does. `ages`: of questions.
    """

    cluster_uid: str
    identity: str
    _: KW_ONLY
    snapshot: Snapshot
    ledger: Ledger
    decisions: Decisions
    metrics: PlannerMetrics
    unsynced: Callable[[], str]
    behind: Callable[[Mapping[str, int]], bool] = lambda _: False
    brake: Callable[[], Brake] = lambda: RELEASED
    seal: Callable[[Offer], str] = lambda _: ""
    observe: Callable[[Decision], None] = lambda _: None
    ages: RequestAges = field(default_factory=RequestAges)

    def __post_init__(self) -> None:
        self._stale_refusals = StaleRefusals()

    async def handle(self, search: Search[Q, A], data: bytes, sender: str = "") -> bytes:
        """Answer one plan request of a search's form. Never raises for what a request may contain.

        `sender`: the process with one clock, as far as that is known.
        """
        await failpoint(search.received)
        try:
            request = codec.decode(PlanRequest, data)
        except Malformed as error:
            unread = NotPlannedError("malformed", "MalformedRequest", str(error))
            return self._decline(search, unread, codec.request_id_of(data))
        try:
            reply = await self._answer(search, request, sender)
        except NotPlannedError as error:
            return self._decline(search, error, request.request_id)
        await failpoint(search.replying)
        return codec.encode(reply)

    async def _answer(self, search: Search[Q, A], request: PlanRequest, sender: str) -> PlanReply:
        began = time.perf_counter()
        left = await self._check(request, sender)
        ready_by = began + _PART_OF_TIME * left
        async with search.turn:
            now = datetime.now(UTC)
            asker, question = self._question(search, request, now)
            if self._has_seen(search, request, question):
                return await self._plan(search, request, asker, question, now, ready_by=ready_by)
        # Other plans go on meanwhile.
        until = began + min(left / 2, LONGEST_WAIT_SECONDS)
        while not self._has_seen(search, request, question) and time.perf_counter() <= until:  # noqa: ASYNC110 - no signal
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        async with search.turn:
            now = datetime.now(UTC)
            return await self._plan(
                search, request, *self._question(search, request, now), now, ready_by=ready_by
            )

    def _has_seen(self, search: Search[Q, A], request: PlanRequest, question: Q) -> bool:
        """Report whether what the scheduler knows of the pods asked about, and of orders, is known here."""
        return search.seen(question) and self.ledger.has_read(request.outcomes_read)

    async def _check(self, request: PlanRequest, sender: str) -> float:
        """Return how many seconds are left for a request that can be planned here and now.

        Raises NotPlannedError.
        """
        if request.cluster_uid != self.cluster_uid:
            message = f"this planner plans for cluster {self.cluster_uid}, not {request.cluster_uid}"
            raise NotPlannedError("otherCluster", "OtherCluster", message)
        waited = self.ages.waited_seconds(sender, request.request_id, time.perf_counter())
        left = request.timeout_milliseconds / 1000 - (waited or 0.0)
        if left < 0:
            message = f"it waited here for longer than the plugin's {request.timeout_milliseconds} ms"
            raise NotPlannedError("tooLate", TOO_LATE, message)
        if self.snapshot.pending_updates.pending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left / 2):
                    await until_applied(self.snapshot.pending_updates)
        self._check_synced()
        return left

    def _check_synced(self) -> None:
        if missing := self.unsynced():
            raise NotPlannedError("notSynced", "NotSynced", missing)

    def _question(self, search: Search[Q, A], request: PlanRequest, now: datetime) -> tuple[Asker, Q]:
        """Decode what is asked about, with what orders and pledges take. Raises NotPlannedError."""
        # Only budgets and queues look at them, and where orders come fast there are hundreds.
        asked = len(self.snapshot.budgets) or self.snapshot.queues.tree is not None
        ledger = self.ledger
        leaving = ledger.leaving(now) if asked else frozenset[str]()
        try:
            asker, question = search.read(request, leaving, now)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            raise NotPlannedError("malformed", "MalformedPod", str(error)) from error
        brake, enforced = self.brake(), request.mode == "enforce"
        if brake.holds(asker.namespace):
            raise NotPlannedError("braked", "Braked", brake.describe())
        pledged = asker.priority if enforced else None
        told = {one.uid: one.node for one in request.nominations}
        in_flight = ledger.in_flight(now, asking=asker.uid, pledged=pledged)
        left_out = ledger.left_out(asker.uid, now, pledged=pledged, nominated=told)
        placed = ledger.places(now, asking=asker.uid) if enforced else {}
        places = (*request.nominations, *(one for uid, one in placed.items() if uid not in told))
        return asker, search.around(question, in_flight, places, left_out)

    async def _plan(
        self,
        search: Search[Q, A],
        request: PlanRequest,
        asker: Asker,
        question: Q,
        now: datetime,
        *,
        ready_by: float,
    ) -> PlanReply:
        """Answer a question. Raises NotPlannedError.

        All else that is ready has its turn at each pause of the plan. What was worked out is kept for the
        next request where this one has ended meanwhile. `ready_by`: of `time.perf_counter`.
        """
        planning_since = time.perf_counter()
        steps = search.plan(question, now)
        while True:
            if time.perf_counter() > ready_by:
                message = f"the plan was not ready within the plugin's {request.timeout_milliseconds} ms"
                raise NotPlannedError("tooLate", TOO_LATE, message)
            if (result := next(steps)) is not None:
                break
            await asyncio.sleep(0)
            self._check_synced()
        seconds = time.perf_counter() - planning_since
        enforced = request.mode == "enforce"
        looked_at_again = held_back = False
        if isinstance(result, PlanRefusal):
            behind = not self.ledger.has_read(request.outcomes_read) or result.reason == NOT_SEEN
            behind = behind or self.behind(request.seen) or bool(self.snapshot.undecided)
            behind = behind or (enforced and self._counts_on_pledges(asker, question.each, now))
            first = result
            result = self._stale_refusals.with_retry(first, asker.uid, now, behind=behind)
            looked_at_again = result is not first
        elif enforced:
            planned = result
            result = self._unless_not_now(search, asker, question, planned, now)
            held_back = result is not planned
        decision = decision_of(
            self.snapshot,
            request,
            question,
            result,
            decision_id=decision_id(now),
            planner=self.identity,
            at=now,
            duration_seconds=seconds,
            looked_at_again=looked_at_again,
            held_back=held_back,
        )
        offer = self._pledge(asker, decision) if enforced else ""
        self.decisions.put(decision)
        if request.mode == "observe":
            self.observe(decision)
        search.count(result, seconds)
        self._tell(decision)
        return reply_of(decision, offer)

    def _counts_on_pledges(self, asker: Asker, asked: Iterable[Question], now: datetime) -> bool:
        """Report whether others have pledges on nodes that may help: no event tells where no commit comes."""
        taken = {
            node
            for one in self.ledger.pledges.live(now, asking=asker.uid)
            if one.preemptor.priority >= asker.priority
            for node in one.nodes
        }
        return bool(taken) and any(names_any(one.nodes, taken) for one in asked)

    def _unless_not_now(
        self, search: Search[Q, A], asker: Asker, question: Q, plan: A, now: datetime
    ) -> A | PlanRefusal:
        """Return a plan, on other nodes than where room came to nothing, or why it is not carried out now."""
        if (why := self.ledger.pauses.of(asker, self.snapshot, now)) is not None:
            return plan.refused(why.reason, why.message, why.retry_at)
        result = search.not_held(asker, question, plan, now)
        if isinstance(result, PlanRefusal):
            return result
        why = self.ledger.limit(asker, result, self.snapshot, now)
        if why is None:
            return result
        if why.reason in (NOT_STORED, NO_EVICTOR):
            raise NotPlannedError("heldBack", why.reason, why.message)
        return result.refused(why.reason, why.message, why.retry_at, why.depends_on)

    def _pledge(self, asker: Asker, decision: Decision) -> str:
        """Count what a plan takes until its commit comes; return what that may name, sealed."""
        offer = ""
        if decision.refusal is None:
            try:
                offer = self.seal(offer_of(decision, self.cluster_uid))
            except BusError as error:
                raise NotPlannedError("notSynced", "NotSigned", str(error)) from error
        # From now on: the plan may have taken long.
        pledge = pledge_of(asker, decision, self.snapshot, datetime.now(UTC))
        self.ledger.pledges.pledge(asker.uid, pledge)
        return offer

    def _tell(self, decision: Decision) -> None:
        refusal, preemptor = decision.refusal, decision.preemptor
        reason, request_id = refusal.reason if refusal else "", decision.request.request_id
        status = "refused" if refusal else "candidates"
        if refusal is not None:
            self.metrics.refusals.labels(reason).inc()
        for constraint in decision.result.left_out:
            self.metrics.left_out.labels(constraint).inc()
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

    def _decline(self, search: Search[Q, A], why: NotPlannedError, request_id: str) -> bytes:
        """Return why there is no plan. No refusal: nothing was decided, so the scheduler may help itself."""
        search.attempts.labels(why.label).inc()
        if why.label == "malformed":
            self.metrics.undecodable("plan")
        tracing.tell(why.message, request_id=request_id, reason=why.reason)
        _log.warning("plan_not_made", request_id=request_id, reason=why.reason, message=why.message)
        reply = unplanned(
            request_id=request_id,
            planner=self.identity,
            reason=why.reason,
            message=why.message,
        )
        return codec.encode(reply)


def names_any(selection: NodeSelection, nodes: Set[str]) -> bool:
    """Report whether a selection has any of some nodes; one without a name has every node. O(names)."""
    named = sum(name in nodes for name in selection.names)
    if selection.all_but:
        return named < len(nodes)
    return named > 0 or not selection.names
