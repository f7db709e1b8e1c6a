"""Answering plan requests: receive, decode, check, plan, reply, record."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
import structlog

from makeway.bus import codec
from makeway.bus.errors import Malformed
from makeway.bus.ids import decision_id
from makeway.bus.messages import PlanReply, PlanRequest
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.core.policy.brake import RELEASED, Brake
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.planner import planning
from makeway.planner.plan.reply import reply_of, unplanned
from makeway.planner.plan.request import NamelessPodError, Question, question_of
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.service.decisions import Decisions
from makeway.planner.service.freshness import FirstFailures, RequestAges, StaleRefusals
from makeway.planner.service.orders.ledger import Ledger
from makeway.planner.service.pending_updates import until_applied
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.failpoints import failpoint

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PlannerInfo:
    """What does not change while the process lives: the cluster it plans for, and its own name."""

    cluster_uid: str
    identity: str


class _Unsynced(Exception):  # noqa: N818 - it names a state
    """The snapshot can no longer be planned on."""


class Planner:
    """Answers one request at a time on the event loop, which alone changes the snapshot in between.

    It holds the loop for some 10 ms at most: a plan pauses after every few thousand nodes.

    `unsynced()` says what is still missing before there is anything to plan on; empty where nothing is.
    `observe` is told of every decision of mode observe, before the scheduler is.
    `brake()`: nothing is planned for pods that it holds, also where the plugin has not heard of it yet.
    `behind(seen)` says whether a scheduler that has seen these versions, by resource, knows more.
    """

    def __init__(
        self,
        facts: PlannerInfo,
        *,
        snapshot: Snapshot,
        ledger: Ledger,
        decisions: Decisions,
        metrics: PlannerMetrics,
        unsynced: Callable[[], str],
        behind: Callable[[Mapping[str, int]], bool],
        brake: Callable[[], Brake] = lambda: RELEASED,
        observe: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self._facts = facts
        self._snapshot = snapshot
        self._cache = PlanCache()
        self._records = PodRecords()
        self._ledger = ledger
        self._decisions = decisions
        self._metrics = metrics
        self._unsynced = unsynced
        self._behind = behind
        self._brake = brake
        self._observe = observe
        self._request_ages = RequestAges()
        self._stale_refusals = StaleRefusals()
        self._first_failures = FirstFailures()

    async def handle(self, data: bytes, sender: str = "") -> bytes:
        """Answer one plan request. Never raises for what a request may contain.

        `sender`: the process with one clock, as far as that is known.
        """
        await failpoint("planner.request-received")
        now = datetime.now(UTC)
        try:
            request = codec.decode_plan_request(data)
        except Malformed as error:
            return self._decline("malformed", "MalformedRequest", str(error), codec.request_id_of(data))
        trouble = await self._check(request, sender, now)
        if trouble is not None:
            return trouble
        # Only budgets and queues look at them, and where orders come fast there are hundreds.
        asked = len(self._snapshot.budgets) or self._snapshot.queues.tree is not None
        leaving = self._ledger.leaving(now) if asked else frozenset[str]()
        try:
            question = question_of(request, {}, leaving, records=self._records)
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError) as error:
            return self._decline("malformed", "MalformedPod", str(error), request.request_id)
        brake = self._brake()
        if brake.holds(question.preemptor.namespace):
            return self._decline("braked", "Braked", brake.describe(), request.request_id)
        asking = question.preemptor.uid
        question = replace(
            question, in_flight=self._ledger.in_flight(request.live_orders, now, asking=asking)
        )
        if question.daemonset_node:
            question = replace(
                question, unfit_since=self._first_failures.note(asking, question.unfit_since, now)
            )
        reply = await self._plan(request, question, now)
        await failpoint("planner.before-reply")
        return reply

    async def _check(self, request: PlanRequest, sender: str, now: datetime) -> bytes | None:
        """Return the reply to a request that cannot be planned here and now."""
        request_id = request.request_id
        if request.cluster_uid != self._facts.cluster_uid:
            message = f"this planner plans for cluster {self._facts.cluster_uid}, not {request.cluster_uid}"
            return self._decline("otherCluster", "OtherCluster", message, request_id)
        left = request.timeout_milliseconds / 1000 - self._request_ages.waited_seconds(
            sender, request_id, now.timestamp()
        )
        if left < 0:
            message = f"it waited here for longer than the plugin's {request.timeout_milliseconds} ms"
            return self._decline("tooLate", "TooLate", message, request_id)
        if self._snapshot.pending_updates.pending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left / 2):
                    await until_applied(self._snapshot.pending_updates)
        missing = self._unsynced()
        if missing:
            return self._decline("notSynced", "NotSynced", missing, request_id)
        return None

    async def _plan(self, request: PlanRequest, question: Question, now: datetime) -> bytes:
        began = time.perf_counter()
        try:
            seconds = request.timeout_milliseconds / 1000
            steps = planning(self._snapshot, question, now, self._cache)
            result = await self._with_pauses(steps, began + seconds)
        except _Unsynced as missing:
            return self._decline("notSynced", "NotSynced", str(missing), request.request_id)
        except TimeoutError:
            message = f"the plan was not ready within the plugin's {request.timeout_milliseconds} ms"
            return self._decline("tooLate", "TooLate", message, request.request_id)
        seconds = time.perf_counter() - began
        looked_at_again = False
        if isinstance(result, PlanRefusal):
            behind = self._behind(request.seen) or bool(self._snapshot.undecided)
            first = result
            result = self._stale_refusals.with_retry(result, question.preemptor.uid, now, behind=behind)
            looked_at_again = result is not first
        decision = Decision(
            decision_id=decision_id(now),
            planner=self._facts.identity,
            at=now,
            request=request,
            question=question,
            result=result,
            policy_revision=self._snapshot.exemptions.revision,
            duration_seconds=seconds,
            queue=self._snapshot.queues.path_of(question.preemptor),
            looked_at_again=looked_at_again,
        )
        reply = reply_of(
            result,
            request_id=request.request_id,
            planner=self._facts.identity,
            decision_id=decision.decision_id,
            policy_revision=self._snapshot.exemptions.revision,
        )
        self._decisions.put(decision)
        if request.mode == "observe":
            self._observe(decision)
        self._count(result, seconds)
        self._log(decision, reply)
        return codec.encode(reply)

    async def _with_pauses(
        self, steps: Iterator[Plan | PlanRefusal | None], until: float
    ) -> Plan | PlanRefusal:
        """Run a plan to its end; all else that is ready has its turn at each pause.

        Raises:
            _Unsynced: there was nothing to plan on any more after one of them.
            TimeoutError: the request has ended. What was worked out is kept for the next request.
        """
        while (found := next(steps)) is None:
            await asyncio.sleep(0)
            if time.perf_counter() > until:
                raise TimeoutError
            if missing := self._unsynced():
                raise _Unsynced(missing)
        return found

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
        preemptor = decision.question.preemptor
        best = reply.candidates[0] if reply.candidates else None
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
        _log.warning("plan_not_made", request_id=request_id, reason=reason, message=message)
        reply = unplanned(request_id=request_id, planner=self._facts.identity, reason=reason, message=message)
        return codec.encode(reply)
