"""What plan requests about pods and about pod groups differ in: how they are read, searched for and told."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

from prometheus_client import Counter

from makeway.bus.group_plan import GroupPlanReply, GroupPlanRequest
from makeway.bus.messages import Placement
from makeway.bus.plan import NodeSelection, PlanReply, PlanRequest
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.gang.question import GangQuestion, gang_question_of
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.left_out import PassedOver
from makeway.planner.plan.request import Question, question_of
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.plan.unfiltered import answering
from makeway.planner.service.freshness import FirstFailures
from makeway.planner.service.orders.ledger import Ledger
from makeway.planner.service.orders.not_now import Asker
from makeway.planner.service.orders.pauses import elsewhere
from makeway.planner.service.orders.pledges import Pledge, pledge_of, pledge_of_group
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.failpoints import failpoint

R = TypeVar("R", bound=PlanRequest | GroupPlanRequest)
Q = TypeVar("Q", bound=Question | GangQuestion)
A = TypeVar("A", bound=Plan | GangPlan)


def names_any(selection: NodeSelection, nodes: Set[str]) -> bool:
    """Report whether a selection has any of some nodes; one without a name has every node. O(names)."""
    named = sum(name in nodes for name in selection.names)
    if selection.all_but:
        return named < len(nodes)
    return named > 0 or not selection.names


class Search(ABC, Generic[R, Q, A]):
    """One planner's search of one form. Its cache is its own: plans of the other go on while one pauses."""

    request: type[R]
    reply: type[PlanReply] | type[GroupPlanReply]
    attempts: Counter

    def __init__(self, snapshot: Snapshot, ledger: Ledger, metrics: PlannerMetrics) -> None:
        self._snapshot = snapshot
        self._ledger = ledger
        self._metrics = metrics
        self._cache = PlanCache()
        self._records = PodRecords()

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Return what is held while one question is planned for."""
        return nullcontext()

    @abstractmethod
    async def received(self) -> None:
        """Pass the point at which a request is there."""

    @abstractmethod
    async def replying(self) -> None:
        """Pass the point before its reply."""

    @abstractmethod
    def read(self, request: R, leaving: frozenset[str], now: datetime) -> tuple[Asker, Q]:
        """Return who asks, and the question. Raises as `question_of`."""

    @abstractmethod
    def around(
        self, question: Q, in_flight: Mapping[str, str], places: tuple[Placement, ...], left_out: PassedOver
    ) -> Q:
        """Return a question with what orders remove, where pods are nominated to, and what is left out."""

    @abstractmethod
    def selections(self, question: Q) -> Iterable[NodeSelection]:
        """Return the nodes that may be helped: of a pod, or of each class of a group's members."""

    def seen(self, question: Q) -> bool:
        """Report whether the watch has told of the pods that are asked about, where that matters."""
        return True

    @abstractmethod
    def plan(self, question: Q, now: datetime) -> Iterator[A | PlanRefusal | None]:
        """Plan, and pause with None now and then."""

    def not_held(self, asker: Asker, question: Q, plan: A, now: datetime) -> A | PlanRefusal:
        """Return a plan without what is not to be done now, whatever the limits say; or why nothing is."""
        return plan

    @abstractmethod
    def pledge(self, asker: Asker, question: Q, plan: A, decision: Decision) -> Pledge | None:
        """Return what a plan takes until its commit comes; None where only the bridge can say."""

    @abstractmethod
    def count(self, result: A | PlanRefusal, seconds: float) -> None:
        """Count an answer."""


