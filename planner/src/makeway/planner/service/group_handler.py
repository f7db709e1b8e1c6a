"""Answering plan requests for pod groups: receive, decode, check, plan, reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from makeway.bus import codec, tracing
from makeway.bus.commit import Offer, offered
from makeway.bus.errors import Malformed
from makeway.bus.group_plan import GroupPlanReply, GroupPlanRequest
from makeway.bus.ids import decision_id
from makeway.bus.messages import Placement
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import Decision, decision_of
from makeway.planner.plan.gang.planner import NOT_SEEN, planning_gang
from makeway.planner.plan.gang.question import GangQuestion, gang_question_of
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.reply import group_reply_of, unplanned
from makeway.planner.plan.request import NamelessPodError
from makeway.planner.plan.result import PlanRefusal
from makeway.planner.service.decisions import Decisions
from makeway.planner.service.freshness import StaleRefusals
from makeway.planner.service.orders.ledger import Ledger
from makeway.planner.service.orders.not_now import Asker
from makeway.planner.service.orders.pledges import LASTS, Pledge
from makeway.planner.service.plan_requests import NotPlannedError, PlanRequests, with_places
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.failpoints import failpoint

_LOOK_AGAIN_SECONDS: Final = 0.01
"""Pause between two looks whether the watch has told of a group's pods."""

LONGEST_WAIT_SECONDS: Final = 2.0
"""How long a question may wait for the watch, whatever time-out it names: it is milliseconds behind."""

_log = structlog.get_logger()


