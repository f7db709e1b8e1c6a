"""What can only go whole, as one plan sees it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from makeway.core.k8s.importance import moment_of
from makeway.core.policy.exemption import FOREVER, NOT_EXEMPT, Exemption
from makeway.core.policy.rules import Verdict
from makeway.core.unit import Unit
from makeway.planner.plan.constraints.tally import Weights
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.pod_groups import WholeGroup
from makeway.planner.snapshot.records import PodRecord


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """A unit as one plan sees it.

    `unit`: its group in the snapshot; `price`: what its eviction costs. `kept`: why it stays, empty where it
    may go. `exemption`: what exempts one of its pods, where it stays for that; of several, the one that lasts
    longest. `sets`: of how many of its pods which sets of budgets hold. `losses`: what its pods lose of their
    work, where that counts, as rate, base and until; `lost_work`: now.
    """

    unit: WholeGroup
    price: Unit
    members: tuple[PodRecord, ...]
    kept: str
    sets: Mapping[int, int]
    exemption: Exemption = NOT_EXEMPT
    losses: tuple[int, int, int] = (0, 0, FOREVER)
    lost_work: int = 0

    @property
    def name(self) -> str:
        """Its name, for people and messages."""
        return str(self.unit.key)

    @property
    def until(self) -> int:
        """The last microsecond for which it stays; FOREVER where time alone changes nothing."""
        return self.exemption.until

    def verdict(self) -> Verdict | None:
        """Return what keeps its pods until some moment; None where nothing does, or no moment is known."""
        if self.until == FOREVER:
            return None
        return Verdict(False, self.exemption.rule, self.kept, moment_of(self.until))

    @property
    def size(self) -> int:
        """How many pods go."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class FreedByUnit:
    """What a unit uses of layers that are wider than a node.

    `by_domain`: a layer each, by domain; empty for layers of single nodes. `of_queues`: int64[maxima].
    `affinity`: a term of required affinity each, how many pods it has by domain; `on_rows`: by node.
    """

    by_domain: tuple[Mapping[int, int], ...]
    of_queues: Ints
    affinity: tuple[Mapping[int, int], ...]
    on_rows: Mapping[int, int]


def by_domain(domains: Ints | None, use: Weights, placed: Mapping[tuple[int, int], int]) -> Mapping[int, int]:
    """Return what pods use in each domain. `placed`: how many, by row and signature."""
    used: Counter[int] = Counter()
    if domains is None or not placed:
        return used
    amounts = use.of(np.array([signature for _, signature in placed], np.int64)).tolist()
    for ((row, _), count), amount in zip(placed.items(), amounts, strict=True):
        domain = int(domains[row])
        if domain >= 0:
            used[domain] += amount * count
    return used
