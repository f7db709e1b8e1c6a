"""Preemptions for PodGroups compared with what makeway would have done: what `ObserveLoop` has of groups.

It hears of decisions of mode `observe`, of members and of marks; for a preemption that no scheduler asked
about it plans once the members' nominations have been seen, as of before the first mark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from makeway.bus.comparison import Comparison
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import group_of
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.observe.comparing import Certainty
from makeway.planner.observe.gang_comparing import (
    ObservedGang,
    comparison_of_gang,
    expected_gang,
    observed_gang,
)
from makeway.planner.observe.gang_pairing import ComparedGang, GangPairing, UnaskedGang
from makeway.planner.observe.gang_unasked import TOPOLOGY, reading_members, unasked_gang
from makeway.planner.observe.pairing import Evicted
from makeway.planner.observe.past import ShortPast
from makeway.planner.observe.unasked import Surroundings
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.gang.decision import GangDecision, gang_decision
from makeway.planner.plan.gang.planner import planning_gang
from makeway.planner.plan.gang.result import GangPlan, GangRefusal
from makeway.planner.plan.request import NamelessPodError
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

MOST_SECONDS: Final = 10.0
"""So long one plan may take; in a cluster that changes all the time it is made again and again."""

OBSERVED: Final = "observed"
"""Stands for an order: a member that has been bound since the first mark counts as one that leaves."""

_T = TypeVar("_T")

Preempted = Callable[[PodRecord, PodRecord, datetime, str], None]
"""Told of a member, of a victim, and when and by which scheduler it was marked for the member's group."""


class GangComparer:
    """One planner's. `preempted` is told of each victim of others."""

    def __init__(
        self,
        identity: str,
        *,
        snapshot: Snapshot,
        past: ShortPast,
        cluster_uid: str,
        preempted: Preempted,
    ) -> None:
        self._identity = identity
        self._snapshot = snapshot
        self._past = past
        self._cluster_uid = cluster_uid
        self._preempted = preempted
        self._cache = PlanCache()
        self._pairing = GangPairing()
        self._observed: dict[str, ObservedGang] = {}

    def __len__(self) -> int:
        """How many plans wait for their counterpart."""
        return len(self._pairing)

    def expect(self, decision: GangDecision, now: datetime) -> list[Comparison]:
        """Take a decision that was made in mode `observe`; return what that concludes."""
        return self._expect(observed_gang(self._snapshot, decision), now)

    def put(self, pod: Pod, now: datetime) -> None:
        """Note where a member is nominated to or bound."""
        if name := group_of(pod):
            self._pairing.put(f"{pod.metadata.namespace}/{name}", pod, now)

    def drop(self, uid: str) -> None:
        """Note that a pod is gone."""
        self._pairing.drop(uid)

    def retain(self, uids: set[str]) -> None:
        """Note that pods which a complete list does not have are gone."""
        self._pairing.retain(uids)

    def mark(self, mark: Evicted) -> None:
        """Note that a pod was marked for a group."""
        self._pairing.evicted(mark)

    def withdrawn(self, uid: str) -> None:
        """Note that a pod lives on and is marked no more."""
        self._pairing.withdrawn(uid)

    def due(self, now: datetime) -> list[Comparison]:
        """Return the comparisons of which nothing more is expected."""
        return [] if self._pairing.idle else self._concluded(self._pairing.due(now), now)

    def unasked(self, now: datetime) -> list[UnaskedGang]:
        """Return the preemptions that are to be planned for."""

        def priority(group: str) -> int | None:
            record = self._snapshot.groups.record_of(group)
            return record.priority if record is not None else None

        def waiting(group: str) -> int:
            known = (self._snapshot.pods.get(uid) for uid in self._snapshot.groups.uids(group))
            return sum(pod is not None and not pod.node and not pod.terminating for pod in known)

        return self._pairing.unasked(now, priority, waiting)

    async def plan(self, seen: UnaskedGang, now: datetime, around: Surroundings) -> list[Comparison]:
        """Plan as of before the first mark, and wait for the rest of the preemption."""
        snapshot, began = self._snapshot, time.perf_counter()

        async def run(steps: Iterable[_T | None]) -> _T | None:
            """Return what the steps come to, with a turn for others after each; None where it is too late."""
            for found in steps:
                if found is not None:
                    return found
                await asyncio.sleep(0)
                if around.unsynced() or time.perf_counter() - began > MOST_SECONDS:
                    break
            return None

        if around.unsynced():
            return []
        pods = (pod for pod, _ in seen.members)
        try:
            classes = await run(reading_members(pods, cluster_uid=self._cluster_uid, request_id=around.name))
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError):
            return []  # the snapshot's own feed says so
        group = self._snapshot.groups.record_of(seen.group)
        if classes is None or group is None:
            return []
        past = self._past.before(snapshot, seen.revision)
        members = (snapshot.pods.get(pod.metadata.uid) for pod, _ in seen.members)
        came = {pod.uid: OBSERVED for pod in members if pod is not None and pod.node}
        asked = unasked_gang(
            seen,
            group,
            classes,
            past,
            cluster_uid=self._cluster_uid,
            request_id=around.name,
            nominated=around.nominated(),
            in_flight={**around.in_flight(""), **came},
        )
        with snapshot.restoring(past.left):
            result: GangPlan | GangRefusal | None = await run(
                planning_gang(snapshot, asked.question, seen.at, self._cache)
            )
            if result is None:
                return []
            decision = gang_decision(
                snapshot,
                asked.request,
                asked.question,
                result,
                decision_id=around.name,
                planner=self._identity,
                at=seen.at,
                duration_seconds=time.perf_counter() - began,
            )
            certainty = Certainty(
                left_out=(*result.left_out, TOPOLOGY),
                restored=len(past.left),
                complete=past.complete,
                after=now - seen.at,
            )
            return self._expect(observed_gang(snapshot, decision, certainty), now)

    # -------------------------------------------------------------------------------- inner work

    def _expect(self, seen: ObservedGang, now: datetime) -> list[Comparison]:
        expected = expected_gang(self._snapshot, seen.decision)
        found = self._concluded(self._pairing.expect(expected, asked=seen.certainty is None), now)
        self._observed[expected.group] = seen
        while len(self._observed) > len(self._pairing):
            del self._observed[next(iter(self._observed))]
        return found

    def _concluded(self, pairs: Iterable[ComparedGang], now: datetime) -> list[Comparison]:
        found = []
        for pair in pairs:
            seen = self._observed.pop(pair.expected.group, None)
            if seen is None:
                continue
            member = seen.decision.question.classes[0].question.preemptor
            for mark in pair.evicted:
                self._preempted(member, mark.pod, mark.at, mark.scheduler)
            comparison = comparison_of_gang(seen, pair, self._identity, now)
            if comparison is not None:
                found.append(comparison)
        return found