class GroupPlanner:
    """Plans for one group at a time, beside those for pods; what waits for the watch holds up no other.

    A plan pauses after some 20 ms, and requests about pods are answered meanwhile. Arguments as of `Planner`.
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
    ) -> None:
        self._requests = requests
        self._identity = requests.facts.identity
        self._snapshot = snapshot
        # Of its own: plans for pods go on while one for a group pauses.
        self._cache = PlanCache()
        self._records = PodRecords()
        self._ledger = ledger
        self._decisions = decisions
        self._metrics = metrics
        self._behind = behind
        self._observe = observe
        self._stale_refusals = StaleRefusals()
        self._planning = asyncio.Lock()

    async def handle(self, data: bytes, sender: str = "") -> bytes:
        """Answer one plan request. Never raises for what a request may contain; `sender` as of `Planner`."""
        await failpoint("planner.group-request-received")
        now = datetime.now(UTC)
        try:
            request = codec.decode(GroupPlanRequest, data)
        except Malformed as error:
            return self._decline("malformed", "MalformedRequest", str(error), codec.request_id_of(data))
        try:
            reply = await self._answer(request, sender, now)
        except NotPlannedError as error:
            return self._decline(error.label, error.reason, error.message, request.request_id)
        await failpoint("planner.before-group-reply")
        return codec.encode(reply)

    async def _answer(self, request: GroupPlanRequest, sender: str, now: datetime) -> GroupPlanReply:
        began = time.perf_counter()
        left = await self._requests.check(request, sender, now)
        self._requests.check_brake(request.group.namespace)
        self._requests.check_commits(request.mode, commits=request.commits)
        async with self._planning:
            question = self._question(request, now)
            if self._seen(question):
                return await self._plan(request, question, now, began)
        # The other groups' plans go on meanwhile.
        await self._until_seen(question, began + min(left / 2, LONGEST_WAIT_SECONDS))
        async with self._planning:
            now = datetime.now(UTC)
            return await self._plan(request, self._question(request, now), now, began)

    def _question(self, request: GroupPlanRequest, now: datetime) -> GangQuestion:
        # Only budgets and queues look at them.
        asked = len(self._snapshot.budgets) or self._snapshot.queues.tree is not None
        leaving = self._ledger.leaving(now) if asked else frozenset[str]()
        ledger, asking, enforced = self._ledger, request.group.uid, request.mode == "enforce"
        pledged = request.group.priority if enforced else None
        in_flight = ledger.in_flight(request.live_orders, now, asking=asking, pledged=pledged)
        places = ledger.places(now, asking=asking) if enforced else {}
        request = msgspec.structs.replace(request, nominations=with_places(request.nominations, places))
        try:
            question = gang_question_of(request, in_flight, leaving, records=self._records)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            raise NotPlannedError("malformed", "MalformedPod", str(error)) from error
        return question.leaving_out(ledger.left_out(asking, request.live_orders, now))

    async def _plan(
        self, request: GroupPlanRequest, question: GangQuestion, now: datetime, began: float
    ) -> GroupPlanReply:
        """Answer a question; one at a time."""
        steps = planning_gang(self._snapshot, question, now, self._cache)
        result: GangPlan | PlanRefusal = await self._requests.run(steps, request, began)
        behind = False
        not_now = self._not_now(request, result, now)
        if not_now is not None:
            result = not_now
        elif isinstance(result, PlanRefusal):
            behind = self._behind(request.seen) or bool(self._snapshot.undecided) or result.reason == NOT_SEEN
            result = self._stale_refusals.with_retry(result, request.group.uid, now, behind=behind)
        seconds = time.perf_counter() - began
        decision = decision_of(
            self._snapshot,
            request,
            question,
            result,
            decision_id=decision_id(now),
            planner=self._identity,
            at=now,
            duration_seconds=seconds,
            looked_at_again=behind,
        )
        reply = group_reply_of(
            result,
            request_id=request.request_id,
            planner=self._identity,
            decision_id=decision.decision_id,
            policy_revision=decision.policy_revision,
        )
        if request.mode == "enforce":
            pledge = None
            if isinstance(result, GangPlan):
                offer = self._offer(request, result, decision.decision_id, now)
                reply = msgspec.structs.replace(reply, offer=offer)
                pledge = _pledge_of(request, result, decision.decision_id, datetime.now(UTC))
            self._ledger.pledges.pledge(request.group.uid, pledge)
        if request.mode == "observe":
            self._observe(decision)
        self._decisions.put(decision)
        self._count(result, seconds)
        _log_plan(request, reply, seconds)
        return reply

    def _offer(self, request: GroupPlanRequest, plan: GangPlan, of_decision: str, now: datetime) -> str:
        """Write what a commit may name. Raises NotPlannedError where it cannot be signed."""
        offer = Offer(
            decision_id=of_decision,
            cluster_uid=self._requests.facts.cluster_uid,
            preemptor_uid=request.group.uid,
            at=now,
            pods=offered(("", one.pod.uid) for one in plan.victims),
            closing={one.pod.uid: one.closes for one in plan.victims if one.closes is not None},
        )
        return self._requests.sealed(offer)

    def _not_now(
        self, request: GroupPlanRequest, result: GangPlan | PlanRefusal, now: datetime
    ) -> PlanRefusal | None:
        """Return the refusal of a plan that is not carried out now; None where it may be."""
        if request.mode != "enforce" or isinstance(result, PlanRefusal):
            return None
        group, ledger = request.group, self._ledger
        asking = Asker(group.uid, group.namespace, group.priority, is_pod=False)
        why = ledger.pauses.of(asking, self._snapshot, now) or ledger.limit(
            asking, result, request.live_orders, self._snapshot, now
        )
        if why is None:
            return None
        return PlanRefusal(
            scope=result.scope,
            reason=why.reason,
            message=why.message,
            retry_at=why.retry_at,
            depends_on=why.depends_on,
            left_out=result.left_out,
            changed=True,  # no recording knows of it
        )

    async def _until_seen(self, question: GangQuestion, until: float) -> None:
        """Wait until the watch has told of the classes' pods: the scheduler's own may be ahead of it."""
        while not self._seen(question):
            if time.perf_counter() > until:
                return
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _seen(self, question: GangQuestion) -> bool:
        return all(one.question.preemptor.uid in self._snapshot.pods for one in question.classes)

    def _count(self, result: GangPlan | PlanRefusal, seconds: float) -> None:
        label = "refused" if isinstance(result, PlanRefusal) else "plan"
        if isinstance(result, PlanRefusal):
            self._metrics.refusals.labels(result.reason).inc()
        else:
            self._metrics.group_members.observe(result.placed)
            self._metrics.group_victims.observe(len(result.victims))
        for constraint in result.left_out:
            self._metrics.left_out.labels(constraint).inc()
        self._metrics.group_attempts.labels(label).inc()
        self._metrics.group_plan_seconds.labels(label).observe(seconds)

    def _decline(self, label: str, reason: str, message: str, request_id: str) -> bytes:
        """Return why there is no plan; as of `Planner`."""
        self._metrics.group_attempts.labels(label).inc()
        if label == "malformed":
            self._metrics.undecodable("plan")
        tracing.tell(message, request_id=request_id, reason=reason)
        _log.warning("plan_not_made", request_id=request_id, reason=reason, message=message)
        reply = unplanned(
            GroupPlanReply, request_id=request_id, planner=self._identity, reason=reason, message=message
        )
        return codec.encode(reply)


def _pledge_of(request: GroupPlanRequest, plan: GangPlan, of_decision: str, now: datetime) -> Pledge:
    """Return what a plan takes until its commit comes."""
    group = request.group
    return Pledge(
        pledge_id=of_decision,
        place=Placement(namespace=group.namespace, name=group.name, uid=group.uid, node=""),
        priority=group.priority,
        victims=tuple(one.pod.uid for one in plan.victims),
        until=now + LASTS,
        needs_order=plan.needs_order,
    )


def _log_plan(request: GroupPlanRequest, reply: GroupPlanReply, seconds: float) -> None:
    plan = reply.plan
    tracing.tell(request_id=reply.request_id, decision_id=reply.decision_id, status=reply.status)
    _log.debug(
        "planned_group",
        group=f"{request.group.namespace}/{request.group.name}",
        group_uid=request.group.uid,
        request_id=request.request_id,
        decision_id=reply.decision_id,
        status=reply.status,
        reason=reply.refusal.reason if reply.refusal else "",
        placed=sum(one.count for one in plan.placements) if plan else 0,
        victims=len(plan.victims) if plan else 0,
        awaited=len(plan.awaited) if plan else 0,
        snapshot_revision=reply.snapshot_revision,
        plan_milliseconds=round(seconds * 1000, 3),
    )
