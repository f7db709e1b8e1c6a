"""The comparison of one plan with what kube-scheduler's own preemption did about the same pod or PodGroup.

The planner writes it beside its decision records, when it is known what became of that: for each plan in
mode `observe`, and for each preemption that no scheduler asked about. Both choices are judged by the same
numbers, on the cluster as it was when the plan was made.
"""

from __future__ import annotations

from typing import Literal

from makeway.bus.messages import Int64, MemberCount, Message, Preemptor, Text, Time, Token, Victim
from makeway.bus.plan import Refusal

TYPE_COMPARISON = "dev.makeway.comparison.v1"

ComparisonResult = Literal["same", "equal", "better", "worse", "makewayOnly", "defaultOnly", "undetermined"]


class Choice(Message, frozen=True):
    """A node and the pods that go there, with the numbers that judge it.

    `pdb_violations`: victims beyond what their disruption budgets allowed, counted over these victims
    alone. `groups_broken`: groups of which some pods go and others stay, though they only go together, or
    which fall below their minCount. `priority_sum`: each priority plus 2³¹, as kube-scheduler sums them.
    `nodes`: of a choice for a PodGroup, those of its members; `node` is the first of them.
    `lost_work_seconds`: what the victims lose of their work, in seconds of a pod of the preemptor's size,
    whether the policy ranks by it or not.
    """

    node: Text
    victims: tuple[Victim, ...] = ()
    pdb_violations: Int64 = 0
    highest_priority: Int64 = 0
    priority_sum: Int64 = 0
    latest_start: Time | None = None
    groups_broken: Int64 = 0
    nodes: tuple[Text, ...] = ()
    lost_work_seconds: Int64 = 0


class ComparedGroup(Message, frozen=True):
    """The PodGroup that a comparison is about: how many members waited, and how many had to be placed.

    `objective`: the terms by which both choices are judged, the first counts most.
    """

    members: MemberCount
    must_place: MemberCount
    objective: tuple[str, ...] = ()


class Comparison(Message, frozen=True):
    """What makeway would have done for a pod or a PodGroup, and what DefaultPreemption did.

    `preemptor`: the pod; where `group` is there, the PodGroup, by its own name and UID.

    `result`, always from makeway's side: `same` (node and victims), `equal` (another choice, as good),
    `better`, `worse` (`decided_by` names the first rule on which they differ), `makewayOnly` (no pod was
    evicted; `refusal` is absent), `defaultOnly` (makeway refused, for the reason in `refusal`),
    `undetermined` (`note` says why the two cannot be told apart).
    `planned_at`, `plan_duration_microseconds`: of the plan. `nominated_after_microseconds`,
    `evicted_after_microseconds`: from then until the planner saw the nomination, and the last victim marked;
    0 where it saw none. `shared`: another preemptor may be behind one of the marks, so that a victim may
    be counted for the wrong one of them; it is never counted twice.
    `asked`: a scheduler had asked for the plan. Where none had, the planner saw the preemption in its watch
    and planned `planned_after_microseconds` after the first mark as of before it, `planned_at`:
    `restored_pods` that had left by then were put back, and `past_complete` says whether all changes since
    were still known. `left_to_verification`: constraints of the preemptor that the plan could not look at.
    """

    decision_id: Token
    cluster_uid: Text
    planner: Text
    at: Time
    planned_at: Time
    preemptor: Preemptor
    result: ComparisonResult
    queue: str = ""
    decided_by: str = ""
    makeway: Choice | None = None
    default_preemption: Choice | None = None
    refusal: Refusal | None = None
    plan_duration_microseconds: Int64 = 0
    nominated_after_microseconds: Int64 = 0
    evicted_after_microseconds: Int64 = 0
    shared: bool = False
    note: str = ""
    asked: bool = True
    left_to_verification: tuple[Text, ...] = ()
    restored_pods: Int64 = 0
    past_complete: bool = True
    planned_after_microseconds: Int64 = 0
    group: ComparedGroup | None = None

    @property
    def evicted(self) -> tuple[Victim, ...]:
        """Whom another than makeway evicted; empty where it made no room, or whom is not known."""
        return self.default_preemption.victims if self.default_preemption is not None else ()
