"""What plan requests about pods and about pod groups differ in: how they are read, planned and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from prometheus_client import Counter, Histogram

from makeway.bus.messages import Placement
from makeway.bus.plan import PlanRequest
from makeway.core.policy.lost_work import WHOLE
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker
from makeway.planner.orders.pauses import elsewhere
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.gang.question import GangQuestion, gang_question_of
from makeway.planner.plan.left_out import PassedOver
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import NamelessPodError, Question, question_of
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.plan.unfiltered import answering
from makeway.planner.service.freshness import FirstFailures
from makeway.planner.snapshot.records import PodRecords
from makeway.planner.snapshot.state import Snapshot

Q = TypeVar("Q", bound=Question | GangQuestion)
A = TypeVar("A", bound=Plan | GangPlan)

HeldBack: TypeAlias = Callable[[Sequence[Question], A, datetime], A | PlanRefusal]
"""Leaves out of a plan what would continue a preemption loop, and what waits for nodes.

It takes the questions, of each class of a group's members.
"""


@dataclass(frozen=True, kw_only=True)
class Search(Generic[Q, A]):
    """One planner's search of one form. Its cache is its own: plans of the other go on while one pauses.

    `received`, `replying`: failpoints. `read`: returns who asks, and the question; `leaving` as of
    `question_of`, which raises the same. `around`: returns a question with what orders remove, where pods are
    nominated to, and what is left out. `plan`: plans, and pauses with None now and then. `asked`: the
    questions, of each class of a group's members. `seen`: whether the watch has told of the pods that are
    asked about, where that matters. `not_held`: a plan without what is not to be done now, whatever the
    limits say; or why nothing is. `turn`: what is held while one question is planned for. `sizes`: the
    metrics' label of a plan, and the numbers that count in histograms and counters.
    """

    received: str
    replying: str
    read: Callable[[PlanRequest, frozenset[str], datetime], tuple[Asker, Q]]
    around: Callable[[Q, Mapping[str, str], tuple[Placement, ...], PassedOver], Q]
    plan: Callable[[Q, datetime], Iterator[A | PlanRefusal | None]]
    seen: Callable[[Q], bool] = lambda _: True
    not_held: Callable[[Asker, Q, A, datetime], A | PlanRefusal] = lambda asker, question, plan, now: plan
    turn: asyncio.Lock
    attempts: Counter
    seconds: Histogram
    sizes: Callable[[A], tuple[str, Mapping[Histogram | Counter, float]]]

    def count(self, result: A | PlanRefusal, seconds: float) -> None:
        """Count an answer."""
        label, sizes = ("refused", {}) if isinstance(result, PlanRefusal) else self.sizes(result)
        for metric, number in sizes.items():
            if isinstance(metric, Histogram):
                metric.observe(number)
            else:
                metric.inc(number)
        self.attempts.labels(label).inc()
        self.seconds.labels(label).observe(seconds)


PodSearch: TypeAlias = Search[Question, Plan]
GroupSearch: TypeAlias = Search[GangQuestion, GangPlan]


def pod_search(
    snapshot: Snapshot,
    ledger: Ledger,
    metrics: PlannerMetrics,
    hold_back: HeldBack[Plan] = lambda _, plan, now: plan,
) -> PodSearch:
    """Return the search for a pod: one at a time. It holds the loop for some 10 ms at most."""
    cache, records, first_failures = PlanCache(), PodRecords(), FirstFailures()

    def read(request: PlanRequest, leaving: frozenset[str], now: datetime) -> tuple[Asker, Question]:
        """Decode the pod, and note since when it has not fitted where a DaemonSet has bound it."""
        if request.group is not None or [one.count for one in request.classes] != [1]:
            raise NamelessPodError("a plan request without a group is about one pod")
        question = question_of(request, {}, leaving, records=records)
        pod = question.preemptor
        if question.daemonset_node:
            since = first_failures.note(pod.uid, question.unfit_since, now)
            question = replace(question, unfit_since=since)
        return Asker(pod.uid, pod.namespace, pod.priority), question

    def not_held(asker: Asker, question: Question, plan: Plan, now: datetime) -> Plan | PlanRefusal:
        """Leave out where room came to nothing, and what is held back."""
        tried = ledger.pauses.tried(asker, snapshot, question.nominations)
        return hold_back(question.each, elsewhere(plan, tried), now)

    def sizes(plan: Plan) -> tuple[str, Mapping[Histogram | Counter, float]]:
        if not plan.candidates:
            return "unmodelled", {}
        best, found = plan.candidates[0], dict[Histogram | Counter, float]()
        found[metrics.victims] = len(best.victims)
        if snapshot.exemptions.policy.lost_work.rank != "off":
            found[metrics.lost_work] = best.lost_work / WHOLE
            found[metrics.lost_work_avoided] = best.lost_work_avoided / WHOLE
        return "candidates", found

    return Search(
        received="planner.request-received",
        replying="planner.before-reply",
        read=read,
        around=lambda question, in_flight, places, left_out: replace(
            question, in_flight=in_flight, nominations=places
        ).leaving_out(left_out),
        plan=lambda question, now: answering(snapshot, question, now, cache),
        not_held=not_held,
        turn=asyncio.Lock(),
        attempts=metrics.attempts,
        seconds=metrics.plan_seconds,
        sizes=sizes,
    )


def group_search(
    snapshot: Snapshot,
    metrics: PlannerMetrics,
    hold_back: HeldBack[GangPlan] = lambda _, plan, now: plan,
) -> GroupSearch:
    """Return the search for a pod group: one at a time, with a pause after some 20 ms.

    Its plan may come to nodes where room that was made for the group came to nothing: it has no others to
    choose from, and after the third such room the group waits as a pod does.
    """
    cache, records = PlanCache(), PodRecords()

    def read(request: PlanRequest, leaving: frozenset[str], now: datetime) -> tuple[Asker, GangQuestion]:
        if (group := request.group) is None:
            raise NamelessPodError("the plan request names no group")
        asker = Asker(group.uid, group.namespace, group.priority, is_pod=False)
        return asker, gang_question_of(request, {}, leaving, records=records)

    return Search(
        received="planner.group-request-received",
        replying="planner.before-group-reply",
        read=read,
        around=lambda question, in_flight, places, left_out: question.of_all(
            in_flight=in_flight, nominations=places
        ).leaving_out(left_out),
        plan=lambda question, now: planning_gang(snapshot, question, now, cache),
        # The scheduler's own watch may be ahead.
        seen=lambda question: all(one.preemptor.uid in snapshot.pods for one in question.each),
        not_held=lambda _, question, plan, now: hold_back(question.each, plan, now),
        turn=asyncio.Lock(),
        attempts=metrics.group_attempts,
        seconds=metrics.group_plan_seconds,
        sizes=lambda plan: (
            "plan",
            {metrics.group_members: plan.placed, metrics.group_victims: len(plan.victims)},
        ),
    )
