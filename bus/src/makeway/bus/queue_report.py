"""What the leading planner says about queues when it is asked: `makeway queues` shows it.

Bare JSON over request and reply, neither stored nor for other programs to act on. Amounts are by resource:
milli-CPU, bytes, units; times in UTC.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import field

from makeway.bus.decisions import Obstacle
from makeway.bus.messages import API_VERSION, MAY_PASS, Int64, Message, Text, Time

Amounts: TypeAlias = dict[str, Int64]

ProcessResult = Literal[
    "notNeeded", "success", "bestEffort", "unsuccessful", "observed", "cancelled", "undone"
]


OTHER_WAIT: Final = "other"

QUOTA_WAITS: Final = frozenset(
    {
        "victims-per-minute",
        "victims-per-namespace",
        "victims-share",
        "breaker-open",
        "mode-off",
        "mode-observe",
        "no-evictor",
        "no-queue-gate",
        "expired",
        "deadline",
        "read-refused",
        "queues-not-read",
        "quota-not-enforced",
        *MAY_PASS,
        OTHER_WAIT,
    }
)
"""What a quota that is being enforced may wait for: reasons of outcomes, and those of the planner itself."""


class QueueQuery(Message, frozen=True):
    """Which queues to tell of: one by its path, or all."""

    api_version: str = API_VERSION
    queue: str = ""


class QuotaTimer(Message, frozen=True):
    """A lowered quota that will be enforced."""

    since: Time
    fires_at: Time


class QuotaWaiting(Message, frozen=True):
    """Something that may pass, which a process waits for.

    `reason`: one of `QUOTA_WAITS`. `until`: when the process tries again.
    """

    reason: Text
    message: Text
    since: Time
    until: Time


class QuotaProcess(Message, frozen=True):
    """A quota that is being enforced. `order_id`: the order in flight, if there is one.

    `waits_for`: queues below it whose quotas are being enforced; it is planned when they have ended.
    `waiting`: what else it waits for.
    """

    since: Time
    order_id: str = ""
    victims: Int64 = 0
    evicted: Int64 = 0
    waits_for: tuple[str, ...] = ()
    waiting: QuotaWaiting | None = None


class QuotaEnd(Message, frozen=True):
    """How the last process ended, and what kept pods from going."""

    result: ProcessResult
    at: Time
    message: Text
    evicted: Int64 = 0
    blocked: tuple[Obstacle, ...] = ()


class QueueState(Message, frozen=True):
    """One queue. `usage`: of bound pods that have not ended; `leaving`: what of it is on its way out.

    `reclaims_in`: within which queue it takes back what others use of its guarantee; empty where nothing.
    """

    path: Text
    leaf: bool = False
    pods: Int64 = 0
    usage: Amounts = field(default_factory=dict)
    leaving: Amounts = field(default_factory=dict)
    guaranteed: Amounts = field(default_factory=dict)
    reclaims_in: str = ""
    max: Amounts = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    delay_seconds: Int64 = 0
    miss_percent: Int64 = 100
    timer: QuotaTimer | None = None
    process: QuotaProcess | None = None
    last: QuotaEnd | None = None


class QueueReport(Message, frozen=True):
    """All queues, or one with its ancestors left out. `unknown`: there is none of the path asked for.

    `revision` is empty where there is no configuration of queues. `misplaced`: pods that name a queue which
    is not there, is no leaf, or may not be used by their namespace, so that they are held or count in
    root.default.
    """

    api_version: Text
    planner: Text
    at: Time
    revision: str = ""
    quota_preemption: bool = False
    misplaced: Int64 = 0
    unknown: bool = False
    queues: tuple[QueueState, ...] = ()
