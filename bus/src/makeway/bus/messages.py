"""The messages makeway's parts send one another. These structs are the source of the contract.

Rules that hold for all of them:

* JSON field names are camelCase; a field that has its default is left out.
* Times are RFC 3339 in UTC, with microseconds only where they are not zero.
* A required text is never empty. Ids that become part of a subject are letters, digits, `-` and `_`.
* A field that a reader does not know is ignored, so fields may be added within a major version.
  A new major version is a new `apiVersion` or CloudEvents `type`, and is refused, never guessed at.
* Plan request and reply are bare JSON; everything that goes into a stream travels in the `data`
  of a `CloudEvent` (see `makeway.bus.envelope`).

The Go structs in `plugin/wire` and their checks are generated from the schemas of these (`make reference`),
and both sides are tested against the same golden files. What each side takes beyond the contract is listed in
`docs/consumers.md`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from makeway.core.policy.document import GroupPreemptors, UnplannedPods
from makeway.core.policy.mode import Mode

API_VERSION = "makeway.dev/v1"
"""Major version of plan request and plan reply."""

TYPE_ORDER = "dev.makeway.order.v1"
TYPE_BEGUN = "dev.makeway.begun.v1"
TYPE_OUTCOME = "dev.makeway.outcome.v1"
TYPE_DECISION = "dev.makeway.decision.v1"
TYPE_CONTROL = "dev.makeway.control.v1"

PAST_DEADLINE = timedelta(seconds=2)
"""How long after its `not_after` an order without an outcome is still taken for a live one."""

LIVE_LOOK_BACK = timedelta(minutes=15)
"""An order that was stored longer ago lives no more; see `LONGEST_NOT_AFTER`."""

_NOMINATORS = "makeway/nominator/"
"""What the `writer` of a nominator's orders begins with."""

LONGEST_NOT_AFTER = timedelta(minutes=11)
"""How far ahead an order's `not_after` may lie when it is stored.

The plugin allows itself ten minutes; the rest is for clocks that differ. An order without an end in
sight would be taken for a live one for ever."""

REVISION_AHEAD = timedelta(hours=1)
"""How far ahead of a reader's clock the revision of a control state may be, which is a time in milliseconds
since 1970. Further, it is no planner's: one that was believed could never be followed by another."""

Text = Annotated[str, msgspec.Meta(min_length=1)]
"""A required text."""

# The look-ahead is the end of the text in every dialect of regular expressions ("$" also stands before
# a last line feed in Python's).
Token = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,128}(?![\s\S])")]
"""An id that becomes one token of a subject."""

OptionalToken = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,128}(?![\s\S])")]
"""The same, or empty."""

Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A moment; one without an offset is refused."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number that every language can hold."""

Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A pod's priority, 32 bits as in the Kubernetes API."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""How many of something, or how much; never negative."""

MOST_REFUSED_VICTIMS = 64
"""How many pods a plan request may name in `refused_victims`."""

MOST_MEMBERS = 5000
"""Members that a group's plan request and order may have: placements and victims of so many still fit into a
message."""

MOST_NOMINATIONS = 1000
"""Nominations that an order may clear; those beyond are left to their schedulers."""

UNIQUE: Final = {"uniqueItems": True}
"""In the schema of a list that names each pod once, by UID. Evictors refuse an order that names one twice."""

MemberCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_MEMBERS)]
"""How many members; bounded."""

OrderKind = Literal["pod", "quota", "group"]
PlanStatus = Literal["candidates", "refused", "notSynced"]
QuotaResult = Literal["notNeeded", "success", "bestEffort", "unsuccessful"]
OutcomeResult = Literal["succeeded", "failed", "expired", "refused", "cancelled"]
VictimResult = Literal["deleted", "terminating", "gone", "spared", "failed", "notAttempted"]

MAY_PASS = frozenset(
    {"throttled", "budget", "server-error", "unavailable", "conflict", "stale", "unauthorized", "bus"}
)
"""Reasons of a failed victim that may pass by themselves: those for which evictors try again."""


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every message: immutable, camelCase on the wire, defaults left out."""


# ---------------------------------------------------------------------------------------- parts


class PodRef(Message, frozen=True):
    """One incarnation of a pod. Only `uid` identifies; the names are for people and for URLs."""

    namespace: Text
    name: Text
    uid: Text


class Placement(Message, frozen=True):
    """A pod on a node as the scheduler's memory has it: nominated there, or assumed and not yet bound."""

    namespace: Text
    name: Text
    uid: Text
    node: Text


