"""Which pods go when a quota was lowered: taken leaf by leaf, then reprieved where the quota was lowered.

What is chosen are units: a pod, or the pods of a group that go whole or not at all. The order in which they
are taken (YuniKorn's, with groups as kube-scheduler ranks them, ended by the UID):

1. units without the originator of an application,
2. lower priority,
3. pods, and the surplus of gangs above their minCount; then pods whose end would break their gang, gang by
   gang; then groups that go whole,
4. units that allow preemption,
5. of groups that go whole, those with fewer pods,
6. younger,
7. lower UID.

A unit is taken while it lowers a resource that is not met yet, unless its queues or any queue above would
then be below their guarantees of a resource that its pods use. Where leaves could not release their shares
(units are not divisible, and some may not be evicted) the rest is taken from all leaves together. At last
every unit that is not needed is reprieved, the last in the order first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from heapq import heappop, heappush, merge
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.distribution import Distribution
from makeway.core.queues.tree import Queue, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.unit import POD_RANK, Unit

_T = TypeVar("_T")

Steps: TypeAlias = Generator[None, None, _T]
"""Work that pauses after every few thousand pods, and what it comes to."""

CHUNK: Final = 2000
"""Pods between two pauses: about 5 ms."""


def run_to_end(steps: Steps[_T]) -> _T:
    """Make all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


Order: TypeAlias = tuple[bool, int, int, bool, tuple[int, int, str], int, str]

_ALONE: Final = (1, 0, "")
"""Where a pod by itself stands among units of its rank."""

Ordered: TypeAlias = tuple[Order, int, Unit]
"""A unit with its key, and the number of the leaf where it was found; no two share both."""

Members: TypeAlias = Callable[[int], Iterable[Unit]]
"""The units of a leaf, by its number; without pods that are leaving. One with pods in several leaves is in
each of them. Each leaf is asked for once, and read with pauses; its pods are those of that moment."""

Surplus: TypeAlias = Callable[[str], int]
"""Called once for a gang, by name: how many of its pods may go without breaking it."""

Veto: TypeAlias = Callable[[Unit], str]
"""Called right before a unit is taken: the rule that forbids it now, or nothing. It may keep count."""

Guards: TypeAlias = Sequence[tuple[int, dict[str, int]]]
"""By queue what may still be taken above its guarantee, the nearest first."""

_NO_GUARDS: Final[Guards] = ()

