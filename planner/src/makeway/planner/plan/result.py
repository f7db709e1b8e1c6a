"""What a plan says: values of the core, before they become messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

import msgspec

from makeway.bus.messages import ClosedDomain
from makeway.bus.plan import MemberPlacement
from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.policy.rules import Verdict
from makeway.planner.plan.price import Price
from makeway.planner.snapshot.records import PodRecord


class RemovablePod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that may go, the rule that allows it, and whether the plan needs it gone.

    `detail`: the rule's numbers where they are more than the priorities, for the decision record. `unit`: the
    group with which it is evicted whole or not at all; its pods are side by side. `closes`: why it goes
    though no member comes to its node. `lost_work`: as of candidates.
    """

    pod: PodRecord
    rule: str
    victim: bool
    pdb_violating: bool
    detail: str = ""
    unit: str = ""
    closes: ClosedDomain | None = None
    lost_work: int = 0


@dataclass(frozen=True, slots=True)
class AwaitedPod:
    """A pod that leaves anyway and that this plan counts on.

    `order_id`: the live order that removes it; empty of one that is terminating.
    """

    pod: PodRecord
    order_id: str


@dataclass(frozen=True, slots=True)
class ExemptPod:
    """A pod of lower priority that a rule exempts, and what the rule says."""

    pod: PodRecord
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ExemptPods:
    """The pods of one node that rules exempt: how many, and the least important few of them by name."""

    total: int = 0
    pods: tuple[ExemptPod, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A node, which pods may and must go there, and the numbers that rank it.

    `removable` is in the order of reprieve. `start_micros`: of the longest running
    victim of highest priority. `decided_by`: the first rule on which it beats the next candidate.
    `exempt`: only where it is one of the best few.
    `max_victims`: how many may go there at most, whatever else verification finds; 0: no limit.
    `lost_work`: thousandths of seconds of a pod of the preemptor's size, where the policy ranks by it;
    `lost_work_avoided`: of the best, how much less than where the policy did not.
    """

    node: str
    removable: tuple[RemovablePod, ...]
    awaited: tuple[AwaitedPod, ...]
    pdb_violations: int
    highest_priority: int
    priority_sum: int
    start_micros: int = NOT_STARTED
    decided_by: str = ""
    exempt: ExemptPods = ExemptPods()
    max_victims: int = 0
    lost_work: int = 0
    lost_work_avoided: int = 0

    @property
    def victims(self) -> tuple[RemovablePod, ...]:
        """Return the pods that must go, in the order of reprieve."""
        return tuple(pod for pod in self.removable if pod.victim)

    @property
    def gone(self) -> list[PodRecord]:
        """Return all pods that the plan counts on to leave."""
        return [*(one.pod for one in self.victims), *(one.pod for one in self.awaited)]


@dataclass(frozen=True, slots=True)
class Scope:
    """What was looked at: all nodes, those that removing pods may help, and at which revision."""

    revision: int
    nodes_total: int
    nodes_potential: int


class Planned:
    """What a plan for a pod and one for a group have in common."""

    __slots__ = ()
    scope: Scope
    left_out: tuple[str, ...]

    @property
    def displacing(self) -> Mapping[int, int]:
        """Return how many pods of each class that is asked about come where pods go."""
        raise NotImplementedError

    def without(self, held: Callable[[RemovablePod], bool]) -> Self | None:
        """Return it without nodes where it evicts pods of which this reports True; None if none is left."""
        raise NotImplementedError

    def refused(
        self,
        reason: str,
        message: str,
        retry_at: datetime | None = None,
        depends_on: tuple[tuple[str, str, str], ...] = (),
    ) -> PlanRefusal:
        """Return the refusal that takes its place, where it is not carried out now."""
        return PlanRefusal(
            self.scope, reason, message, retry_at=retry_at, depends_on=depends_on, left_out=self.left_out
        )


@dataclass(frozen=True, slots=True)
class Plan(Planned):
    """Nodes on which room can be made, best first, and nodes where only the scheduler's filters know.

    The totals count before the lists were cut. `left_out`: constraints beyond the planner's bounds, which
    only the scheduler's filters look at; constants of `bounds`.
    """

    scope: Scope
    candidates: tuple[PlanCandidate, ...]
    candidates_total: int
    unmodelled: tuple[PlanCandidate, ...]
    unmodelled_total: int
    left_out: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the node of the best candidate."""
        return tuple(one.node for one in self.candidates[:1])

    @property
    def displacing(self) -> Mapping[int, int]:
        """Return the one pod."""
        return {0: 1}

    def without(self, held: Callable[[RemovablePod], bool]) -> Plan | None:
        """Return it without such nodes, and without those where the filters may choose such a pod."""
        kept = self.keeping(
            lambda one: not any(map(held, one.victims)), lambda one: not any(map(held, one.removable))
        )
        return kept if kept.candidates or kept.unmodelled else None

    @property
    def needs_order(self) -> bool:
        """Whether an order would carry the best of it out: none where pods that end anyway make the room."""
        best = self.candidates[0] if self.candidates else None
        return best is None or bool(best.victims) or any(one.order_id for one in best.awaited)

    def keeping(
        self,
        candidate: Callable[[PlanCandidate], bool],
        unmodelled: Callable[[PlanCandidate], bool] = lambda _: True,
    ) -> Plan:
        """Return it without the nodes of which these report False."""
        kept, others = tuple(filter(candidate, self.candidates)), tuple(filter(unmodelled, self.unmodelled))
        return replace(
            self,
            candidates=kept,
            candidates_total=self.candidates_total - len(self.candidates) + len(kept),
            unmodelled=others,
            unmodelled_total=self.unmodelled_total - len(self.unmodelled) + len(others),
        )


@dataclass(frozen=True, slots=True)
class NearestNode:
    """A node that removing pods almost helps: what is `missing` even then, and the pods that are exempt."""

    node: str
    missing: dict[str, int]
    exempt: ExemptPods = ExemptPods()


@dataclass(frozen=True, slots=True)
class GangDomain:
    """A topology domain that was looked at: how many members have room, and the price of the plan there."""

    domains: tuple[tuple[str, str], ...]
    placeable: int
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class GangPlan(Planned):
    """Where the members go, in an order in which they can be placed, and which pods must go for them.

    `victims`: node by node; pods of one unit are next to one another. Without any, the columns need no pod
    gone. More are placed than have to be only where that costs nothing. `domains`: key and value of each
    topology constraint. `priced`: the domains that were looked at, best first. `changed`: the cluster did so
    meanwhile; this holds in it as it is now, but another plan might be made there.
    """

    scope: Scope
    placements: tuple[MemberPlacement, ...]
    victims: tuple[RemovablePod, ...]
    awaited: tuple[AwaitedPod, ...]
    price: Price
    domains: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    priced: tuple[GangDomain, ...] = ()
    changed: bool = False

    @property
    def placed(self) -> int:
        """Return how many members get a node."""
        return sum(one.count for one in self.placements)

    @property
    def displacing(self) -> Mapping[int, int]:
        """Return how many members of each class come where pods go."""
        going, found = {one.pod.node for one in self.victims}, Counter[int]()
        for one in self.placements:
            if one.node in going:
                found[one.member_class] += one.count
        return found

    def without(self, held: Callable[[RemovablePod], bool]) -> GangPlan | None:
        """Return all of it or nothing: no part of it places the group."""
        return None if any(map(held, self.victims)) else self

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that members go to, in order of names."""
        return tuple(sorted({one.node for one in self.placements}))

    @property
    def needs_order(self) -> bool:
        """Whether an order would carry it out, as of a plan for a pod."""
        return bool(self.victims) or any(one.order_id for one in self.awaited)

    @property
    def gone(self) -> list[PodRecord]:
        """Return all pods that the plan counts on to leave."""
        return [*(one.pod for one in self.victims), *(one.pod for one in self.awaited)]


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """Why no removal helps: a constant, a sentence with the numbers, nodes by what stood in the way.

    `retry_at`: when to ask again though nothing it depends on has changed. `depends_on`: the objects
    whose change may help, as (kind, namespace, name). `exempt`: pods of lower priority that rules exempt on
    the potential nodes, by rule. `nearest`: the nodes that lack least. `sample`: a node that the columns rule
    out, with all that may be removed there; None where no such node has a removable pod. `left_out`: as of a
    plan.

    Of a group: `placeable`: for NotEnoughRoom how many members have room at the most, else for how many
    places were found, in the best of `priced` where there are topology constraints; `missing`: what that one
    lacks for the others, by resource. `changed`: the cluster did so meanwhile.
    """

    scope: Scope
    reason: str
    message: str
    node_reasons: dict[str, int] = field(default_factory=dict)
    retry_at: datetime | None = None
    depends_on: tuple[tuple[str, str, str], ...] = ()
    exempt: dict[str, int] = field(default_factory=dict)
    nearest: tuple[NearestNode, ...] = ()
    sample: PlanCandidate | None = None
    left_out: tuple[str, ...] = ()
    placeable: int = 0
    priced: tuple[GangDomain, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    changed: bool = False