class LiveOrder(Message, frozen=True):
    """An order without an outcome yet, as its writer knows it. `victims` are UIDs.

    `preemptor_uid`: of the pod, or of the PodGroup, whose orders have no `node`.
    """

    order_id: Token
    preemptor_uid: Text
    node: str = ""
    victims: tuple[str, ...] = ()


class Awaited(Message, frozen=True):
    """A pod that leaves anyway: counted on, never ordered a second time.

    `order_id`: of the live order that removes it. One that is terminating has none, but its `namespace` and
    `name`, and `until`, from when on it is no longer expected to leave.
    """

    uid: Text
    order_id: OptionalToken = ""
    namespace: str = ""
    name: str = ""
    until: Time | None = None


class Preemptor(Message, frozen=True):
    """The pod that room is made for."""

    namespace: Text
    name: Text
    uid: Token
    priority: Priority
    scheduler_name: Text


ClosingRule = Literal["podAntiAffinity", "existingPodAntiAffinity"]
"""What a pod keeps a domain closed by: the members' anti-affinity, or its own against them."""


_CLOSED_BY: Final[dict[ClosingRule, str]] = {
    "podAntiAffinity": "the group's anti-affinity",
    "existingPodAntiAffinity": "its own anti-affinity",
}


class ClosedDomain(Message, frozen=True):
    """The nodes with a label's value, of which a pod keeps members of a group away by a rule."""

    rule: ClosingRule
    key: Text
    value: str = ""

    @property
    def text(self) -> str:
        """Say what keeps which domain closed, of the pod as "it"."""
        return f"it keeps {self.key}={self.value} closed by {_CLOSED_BY[self.rule]}"


class VictimFacts(Message, frozen=True):
    """What the writer of an order judged a victim by, besides its node and its priority.

    `resource_version`: of the pod that it judged. `priority_class`: its PriorityClass. `scheduled_at`: since
    when it has been scheduled. `never_evict`: it carries that annotation.
    """

    resource_version: Text
    priority_class: str = ""
    scheduled_at: Time | None = None
    never_evict: bool = False


class Victim(Message, frozen=True):
    """A pod chosen for eviction, with the rule that made it removable.

    `assumed` marks a pod that the scheduler has placed but the API server does not show as bound.
    `detail` says in decision records why the rule chose it, with its numbers; orders leave it out. `unit`:
    the group with which it is evicted whole or not at all; its pods may be on other nodes than the order's.
    `closes`: in an order for a group, why it goes though its node needs no member: it is in this domain.
    `facts`: an evictor that judges by them as the writer did marks the pod as its first read of it; without
    them it reads the pod first.
    """

    namespace: Text
    name: Text
    uid: Text
    node: Text
    priority: Priority
    grace_period_seconds: Int64
    rule: Text
    pdb_violating: bool = False
    assumed: bool = False
    detail: str = ""
    unit: str = ""
    closes: ClosedDomain | None = None
    facts: VictimFacts | None = None


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
    node_reasons: dict[str, Int64] = {}
    retry_at: Time | None = None
    depends_on: tuple[Dependency, ...] = ()


# ------------------------------------------------------------------------- plan request and reply


class NodeSelection(Message, frozen=True):
    """A set of nodes, as its members or as all but them, whichever is shorter."""

    names: tuple[str, ...] = ()
    all_but: bool = False


class Profile(Message, frozen=True):
    """The scheduler profile's filter plugins, in order, and what arguments they were given (raw JSON)."""

    name: Text
    filters: tuple[str, ...] = ()
    filter_args: dict[str, msgspec.Raw] = {}


