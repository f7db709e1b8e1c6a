"""Question and answer about a pod group: what would have to go for its members to fit, all in one plan.

Bare JSON like a pod's plan request and reply, under the same version.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from makeway.bus.messages import (
    Awaited,
    ClosedDomain,
    Count,
    Int64,
    MemberCount,
    Message,
    Placement,
    Priority,
    StreamPosition,
    Text,
    Token,
)
from makeway.bus.plan import NodeSelection, PlanAnswer, Profile, Refusal
from makeway.core.policy.mode import Mode

MOST_MEMBER_CLASSES: Final = 16
"""Classes of members that a group plan request may have."""

MOST_TOPOLOGY_KEYS: Final = 4
"""Topology keys that a group plan request may have; Kubernetes 1.37 allows one."""


class MemberPlacement(Message, frozen=True):
    """How many members of a class, by its place in the request's `classes`, go to a node."""

    member_class: Count
    node: Text
    count: Count


class GroupPrice(Message, frozen=True):
    """What a group plan costs, by the terms of the policy's `groups.objective`.

    `pdb_violations`: pods whose eviction violates a budget. `groups_broken`: groups that lose a unit, or fall
    below their `minCount`. `highest_victims`: how many have `highest_priority`. `priority_sum`: over the
    victims, as kube-scheduler sums them. `lost_work_seconds`: what they lose of their work, in seconds of a
    member, where the objective names it.
    """

    pdb_violations: Int64 = 0
    highest_priority: Int64 = 0
    groups_broken: Int64 = 0
    highest_victims: Int64 = 0
    priority_sum: Int64 = 0
    victims: Int64 = 0
    lost_work_seconds: Int64 = 0


class TopologyDomain(Message, frozen=True):
    """The nodes that have a label's value."""

    key: Text
    value: str = ""


class GroupPreemptor(Message, frozen=True):
    """The PodGroup that room is made for, with the priority that kube-scheduler takes for all its members."""

    namespace: Text
    name: Text
    uid: Token
    priority: Priority


class MemberClass(Message, frozen=True):
    """Members that are equal in all that a scheduler looks at.

    `pod` is one of them, a v1.Pod as the scheduler sees it; `count` is how many wait for a node. `nodes` are
    those that removing pods may help. `same_nodes_as`: they are those of the class at this place in the
    request, one before it that names its own, and `nodes` is empty.
    """

    pod: msgspec.Raw
    count: MemberCount
    nodes: NodeSelection
    same_nodes_as: Annotated[int, msgspec.Meta(ge=0, lt=MOST_MEMBER_CLASSES)] | None = None


class GroupPlanRequest(Message, frozen=True):
    """The plugin's question: what would have to go for this group to fit?

    `must_place`: how many of the members of all `classes` together must get a node; a group that has its
    `minCount` placed asks for one. `topology`: keys of node labels; all members must be on nodes with the
    same value. `placed`: members that are bound or assumed. `nominations` are without those of the members,
    which this plan replaces. All else is as in a plan request for a pod.
    """

    api_version: Text
    request_id: Text
    cluster_uid: Text
    mode: Mode
    timeout_milliseconds: Int64
    profile: Profile
    group: GroupPreemptor
    classes: Annotated[tuple[MemberClass, ...], msgspec.Meta(max_length=MOST_MEMBER_CLASSES)]
    must_place: MemberCount
    topology: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_TOPOLOGY_KEYS)] = ()
    placed: tuple[Placement, ...] = ()
    nominations: tuple[Placement, ...] = ()
    assumed: tuple[Placement, ...] = ()
    seen: dict[str, Int64] = msgspec.field(default_factory=dict)
    outcomes_read: StreamPosition | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a class has its nodes from one that does not name its own before it."""
        for place, one in enumerate(self.classes):
            named = one.same_nodes_as
            if named is not None and (named >= place or self.classes[named].same_nodes_as is not None):
                raise ValueError(f"classes[{place}].sameNodesAs: {named} is no class before it with nodes")

    def nodes_of(self, one: MemberClass) -> NodeSelection:
        """Return the nodes where removing pods may help a class."""
        return one.nodes if one.same_nodes_as is None else self.classes[one.same_nodes_as].nodes


class GroupVictim(Message, frozen=True):
    """A pod that must go for the plan, and the rule that allows it.

    `unit`: it goes with that group whole. `closes`: as of a victim of an order.
    """

    uid: Text
    node: Text
    rule: Text
    pdb_violating: bool = False
    unit: str = ""
    closes: ClosedDomain | None = None


class GroupPlan(Message, frozen=True):
    """Where the members go and which pods must go for them.

    `placements` are in an order in which the members can be placed one after the other, since affinity and
    spread look at members that are there. `victims` of one unit stand next to one another. `awaited`
    leave anyway. `domains`: where the group was to stay within a topology domain.
    `price`: absent where there are no victims.
    """

    placements: tuple[MemberPlacement, ...] = ()
    victims: tuple[GroupVictim, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    domains: tuple[TopologyDomain, ...] = ()
    price: GroupPrice | None = None


class GroupPlanReply(PlanAnswer, frozen=True):
    """The planner's answer about a group.

    `candidates` as status means that there is a `plan`; one without victims says that the modelled
    constraints need none. `left_to_verification` names constraints that only the scheduler's filters look at.
    `offer` as of the reply about a pod.
    """

    plan: GroupPlan | None = None
    refusal: Refusal | None = None
    left_to_verification: tuple[str, ...] = ()
    offer: str = ""
