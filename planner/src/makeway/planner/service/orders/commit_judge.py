"""What a commit is judged by: the snapshot, the ledger and the policy as they are at this moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime

from makeway.bus.commit import CommitRequest, Offer
from makeway.bus.messages import Void
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import Policy
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.planner.commit.judge import Accepted, Circumstances, judge, still_waiting
from makeway.planner.orders.ledger import Ledger
from makeway.planner.orders.not_now import Asker
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.snapshot.state import Snapshot


@dataclass(eq=False)
class CommitJudge:
    """One planner's. `nominated`: where pods are nominated to, by UID. `own_mode`: nothing goes further.

    `policy`, `brake`: as they are in force. `versions`: of pods that have a node.
    """

    snapshot: Snapshot
    ledger: Ledger
    nominated: Mapping[str, str]
    own_mode: Mode
    _: KW_ONLY
    policy: Callable[[], Policy]
    brake: Callable[[], Brake]
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        self._cache = PlanCache()

    def judge(
        self, commit: CommitRequest, offer: Offer, now: datetime, before: Accepted | None = None
    ) -> Accepted | Void:
        """Return the order that a commit comes to now, or why there is none. `before`: the verdict so far."""
        uid, namespace = commit.preemptor.uid, commit.preemptor.namespace
        snapshot, ledger, policy = self.snapshot, self.ledger, self.policy()
        ledger.pledges.withdraw(uid)
        around = Circumstances(
            now=now,
            mode=more_restrictive(self.own_mode, policy.modes().get(namespace, policy.mode)),
            brake=self.brake(),
            nominated=self.nominated,
            versions=self.versions,
            busy=ledger.live_beside(uid, commit.order_id, now),
        )
        if (waiting := still_waiting(snapshot, commit, around, before)) is not None:
            return waiting
        known = snapshot.pods.get(commit.placements[0].uid)
        asking = Asker(
            uid, namespace, known.priority if known is not None else 0, is_pod=commit.group is None
        )
        # What was accepted counts since then, and what has come since was measured by it.
        counts = before is not None and bool(before.order.victims or before.order.awaited)
        limit = None if counts else ledger.over_limit(asking, snapshot, now)
        pledged = ledger.pledges.victims(now, asking=uid)
        around = replace(
            around,
            in_flight=ledger.in_flight(now, asking=uid, plan=offer.decision_id),
            pledged=pledged,
            unstored=ledger.reserved() | frozenset(pledged.values()),
            leaving=ledger.leaving(now),
            limit=None if limit is None else Void(reason=limit.reason, message=limit.message),
        )
        return judge(snapshot, self._cache, commit, offer, around)