class PlanRequest(Message, frozen=True):
    """The plugin's question: what would have to go for this pod to fit?

    `nodes` are those that removing pods may help. `nominations`, `assumed` and `live_orders` are
    complete sets, no deltas, because another planner may answer the next request. `pod` is the
    v1.Pod as the scheduler sees it. `seen` is how far the scheduler's own watches have come, so that a
    planner knows whether it is behind: by resource (pods, nodes, poddisruptionbudgets) the highest
    resourceVersion of an object that the scheduler has been told of. `ahead`: asked while the scheduler's
    filters still run, for the nodes that pods alike were asked for; if the pod fits, nothing comes of it.
    `refused_victims`: UIDs of pods whose deletion the API server lately refused for good for this
    preemptor; they are not removable in this plan. `commits`: a commit will ask for the order, so
    the reply has an offer. `ignore_columns`: judge no node by its columns; every
    node of `nodes` with a removable pod comes back as `unmodelled`.
    """

    api_version: Text
    request_id: Text
    cluster_uid: Text
    mode: Mode
    timeout_milliseconds: Int64
    max_candidates: Int64
    profile: Profile
    pod: msgspec.Raw
    nodes: NodeSelection
    nominations: tuple[Placement, ...] = ()
    assumed: tuple[Placement, ...] = ()
    live_orders: tuple[LiveOrder, ...] = ()
    seen: dict[str, Int64] = {}
    ahead: bool = False
    refused_victims: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_REFUSED_VICTIMS)] = ()
    ignore_columns: bool = False
    commits: bool = False


class RepairProposal(Message, frozen=True):
    """What the planner asks an evictor to look at: a pod that may carry a mark left behind.

    The pod lives on, is marked as preemption's victim, and belongs to no live order that the planner
    knows. The evictor reads all of it anew. Bare JSON, neither stored nor answered.
    """

    api_version: Text
    cluster_uid: Text
    namespace: Text
    name: Text
    uid: Text


class Removable(Message, frozen=True):
    """A pod that policy allows to be removed for this preemptor; `victim` where the plan needs it gone.

    `unit`: the group with which it is evicted whole or not at all; its pods are side by side. `node`:
    where it runs, if that is another node than the candidate's.
    """

    uid: Text
    rule: Text
    victim: bool = False
    pdb_violating: bool = False
    unit: str = ""
    node: str = ""


