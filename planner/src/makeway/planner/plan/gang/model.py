"""The nodes, the removable pods and the members, as numbers: all that a search for a plan looks at.

Members take room as pods do. What they ask besides resources is a rule: of a limited room in a domain of
nodes (host ports, anti-affinity, claims, a queue's maximum), of an even spread, or of required affinity.
Members see one another by the same rules, through their signatures.

How much one plan may look at is counted in elements of arrays, so that any machine makes the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from makeway.bus.messages import ClosingRule
from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.constraints.queues import GuaranteeMargin
from makeway.planner.plan.planned_unit import PlannedUnit
from makeway.planner.plan.price import SHIFT
from makeway.planner.plan.who_preempts import WhoPreempts
from makeway.planner.snapshot.budgets import Key
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

_BY_POD: Final = "removable uses priority start budgets lost gang unit follows queue"
_BY_NODE: Final = f"rows rank room allowed {_BY_POD}"
"""Arrays of a model by slot and node, and all of which the last axis is its nodes."""

_T = TypeVar("_T", "RoomRule", "SpreadRule", "AffinityRule", "Model")


MOST_ELEMENTS: Final = 30_000_000
"""Elements of arrays that the searches of one plan look at: some 300 ms."""

CALLS: Final = 2_000
"""Elements for which some twenty calls of numpy on small arrays take as long."""


@dataclass(frozen=True, slots=True)
class RoomRule:
    """So much of something has room in a domain; `cls`: the class of members that asks for it.

    `reason`: what it is, for people. `domains`: int64[N], negative for a node in none. `room`:
    int64[domains]; `most`: the same were no pod there, on these nodes or others. `use`: int64[D, N], what
    each pod takes. `take`: int64[C], what a member takes. `need`: so much room lets a member come.
    `alone`: every node is a domain of its own. `closing`: the sort of anti-affinity by which pods
    keep a domain of label `key` closed; None of other rules. `leaving`: pods that leave anyway, also on other
    nodes than the model's, each with its domain and what it took there, which `room` counts as free.
    """

    cls: int
    reason: str
    domains: Ints
    room: Ints
    most: Ints
    use: Ints
    take: Ints
    need: int
    alone: bool
    closing: ClosingRule | None = None
    key: str = ""
    leaving: Sequence[tuple[PodRecord, int, int]] = ()

    @property
    def closes(self) -> bool:
        """Report whether pods on some nodes keep a domain's other nodes closed by it."""
        return self.closing is not None and not self.alone

    @property
    def closed(self) -> Flags:
        """Return bool[N], nodes of domains to which no member of the class may come now."""
        return np.asarray((self.domains >= 0) & (self.room[self.domains] < self.need))


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A domain may hold at most the least of all plus `slack`; as `SpreadCounts`. All else as in RoomRule."""

    cls: int
    domains: Ints
    totals: Ints
    exists: Flags
    slack: int
    few: bool
    use: Ints
    take: Ints
    leaving: Sequence[tuple[PodRecord, int, int]] = ()


@dataclass(frozen=True, slots=True)
class AffinityRule:
    """Pods that all terms select must be in the node's domain of each term, but for the first of a series.

    `domains`: int64[T, N]. `totals`: of each term int64[domains]. `may_come`: bool[N], where the first may
    be.
    """

    cls: int
    domains: Ints
    totals: tuple[Ints, ...]
    may_come: Flags
    use: Ints
    take: Ints


@dataclass(frozen=True, slots=True)
class NodePods:
    """Nodes of a snapshot and their pods; N nodes, D slots, R asked resources.

    `rows`: int64[N], of the snapshot; `names`: of these nodes. `awaited`: pods that are leaving, by node.
    `room`: int64[R, N], with the awaited gone and the nominated there.

    Of the pods, in the order of reprieve: `removable`: bool[D, N]; `uses`: int64[R, D, N], of those alone;
    `priority`, `start`, `budgets` (sets), `lost` (work, where that counts), `gang` (groups by number, 0 for
    none or a unit's), `unit` (place in `units`, 0 for none), `queue` (by number): int64[D, N]; `follows`:
    bool[D, N], of the same unit as the pod before. `pods`: by node. `spare`: how many pods each gang can
    lose.
    """

    snapshot: Snapshot
    rows: Ints
    names: Sequence[str]
    room: Ints
    removable: Flags
    uses: Ints
    priority: Ints
    start: Ints
    budgets: Ints
    lost: Ints
    gang: Ints
    unit: Ints
    follows: Flags
    queue: Ints
    pods: Sequence[Sequence[PodRecord]]
    awaited: Mapping[int, Sequence[PodRecord]]
    units: Sequence[PlannedUnit | None]
    spare: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Model(NodePods):
    """One question over some nodes; C classes of members.

    `rank`: int64[N], the nodes' order. `need`: int64[C, R]. `allowed`: bool[C, N], the class can use the
    node. `counts`: how many members of each class wait; `must`: how many have to be placed. `debits`: what
    in-flight pods take from budgets. `margins`: of queues' guarantees. `most_victims`: of one order.
    `objective`: the terms of a price, the first counts most. `preempting`: whom the group may preempt.
    `depth`: slots of the fullest node, by which work is counted; `slots`: int64[D, N], in which of these the
    pods are, where others are left out.
    """

    rank: Ints
    need: Ints
    allowed: Flags
    counts: tuple[int, ...]
    must: int
    debits: Mapping[Key, int]
    rooms: tuple[RoomRule, ...]
    spreads: tuple[SpreadRule, ...]
    affinities: tuple[AffinityRule, ...]
    margins: tuple[GuaranteeMargin, ...]
    most_victims: int
    asked: Ints
    left_out: tuple[str, ...]
    objective: tuple[GroupTerm, ...]
    preempting: WhoPreempts
    depth: int
    slots: Ints | None = None

    @property
    def before_highest(self) -> tuple[GroupTerm, ...]:
        """The terms that count before the highest priority; all where that does not count."""
        terms = self.objective
        return terms[: terms.index("highestPriority")] if "highestPriority" in terms else terms

    @property
    def has_budgets(self) -> bool:
        """Report whether a pod of the nodes is under one."""
        return len(self.snapshot.budgets) > 0

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return int(self.rows.size)

    @property
    def is_ruled(self) -> bool:
        """Report whether members ask for more than resources."""
        return bool(self.rooms or self.spreads or self.affinities)

    def pod(self, slot: int, node: int) -> PodRecord:
        """Return the pod in a slot."""
        return self.pods[node][slot if self.slots is None else self.slots[slot, node]]

    def whole(self, numbers: Iterable[int]) -> list[PlannedUnit]:
        """Return units by their numbers, in order."""
        return [unit for number in sorted(numbers) if (unit := self.units[number]) is not None]

    def emptied(self, going: Flags | None = None) -> Ints:
        """Return int64[R, N], the room with some pods gone; all that are removable where none are named.

        `going`: bool[D, N], some of them. O(slots · nodes).
        """
        if going is None:
            return np.asarray(self.room + self.uses.sum(axis=1))
        found = self.room.copy()
        for slot in np.flatnonzero(going.any(axis=1)).tolist():
            found += self.uses[:, slot] * going[slot]
        return found

    def within(self, nodes: Ints) -> Model:
        """Return the same question over fewer of the nodes. `nodes`: int64[n], places. O(slots · nodes)."""

        def of_nodes(array: Any) -> Any:
            """Return an array for these. What is the same for all pods takes no memory there either."""
            return array[..., nodes] if any(array.strides) else array[..., : nodes.size]

        return replace(
            self._with(of_nodes, _BY_NODE, "domains", "domains may_come"),
            names=[self.names[node] for node in nodes.tolist()],
            pods=[self.pods[node] for node in nodes.tolist()],
            awaited={at: self.awaited[n] for at, n in enumerate(nodes.tolist()) if n in self.awaited},
        )

    def of_pods(self, kept: Flags) -> Model:
        """Return the same question with some of the pods alone, if they are few; on each node they move up.

        `kept`: bool[D, N]; all removable ones, and all of units. O(slots · nodes).
        """
        if 2 * np.count_nonzero(kept) >= kept.size:
            return self
        nodes, slots = np.divmod(np.flatnonzero(kept.T.ravel()), len(kept))
        count = np.bincount(nodes, minlength=self.nodes)
        places = np.arange(nodes.size) - np.repeat(np.cumsum(count) - count, count)
        depth = int(count.max(initial=0))
        before, after = slots * self.nodes + nodes, places * self.nodes + nodes

        def moved_up(array: Any) -> Any:
            if not any(array.strides[-2:]):
                return array[..., :depth, :]
            found = np.zeros((*array.shape[:-2], depth * self.nodes), array.dtype)
            found[..., after] = array.reshape(*array.shape[:-2], kept.size).take(before, axis=-1)
            return found.reshape(*array.shape[:-2], depth, self.nodes)

        of_slots = np.full((depth, self.nodes), len(kept))
        of_slots[places, nodes] = slots
        return replace(self._with(moved_up, _BY_POD), slots=of_slots)

    def _with(self, change: Callable[[Any], Any], own: str, domains: str = "", near: str = "") -> Model:
        """Return the model with some arrays changed, its own and those of rules, and what rules count."""

        def of(one: _T, names: str) -> _T:
            return replace(one, **{name: change(getattr(one, name)) for name in names.split()})

        return replace(
            of(self, own),
            rooms=tuple(of(rule, f"use {domains}") for rule in self.rooms),
            spreads=tuple(of(rule, f"use {domains}") for rule in self.spreads),
            affinities=tuple(of(rule, f"use {near}") for rule in self.affinities),
        )


def unit_cost(unit: PlannedUnit) -> int:
    """Return what a unit adds to the sum of priorities."""
    return sum(pod.priority + SHIFT for pod in unit.members)


def members_at(unit: PlannedUnit, priority: int) -> int:
    """Return how many pods of a unit have a priority."""
    return sum(pod.priority == priority for pod in unit.members)


def unit_terms(unit: PlannedUnit, level: int) -> dict[GroupTerm, int]:
    """Return what a unit adds to the terms of a price where no victim has a priority above `level`."""
    return {
        "groups": 1,
        "lostWork": unit.lost_work,
        "highestVictims": members_at(unit, level),
        "prioritySum": unit_cost(unit),
        "victims": unit.size,
    }


@dataclass(slots=True)
class Work:
    """What is `left` to look at; what is spent of a part is spent of the `whole`, too."""

    left: int = MOST_ELEMENTS
    whole: Work | None = None

    def spend(self, elements: int) -> None:
        """Count elements that were looked at."""
        self.left -= elements
        if self.whole is not None:
            self.whole.spend(elements)

    def part(self) -> Work:
        """Return half of what is left, for one of several questions."""
        return Work(max(self.left // 2, 0), self)
