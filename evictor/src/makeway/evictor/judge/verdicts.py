"""What a re-check can say about a victim and about a whole order. Values only.

`reason` is a constant in kebab-case, fit for a metric label; `message` is a sentence for people.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.judge.contest import Basis


@dataclass(frozen=True)
class Epoch:
    """What a fence holds now: the epoch's number and when it began, None where that is not known."""

    number: int
    since: datetime | None = None


@dataclass(frozen=True)
class Delete:
    """The victim is there, is what the order means, and may go.

    `mark`: DisruptionTarget has to be set first. It is not where the pod carries one already.
    `resource_version`: of the pod that was judged, which was not being deleted; empty: whichever it has.
    `grace_period_seconds`: the pod's own.
    `bound`: the pod is on its node; else it is on the scheduler's word alone.
    `basis`: what the judgement rests on.
    """

    mark: bool = True
    resource_version: str = ""
    grace_period_seconds: int = 0
    bound: bool = True
    basis: Basis | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Deleted:
    """An accepted delete."""

    grace_period_seconds: int


@dataclass(frozen=True)
class Gone:
    """The victim holds no room any more: absent, replaced by another pod, or ended."""

    reason: Literal["not-found", "other-uid", "ended", "elsewhere"]


@dataclass(frozen=True)
class Terminating:
    """The victim is leaving already; nothing is left to do."""

    grace_period_seconds: int


@dataclass(frozen=True)
class Exempt:
    """The victim must not be deleted for this order.

    `reason`: not-bound, on-another-node, is-preemptor, closes-nothing, or the name of the rule that keeps it.
    """

    reason: str
    message: str


VictimVerdict = Delete | Gone | Terminating | Exempt


@dataclass(frozen=True)
class Proceed:
    """The order stands. What is known of the preemptor is the API server's word, never the order's."""

    preemptor: PreemptorFacts


@dataclass(frozen=True)
class Await:
    """The order stands, but the orders named here have to end well before anything is deleted."""

    order_ids: tuple[str, ...]


@dataclass(frozen=True)
class Expired:
    """It is past `not_after`: no effect may begin."""

    message: str


@dataclass(frozen=True)
class Refused:
    """The order must not be carried out. `retry_at`, `room`: of a cap, as `Outcome` has them."""

    reason: Literal[
        "other-cluster",
        "mode-off",
        "mode-observe",
        "breaker-open",
        "breaker-open-namespace",
        "too-many-victims",
        "too-many-awaited",
        "victims-per-minute",
        "victims-per-namespace",
        "victims-share",
        "incomplete-order",
        "invalid-name",
        "named-twice",
        "not-after-too-far",
        "stored-late",
        "stale-epoch",
        "fence-missing",
        "fence-unknown",
        "future-epoch",
        "preemption-policy-never",
        "not-opted-in",
        "victim-spared",
        "queues-not-read",
        "unit-incomplete",
        "quota-not-enforced",
    ]
    message: str
    retry_at: datetime | None = None
    room: int = 0


@dataclass(frozen=True)
class Cancelled:
    """The preemptor or its node no longer needs the room, or the order has ended already."""

    reason: Literal[
        "preemptor-gone",
        "preemptor-terminating",
        "preemptor-ended",
        "preemptor-bound",
        "nomination-moved",
        "node-gone",
        "ended-elsewhere",
        "group-gone",
        "group-changed",
        "members-missing",
    ]
    message: str


@dataclass(frozen=True)
class Failed:
    """The order cannot be completed and is rolled back."""

    reason: Literal[
        "awaited-order-failed",
        "read-refused",
        "delete-refused",
        "disruption-budget",
        "deadline",
        "incomplete",
        "reads-too-slow",
    ]
    message: str


Stop = Expired | Refused | Cancelled | Failed
"""Why an order ends without room being made."""
