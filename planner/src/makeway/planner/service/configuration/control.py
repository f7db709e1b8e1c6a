"""Telling plugin and evictors what is in force: the control state, published by the planner that leads.

What is stored is read every few seconds and published again where it is not what should be: NATS may have
lost it, or another client may have published. Two planners that both believe to lead cannot undo one
another unseen, as each word is published with the sequence of the last that its writer has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import structlog
from msgspec.structs import replace

from makeway.bus import codec
from makeway.bus.control import ControlState, Limits, QueueLimit, Unplanned
from makeway.bus.errors import BusError
from makeway.bus.nats.publishing import AlreadyExists, Published
from makeway.core.policy.document import Policy
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.core.policy.restrictions import restrictions
from makeway.core.queues.queue_exempt import queue_exempt_namespaces
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.quota.processes import QuotaMemory, memory_in
from makeway.runtime.process import until_set

POLL_SECONDS: Final = 5.0
"""Between two reads of what is stored, where nothing changes."""

RETRY_SECONDS: Final = 0.5
"""After NATS did not take it, or another planner was first."""

MOST_BYTES: Final = codec.MAX_BYTES - 4096
"""Of a control state; the rest is for its envelope."""

UNPLANNED_ANNOTATION: Final = "makeway.dev/unplanned"
"""Of the planner's Lease: see `lease_note`."""

MOST_NOTE: Final = 65536
"""Of an annotation, in bytes; all annotations of an object have 256 KiB."""

_log = structlog.get_logger()


class ControlPublisher(Protocol):
    """What is used of the bus."""

    async def control(self) -> tuple[ControlState | None, int]:
        """The last word and its sequence; raises BusError."""

    async def publish_control(
        self, state: ControlState, expected_last_sequence: int, at: datetime
    ) -> Published | AlreadyExists:
        """Publish the next; raises BusError."""


def state_of(
    policy: Policy,
    policy_revision: str,
    *,
    mode: Mode,
    cluster_uid: str,
    queues: tuple[str, tuple[QueueLimit, ...]] = ("", ()),
    own_namespace: str = "",
    tolerating: Collection[str] = (),
    tolerations_revision: str = "",
) -> ControlState:
    """Return what a policy means to plugin and evictors, without a revision. Pure.

    `mode` is the planner's own argument: nothing may go further. `own_namespace`: makeway's, empty where that
    is not known. `tolerating`: the PriorityClasses that may exempt a pod. `tolerations_revision`: of the
    record of those that are gone; pods wait for a change of it that `tolerating` does not show.
    """
    limits = Limits(
        victims_per_order=policy.limits.victims_per_order, orders_in_flight=policy.limits.orders_in_flight
    )
    queues_revision, queue_limits = queues
    limited = any(one.max or one.guaranteed for one in queue_limits)
    found = restrictions(policy, queues=limited, tolerating=tolerating)
    return ControlState(
        revision=0,
        mode=more_restrictive(mode, policy.mode),
        cluster_uid=cluster_uid,
        policy_revision=policy_revision,
        namespace_modes={
            namespace: more_restrictive(mode, own) for namespace, own in sorted(policy.modes().items())
        },
        limits=None if limits == Limits() else limits,
        queues_revision=queues_revision,
        queues=queue_limits,
        hard_budget_namespaces=tuple(sorted(policy.hard_budgets)),
        group_preemptors=policy.groups.preemptors,
        unplanned=Unplanned(
            protecting=found.protecting,
            restricting=found.restricting,
            default=policy.when_unplanned.default,
            system=policy.when_unplanned.system,
        ),
        exempt_namespaces=tuple(sorted(queue_exempt_namespaces(policy, own_namespace))),
        tolerations_revision=tolerations_revision,
    )


def within_bounds(state: ControlState) -> ControlState:
    """Return a control state that NATS carries. Pure. O(bytes).

    Where it is too large it names no hard budgets: evictors read them in the policy too. Queues are not cut:
    one that is still too large is not published.
    """
    return state if len(codec.encode(state)) <= MOST_BYTES else replace(state, hard_budget_namespaces=())


