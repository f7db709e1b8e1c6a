"""Owners whose pods are preempted again and again for the same other owner: two schedulers, or two owners.

A workload that grows may preempt many pods of another; that is no loop. In a loop the pods that are preempted
are replacements: they were created after their owner was first preempted for that other owner, and found a
place all the same. While a loop goes on, makeway itself plans such a preemption only after a back-off. Pure
state, told of each preemption, makeway's own and others', and the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.times import api_time
from makeway.core.recent import Recent
from makeway.planner.observe.reasons import PREEMPTION_LOOP
from makeway.planner.plan.naming import full_name, named_for
from makeway.planner.plan.result import Planned, PlanRefusal, RemovablePod
from makeway.planner.snapshot.records import PodRecord

WINDOW: Final = timedelta(minutes=10)
"""How long a pair of owners is remembered after its last preemption, and over how long replacements count."""

LOOP_AT_LEAST: Final = 5
"""Replacements preempted within WINDOW that make a loop."""

FIRST_WAIT: Final = timedelta(seconds=10)
"""The first back-off, short, since a workload that grows fast over replacements may look like a loop."""

LONGEST_WAIT: Final = timedelta(minutes=10)
"""The longest back-off; each replacement that is preempted after one doubles the next."""

MOST_PAIRS: Final = 10_000
"""Pairs of owners that are remembered, the least lately seen forgotten first; some 700 bytes each."""

_SHOWN: Final = 3
"""Loops that are described."""

A = TypeVar("A", bound=Planned)


@dataclass(slots=True)
class _Pair:
    """`preemptor`, `victim`: the last pods, as namespace/name. `until`: the end of the back-off of `wait`."""

    first: datetime
    last: datetime
    replacements: deque[datetime] = field(default_factory=lambda: deque(maxlen=LOOP_AT_LEAST))
    preemptor: str = ""
    victim: str = ""
    wait: timedelta = timedelta()
    until: datetime | None = None

    def loops(self, now: datetime) -> bool:
        return len(self.replacements) == LOOP_AT_LEAST and now - self.replacements[0] <= WINDOW

    def goes_on(self, now: datetime) -> bool:
        return self.loops(now) or (self.until is not None and now < self.until)

    def forgotten(self, now: datetime) -> bool:
        return now - self.last > max(WINDOW, 2 * self.wait)

    def replaced(self, now: datetime) -> None:
        """Take in that a replacement was preempted. Victims of one preemption come within one back-off."""
        self.replacements.append(now)
        if (self.loops(now) or self.wait) and (self.until is None or now >= self.until):
            self.wait = min(max(FIRST_WAIT, 2 * self.wait), LONGEST_WAIT)
            self.until = now + self.wait


class PreemptionLoops:
    """The pairs of owners, preemptor's and victim's. A preemption costs O(victims)."""

    def __init__(self) -> None:
        self._pairs = Recent[tuple[str, str], _Pair](MOST_PAIRS)
        self._held_until: datetime | None = None

    def preempted(self, preemptor: PodRecord, victim: PodRecord, now: datetime) -> bool:
        """Take in a preemption; report whether a loop begins with it."""
        key = owner_of(preemptor), owner_of(victim)
        pair = self._pairs.get(key)
        if pair is None or pair.forgotten(now):
            pair = _Pair(now, now)
        self._pairs[key] = pair
        pair.last = now
        pair.preemptor, pair.victim = full_name(preemptor), full_name(victim)
        before = pair.goes_on(now)
        if victim.facts.created_micros > microseconds(pair.first):
            pair.replaced(now)
            if pair.until is not None and (self._held_until is None or pair.until > self._held_until):
                self._held_until = pair.until
        return pair.goes_on(now) and not before

    def count(self, now: datetime) -> int:
        """Return how many loops there are. O(pairs)."""
        return sum(pair.goes_on(now) for pair in self._pairs.values())

    def describe(self, now: datetime) -> str:
        """Say which loops there are, the latest first; empty where there is none. O(pairs)."""
        found = [pair for pair in reversed(self._pairs.values()) if pair.goes_on(now)]
        told = [
            f"pods like {pair.victim} are preempted again and again for pods like {pair.preemptor}, "
            f"last {api_time(pair.last)}"
            for pair in found[:_SHOWN]
        ]
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        return "; ".join(told + more)

    def holds_any(self, now: datetime) -> bool:
        """Report whether a back-off may be on. O(1)."""
        return self._held_until is not None and now < self._held_until

    def held_until(self, preemptor: PodRecord, victim: PodRecord, now: datetime) -> datetime | None:
        """Return until when the one is not to be preempted for the other; None where it may be. O(1)."""
        pair = self._pairs.get((owner_of(preemptor), owner_of(victim)))
        return pair.until if pair is not None and pair.until is not None and now < pair.until else None


def hold_back(
    loops: PreemptionLoops, preemptors: Sequence[PodRecord], plan: A, now: datetime
) -> A | PlanRefusal:
    """Leave out of a plan what goes on with a loop; a refusal where nothing is left.

    `preemptors`: the pod, or a member of each class. O(pods in the plan · preemptors).
    """
    if not loops.holds_any(now):
        return plan
    held: list[tuple[datetime, PodRecord]] = []

    def is_held(victim: RemovablePod) -> bool:
        found = [until for one in preemptors if (until := loops.held_until(one, victim.pod, now)) is not None]
        held.extend((until, victim.pod) for until in found)
        return bool(found)

    kept = plan.without(is_held)
    if not held:
        return plan
    if kept is not None:
        return kept
    until, victim = min(held, key=lambda one: (one[0], one[1].uid))
    message = (
        f"pods of the owner of {named_for(preemptors[0].namespace, [victim])} are preempted again and again "
        f"for pods of this one's owner, and replaced; the next try is at {api_time(until)}"
    )
    return plan.refused(PREEMPTION_LOOP, message, until)


def owner_of(pod: PodRecord) -> str:
    """Return what makes a pod anew: its first owner, or else whoever uses its group's name, or its own.

    By namespace, where owners are: a pod may name one of another, whose pods it must not hold back.
    """
    return f"{pod.namespace}/{pod.facts.owners[0] if pod.facts.owners else pod.group or pod.name}"


def by_owner(pod: PodRecord) -> tuple[str, str]:
    """Return a key by which a group's pods are ordered: the first is counted for all of them.

    Pods are made anew under other UIDs, and those of a group may have several owners.
    """
    return owner_of(pod), pod.uid
