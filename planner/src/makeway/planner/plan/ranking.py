"""Which node is best to make room on.

The rules are those of docs/ranking.md: kube-scheduler's (preemption.pickOneNodeForPreemption), and two more,
so that the same input leads to the same plan. The scheduler plugin ranks by the same ones; both are tested
with the cases of bus/testdata/ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from makeway.core import comparison
from makeway.core.k8s.importance import NOT_STARTED
from makeway.planner.plan.lost_work import Losses, LostWorkOf
from makeway.planner.snapshot.columns import PRIORITY, START, Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.records import PodRecord

RULES = (
    *comparison.RULES_WITH_LOST_WORK,
    "fewest-new-victims",
    "node-name",
)
ONLY_CANDIDATE = "only-candidate"
_LOST_WORK = RULES.index(comparison.LEAST_LOST_WORK)
_SHIFT = comparison.PRIORITY_SHIFT
_LOWEST = -(2**40)


@dataclass(frozen=True, slots=True)
class Scores:
    """The numbers that rank M nodes: int64[M] each. `start`: microseconds since 1970.

    `lost_work`: 0 where the policy does not rank by it; else `losses` has what it will be.
    """

    violations: Ints
    highest: Ints
    lost_work: Ints
    priority_sum: Ints
    count: Ints
    start: Ints
    new: Ints
    name: Ints
    losses: Losses | None = field(default=None, kw_only=True)

    def order(self) -> Ints:
        """Return the places of the nodes, best first. O(M log M)."""
        return np.lexsort(tuple(reversed(self._all())))

    def avoided(self, best: int) -> int:
        """Return how much less work the best node loses than the one that would be best without that rule."""
        if not self.lost_work.any():
            return 0
        keys = self._all()
        plain = np.lexsort(tuple(reversed((*keys[:_LOST_WORK], *keys[_LOST_WORK + 1 :]))))[0]
        return int(self.lost_work[plain] - self.lost_work[best])

    def decided_by(self, better: int, worse: int) -> str:
        """Name the first rule on which one node beats another."""
        for rule, key in zip(RULES, self._all(), strict=True):
            if key[better] != key[worse]:
                return rule
        return RULES[-1]

    def keys(self) -> tuple[Ints, ...]:
        """Return the first keys, the less the better: what upstream ranks by, and lost work."""
        return self.violations, self.highest, self.lost_work, self.priority_sum, self.count, -self.start

    def _all(self) -> tuple[Ints, ...]:
        return *self.keys(), self.new, self.name


def top(keys: Sequence[NDArray[Any]], places: Ints, most: int) -> Ints:
    """Return those `most` of some places that have the least by the first key, then the second …, unordered.

    Each key narrows the places down to those that are surely among them and those that are tied for the
    rest. O(places) a key; nothing is sorted.
    """
    tied = places
    chosen: list[Ints] = []
    wanted = most
    for key in keys:
        if tied.size <= wanted:
            break
        values = key[tied]
        alike = values == values.min()
        count = np.count_nonzero(alike)
        if count >= wanted:  # mostly, and far cheaper than to partition many that are alike
            tied = tied[alike] if count < tied.size else tied
            continue
        limit = np.partition(values, wanted - 1)[wanted - 1]
        chosen.append(tied[values < limit])
        wanted -= chosen[-1].size
        tied = tied[values == limit]
    return np.concatenate([*chosen, tied[:wanted]])


@dataclass(frozen=True, slots=True)
class RemoteVictims:
    """What goes elsewhere with victims of some nodes: int64[slots, M] each, at those who stand for a unit.

    `count`: how many pods; `violating`: how many pods of the whole unit violate a budget; `start`: of the one
    that has been running longest. `alone`: bool[slots, M], the pod is of no unit. `losses`: where work
    counts, int64[slots, M] each, of the whole unit.
    """

    count: Ints
    violating: Ints
    start: Ints
    alone: Flags
    losses: Losses | None = None


def score(
    columns: NodeSlots,
    places: Ints,
    victims: Flags,
    violating: Flags,
    *,
    name_rank: Ints | None = None,
    remote: RemoteVictims | None = None,
    lost_work: LostWorkOf | None = None,
) -> Scores:
    """Return the numbers for some nodes.

    `places`, which ascend, and `name_rank`: int64[M]; the flags: bool[slots, M].

    A pod that has not started counts as NOT_STARTED, later than all: upstream takes the present.
    O(slots · nodes), and more for each victim.
    """
    slots, at = np.divmod(np.flatnonzero(victims), max(places.size, 1))
    priority, start = (columns.of_pods(layer, slots, places[at]) for layer in (PRIORITY, START))
    pods, bad = np.ones_like(at), violating[slots, at].astype(np.int64)
    if remote is not None:
        pods += remote.count[slots, at]
        bad *= np.maximum(remote.violating[slots, at], 1)
        start = np.minimum(start, remote.start[slots, at])
    highest = np.full(places.size, _LOWEST, np.int64)
    np.maximum.at(highest, at, priority)
    longest = np.full(places.size, NOT_STARTED, np.int64)
    top_ones = priority == highest[at]
    np.minimum.at(longest, at[top_ones], start[top_ones])
    count, violations, priority_sum = np.zeros((3, places.size), np.int64)
    for total, amounts in ((count, pods), (violations, bad), (priority_sum, (priority + _SHIFT) * pods)):
        np.add.at(total, at, amounts)
    losses, lost = None, np.zeros_like(count)
    if lost_work is not None:
        each = lost_work.of_pods(columns, slots, places[at])
        if remote is not None and remote.losses is not None:
            each = each.where(remote.alone[slots, at], remote.losses.of(slots, at))
        losses = each.summed(at, places.size)
        lost = losses.at(lost_work.second)
    return Scores(
        violations=violations,
        highest=highest,
        lost_work=lost,
        priority_sum=priority_sum,
        count=count,
        start=longest,
        new=count.copy(),
        name=np.zeros_like(count) if name_rank is None else name_rank,
        losses=losses,
    )


def count_awaited(scores: Scores, place: int, awaited: list[PodRecord]) -> None:
    """Count pods that other orders remove as victims of the node at `place`, though not as new.

    One that is terminating costs nothing.
    """
    for pod in awaited:
        if pod.terminating:
            continue
        if pod.priority > scores.highest[place]:
            scores.highest[place] = pod.priority
            scores.start[place] = pod.start_micros
        elif pod.priority == scores.highest[place]:
            scores.start[place] = min(pod.start_micros, int(scores.start[place]))
        scores.priority_sum[place] += pod.priority + _SHIFT
        scores.count[place] += 1


def joined(parts: list[Scores]) -> Scores:
    """Put the scores of batches one behind the other; most often there is one."""
    if len(parts) == 1:
        return parts[0]
    names = "violations", "highest", "lost_work", "priority_sum", "count", "start", "new", "name"
    return Scores(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