def lease_note(state: ControlState) -> str:
    """Return what the planner's Lease says, for schedulers that reach no NATS; empty if too large. Pure.

    As much of the control state as says what becomes of a pod without a plan.
    """
    note = ControlState(
        revision=state.revision,
        mode=state.mode,
        cluster_uid=state.cluster_uid,
        policy_revision=state.policy_revision,
        namespace_modes=state.namespace_modes,
        queues_revision=state.queues_revision,
        group_preemptors=state.group_preemptors,
        unplanned=state.unplanned,
    )
    text = codec.encode(note).decode()
    return text if len(text) <= MOST_NOTE else ""


def about(told: int, pods: int) -> int:
    """Return how many pods to tell of: what was told before, unless it is off by more than a tenth. Pure.

    So the control state is not written anew with each pod.
    """
    return told if abs(pods - told) * 10 <= told else pods


def remembering(state: ControlState, memory: QuotaMemory) -> ControlState:
    """Return a control state with the memory of the quotas, without it where NATS would not carry both. Pure.

    A planner that finds no memory starts every timer again.
    """
    told = replace(state, settled=memory.settled, enforcing=memory.enforcing)
    return told if told == state or len(codec.encode(told)) <= MOST_BYTES else state


def next_revision(stored: ControlState | None, cluster_uid: str, own: int, now: datetime) -> int:
    """Return a revision above every one that this cluster has seen.

    Milliseconds, so that it also rises where the stream was lost together with what stood in it. One that is
    too far ahead of `now` does not count: no follower has taken it, and none would take one above it.
    """
    seen = stored.revision if stored is not None and stored.cluster_uid == cluster_uid else 0
    counting = (one for one in (seen, own) if not codec.is_ahead(one, now))
    return max((int(now.timestamp() * 1000), *(one + 1 for one in counting)))


@dataclass(eq=False)
class Control:
    """`state()`: what should be in force, with any revision; None while that is not known.

    `memory()`: what is remembered of the quotas; None while that is not known, and what is stored stays.
    `pods()`: how many are bound.
    """

    bus: ControlPublisher
    cluster_uid: str
    state: Callable[[], ControlState | None]
    metrics: PlannerMetrics
    memory: Callable[[], QuotaMemory | None] = lambda: None
    _: KW_ONLY
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    pods: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._revision = 0
        self._published = 0

    @property
    def published(self) -> int:
        """The revision in force, as this planner published or found it while leading; 0 for none."""
        return self._published

    def changed(self) -> None:
        """Check at once: something in force may have changed."""
        self._changed.set()

    async def publish_forever(self) -> NoReturn:
        """See to it that what is stored is what should be. Run while leading, by one planner.

        No loop for tenacity: a change ends the pause, and a success pauses too.
        """
        while True:
            self._changed.clear()
            try:
                pause = POLL_SECONDS if await self._publish() else RETRY_SECONDS
            except BusError as error:
                self.metrics.control.labels("failed").inc()
                _log.warning("control_not_published", error=str(error))
                pause = RETRY_SECONDS
            await until_set(self._changed, pause)

    async def _publish(self) -> bool:
        """Publish where that is needed; return False where another was first."""
        in_force = self.state()
        if in_force is None:
            return True
        stored, sequence = await self.bus.control()
        if stored is not None and codec.is_ahead(stored.revision, self.now()):
            stored = None  # no follower takes it, even where it says what it should
        memory = self.memory()
        if memory is None:
            memory = memory_in(stored, self.cluster_uid)
        counted = replace(in_force, pods=about(stored.pods if stored is not None else 0, self.pods()))
        wanted = within_bounds(remembering(counted, memory))
        if stored is not None and replace(stored, revision=wanted.revision) == wanted:
            self._note_published(stored)
            return True
        now = self.now()
        state = replace(wanted, revision=next_revision(stored, self.cluster_uid, self._revision, now))
        answer = await self.bus.publish_control(state, sequence, now)
        if isinstance(answer, AlreadyExists):
            return False
        self._revision = state.revision
        self.metrics.control.labels("published").inc()
        self._note_published(state)
        _log.info(
            "control_published",
            revision=state.revision,
            mode=state.mode,
            namespace_modes=len(state.namespace_modes),
            policy_revision=state.policy_revision,
            queues_revision=state.queues_revision,
            queues=len(state.queues),
        )
        return True

    def _note_published(self, state: ControlState) -> None:
        self._published = state.revision
        self.metrics.told(state.revision, state.mode)