class PodSearch(Search[PlanRequest, Question, Plan]):
    """The search for a pod. It holds the loop for some 10 ms at most.

    `hold_back` leaves out of a plan what would continue a preemption loop, and what waits for a node.
    """

    request = PlanRequest
    reply = PlanReply

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        metrics: PlannerMetrics,
        hold_back: Callable[[Question, Plan, datetime], Plan | PlanRefusal] = lambda _, plan, now: plan,
    ) -> None:
        super().__init__(snapshot, ledger, metrics)
        self.attempts = metrics.attempts
        self._hold_back = hold_back
        self._first_failures = FirstFailures()

    async def received(self) -> None:
        """Pass the point at which a request is there."""
        await failpoint("planner.request-received")

    async def replying(self) -> None:
        """Pass the point before its reply."""
        await failpoint("planner.before-reply")

    def read(self, request: PlanRequest, leaving: frozenset[str], now: datetime) -> tuple[Asker, Question]:
        """Decode the pod, and note since when it has not fitted where a DaemonSet has bound it."""
        question = question_of(request, {}, leaving, records=self._records)
        pod = question.preemptor
        if question.daemonset_node:
            since = self._first_failures.note(pod.uid, question.unfit_since, now)
            question = replace(question, unfit_since=since)
        return Asker(pod.uid, pod.namespace, pod.priority), question

    def around(
        self,
        question: Question,
        in_flight: Mapping[str, str],
        places: tuple[Placement, ...],
        left_out: PassedOver,
    ) -> Question:
        """Return the question as it is asked now."""
        return replace(question, in_flight=in_flight, nominations=places).leaving_out(left_out)

    def selections(self, question: Question) -> Iterable[NodeSelection]:
        """Return those of the pod."""
        return (question.nodes,)

    def plan(self, question: Question, now: datetime) -> Iterator[Plan | PlanRefusal | None]:
        """Plan as kube-scheduler does: see `makeway.planner.plan.planner`."""
        return answering(self._snapshot, question, now, self._cache)

    def not_held(self, asker: Asker, question: Question, plan: Plan, now: datetime) -> Plan | PlanRefusal:
        """Leave out where room came to nothing, and what is held back."""
        tried = self._ledger.pauses.tried(asker, self._snapshot, question.nominations)
        return self._hold_back(question, elsewhere(plan, tried), now)

    def pledge(self, asker: Asker, question: Question, plan: Plan, decision: Decision) -> Pledge | None:
        """Return what the best candidate takes."""
        return pledge_of(question.preemptor, plan, decision.decision_id, decision.at)

    def count(self, result: Plan | PlanRefusal, seconds: float) -> None:
        """Count victims of the best candidate."""
        best = result.candidates[0] if isinstance(result, Plan) and result.candidates else None
        label = "unmodelled" if isinstance(result, Plan) else "refused"
        if best is not None:
            label = "candidates"
            self._metrics.victims.observe(len(best.victims))
        self.attempts.labels(label).inc()
        self._metrics.plan_seconds.labels(label).observe(seconds)


class GroupSearch(Search[GroupPlanRequest, GangQuestion, GangPlan]):
    """The search for a pod group: one at a time, with a pause after some 20 ms."""

    request = GroupPlanRequest
    reply = GroupPlanReply

    def __init__(self, snapshot: Snapshot, ledger: Ledger, metrics: PlannerMetrics) -> None:
        super().__init__(snapshot, ledger, metrics)
        self.attempts = metrics.group_attempts
        self._planning = asyncio.Lock()

    async def received(self) -> None:
        """Pass the point at which a request is there."""
        await failpoint("planner.group-request-received")

    async def replying(self) -> None:
        """Pass the point before its reply."""
        await failpoint("planner.before-group-reply")

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Return the lock of plans for groups."""
        return self._planning

    def read(
        self, request: GroupPlanRequest, leaving: frozenset[str], now: datetime
    ) -> tuple[Asker, GangQuestion]:
        """Decode the classes of members."""
        group = request.group
        asker = Asker(group.uid, group.namespace, group.priority, is_pod=False)
        return asker, gang_question_of(request, {}, leaving, records=self._records)

    def around(
        self,
        question: GangQuestion,
        in_flight: Mapping[str, str],
        places: tuple[Placement, ...],
        left_out: PassedOver,
    ) -> GangQuestion:
        """Return the question as it is asked now, for every class."""
        return question.of_all(in_flight=in_flight, nominations=places).leaving_out(left_out)

    def selections(self, question: GangQuestion) -> Iterable[NodeSelection]:
        """Return those of every class."""
        return (one.question.nodes for one in question.classes)

    def seen(self, question: GangQuestion) -> bool:
        """Report whether the watch has told of a pod of each class: the scheduler's own may be ahead."""
        return all(one.question.preemptor.uid in self._snapshot.pods for one in question.classes)

    def plan(self, question: GangQuestion, now: datetime) -> Iterator[GangPlan | PlanRefusal | None]:
        """Plan for the least price: see `makeway.planner.plan.gang.planner`."""
        return planning_gang(self._snapshot, question, now, self._cache)

    def pledge(
        self, asker: Asker, question: GangQuestion, plan: GangPlan, decision: Decision
    ) -> Pledge | None:
        """Return what the plan takes from now on: it may have taken long."""
        now = datetime.now(UTC)
        return pledge_of_group(
            asker, question, plan, self._snapshot, decision_id=decision.decision_id, now=now
        )

    def count(self, result: GangPlan | PlanRefusal, seconds: float) -> None:
        """Count members and victims."""
        plan = result if isinstance(result, GangPlan) else None
        label = "plan" if plan else "refused"
        if plan is not None:
            self._metrics.group_members.observe(plan.placed)
            self._metrics.group_victims.observe(len(plan.victims))
        self.attempts.labels(label).inc()
        self._metrics.group_plan_seconds.labels(label).observe(seconds)
