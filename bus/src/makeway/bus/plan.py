"""Questions about a plan, for a pod or for a pod group, and the answer: bare JSON under `API_VERSION`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

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
    Time,
    Token,
)
from makeway.core.policy.mode import Mode

PlanStatus = Literal["candidates", "refused", "notSynced"]

TOO_LATE: Final = "TooLate"
"""Reason of a refusal: the time that the question named is over."""

MOST_MEMBER_CLASSES: Final = 16
"""Classes of members that a plan request may have."""

MOST_TOPOLOGY_KEYS: Final = 4
"""Topology keys that a plan request may have; Kubernetes 1.37 allows one."""


class Dependency(Message, frozen=True):
    """An object that a refusal depends on: when it changes, trying again may help."""

    kind: Text
    name: Text
    namespace: str = ""


class Refusal(Message, frozen=True):
    """Why no preemption helps.

    `reason` is a constant in CamelCase; `message` is a sentence with the numbers; `node_reasons`
    counts nodes by what stood in the way. `retry_at` is the earliest time at which time alone
    changes the answer.
    """

    reason: Text
    message: Text
    node_reasons: dict[str, Int64] = msgspec.field(default_factory=dict)
    retry_at: Time | None = None
    depends_on: tuple[Dependency, ...] = ()


class NodeSelection(Message, frozen=True):
    """A set of nodes, as its members or as all but them, whichever is shorter."""

    names: tuple[str, ...] = ()
    all_but: bool = False


class Profile(Message, frozen=True):
    """The scheduler profile's filter plugins, in order, and what arguments they were given (raw JSON)."""

    name: Text
    filters: tuple[str, ...] = ()
    filter_args: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


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


class PlanRequest(Message, frozen=True):
    """The plugin's question: what would have to go for this pod, or for this group, to fit?

    `classes`: the pods that wait for nodes; without `group` one of one pod. `must_place`: how many of the
    members of all classes together must get a node; a group that has its `minCount` placed asks for one.
    `topology`: keys of node labels; all members must be on nodes with the same value. `placed`: members that
    are bound or assumed. `max_candidates`: of a pod, how many nodes the answer may name.
    `nominations` and `assumed` are complete sets, no deltas, because another planner may answer the next
    request, without those of the pods that are asked about. `seen` is how far the scheduler's own watches
    have come, so that a planner knows whether it is behind: by resource (pods, nodes, poddisruptionbudgets)
    the highest resourceVersion of an object that the scheduler has been told of. `outcomes_read`: how far it
    has read the outcomes of orders; the planner waits a while until it has read as far. `ahead`: asked while
    the scheduler's filters still run, for the nodes that pods alike were asked for; if the pod fits, nothing
    comes of it. `ignore_columns`: judge no node by its columns; every node of a class with a removable pod
    comes back as `unmodelled`.
    """

    api_version: Text
    request_id: Text
    cluster_uid: Text
    mode: Mode
    timeout_milliseconds: Int64
    profile: Profile
    classes: Annotated[tuple[MemberClass, ...], msgspec.Meta(max_length=MOST_MEMBER_CLASSES)]
    max_candidates: Int64 = 0
    group: GroupPreemptor | None = None
    must_place: MemberCount = 0
    topology: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_TOPOLOGY_KEYS)] = ()
    placed: tuple[Placement, ...] = ()
    nominations: tuple[Placement, ...] = ()
    assumed: tuple[Placement, ...] = ()
    seen: dict[str, Int64] = msgspec.field(default_factory=dict)
    ahead: bool = False
    ignore_columns: bool = False
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


class Removable(Message, frozen=True):
    """A pod that policy allows to be removed for this preemptor; `victim` where the plan needs it gone.

    `unit`: the group with which it is evicted whole or not at all; its pods are side by side. `node`:
    where it runs, if that is another node than the candidate's. `lost_work`: what its eviction loses, in
    thousandths of seconds of a pod of the preemptor's size, where the policy ranks by that. Of a plan for a
    group all are victims; `closes`: as of a victim of an order.
    """

    uid: Text
    rule: Text
    victim: bool = False
    pdb_violating: bool = False
    unit: str = ""
    node: str = ""
    lost_work: Int64 = 0
    closes: ClosedDomain | None = None


class Candidate(Message, frozen=True):
    """A node that would do.

    `removable` lists every pod that may be removed there, in the order in which they are offered
    back: PDB-violating first, then the more important first. `awaited` are already leaving.
    `max_victims`: whatever verification finds, no more than so many are evicted; 0: no limit.
    """

    node: Text
    removable: tuple[Removable, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    pdb_violations: Int64 = 0
    max_victims: Int64 = 0


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


class GroupPlan(Message, frozen=True):
    """Where the members go and which pods must go for them.

    `placements` are in an order in which the members can be placed one after the other, since affinity and
    spread look at members that are there. `victims` of one unit stand next to one another. `awaited`
    leave anyway. `domains`: where the group was to stay within a topology domain.
    `price`: absent where there are no victims.
    """

    placements: tuple[MemberPlacement, ...] = ()
    victims: tuple[Removable, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    domains: tuple[TopologyDomain, ...] = ()
    price: GroupPrice | None = None


class PlanReply(Message, frozen=True):
    """The planner's answer, about a pod or about a group.

    `candidates` come best first, at most `max_candidates`. `unmodelled` are nodes on which the
    modelled constraints need no victim, so that something only the scheduler's filters know is
    in the way; `unmodelled_total` counts them before the list was cut. About a group there is a `plan` in
    their place; one without victims says that the modelled constraints need none, and
    `left_to_verification` names constraints that only the scheduler's filters look at. `sample`, with some
    refusals: one of the nodes that the columns rule out, another one with each request, with all that may be
    removed there, so that the scheduler's own filters can be asked whether the refusal is right. `offer`:
    what a commit may name, in mode enforce; see `makeway.bus.commit`.
    """

    api_version: Text
    request_id: Text
    planner: Text
    status: PlanStatus
    snapshot_revision: Int64 = 0
    policy_revision: str = ""
    decision_id: str = ""
    candidates: tuple[Candidate, ...] = ()
    unmodelled: tuple[Candidate, ...] = ()
    unmodelled_total: Int64 = 0
    plan: GroupPlan | None = None
    refusal: Refusal | None = None
    sample: Candidate | None = None
    left_to_verification: tuple[str, ...] = ()
    offer: str = ""
