"""Owners whose pods are preempted again and again for the same other owner: two schedulers, or two owners.

A workload that grows may preempt many pods of another; that is no loop. In a loop the pods that are preempted
are replacements: they were created after their owner was first preempted for that other owner, and found a
place all the same. Pure state, told of each preemption, and the time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.importance import microseconds
from makeway.planner.snapshot.records import PodRecord

WINDOW: Final = timedelta(minutes=10)
"""How long a pair of owners is remembered after its last preemption, and over how long replacements count."""

LOOP_AT_LEAST: Final = 5
"""Replacements preempted within WINDOW that make a loop."""

MOST_PAIRS: Final = 10_000
"""Pairs of owners that are remembered, the least lately seen forgotten first; some 500 bytes each."""


@dataclass(slots=True)
class _Pair:
    first: datetime
    last: datetime
    replacements: deque[datetime] = field(default_factory=lambda: deque(maxlen=LOOP_AT_LEAST))

    def loops(self, now: datetime) -> bool:
        return len(self.replacements) == LOOP_AT_LEAST and now - self.replacements[0] <= WINDOW


class PreemptionLoops:
    """The pairs of owners, preemptor's and victim's. A preemption costs O(victims)."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], _Pair] = OrderedDict()

    def preempted(self, preemptor: PodRecord, victim: PodRecord, now: datetime) -> bool:
        """Take in a preemption; report whether a loop begins with it."""
        key = owner_of(preemptor), owner_of(victim)
        pair = self._pairs.pop(key, None)
        if pair is None or now - pair.last > WINDOW:
            pair = _Pair(now, now)
        self._pairs[key] = pair
        if len(self._pairs) > MOST_PAIRS:
            self._pairs.popitem(last=False)
        pair.last = now
        before = pair.loops(now)
        if victim.facts.created_micros > microseconds(pair.first):
            pair.replacements.append(now)
        return pair.loops(now) and not before

    def count(self, now: datetime) -> int:
        """Return how many loops there are. O(pairs)."""
        return sum(pair.loops(now) for pair in self._pairs.values())


def owner_of(pod: PodRecord) -> str:
    """Return what makes a pod anew: its first owner, or else whoever uses its name."""
    return pod.facts.owners[0] if pod.facts.owners else f"{pod.namespace}/{pod.name}"
