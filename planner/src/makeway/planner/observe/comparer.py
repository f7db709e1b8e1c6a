"""Preemptions compared with what makeway would have done: for pods, or for pod groups.

It hears of decisions of mode `observe`, of nominations and of others' marks; for a preemption about which no
scheduler asked it plans once the first mark and the nomination have both been seen, as of before that mark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.comparison import Comparison
from makeway.bus.ids import decision_id
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import group_of
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.selector import SelectorError
from makeway.planner.observe.comparing import Observed, comparison, expected, observed
from makeway.planner.observe.loops import by_owner
from makeway.planner.observe.pairing import (
    MOST_GROUPS,
    MOST_WAITING,
    ComparedPair,
    Pairing,
    UnaskedPreemption,
)
from makeway.planner.observe.past import ShortPast
from makeway.planner.observe.unasked import planning_unasked
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import NamelessPodError
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

MOST_SECONDS: Final = 10.0
"""So long one plan may take; in a cluster that changes all the time it is made again and again."""

_decode_pod = msgspec.json.Decoder(Pod).decode

Preempted = Callable[[PodRecord, PodRecord, datetime, str], None]
"""Hears of a preemptor, or a member of it, of a victim, and when and by which scheduler that was marked."""


@dataclass(eq=False)
class Comparer:
    """One planner's, of pods or of groups. `pairing`: its plans and marks.

    `preempted` hears of each victim of others. `served`: whether a live order of makeway's is for a
    preemptor. `unsynced`: what is missing to plan on.
    """

    identity: str
    _: KW_ONLY
    of_groups: bool
    snapshot: Snapshot
    past: ShortPast
    cluster_uid: str
    preempted: Preempted
    unsynced: Callable[[], str]
    served: Callable[[str], bool] = lambda _: False

    def __post_init__(self) -> None:
        self._cache = PlanCache()
        most = MOST_GROUPS if self.of_groups else MOST_WAITING
        self.pairing = Pairing(anywhere=self.of_groups, most=most, served=self.served)

    def expect(self, decision: Decision, now: datetime) -> list[Comparison]:
        """Take a decision that was made in mode `observe`; return what that concludes.

        Nothing where the answer is late: a plan as of before the first mark waits already, and the pods that
        the scheduler asked with had no nomination yet.
        """
        key = decision.key
        asked = (_decode_pod(one.pod) for one in decision.request.classes)
        nominated = [pod for pod in asked if pod.status.nominated_node_name and not pod.spec.node_name]
        for pod in () if self.of_groups else nominated:
            self.put(pod, now)
        waiting = self.pairing.waiting(key, decision.at)
        if waiting is not None and waiting.kept.certainty is not None and not nominated:
            return []
        return self._expect(observed(self.snapshot, decision), now)

    def put(self, pod: Pod, now: datetime) -> None:
        """Note where a pod is nominated to or bound."""
        if key := self._key_of(pod):
            self.pairing.put(key, pod, now)

    def due(self, now: datetime) -> list[Comparison]:
        """Return the comparisons of which nothing more is expected."""
        return self._concluded(self.pairing.due(now), now)

    def unasked(self, now: datetime, *, anew: bool = False) -> list[UnaskedPreemption]:
        """Return the preemptions that are to be planned for; `anew`: that have shown since the last look."""
        return self.pairing.unasked(now, self._about if self.of_groups else None, anew=anew)

    async def plan(
        self,
        seen: UnaskedPreemption,
        now: datetime,
        nominated: Callable[[], Iterable[tuple[Pod, str]]],
        in_flight: Callable[[str], Mapping[str, str]],
    ) -> list[Comparison]:
        """Plan as of before the first mark, and wait for the rest of the preemption.

        `nominated`, `in_flight`: as of `planning_unasked`. Nothing where its plan is late, or the snapshot is
        not complete.
        """
        if self.pairing.waiting(seen.key, seen.at) or self.unsynced():
            return []
        began = time.perf_counter()

        def seconds() -> float:
            return time.perf_counter() - began

        steps = planning_unasked(
            self.snapshot,
            seen,
            self.past,
            name=decision_id(now),
            planner=self.identity,
            cluster_uid=self.cluster_uid,
            nominated=nominated,
            in_flight=in_flight,
            seconds=seconds,
            cache=self._cache,
            now=now,
        )
        try:
            with closing(steps):
                for found in steps:
                    if found is not None:
                        return self._expect(found, now)
                    await asyncio.sleep(0)
                    if self.unsynced() or seconds() > MOST_SECONDS:
                        break
        except (msgspec.DecodeError, QuantityError, SelectorError, NamelessPodError):
            pass  # the snapshot's own feed says so
        return []

    # -------------------------------------------------------------------------------- inner work

    def _key_of(self, pod: Pod) -> str:
        """Return what a pod's preemptor is known by; empty of a pod without a group where groups are."""
        if not self.of_groups:
            return pod.metadata.uid
        name = group_of(pod)
        return f"{pod.metadata.namespace}/{name}" if name else ""

    def _about(self, key: str) -> tuple[int, int] | None:
        """Return a group's priority, and how many of its members have no node; None where it is not known."""
        groups, pods = self.snapshot.groups, self.snapshot.pods
        if (record := groups.record_of(key)) is None:
            return None
        known = (pods.get(uid) for uid in groups.uids(key))
        return record.priority, sum(pod is not None and not pod.node and not pod.terminating for pod in known)

    def _expect(self, seen: Observed, now: datetime) -> list[Comparison]:
        plan = expected(self.snapshot, seen)
        return self._concluded(self.pairing.expect(plan, asked=seen.certainty is None), now)

    def _concluded(self, pairs: Iterable[ComparedPair], now: datetime) -> list[Comparison]:
        found = []
        for pair in pairs:
            seen: Observed = pair.expected.kept
            preemptor = min((one.preemptor for one in seen.decision.question.each), key=by_owner)
            for mark in pair.evicted:
                self.preempted(preemptor, mark.pod, mark.at, mark.scheduler)
            compared = comparison(seen, pair, self.identity, now)
            if compared is not None:
                found.append(compared)
        return found
