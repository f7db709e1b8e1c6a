"""What could be otherwise so that a pending pod is not: changes as values, and how each is tried. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from makeway.planner.offline.results import Change
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import Question
from makeway.planner.plan.unfiltered import PodVerdict, judge_pod
from makeway.planner.snapshot.changes import Change as ClusterChange
from makeway.planner.snapshot.records import NodeRecord
from makeway.planner.snapshot.state import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """A pending pod, and the cluster and moment it is judged in. Nothing of it is ever changed in place.

    `cache`: of plans on the snapshot.
    """

    snapshot: Snapshot
    question: Question
    now: datetime
    nodes: Mapping[str, NodeRecord]
    cache: PlanCache = field(default_factory=PlanCache)

    def judged(self) -> PodVerdict:
        """Judge the pod."""
        return judge_pod(self.snapshot, self.question, self.now, self.cache)

    def asking(self, **fields: Any) -> Case:
        """Return the same case with another question."""
        return replace(self, question=replace(self.question, **fields))

    def at(self, moment: datetime) -> Case:
        """Return the same case later."""
        return replace(self, now=moment)

    def of_priority(self, priority: int) -> Case:
        """Return the case with the pod at another priority."""
        pod = self.question.preemptor
        facts = msgspec.structs.replace(pod.facts, priority=priority)
        return self.asking(preemptor=msgspec.structs.replace(pod, priority=priority, facts=facts))

    def requesting(self, resource: str, amount: int) -> Case:
        """Let the pod ask for another amount."""
        pod = self.question.preemptor
        return self.asking(
            needs={**self.question.needs, resource: amount},
            preemptor=msgspec.structs.replace(pod, requests={**pod.requests, resource: amount}),
        )

    def varied(self) -> Callable[..., Case]:
        """Return a function that applies changes, and returns the case on the cluster as it is then.

        One copy serves all calls, so a call must change all that an earlier one may have changed.
        """
        forked, cache = fork(self.snapshot), PlanCache()

        def vary(*changes: ClusterChange) -> Case:
            for change in changes:
                forked.apply(change)
            return replace(self, snapshot=forked, cache=cache)

        return vary


Found = Iterator[tuple[Change, Case]]
"""Changes that were found to help, each with the case as it would be."""

Finder = Callable[[Case, PodVerdict], Found]


def helps(case: Case) -> bool:
    """Report whether the pod would not stay pending."""
    return case.judged().refusal is None


def least(values: Sequence[T], make: Callable[[T], Case]) -> tuple[T, Case] | None:
    """Return the first value that helps, where all after one that helps do too, and the case with it.

    None where the last does not help. O(log values) plans.
    """
    if not values or not helps(make(values[-1])):
        return None
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if helps(make(values[middle])):
            high = middle
        else:
            low = middle + 1
    return values[low], make(values[low])


def fork(snapshot: Snapshot) -> Snapshot:
    """Copy a snapshot. O(pods), half a second for 50,000."""
    exemptions, queues = snapshot.exemptions, snapshot.queues
    shared: list[object] = [
        *snapshot.pods.values(),
        *exemptions.classes.values(),
        *snapshot.namespaces.values(),
    ]
    shared += [exemptions.policy, exemptions.record, queues.tree]
    memo: dict[int, object] = {id(one): one for one in shared}
    forked = copy.deepcopy(snapshot, memo)
    # Rules are functions, which no copy reaches into: they would go on asking the other's classes.
    forked.exemptions.apply_rules()
    return forked
