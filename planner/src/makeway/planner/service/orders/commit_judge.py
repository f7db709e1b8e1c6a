"""What a commit is judged by: the snapshot, the ledger and the policy as they are at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from makeway.bus.commit import CommitRequest, Offer
from makeway.bus.messages import Void
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import Policy
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.planner.commit.judge import Accepted, Circumstances, judge, still_waiting
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker
from makeway.planner.plan.cache import PlanCache
from makeway.planner.snapshot.state import Snapshot


class BrakeInForce(Protocol):
    """What is used of `makeway.runtime.brake.BrakeReader`."""

    @property
    def current(self) -> Brake:
        """The brake."""


class PolicyInForce(Protocol):
    """What is used of the planner's configuration."""

    @property
    def in_force(self) -> Policy:
        """The policy, under the brake."""

    @property
    def brake(self) -> BrakeInForce:
        """The brake."""


class CommitJudge:
    """One planner's. `nominated`: where pods are nominated to, by UID. `own_mode`: nothing goes further.

    `versions`: of pods that have a node.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        configuration: PolicyInForce,
        nominated: Mapping[str, str],
        own_mode: Mode,
        *,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._versions = {} if versions is None else versions
        self._snapshot = snapshot
        self._ledger = ledger
        self._configuration = configuration
        self._nominated = nominated
        self._own_mode: Mode = own_mode
        self._cache = PlanCache()

    def judge(
        self, commit: CommitRequest, offer: Offer, now: datetime, before: Accepted | None = None
    ) -> Accepted | Void:
        """Return the order that a commit comes to now, or why there is none. `before`: the verdict so far."""
        uid, namespace = commit.preemptor.uid, commit.preemptor.namespace
        snapshot, ledger, policy = self._snapshot, self._ledger, self._configuration.in_force
        ledger.pledges.withdraw(uid)
        around = Circumstances(
            now=now,
            mode=more_restrictive(self._own_mode, policy.modes().get(namespace, policy.mode)),
            brake=self._configuration.brake.current,
            nominated=self._nominated,
            versions=self._versions,
            busy=ledger.live_beside(uid, commit.order_id, now),
        )
        if (waiting := still_waiting(snapshot, commit, around, before)) is not None:
            return waiting
        known = snapshot.pods.get(commit.placements[0].uid)
        asking = Asker(
            uid, namespace, known.priority if known is not None else 0, is_pod=commit.group is None
        )
        limit = ledger.over_limit(asking, snapshot, now)
        pledged = ledger.pledges.victims(now, asking=uid)
        around = replace(
            around,
            in_flight=ledger.in_flight(now, asking=uid),
            pledged=pledged,
            unstored=ledger.reserved() | frozenset(pledged.values()),
            leaving=ledger.leaving(now),
            limit=None if limit is None else Void(reason=limit.reason, message=limit.message),
        )
        return judge(snapshot, self._cache, commit, offer, around)
