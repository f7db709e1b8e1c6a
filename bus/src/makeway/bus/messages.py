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

API_VERSION = "makeway.dev/v1"
"""Major version of plan request and plan reply."""

TYPE_ORDER = "dev.makeway.order.v1"
TYPE_BEGUN = "dev.makeway.begun.v1"
TYPE_OUTCOME = "dev.makeway.outcome.v1"
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
OutcomeResult = Literal["succeeded", "failed", "expired", "refused", "cancelled"]
VictimResult = Literal["deleted", "terminating", "gone", "spared", "failed", "notAttempted"]

MAY_PASS = frozenset(
    {"throttled", "budget", "server-error", "unavailable", "conflict", "stale", "unauthorized", "bus"}
)
"""Reasons of a failed victim that may pass by themselves: those for which evictors try again."""


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every message: immutable, camelCase on the wire, defaults left out."""


# ---------------------------------------------------------------------------------------- parts


class StreamPosition(Message, frozen=True):
    """How far a stream has been read. `created`: when it was made, as NATS writes that, to the nanosecond.

    A stream that is made anew counts from 1 again, so only positions of one `created` can be compared.
    """

    created: Text
    sequence: Count


class PodRef(Message, frozen=True):
    """One incarnation of a pod. Only `uid` identifies; the names are for people and for URLs."""

    namespace: Text
    name: Text
    uid: Text


class Placement(PodRef, frozen=True):
    """A pod on a node as the scheduler's memory has it: nominated there, or assumed and not yet bound.

    `node_uid`: of that node, in an order and where it is known.
    """

    node: Text
    node_uid: str = ""


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


class Victim(PodRef, frozen=True):
    """A pod chosen for eviction, with the rule that made it removable.

    `assumed` marks a pod that the scheduler has placed but the API server does not show as bound.
    `detail` says in decision records why the rule chose it, with its numbers; orders leave it out. `unit`:
    the group with which it is evicted whole or not at all; its pods may be on other nodes than the order's.
    `closes`: in an order for a group, why it goes though its node needs no member: it is in this domain.
    `facts`: an evictor that judges by them as the writer did marks the pod as its first read of it; without
    them it reads the pod first.
    """

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


# ------------------------------------------------------------------------- plan request and reply


# ------------------------------------------------------------------------------- stream messages


class Fence(Message, frozen=True):
    """Who may write orders: `epoch` must not be below what the named object holds now.

    `kind` "lease": `leaseTransitions` of the Lease; `kind` "kv": the sequence of a message in
    a NATS key-value bucket, where there is no leader election.
    """

    kind: Literal["lease", "kv"]
    name: Text
    epoch: Int64
    namespace: str = ""


class NominationToClear(PodRef, frozen=True):
    """A pod of lower priority whose nomination an order clears; `node`: to which, if not to the order's."""

    node: str = ""


class OrderedGroup(Preemptor, frozen=True):
    """The PodGroup that room is made for, as it was when the order was verified.

    `priority`: that of its members for kube-scheduler. `min_count`: its gang's; 0 where it is none.
    `must_place`: of the order's `members` at least so many must still wait for their nodes.
    """

    must_place: MemberCount
    min_count: MemberCount = 0


class Void(Message, frozen=True):
    """Why no order is stored under an id: a constant, and a sentence with the numbers."""

    reason: Text
    message: Text


class EvictionOrder(Message, frozen=True):
    """A committed decision to evict. Nothing is deleted that is not a victim of one.

    `not_after`: no effect of this order may begin later. `store_by`: an order that its stream took later is
    refused, since its preemptor waits for it no longer. `awaited` belong to other live orders,
    and if one of those leaves its pod there, this fails. `nominations_to_clear` are pods of lower priority
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
        tuple[Placement, ...], msgspec.Meta(max_length=MOST_MEMBERS, extra_json_schema=UNIQUE)
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
    def room_for(self) -> Preemptor | None:
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
                node=one.node if isinstance(one, Placement) else self.node,
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


class VictimOutcome(PodRef, frozen=True):
    """What became of one victim.

    `deleted`: this order's delete was accepted. `terminating`, `gone`: nothing left to do.
    `spared`: the re-check protected it. `failed`: the API server refused for good, or too long.
    `notAttempted`: an earlier failure stopped the order before it.
    """

    result: VictimResult
    reason: str = ""
    message: str = ""
    attempts: Int64 = 0
    grace_period_seconds: Int64 = 0
    deleted_at: Time | None = None

    @property
    def leaves(self) -> bool:
        """Whether its pod has gone, or is on its way."""
        return self.result in ("deleted", "terminating", "gone")


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