PROCESS_RUNNING: Final = "process-running"
"""The rule that leaves units to the process of another queue, in which they have pods."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What kept a pod: the guarantee of a queue, for a resource."""

    queue: str
    resource: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which units go, in the order of being taken; what that frees of what is needed, and which were kept.

    `guaranteed`, `exempt`, `busy`: pods that would have helped, counted by the guarantee, the rule, or the
    queue with a process of its own that kept them; empty where the need is met.
    """

    victims: tuple[Unit, ...]
    freed: Amounts
    guaranteed: Counter[Guarantee] = field(default_factory=Counter)
    exempt: Counter[str] = field(default_factory=Counter)
    busy: Counter[str] = field(default_factory=Counter)


def selecting(
    tree: QueueTree,
    usage: Usage,
    queue: Queue,
    need: Amounts,
    members: Members,
    *,
    running: Set[str] = frozenset(),
    veto: Veto | None = None,
    surplus: Surplus | None = None,
) -> Steps[tuple[Distribution, Selection]]:
    """Share a need among the leaves of a queue and choose which units go; pause after every CHUNK pods.

    `usage` is without the pods that are leaving anyway. `running`: queues that another process runs for.
    `surplus`: of gangs; without it none has any. O(pods below · (log + depth)).
    """
    shares = Distribution(tree, usage, queue, need, running)
    busy = frozenset(tree.at(path).number for path in running if path in tree.numbers) - set(queue.line)
    taking = _Taking(tree, usage, queue, members, busy=busy, veto=veto, surplus=surplus)
    for number in sorted(shares.leaves):
        parts = yield from taking.candidates(number)
        yield from taking.take(merge(*parts), taking.unmet(number, shares.leaves[number]), number)
        yield from _free(parts)
    short = {name: amount - taking.freed.get(name, 0) for name, amount in need.items()}
    short = {name: amount for name, amount in short.items() if amount > 0}
    kept = Selection((), {})
    if short:
        kept = yield from taking.top_up(tree.leaves(queue), short)
    victims = yield from taking.reprieve(need)
    return shares, Selection(
        victims=victims,
        freed={name: taking.freed[name] for name in need if taking.freed.get(name)},
        guaranteed=kept.guaranteed,
        exempt=kept.exempt,
        busy=kept.busy,
    )


def order_of(unit: Unit, rank: int, youngest: int = 0) -> Order:
    """Return the key by which units are taken, first to last.

    `rank`: that of a pod of its gang's surplus is a pod's. `youngest`: when the youngest pod of its gang was
    created, so that of two gangs the younger one is broken first.
    """
    among = _ALONE if rank == POD_RANK else (unit.size, -youngest if unit.gang else 0, unit.gang)
    return unit.originator, unit.priority, rank, unit.opted_out, among, -unit.created_micros, unit.uid


def _free(parts: list[list[_T]]) -> Steps[None]:
    """Free lists one after the other: a hundred thousand tuples at once take longer than a chunk."""
    while parts:
        parts.pop()
        if parts:
            yield


def _chunks(iterable: Iterable[_T]) -> Iterator[tuple[_T, bool]]:
    """Return what there is, each with whether a pause is due before it."""
    return ((one, place % CHUNK == CHUNK - 1) for place, one in enumerate(iterable))


def _in_order(candidates: Iterable[Ordered], late: list[Ordered]) -> Iterator[Ordered]:
    """Yield candidates in order, and among them those that are put into the heap `late` meanwhile."""
    for one in candidates:
        while late and late[0] < one:
            yield heappop(late)
        yield one
    while late:
        yield heappop(late)


@dataclass(eq=False)
class _Taking:
    """Units taken so far, and what may still be taken above each guarantee and from each gang."""

    tree: QueueTree
    usage: Usage
    queue: Queue
    members: Members
    _: KW_ONLY
    busy: frozenset[int]
    veto: Veto | None
    surplus: Surplus | None

    def __post_init__(self) -> None:
        self._below = range(self.queue.number, self.queue.below)
        self._left: dict[str, int] = {}
        self._youngest: dict[str, int] = {}
        self._spare: dict[int, dict[str, int]] = {}
        self._runs: list[list[Ordered]] = []
        self._uids: set[str] = set()
        self._read: dict[int, list[Unit]] = {}
        self._whole: dict[str, Amounts] = {}
        self._guarded: dict[int, list[tuple[int, dict[str, int]]]] = {}
        self._freed_in: dict[int, Counter[str]] = {}
        self.freed: dict[str, int] = {}

    def candidates(self, leaf: int) -> Steps[list[list[Ordered]]]:
        """Return the units of a leaf that may go at all in parts, each in the order of being taken."""
        parts: list[list[Ordered]] = []
        units = yield from self._of(leaf)
        for first in range(0, len(units), CHUNK):
            if first:
                yield
            part = units[first : first + CHUNK]
            parts.append(sorted(self._ordered(one, leaf) for one in part if not one.exempt))
        return parts

    def unmet(self, leaf: int, share: Amounts) -> dict[str, int]:
        """Return what of a leaf's share is not met by units that were taken for other leaves."""
        freed = self._freed_in.get(leaf, Counter())
        left = {name: amount - freed.get(name, 0) for name, amount in share.items()}
        return {name: amount for name, amount in left.items() if amount > 0}

    def take(
        self, candidates: Iterable[Ordered], unmet: dict[str, int], of_leaf: int | None = None
    ) -> Steps[list[tuple[Unit, Guarantee | str]]]:
        """Take units until nothing is unmet; `unmet` is changed. Return those that were kept, and by what.

        `candidates` come in the order of being taken. `of_leaf`: the leaf that `unmet` is of; None: of all.
        """
        kept: list[tuple[Unit, Guarantee | str]] = []
        run: list[Ordered] = []
        late: list[Ordered] = []
        self._runs.append(run)
        leaf, guards = -1, _NO_GUARDS
        for (order, number, unit), pause in _chunks(_in_order(candidates, late)):
            if not unmet:
                break
            if pause:
                yield
            whole = bool(unit.amounts)
            gives = self._given(unit, of_leaf) if whole else unit.requests
            if unmet.keys().isdisjoint(gives) or (whole and unit.uid in self._uids):
                continue
            if unit.gang and order[2] == POD_RANK and self._surplus_of(unit.gang) <= 0:
                heappush(late, (order_of(unit, unit.rank, self._youngest[unit.gang]), number, unit))
                continue
            if number != leaf:
                leaf, guards = number, self._guards(number)
            kept_by = self._kept_whole(unit) if whole else _kept_by(guards, gives)
            if kept_by is not None:
                kept.append((unit, Guarantee(self.tree.queues[kept_by[0]].path, kept_by[1])))
                continue
            rule = self.veto(unit) if self.veto is not None else ""
            if rule:
                kept.append((unit, rule))
                continue
            run.append((order, number, unit))
            self._uids.add(unit.uid)
            if unit.gang:
                self._left[unit.gang] -= 1
            for part, requests in unit.amounts:
                self._count(part, requests, self._guards(part))
                freed = self._freed_in.setdefault(part, Counter())
                freed.update(requests)
            if not whole:
                self._count(number, gives, guards)
            for name in tuple(unmet):
                unmet[name] -= gives.get(name, 0)
                if unmet[name] <= 0:
                    del unmet[name]
        return kept

    def top_up(self, leaves: list[Queue], short: dict[str, int]) -> Steps[Selection]:
        """Take what is still short from all leaves together; return the pods that were kept, and by what."""
        kept: list[tuple[Unit, Guarantee | str]] = []
        busy: list[tuple[Unit, str]] = []
        useful: list[Ordered] = []
        parts: list[list[Ordered]] = []
        met: set[str] = set()
        for leaf in leaves:
            owner = next((self.tree.queues[one].path for one in leaf.line if one in self.busy), "")
            units = yield from self._of(leaf.number)
            for unit, pause in _chunks(units):
                if pause:
                    parts.append(sorted(useful))
                    useful = []
                    yield
                if unit.uid in self._uids or unit.uid in met:
                    continue
                if unit.amounts:
                    met.add(unit.uid)
                if owner:
                    busy.append((unit, owner))
                elif unit.exempt:
                    kept.append((unit, unit.exempt))
                else:
                    useful.append(self._ordered(unit, leaf.number))
        parts.append(sorted(useful))
        useful = []
        kept += yield from self.take(merge(*parts), short)
        yield from _free(parts)

        guaranteed: Counter[Guarantee] = Counter()
        exempt: Counter[str] = Counter()
        owners: Counter[str] = Counter()
        for (unit, by), pause in _chunks(kept):
            if pause:
                yield
            if not self._given(unit).keys().isdisjoint(short):
                if isinstance(by, Guarantee):
                    guaranteed[by] += unit.size
                else:
                    exempt[by] += unit.size
        for (unit, path), pause in _chunks(busy):
            if pause:
                yield
            if not self._given(unit).keys().isdisjoint(short):
                owners[path] += unit.size
        return Selection(victims=(), freed={}, guaranteed=guaranteed, exempt=exempt, busy=owners)

    def reprieve(self, need: Amounts) -> Steps[tuple[Unit, ...]]:
        """Let every unit stay that is not needed for what was reached; return those that go, in order."""
        taken: list[Ordered] = []
        for one, pause in _chunks(merge(*self._runs)):
            if pause:
                yield
            taken.append(one)
        self._runs.clear()  # `taken` has their units, so that this frees none
        spare = {
            name: self.freed[name] - min(need[name], self.freed[name]) for name in need if name in self.freed
        }
        goes: list[Unit] = []
        while taken:
            for _, _, unit in reversed(taken[-CHUNK:]):
                gives = self._given(unit)
                for name, amount in spare.items():
                    if gives.get(name, 0) > amount:
                        goes.append(unit)
                        break
                else:
                    for name in spare:
                        spare[name] -= gives.get(name, 0)
                    for name, amount in gives.items():
                        self.freed[name] -= amount
            del taken[-CHUNK:]
            if taken:
                yield
        return tuple(reversed(goes))

    def _of(self, leaf: int) -> Steps[list[Unit]]:
        """Return the units of a leaf as they were when it was first read; pause after every CHUNK pods."""
        known = self._read.get(leaf)
        if known is not None:
            return known
        found = self._read[leaf] = []
        pods = 0
        for unit in self.members(leaf):
            pods += len(unit.pods) or 1
            if pods >= CHUNK:
                pods = 0
                yield
            if unit.gang:
                self._youngest[unit.gang] = max(self._youngest.get(unit.gang, 0), unit.created_micros)
            found.append(self._left_to_others(unit) if unit.amounts else unit)
        return found

    def _left_to_others(self, unit: Unit) -> Unit:
        """Return a unit of several pods as exempt where another process runs for a queue of one of them."""
        lines = (self.tree.queues[number].line for number, _ in unit.amounts)
        if self.busy.isdisjoint(one for line in lines for one in line):
            return unit
        return replace(unit, exempt=unit.exempt or PROCESS_RUNNING)

    def _ordered(self, unit: Unit, leaf: int) -> Ordered:
        if not unit.gang:
            return order_of(unit, unit.rank), leaf, unit
        rank = POD_RANK if self._surplus_of(unit.gang) > 0 else unit.rank
        return order_of(unit, rank, self._youngest[unit.gang]), leaf, unit

    def _surplus_of(self, gang: str) -> int:
        """Return how many more pods of a gang may go without breaking it; 0 or less: none."""
        left = self._left.get(gang)
        if left is None:
            left = self._left[gang] = 0 if self.surplus is None else self.surplus(gang)
        return left

    def _given(self, unit: Unit, leaf: int | None = None) -> Amounts:
        """Return what a unit's pods request in one leaf, or in all leaves of the queue that is lowered."""
        if not unit.amounts:
            return unit.requests
        if leaf is not None:
            return next((amounts for number, amounts in unit.amounts if number == leaf), {})
        total = self._whole.get(unit.uid)
        if total is None:
            within: Counter[str] = Counter()
            for number, amounts in unit.amounts:
                if number in self._below:
                    within.update(amounts)
            total = self._whole[unit.uid] = within
        return total

    def _guards(self, leaf: int) -> Guards:
        """Return what is above the guarantees of a leaf and its ancestors, by queue; live."""
        guards = self._guarded.get(leaf)
        if guards is None:
            guards = self._guarded[leaf] = []
            for queue in self.tree.line(leaf):
                if queue.guaranteed:
                    spare = self._spare.get(queue.number)
                    if spare is None:
                        held = self.usage.of(queue.number)
                        spare = {name: held.get(name, 0) - least for name, least in queue.guaranteed.items()}
                        self._spare[queue.number] = spare
                    guards.append((queue.number, spare))
        return guards

    def _kept_whole(self, unit: Unit) -> tuple[int, str] | None:
        """Return the nearest queue, and the resource, whose guarantee all pods of a unit would break."""
        taken: Counter[tuple[int, str]] = Counter()
        for leaf, requests in unit.amounts:
            for number, spare in self._guards(leaf):
                for name, most in spare.items():
                    asked = taken[number, name] = taken[number, name] + requests.get(name, 0)
                    if asked > max(most, 0):
                        return number, name
        return None

    def _count(self, leaf: int, requests: Amounts, guards: Guards) -> None:
        if leaf in self._below:
            freed = self.freed
            for name, amount in requests.items():
                freed[name] = freed.get(name, 0) + amount
        for _, spare in guards:
            for name in spare:
                spare[name] -= requests.get(name, 0)


def _kept_by(guards: Guards, requests: Amounts) -> tuple[int, str] | None:
    """Return the nearest queue, and the resource, whose guarantee a pod's removal would break."""
    for number, spare in guards:
        for name, most in spare.items():
            if requests.get(name, 0) > max(most, 0):
                return number, name
    return None
