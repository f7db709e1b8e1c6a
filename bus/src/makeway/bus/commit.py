"""Question and answer about an order: a bridge asks the planner to store one for whom it has nominated.

Bare JSON like a plan request and reply, under the same version. A bridge is what asks for plans: a
scheduler's plugin or the nominator. An `Offer` travels in a plan reply as the text of an envelope, and is in
the commit as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from makeway.bus.messages import (
    MOST_MEMBERS,
    UNIQUE,
    Awaited,
    ClosedDomain,
    Count,
    EvictionOrder,
    Fence,
    Message,
    OrderedGroup,
    Placement,
    PodRef,
    Preemptor,
    Text,
    Time,
    Token,
    Void,
)

TYPE_OFFER: Final = "dev.makeway.offer.v1"

ORDER_LIFE: Final = timedelta(seconds=60)
"""How long after an order was written its effects may begin, where its commit does not say."""

LONGEST_LIFE_SECONDS: Final = 600
"""How long at the most, whatever the commit says."""

MOST_VICTIMS: Final = 4000
"""Victims that a commit may name; a plan names no more."""

_DIGEST_BYTES: Final = 8

NOTHING: Final = "nothing-to-order"
"""Reason of a void: the pods whose room is wanted leave anyway."""

LATE: Final = "late"
"""Reason of a void: what the order waits for, such as its nominations, has not shown in time."""

SUPERSEDED: Final = "superseded"
"""Reason of a void that is not stored: another message came behind the one that the commit names."""

TOO_LARGE: Final = "order-too-large"
"""Reason of a void: no message of the stream holds the order."""

CommitStatus = Literal["stored", "void"]


class Offer(Message, frozen=True):
    """What a plan offers its preemptor for eviction, signed by the planner, so that a later leader knows.

    `pods`: a digest of each removable pod with the node that it is offered for, which is none in a plan for a
    group; see `offered`. `violating`: of those, the ones whose eviction would violate a budget. `closing`: by
    UID, the domain that a pod on a node of no member keeps closed for it.
    `daemonset_node`, `unfit_since`: as the plan took them, for a pod of a DaemonSet.
    """

    decision_id: Token
    cluster_uid: Text
    preemptor_uid: Token
    at: Time
    pods: str = ""
    violating: str = ""
    daemonset_node: str = ""
    unfit_since: Time | None = None
    closing: dict[str, ClosedDomain] = msgspec.field(default_factory=dict)

    def lacks(self, node: str, uids: Iterable[str]) -> str:
        """Return the first of some pods that was not offered for a node; empty where all were."""
        return next(_not_among(self.pods, node, uids), "")

    def keeping_budgets(self, node: str, uids: Iterable[str]) -> list[str]:
        """Return those of some pods for a node that were not said to violate a budget."""
        return [*_not_among(self.violating, node, uids)]


def offered(pods: Iterable[tuple[str, str]]) -> str:
    """Write pods as `Offer.pods` has them; `pods`: each with the node that it is offered for, and its UID."""
    return b"".join(_digest(node, uid) for node, uid in dict.fromkeys(pods)).hex()


def _not_among(pods: str, node: str, uids: Iterable[str]) -> Iterator[str]:
    known = bytes.fromhex(pods)
    digests = {known[at : at + _DIGEST_BYTES] for at in range(0, len(known), _DIGEST_BYTES)}
    return (uid for uid in uids if _digest(node, uid) not in digests)


def _digest(node: str, uid: str) -> bytes:
    return hashlib.sha256(f"{node}/{uid}".encode()).digest()[:_DIGEST_BYTES]


class CommitRequest(Message, frozen=True):
    """A bridge's question: store the order for this pod, or for the pods of a group, as it nominates them.

    Asked again with the same `order_id` until it is answered; every planner gives the same answer. `bridge`:
    who asks, as the order's writer. `offer`: the plan's. `placements`: one pod with its node; with `group` as
    many of its members as are nominated. `after`: the sequence of the last order for the pod or group in its
    stream, as the bridge has read it; 0 for none. `victims` (UIDs) and `awaited`: of the candidate that was
    chosen. `in_memory` (UIDs): pods of it that the bridge stops by itself once the order is stored, as they
    wait in Permit or PreBind. `fence`: the bridge's own. After `store_by` nothing is stored; it is of the
    same clock as the time in `order_id`, and a planner that knows its bridge counts from there.
    `lasts_seconds`: how long after the order was written its effects may begin; 0 for a minute.
    """

    api_version: Text
    order_id: Token
    cluster_uid: Text
    bridge: Text
    fence: Fence
    offer: Text
    placements: Annotated[
        tuple[Placement, ...], msgspec.Meta(max_length=MOST_MEMBERS, extra_json_schema=UNIQUE)
    ]
    store_by: Time
    group: OrderedGroup | None = None
    after: Count = 0
    victims: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_VICTIMS, extra_json_schema=UNIQUE)] = ()
    awaited: Annotated[
        tuple[Awaited, ...], msgspec.Meta(max_length=MOST_VICTIMS, extra_json_schema=UNIQUE)
    ] = ()
    in_memory: Annotated[
        tuple[str, ...], msgspec.Meta(max_length=MOST_VICTIMS, extra_json_schema=UNIQUE)
    ] = ()
    lasts_seconds: Count = 0

    @property
    def preemptor(self) -> PodRef:
        """The pod or PodGroup that room is to be made for."""
        about = self.group or self.placements[0]
        return PodRef(namespace=about.namespace, name=about.name, uid=about.uid)

    @property
    def node(self) -> str:
        """The node of the pod; empty for a group."""
        return self.placements[0].node if self.group is None else ""

    def __post_init__(self) -> None:
        """Raise ValueError where there is no pod, or where there are several without a group."""
        if not self.placements or (self.group is None and len(self.placements) > 1):
            raise ValueError(f"placements: {len(self.placements)} of them, and one is wanted without a group")


def named_order(
    commit: CommitRequest, *, decision_id: str, priority: int, scheduler_name: str, now: datetime
) -> EvictionOrder:
    """Return an order of a commit's names, without pods to evict. `priority`, ...: of the preemptor."""
    about, place, group = commit.preemptor, commit.placements[0], commit.group
    pod = Preemptor(
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        priority=priority,
        scheduler_name=scheduler_name,
    )
    return EvictionOrder(
        order_id=commit.order_id,
        kind="pod" if group is None else "group",
        cluster_uid=commit.cluster_uid,
        fence=commit.fence,
        writer=commit.bridge,
        created_at=now,
        not_after=now + (timedelta(seconds=min(commit.lasts_seconds, LONGEST_LIFE_SECONDS)) or ORDER_LIFE),
        preemptor=pod if group is None else None,
        node=commit.node,
        node_uid=place.node_uid if group is None else "",
        group=group and msgspec.structs.replace(group, priority=priority, scheduler_name=scheduler_name),
        members=commit.placements if group is not None else (),
        decision_id=decision_id,
        store_by=commit.store_by,
    )


class CommitReply(Message, frozen=True):
    """What became of a commit.

    `stored`: `order` is in its stream. `void`: there is no order of this id and never will be, and why.
    """

    api_version: Text
    order_id: Text
    planner: Text
    status: CommitStatus
    order: EvictionOrder | None = None
    void: Void | None = None
