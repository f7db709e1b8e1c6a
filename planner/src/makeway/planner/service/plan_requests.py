"""What every plan request goes through, about a pod or a group: checks first, and pauses of its plan."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from makeway.bus.commit import Offer
from makeway.bus.errors import BusError
from makeway.bus.messages import Placement
from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.mode import Mode
from makeway.planner.service.freshness import RequestAges
from makeway.planner.service.orders.breakers import NO_EVICTOR, NOT_STORED
from makeway.planner.service.orders.not_now import NotNow
from makeway.planner.service.pending_updates import until_applied
from makeway.planner.snapshot.state import Snapshot

_F = TypeVar("_F")


@dataclass(frozen=True, slots=True)
class PlannerInfo:
    """What does not change while the process lives: the cluster it plans for, and its own name."""

    cluster_uid: str
    identity: str


class NotPlannedError(Exception):
    """Why a request is not planned: the metric's label, a constant and a sentence. No refusal."""

    def __init__(self, label: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.label = label
        self.reason = reason
        self.message = message


class AskedOnTime(Protocol):
    """What is looked at of a request."""

    @property
    def request_id(self) -> str:
        """Return its id, which holds the time of its making."""

    @property
    def cluster_uid(self) -> str:
        """Return which cluster it is about."""

    @property
    def timeout_milliseconds(self) -> int:
        """Return how long whoever asks waits."""


class PlanRequests:
    """The checks of one planner.

    `unsynced()` says what is still missing before there is anything to plan on; empty where nothing is.
    `brake()`: nothing is planned in namespaces that it holds, also where the plugin has not heard of it yet.
    `seal` writes the offer of a plan whose order is asked for by a commit; raises BusError.
    """

    def __init__(
        self,
        facts: PlannerInfo,
        *,
        snapshot: Snapshot,
        unsynced: Callable[[], str],
        brake: Callable[[], Brake] = lambda: RELEASED,
        seal: Callable[[Offer], str] = lambda _: "",
    ) -> None:
        self.facts = facts
        self._snapshot = snapshot
        self._unsynced = unsynced
        self._brake = brake
        self._seal = seal
        self._ages = RequestAges()

    async def check(self, request: AskedOnTime, sender: str, now: datetime) -> float:
        """Return how many seconds are left for a request that can be planned here and now.

        `sender`: the process with one clock, as far as that is known. Raises NotPlannedError.
        """
        if request.cluster_uid != self.facts.cluster_uid:
            message = f"this planner plans for cluster {self.facts.cluster_uid}, not {request.cluster_uid}"
            raise NotPlannedError("otherCluster", "OtherCluster", message)
        waited = self._ages.waited_seconds(sender, request.request_id, now.timestamp())
        left = request.timeout_milliseconds / 1000 - waited
        if left < 0:
            message = f"it waited here for longer than the plugin's {request.timeout_milliseconds} ms"
            raise NotPlannedError("tooLate", "TooLate", message)
        if self._snapshot.pending_updates.pending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left / 2):
                    await until_applied(self._snapshot.pending_updates)
        self._check_synced()
        return left

    def check_brake(self, namespace: str) -> None:
        """Raise NotPlannedError where the brake holds a namespace."""
        brake = self._brake()
        if brake.holds(namespace):
            raise NotPlannedError("braked", "Braked", brake.describe())

    def check_commits(self, mode: Mode, *, commits: bool) -> None:
        """Raise NotPlannedError where a bridge would write the order of a plan itself."""
        if mode == "enforce" and not commits:
            message = "the scheduler's plugin is older than this planner, which stores the orders itself"
            raise NotPlannedError("oldBridge", "OldBridge", message)

    def check_carried_out(self, why: NotNow) -> None:
        """Raise NotPlannedError where a plan is held back since no order would be carried out."""
        if why.reason in (NOT_STORED, NO_EVICTOR):
            raise NotPlannedError("heldBack", why.reason, why.message)

    def sealed(self, offer: Offer) -> str:
        """Write what a commit may name. Raises NotPlannedError where it cannot be signed."""
        try:
            return self._seal(offer)
        except BusError as error:
            raise NotPlannedError("notSynced", "NotSigned", str(error)) from error

    async def run(self, steps: Iterator[_F | None], request: AskedOnTime, began: float) -> _F:
        """Run a plan to its end; all else that is ready has its turn at each pause.

        What was worked out is kept for the next request where this one has ended meanwhile. `began`: of
        `time.perf_counter`. Raises NotPlannedError.
        """
        until = began + request.timeout_milliseconds / 1000
        while (found := next(steps)) is None:
            await asyncio.sleep(0)
            if time.perf_counter() > until:
                message = f"the plan was not ready within the plugin's {request.timeout_milliseconds} ms"
                raise NotPlannedError("tooLate", "TooLate", message)
            self._check_synced()
        return found

    def _check_synced(self) -> None:
        if missing := self._unsynced():
            raise NotPlannedError("notSynced", "NotSynced", missing)


def with_places(told: Sequence[Placement], places: Mapping[str, Placement]) -> tuple[Placement, ...]:
    """Return the nominations that a plan counts with: as they are told, and as orders and pledges place."""
    known = {one.uid for one in told}
    return (*told, *(one for uid, one in places.items() if uid not in known))
