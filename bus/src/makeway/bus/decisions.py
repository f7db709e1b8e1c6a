"""Decision records: what was looked at, what was chosen, by which rule, with which numbers."""

from __future__ import annotations

from typing import Literal

import msgspec

from makeway.bus.messages import (
    Awaited,
    Int64,
    MemberCount,
    Message,
    OrderedGroup,
    OrderKind,
    PodRef,
    Preemptor,
    Priority,
    Text,
    Time,
    Token,
    Victim,
)
from makeway.bus.plan import GroupPrice, MemberPlacement, PlanStatus, Refusal, TopologyDomain
from makeway.core.policy.mode import Mode

TYPE_DECISION = "dev.makeway.decision.v1"


QuotaResult = Literal["notNeeded", "success", "bestEffort", "unsuccessful"]


class Spared(PodRef, frozen=True):
    """A pod of lower priority that a rule keeps from being a victim: which rule, with which numbers.

    `until`: the last moment for which the rule says so, where time alone ends it.
    """

    priority: Priority
    rule: Text
    detail: Text
    until: Time | None = None


class NearNode(Message, frozen=True):
    """A node of a refusal that removing pods almost helps.

    `missing`: what it lacks even without all removable pods, by resource. `spared`: the least important few
    of the pods that rules keep there; `spared_total` counts them all.
    """

    node: Text
    missing: dict[str, Int64] = msgspec.field(default_factory=dict)
    spared: tuple[Spared, ...] = ()
    spared_total: Int64 = 0


class RankedCandidate(Message, frozen=True):
    """A candidate in a decision record, with the numbers that ranked it.

    `decided_by` names the first rule on which it beats the next one. `spared`, only for the best few: the
    least important of the pods that rules keep there; `spared_total` counts them all. `lost_work_seconds`:
    what the victims lose, in seconds of a pod of the preemptor's size, where the policy ranks by it.
    """

    node: Text
    victims: tuple[Victim, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    pdb_violations: Int64 = 0
    highest_priority: Int64 = 0
    priority_sum: Int64 = 0
    latest_start: Time | None = None
    decided_by: str = ""
    spared: tuple[Spared, ...] = ()
    spared_total: Int64 = 0
    lost_work_seconds: Int64 = 0


class QueueShare(Message, frozen=True):
    """How much of a quota's need a leaf below the queue was to give, by resource."""

    queue: Text
    amounts: dict[str, Int64] = msgspec.field(default_factory=dict)


class Obstacle(Message, frozen=True):
    """What kept pods from being evicted: a constant in kebab-case, and a sentence with the numbers."""

    reason: Text
    message: Text


class QuotaDecision(Message, frozen=True):
    """What enforcing a lowered quota comes to. Amounts by resource: milli-CPU, bytes, units.

    `usage`: without the pods that were leaving already. `need`: by how much it is above `max`. `shares`:
    what the leaves were to give of it. `freed`: what the victims give. `short`: what is left of the need.
    """

    result: QuotaResult
    usage: dict[str, Int64] = msgspec.field(default_factory=dict)
    max: dict[str, Int64] = msgspec.field(default_factory=dict)
    need: dict[str, Int64] = msgspec.field(default_factory=dict)
    shares: tuple[QueueShare, ...] = ()
    freed: dict[str, Int64] = msgspec.field(default_factory=dict)
    short: dict[str, Int64] = msgspec.field(default_factory=dict)
    blocked: tuple[Obstacle, ...] = ()


class PricedDomain(Message, frozen=True):
    """A topology domain that a plan for a group was made in.

    `placeable`: how many members had room there at the most, as far as was looked for. `price`: of the plan
    there; absent where there is none, or nothing has to go.
    """

    domains: tuple[TopologyDomain, ...]
    placeable: MemberCount = 0
    price: GroupPrice | None = None


class GroupDecision(Message, frozen=True):
    """What was decided for a group: who goes where, and what it costs by the terms of `objective`, in order.

    `members`: how many wait for a node. `priced`: where there are topology constraints, the domains that were
    looked at, the best first. Of a refusal: `placeable`, for NotEnoughRoom how many members would have room
    at the most, else for how many places were found; and `missing`, what the nearest domain lacks for the
    others even without all removable pods, by resource; empty where there is enough in all, but not where
    members would fit.
    """

    members: MemberCount
    objective: tuple[str, ...] = ()
    placements: tuple[MemberPlacement, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    domains: tuple[TopologyDomain, ...] = ()
    price: GroupPrice | None = None
    priced: tuple[PricedDomain, ...] = ()
    placeable: MemberCount = 0
    missing: dict[str, Int64] = msgspec.field(default_factory=dict)


class DecisionRecord(Message, frozen=True):
    """One plan or refusal: what was looked at, what was chosen, by which rule, with which numbers.

    Of a refusal also `spared_by_rule`, how many pods rules keep on the potential nodes, and `nearest`, the
    nodes that lack least. `left_to_verification` names constraints that the planner did not look at, for
    their size, so that only the scheduler's filters judge them: values of the label `constraint` of metric
    makeway_planner_constraints_left_out_total. `recording` names what the planner saw while it decided; kept
    for a day at the most, and read by `makeway replay`. `ahead` is the plan request's: without an order for
    it, the pod has probably fitted after all. A record of kind group has `group` and `group_plan` in place of
    `preemptor`, `nominated_node` and `candidates`.
    """

    decision_id: Token
    request_id: Text
    kind: OrderKind
    cluster_uid: Text
    planner: Text
    at: Time
    mode: Mode
    status: PlanStatus
    snapshot_revision: Int64
    policy_revision: str = ""
    preemptor: Preemptor | None = None
    queue: str = ""
    nodes_total: Int64 = 0
    nodes_potential: Int64 = 0
    candidates_total: Int64 = 0
    unmodelled_total: Int64 = 0
    nominated_node: str = ""
    victims: tuple[Victim, ...] = ()
    pdb_violations: Int64 = 0
    candidates: tuple[RankedCandidate, ...] = ()
    diagnosis: Refusal | None = None
    spared_by_rule: dict[str, Int64] = msgspec.field(default_factory=dict)
    nearest: tuple[NearNode, ...] = ()
    plan_duration_microseconds: Int64 = 0
    recording: str = ""
    ahead: bool = False
    quota: QuotaDecision | None = None
    left_to_verification: tuple[str, ...] = ()
    group: OrderedGroup | None = None
    group_plan: GroupDecision | None = None

    @property
    def room_for(self) -> Preemptor | None:
        """The pod or PodGroup that was asked about; None for a quota."""
        return self.group if self.kind == "group" else self.preemptor

    @property
    def preemptor_uid(self) -> str:
        """Its UID; empty for a quota."""
        return self.room_for.uid if self.room_for is not None else ""
