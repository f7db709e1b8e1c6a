"""Preemptions for pods compared with what makeway would have done: what `ObserveLoop` has of single pods.

It hears of decisions of mode `observe`, of nominations and of others' marks; for a preemption that no
scheduler asked about it plans once the first mark and the nomination have both been seen, as of before that
mark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.comparison import Comparison
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.observe import comparing
from makeway.planner.observe.comparing import Certainty, Observed, comparison_of
from makeway.planner.observe.detecting import Nominees, UnaskedPreemption
from makeway.planner.observe.gang_loop import Preempted
from makeway.planner.observe.pairing import MOST_WAITING, ComparedPair, Evicted, Pairing
from makeway.planner.observe.past import ShortPast
from makeway.planner.observe.unasked import Surroundings, decision_of, unasked
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.planner import planning
from makeway.planner.plan.request import NamelessPodError
from makeway.planner.snapshot.state import Snapshot


class _Status(msgspec.Struct, rename="camel"):
    nominated_node_name: str | None = None


class _RequestPod(msgspec.Struct):
    """The one thing that is looked at of a request's pod."""

    status: _Status = msgspec.field(default_factory=_Status)


_asking: Final = msgspec.json.Decoder(_RequestPod)


class PodComparer:
    """One planner's. `served`: whether a live order makes room for a pod. `preempted`: hears of victims."""

    def __init__(
        self,
        identity: str,
        *,
        snapshot: Snapshot,
        past: ShortPast,
        cluster_uid: str,
        served: Callable[[str], bool],
        preempted: Preempted,
    ) -> None:
        self._identity = identity
        self._snapshot = snapshot
        self._past = past
        self._cluster_uid = cluster_uid
        self._served = served
        self._preempted = preempted
        self._cache = PlanCache()
        self._nominees = Nominees()
        self._pairing = Pairing()
        self._observed: dict[str, Observed[Decision]] = {}
        self._changed: set[str] = set()

    def __len__(self) -> int:
        """How many plans wait for their counterpart."""
        return len(self._pairing)

    def nominated(self) -> Iterable[tuple[Pod, str]]:
        """Return all nominated pods, each with its node."""
        return self._nominees.all()

    def expect(self, decision: Decision, now: datetime) -> list[Comparison]:
        """Take a decision that was made in mode `observe`; return what that concludes."""
        nominated = _asking.decode(decision.request.pod).status.nominated_node_name or ""
        return self._expect(decision, nominated, now)

    def put(self, pod: Pod, now: datetime) -> None:
        """Note where a pod is nominated to or bound."""
        uid = pod.metadata.uid
        if self._pairing.waits_for(uid):
            self._pairing.nominated(uid, pod.status.nominated_node_name or "", now)
            if pod.spec.node_name:
                self._pairing.ended(uid, pod.spec.node_name, now)
        if newly := self._nominees.put(pod, now):
            self._changed.add(newly)

    def drop(self, uid: str, now: datetime) -> None:
        """Note that a pod is gone."""
        self._nominees.drop(uid)
        self._pairing.ended(uid, "", now)

    def retain(self, uids: set[str], now: datetime) -> None:
        """Note that pods which a complete list does not have are gone."""
        self._nominees.retain(uids)
        for uid in self._observed.keys() - uids:
            self._pairing.ended(uid, "", now)

    def mark(self, mark: Evicted) -> None:
        """Note that others marked a pod."""
        self._pairing.evicted(mark)
        self._changed.add(mark.pod.node)

    def withdrawn(self, uid: str, node: str) -> None:
        """Note that a pod lives on and is marked no more."""
        self._pairing.withdrawn(uid, node)

    def due(self, now: datetime) -> list[Comparison]:
        """Return the comparisons of which nothing more is expected."""
        if self._pairing.idle:
            return []
        return self._concluded(self._pairing.due(now), now)

    def unasked(self, now: datetime) -> list[UnaskedPreemption]:
        """Return the preemptions that are to be planned for."""
        self._changed.update(self._pairing.nodes())
        return self.newly_unasked(now)

    def newly_unasked(self, now: datetime) -> list[UnaskedPreemption]:
        """Return those on nodes where a nomination or a mark has come since the last look."""
        changed, self._changed = sorted(self._changed), set()
        found: list[UnaskedPreemption] = []
        for node in changed:
            if marks := self._pairing.unclaimed(node):
                found += self._nominees.behind(node, marks, now, self._asked)
        return found

    async def plan(self, seen: UnaskedPreemption, now: datetime, around: Surroundings) -> list[Comparison]:
        """Plan as of before the first mark, and wait for the rest of the preemption."""
        snapshot, uid = self._snapshot, seen.pod.metadata.uid
        if self._pairing.waits_for(uid) or around.unsynced():
            return []
        began = time.perf_counter()
        past = self._past.before(snapshot, seen.revision)
        try:
            asked = unasked(
                seen,
                past,
                cluster_uid=self._cluster_uid,
                request_id=around.name,
                nominated=around.nominated(),
                in_flight=around.in_flight(uid),
            )
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError):
            return []  # the snapshot's own feed says so
        with snapshot.restoring(past.left):
            steps = planning(snapshot, asked.question, seen.at, self._cache)
            while (result := next(steps)) is None:
                await asyncio.sleep(0)
                if around.unsynced():
                    return []
            decision = decision_of(
                snapshot,
                asked,
                seen,
                result,
                decision_id=around.name,
                planner=self._identity,
                duration_seconds=time.perf_counter() - began,
            )
            certainty = Certainty(
                left_out=result.left_out,
                restored=len(past.left),
                complete=past.complete,
                after=now - seen.at,
            )
            found = self._expect(decision, "", now, certainty)
        self._pairing.nominated(uid, seen.node, seen.nominated_at)
        return found

    # -------------------------------------------------------------------------------- inner work

    def _asked(self, uid: str) -> bool:
        return self._pairing.waits_for(uid) or self._served(uid)

    def _expect(
        self, decision: Decision, nominated: str, now: datetime, certainty: Certainty | None = None
    ) -> list[Comparison]:
        pairs = self._pairing.expect(comparing.expected(self._snapshot, decision, nominated))
        found = self._concluded(pairs, now)
        seen = comparing.observed(self._snapshot, decision, certainty)
        self._observed[decision.question.preemptor.uid] = seen
        while len(self._observed) > MOST_WAITING:
            del self._observed[next(iter(self._observed))]
        return found

    def _concluded(self, pairs: Iterable[ComparedPair], now: datetime) -> list[Comparison]:
        found = []
        for pair in pairs:
            seen = self._observed.pop(pair.expected.uid, None)
            if seen is None:
                continue
            for mark in pair.evicted:
                self._preempted(seen.decision.question.preemptor, mark.pod, mark.at, mark.scheduler)
            comparison = comparison_of(seen, pair, self._identity, now)
            if comparison is not None:
                found.append(comparison)
        return found