class Candidate(Message, frozen=True):
    """A node that would do.

    `removable` lists every pod that may be removed there, in the order in which they are offered
    back: PDB-violating first, then the more important first. `awaited` are already leaving.
    `max_victims`: whatever verification finds, no more than so many may go; 0: no limit.
    """

    node: Text
    removable: tuple[Removable, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    pdb_violations: Int64 = 0
    max_victims: Int64 = 0


class PlanReply(Message, frozen=True):
    """The planner's answer.

    `candidates` come best first, at most `max_candidates`. `unmodelled` are nodes on which the
    modelled constraints need no victim, so that something only the scheduler's filters know stands
    in the way; `unmodelled_total` counts them before the list was cut. `sample`, with some refusals: one
    of the nodes that the columns rule out, another one with each request, with all that may be removed
    there, so that the scheduler's own filters can be asked whether the refusal is right. `offer`: what a
    commit may name, for whoever asked with `commits`; see `makeway.bus.commit`.
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
    refusal: Refusal | None = None
    sample: Candidate | None = None
    offer: str = ""


# ------------------------------------------------------------------------------- stream messages


class Fence(Message, frozen=True):
    """Who may write orders: `epoch` must not be below what the named object holds now.

    `kind` "lease": `leaseTransitions` of the Lease; `kind` "kv": a counter in a NATS key-value
    bucket, where there is no leader election.
    """

    kind: Literal["lease", "kv"]
    name: Text
    epoch: Int64
    namespace: str = ""


class NominationToClear(Message, frozen=True):
    """A pod of lower priority whose nomination an order clears; `node`: to which, if not to the order's."""

    namespace: Text
    name: Text
    uid: Text
    node: str = ""


class OrderedGroup(Message, frozen=True):
    """The PodGroup that room is made for, as it was when the order was verified.

    `priority`: that of its members for kube-scheduler. `min_count`: its gang's; 0 where it is none.
    `must_place`: of the order's `members` at least so many must still wait for their nodes.
    """

    namespace: Text
    name: Text
    uid: Token
    priority: Priority
    scheduler_name: Text
    must_place: MemberCount
    min_count: MemberCount = 0


class OrderMember(Message, frozen=True):
    """A member of the group with the node that it is nominated to. `node_uid`: of that node, where known."""

    namespace: Text
    name: Text
    uid: Text
    node: Text
    node_uid: str = ""


class Void(Message, frozen=True):
    """Why no order is stored under an id: a constant, and a sentence with the numbers."""

    reason: Text
    message: Text


class EvictionOrder(Message, frozen=True):
    """A committed decision to evict. Nothing is deleted that is not a victim of one.

    `not_after`: no effect of this order may begin later. `store_by`: an order that its stream took later is
    refused, since its preemptor waits for it no longer. `awaited` belong to other live orders,
    and if one of those fails, so does this. `nominations_to_clear` are pods of lower priority
    nominated to the same node. `preemptor` and `node` are absent from a quota order. An order of kind group
    has `group` and `members` in their place, and its `victims` are on any nodes. `void`: the message says why
    there is no order of this id. It is stored in the order's place, so that there never is one; it has no
    victims, no evictor does anything for it, and it has no outcome.
    """

    order_id: Token
    kind: OrderKind
    cluster_uid: Text
    fence: Fence
    writer: Text
    created_at: Time
    not_after: Time
    preemptor: Preemptor | None = None
    queue: str = ""
    node: str = ""
    node_uid: str = ""
    decision_id: str = ""
    victims: Annotated[tuple[Victim, ...], msgspec.Meta(extra_json_schema=UNIQUE)] = ()
    awaited: Annotated[tuple[Awaited, ...], msgspec.Meta(extra_json_schema=UNIQUE)] = ()
    nominations_to_clear: Annotated[
        tuple[NominationToClear, ...], msgspec.Meta(max_length=MOST_NOMINATIONS, extra_json_schema=UNIQUE)
    ] = ()
    pdb_violations: Int64 = 0
    group: OrderedGroup | None = None
    members: Annotated[
        tuple[OrderMember, ...], msgspec.Meta(max_length=MOST_MEMBERS, extra_json_schema=UNIQUE)
    ] = ()
    store_by: Time | None = None
    void: Void | None = None

    @property
    def named_twice(self) -> str:
        """Which of its lists has the UID of a pod twice, and which; empty where none does. O(pods)."""
        for what, pods in (
            ("victims", self.victims),
            ("awaited", self.awaited),
            ("nominationsToClear", self.nominations_to_clear),
            ("members", self.members),
        ):
            seen = set[str]()
            for pod in pods:
                if pod.uid in seen:
                    return f"{what} has pod {pod.uid} twice"
                seen.add(pod.uid)
        return ""

    @property
    def counts_on(self) -> tuple[str, ...]:
        """Ids of the other orders whose victims it awaits, each once."""
        return tuple(dict.fromkeys(one.order_id for one in self.awaited if one.order_id))

    @property
    def room_for(self) -> Preemptor | OrderedGroup | None:
        """The pod or PodGroup that room is made for; None for a quota order."""
        return self.group if self.kind == "group" else self.preemptor

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The pods that room is made for, each with its node."""
        pods = self.members if self.preemptor is None else (self.preemptor,)
        return tuple(
            Placement(
                namespace=one.namespace,
                name=one.name,
                uid=one.uid,
                node=one.node if isinstance(one, OrderMember) else self.node,
            )
            for one in pods
        )

    @property
    def preemptor_uid(self) -> str:
        """UID of the pod or PodGroup that room is made for; empty for a quota order."""
        return self.room_for.uid if self.room_for is not None else ""

    @property
    def is_external(self) -> bool:
        """Whether it says that a nominator wrote it, for a pod of a scheduler without the plugin."""
        return self.kind == "pod" and self.writer.startswith(_NOMINATORS)


class VictimOutcome(Message, frozen=True):
    """What became of one victim.

    `deleted`: this order's delete was accepted. `terminating`, `gone`: nothing left to do.
    `spared`: the re-check protected it. `failed`: the API server refused for good, or too long.
    `notAttempted`: an earlier failure stopped the order before it.
    """

    namespace: Text
    name: Text
    uid: Text
    result: VictimResult
    reason: str = ""
    message: str = ""
    attempts: Int64 = 0
    grace_period_seconds: Int64 = 0
    deleted_at: Time | None = None


class Rollback(Message, frozen=True):
    """What a failed order undid in the API: the nomination, and DisruptionTarget on pods that stay (UIDs).

    `nominations_reverted`: for an order of kind group, the members (UIDs) whose nominations it undid.
    """

    nomination_reverted: bool = False
    conditions_cleared: tuple[str, ...] = ()
    nominations_reverted: tuple[str, ...] = ()


class BegunUnit(Message, frozen=True):
    """A unit of which an order is about to delete the `first` pod, by its UID, before all others of the unit.

    `priority`: that of the unit's group then, None where it says none.
    """

    unit: Text
    first: Text
    priority: Int64 | None = None


class Begun(Message, frozen=True):
    """An order is about to delete pods of units, which go whole; written before the first of them is deleted.

    The evictor that takes the order over deletes the rest of a unit whose first pod is gone. `priority`,
    `namespace` and `daemonset_node`: what rules know of the preemptor, as the API server had it then.
    """

    order_id: Token
    cluster_uid: Text
    at: Time
    units: tuple[BegunUnit, ...]
    priority: Int64
    namespace: str = ""
    daemonset_node: str = ""


class Outcome(Message, frozen=True):
    """The one end of an order, written last.

    `succeeded`: every victim is deleted, leaving or gone. `failed`: a delete failed and all was
    rolled back. `expired`: past `not_after`, nothing begun. `refused`: the re-check said no.
    `cancelled`: the preemptor or its node no longer needs it. `preemptor_uid`: of the pod, or of the
    PodGroup, whose outcomes have no `node`. `retry_at`, `room`: where a cap on evictions is the reason, when
    the next victim may go if none go meanwhile, and about how many of this order may then.
    """

    order_id: Token
    kind: OrderKind
    cluster_uid: Text
    epoch: Int64
    result: OutcomeResult
    evictor: Text
    started_at: Time
    finished_at: Time
    preemptor_uid: str = ""
    node: str = ""
    queue: str = ""
    reason: str = ""
    message: str = ""
    retry_at: Time | None = None
    room: Count = 0
    deliveries: Int64 = 0
    victims: tuple[VictimOutcome, ...] = ()
    nominations_cleared: tuple[str, ...] = ()
    rollback: Rollback | None = None


class Spared(Message, frozen=True):
    """A pod of lower priority that a rule keeps from being a victim: which rule, with which numbers.

    `until`: the last moment for which the rule says so, where time alone ends it.
    """

    namespace: Text
    name: Text
    uid: Text
    priority: Priority
    rule: Text
    detail: Text
    until: Time | None = None


class NearNode(Message, frozen=True):
    """A node of a refusal that removing pods almost helps.

    `missing`: what it lacks even without all that may go, by resource. `spared`: the least important few of
    the pods that rules keep there; `spared_total` counts them all.
    """

    node: Text
    missing: dict[str, Int64] = {}
    spared: tuple[Spared, ...] = ()
    spared_total: Int64 = 0


class RankedCandidate(Message, frozen=True):
    """A candidate in a decision record, with the numbers that ranked it.

    `decided_by` names the first rule on which it beats the next one. `spared`, only for the best few: the
    least important of the pods that rules keep there; `spared_total` counts them all.
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


class QueueShare(Message, frozen=True):
    """How much of a quota's need a leaf below the queue was to give, by resource."""

    queue: Text
    amounts: dict[str, Int64] = {}


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
    usage: dict[str, Int64] = {}
    max: dict[str, Int64] = {}
    need: dict[str, Int64] = {}
    shares: tuple[QueueShare, ...] = ()
    freed: dict[str, Int64] = {}
    short: dict[str, Int64] = {}
    blocked: tuple[Obstacle, ...] = ()


class MemberPlacement(Message, frozen=True):
    """How many members of a class, by its place in the request's `classes`, go to a node."""

    member_class: Count
    node: Text
    count: Count


class GroupPrice(Message, frozen=True):
    """What a group plan costs, by the terms of the policy's `groups.objective`.

    `pdb_violations`: pods whose eviction violates a budget. `groups_broken`: groups that lose a unit, or fall
    below their `minCount`. `highest_victims`: how many have `highest_priority`. `priority_sum`: over the
    victims, as kube-scheduler sums them.
    """

    pdb_violations: Int64 = 0
    highest_priority: Int64 = 0
    groups_broken: Int64 = 0
    highest_victims: Int64 = 0
    priority_sum: Int64 = 0
    victims: Int64 = 0


class TopologyDomain(Message, frozen=True):
    """The nodes that have a label's value."""

    key: Text
    value: str = ""


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
    others even without all that may go, by resource; empty where there is enough in all, but not where
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
    missing: dict[str, Int64] = {}


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
    spared_by_rule: dict[str, Int64] = {}
    nearest: tuple[NearNode, ...] = ()
    plan_duration_microseconds: Int64 = 0
    recording: str = ""
    ahead: bool = False
    quota: QuotaDecision | None = None
    left_to_verification: tuple[str, ...] = ()
    group: OrderedGroup | None = None
    group_plan: GroupDecision | None = None

    @property
    def preemptor_uid(self) -> str:
        """UID of the pod or PodGroup that was asked about; empty for a quota."""
        about = self.group if self.kind == "group" else self.preemptor
        return about.uid if about is not None else ""


class Limits(Message, frozen=True):
    """Bounds of the policy; each absent where there is none.

    `victims_per_order`: an order with more is refused. `orders_in_flight`: with so many orders without an
    outcome no further preemption begins; the planner sees to that.
    """

    victims_per_order: Count | None = None
    orders_in_flight: Count | None = None


class QueueLimit(Message, frozen=True):
    """A queue of the tree. `max` by resource: milli-CPU, bytes, units; what is not in it has no limit.

    `namespaces` may use the queue; none listed means all of them. `guaranteed`, by resource as `max`: no
    preemption for a pod outside the queue takes it below; what is not in it has no guarantee.
    """

    path: Text
    max: dict[str, Count] = {}
    namespaces: tuple[str, ...] = ()
    guaranteed: dict[str, Count] = {}


class Unplanned(Message, frozen=True):
    """What restricts preemption, which says what becomes of a pod that there is no plan for, in mode enforce.

    By the names that the policy has for it. `protecting`: hard budgets, and rules by which pods are never
    victims. `restricting`: queues, limits, PriorityClasses that tolerate preemption. Where both are empty
    kube-scheduler's own preemption, which knows no policy, acts as it is. Where `protecting` is empty it does
    so for pods too of which `default`, or `system` from priority 2000000000 on, says `fallback`.
    """

    protecting: tuple[str, ...] = ()
    restricting: tuple[str, ...] = ()
    default: UnplannedPods = "hold"
    system: UnplannedPods = "fallback"


class SettledQuota(Message, frozen=True):
    """A queue whose quota has nothing left to enforce: no timer and no process runs for it on these terms.

    `max` by resource as in `QueueLimit`; the delay in microseconds.
    """

    path: Text
    max: dict[str, Count]
    delay_microseconds: Count
    mode: Mode


class EnforcedQuota(Message, frozen=True):
    """A queue whose process had not ended, with the maximum that it began with.

    `max` by resource as in `QueueLimit`. `need`: what usage was above it when the process first planned;
    empty before that.
    """

    path: Text
    max: dict[str, Count]
    need: dict[str, Count] = {}


class ControlState(Message, frozen=True):
    """What the leading planner tells plugin and evictor: how far to go, and within which limits.

    Each of them takes the more restrictive of this and its own argument, per namespace. `revision`
    rises with every change and never falls, though it may leap; the subject holds the last one.
    `queues` is the whole tree, parents before children, in the order of the file; `queues_revision` is
    empty where there is no queue configuration, and so no gate. `exempt_namespaces`:
    whose pods are counted in their queues and never held by them; where it is empty the plugin's argument
    holds. `hard_budget_namespaces`: where PodDisruptionBudgets are never violated; `"*"` means everywhere.
    `group_preemptors`: whether anything is evicted for pods of a gang. Without `unplanned` it is not known
    what restricts preemption. `settled` is the planner's own memory: a planner that begins to lead starts no
    timer for a queue whose terms are as they are there. `enforcing`, its own memory as well: the processes
    that had not ended. `pods`: about how many there are, bound to a node, for limits that are a share of
    them; 0 where that is not known.
    """

    revision: Int64
    mode: Mode
    cluster_uid: Text
    policy_revision: str = ""
    namespace_modes: dict[str, Mode] = {}
    limits: Limits | None = None
    queues_revision: str = ""
    queues: tuple[QueueLimit, ...] = ()
    hard_budget_namespaces: tuple[str, ...] = ()
    group_preemptors: GroupPreemptors = "upstream"
    unplanned: Unplanned | None = None
    exempt_namespaces: tuple[str, ...] = ()
    settled: tuple[SettledQuota, ...] = ()
    enforcing: tuple[EnforcedQuota, ...] = ()
    pods: Count = 0
