"""The question about a group as the planner's core takes it: decoded, counted, with what is in flight."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from makeway.bus.messages import Placement
from makeway.bus.plan import PlanRequest
from makeway.core.k8s.queue_labels import QUEUE_LABELS
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.request import NamelessPodError, Question, question_of
from makeway.planner.plan.terminating import AwaitedRoom
from makeway.planner.snapshot.records import PodRecords


@dataclass(frozen=True, slots=True)
class GangClass:
    """Members that are equal: the question for one of them, and how many wait for a node."""

    question: Question
    count: int


def labels_named(question: Question) -> frozenset[str]:
    """Return the keys of labels that a member's own rules look at, and that name its queue."""
    selectors = (one for one in question.constraints.selectors if one is not None)
    return frozenset((*QUEUE_LABELS, *(one.key for rules in selectors for one in rules.requirements)))


def alike(question: Question, named: Set[str]) -> Hashable:
    """Return what members of one class have in common, as the plugin puts them into classes.

    `named`: the keys of labels that count, those of all members; others tell them apart by an index, as of a
    Job.
    """
    pod, needs = question.preemptor, tuple(sorted(question.needs.items()))
    requests = tuple(sorted(pod.requests.items()))
    labels = tuple(one for one in question.constraints.labels if one[0] in named)
    constraints = replace(question.constraints, labels=labels)
    return requests, needs, constraints, question.may_preempt, pod.facts.priority_class


@dataclass(frozen=True, slots=True)
class GangQuestion:
    """A group and all that a plan for it depends on besides the snapshot and the policy.

    `must_place`: how many members of all classes must get a node. `topology`: keys of labels of which all
    members' nodes must have one value. `placed`: members that have a node. The classes' questions have one
    priority and the same pods in flight.
    """

    name: str
    classes: tuple[GangClass, ...]
    must_place: int
    topology: tuple[str, ...] = ()
    placed: tuple[Placement, ...] = ()

    @property
    def total(self) -> int:
        """Return how many members wait."""
        return sum(one.count for one in self.classes)

    @property
    def each(self) -> tuple[Question, ...]:
        """Return the questions about each class of members."""
        return tuple(one.question for one in self.classes)

    @property
    def left_out(self) -> PassedOver:
        """Return what earlier orders for the group leave out."""
        return self.classes[0].question.left_out if self.classes else NOTHING_PASSED_OVER

    def of_all(self, **changes: Any) -> GangQuestion:
        """Return the question with the same fields changed in that of every class."""
        classes = (replace(one, question=replace(one.question, **changes)) for one in self.classes)
        return replace(self, classes=tuple(classes))

    def leaving_out(self, left_out: PassedOver) -> GangQuestion:
        """Return the question without what earlier orders left out."""
        classes = (replace(one, question=one.question.leaving_out(left_out)) for one in self.classes)
        return replace(self, classes=tuple(classes))

    def awaiting(self, room: AwaitedRoom) -> GangQuestion:
        """Return the question with the room of terminating pods awaited."""
        return self.of_all(terminating=room)


def gang_question_of(
    request: PlanRequest,
    in_flight: Mapping[str, str],
    leaving: frozenset[str] = frozenset(),
    *,
    records: PodRecords | None = None,
) -> GangQuestion:
    """Decode and count the request's classes, at the group's priority.

    Raises what `question_of` raises, for the first class that cannot be read.
    """
    group = request.group
    if group is None or not request.classes:
        raise NamelessPodError("the group has no class of members")
    classes = []
    for one in request.classes:
        question = question_of(request, in_flight, leaving, records=records, of=one)
        preemptor = msgspec.structs.replace(question.preemptor, priority=group.priority)
        classes.append(GangClass(replace(question, preemptor=preemptor), one.count))
    return GangQuestion(
        name=f"{group.namespace}/{group.name}",
        classes=tuple(classes),
        must_place=request.must_place,
        topology=request.topology,
        placed=request.placed,
    )
