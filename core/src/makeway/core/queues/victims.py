"""Which pods go when a quota was lowered: taken leaf by leaf, then reprieved where the quota was lowered.

The order in which pods are taken (YuniKorn's, ended by the UID):

1. pods that are not the originator of their application,
2. lower priority,
3. pods that allow preemption,
4. younger,
5. lower UID.

A pod is taken while it lowers a resource that is not met yet, unless its queue or any queue above would
then be below its guarantee of a resource that the pod uses. Where leaves could not release their shares (pods
are not divisible, and some may not be evicted) the rest is taken from all leaves together. At last
every pod that is not needed is reprieved, the last in the order first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from heapq import merge
from typing import Final, TypeAlias, TypeVar

import msgspec

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.distribution import Distribution
from makeway.core.queues.tree import Queue, QueueTree
from makeway.core.queues.usage import Usage

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


class Member(msgspec.Struct, frozen=True, gc=False):
    """A pod that counts in a queue, as the choice of victims sees it.

    `created_micros`: metadata.creationTimestamp in microseconds since 1970. `exempt`: the rule that
    forbids to evict it for any quota; empty where none does.
    """

    uid: str
    requests: Mapping[str, int]
    priority: int = 0
    originator: bool = False
    opted_out: bool = False
    created_micros: int = 0
    exempt: str = ""

    @property
    def order(self) -> Order:
        """The key by which pods are taken, first to last."""
        return self.originator, self.priority, self.opted_out, -self.created_micros, self.uid


Order: TypeAlias = tuple[bool, int, bool, int, str]

Ordered: TypeAlias = tuple[Order, int, Member]
"""A pod with its key, which no two share, and the number of its leaf."""

Members: TypeAlias = Callable[[int], Iterable[Member]]
"""The pods of a leaf, by its number; without those that are leaving. Each leaf is read once, without a
pause."""

Veto: TypeAlias = Callable[[Member], str]
"""Called right before a pod is taken: the rule that forbids it now, or nothing. It may keep count."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What kept a pod: the guarantee of a queue, for a resource."""

    queue: str
    resource: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pods go, in the order of being taken; what that frees of what is needed, and which were kept.

    `guaranteed`, `exempt`, `busy`: pods that would have helped, counted by the guarantee, the rule, or the
    queue with a process of its own that kept them; empty where the need is met.
    """

    victims: tuple[Member, ...]
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
) -> Steps[tuple[Distribution, Selection]]:
    """Share a need among the leaves of a queue and choose which pods go, with a pause after every CHUNK pods.

    `usage` is without the pods that are leaving anyway. `running`: queues that another process runs for.
    O(pods below · (log + depth)).
    """
    shares = Distribution(tree, usage, queue, need, running)
    taking = _Taking(tree, usage, members, veto)
    for number in sorted(shares.leaves):
        parts = yield from taking.candidates(number)
        yield from taking.take(merge(*parts), dict(shares.leaves[number]))
        yield from _free(parts)
    short = {name: amount - taking.freed.get(name, 0) for name, amount in need.items()}
    short = {name: amount for name, amount in short.items() if amount > 0}
    kept = Selection((), {})
    if short:
        busy = {tree.at(path).number for path in running if path in tree.numbers} - set(queue.line)
        kept = yield from taking.top_up(tree.leaves(queue), short, busy)
    victims = yield from taking.reprieve(need)
    return shares, Selection(
        victims=victims,
        freed={name: taking.freed[name] for name in need if taking.freed.get(name)},
        guaranteed=kept.guaranteed,
        exempt=kept.exempt,
        busy=kept.busy,
    )


def _free(parts: list[list[_T]]) -> Steps[None]:
    """Free lists one after the other: a hundred thousand tuples at once take longer than a chunk."""
    while parts:
        parts.pop()
        if parts:
            yield


def _chunks(iterable: Iterable[_T]) -> Iterator[tuple[_T, bool]]:
    """Return what there is, each with whether a pause is due before it."""
    return ((one, place % CHUNK == CHUNK - 1) for place, one in enumerate(iterable))


class _Taking:
    """Pods taken so far, and what may still be taken above each guarantee."""

    def __init__(self, tree: QueueTree, usage: Usage, members: Members, veto: Veto | None) -> None:
        self._tree = tree
        self._usage = usage
        self._members = members
        self._veto = veto
        self._spare: dict[int, dict[str, int]] = {}
        self._runs: list[list[Ordered]] = []
        self._uids: set[str] = set()
        self._read: dict[int, list[Member]] = {}
        self.freed: dict[str, int] = {}

    def candidates(self, leaf: int) -> Steps[list[list[Ordered]]]:
        """Return the pods of a leaf that may go at all in parts, each in the order of being taken."""
        parts: list[list[Ordered]] = []
        pods = self._of(leaf)
        for first in range(0, len(pods), CHUNK):
            if first:
                yield
            part = pods[first : first + CHUNK]
            parts.append(sorted((one.order, leaf, one) for one in part if not one.exempt))
        return parts

    def take(
        self, candidates: Iterable[Ordered], unmet: dict[str, int]
    ) -> Steps[list[tuple[Member, Guarantee | str]]]:
        """Take pods until nothing is unmet; `unmet` is changed. Return the pods that were kept, and by what.

        `candidates` come in the order of being taken.
        """
        kept: list[tuple[Member, Guarantee | str]] = []
        run: list[Ordered] = []
        self._runs.append(run)
        leaf, guards = -1, []
        for (order, number, member), pause in _chunks(candidates):
            if not unmet:
                break
            if pause:
                yield
            requests = member.requests
            if unmet.keys().isdisjoint(requests):
                continue
            if number != leaf:
                leaf, guards = number, self._guards(number)
            kept_by = _kept_by(guards, requests)
            if kept_by is not None:
                kept.append((member, Guarantee(self._tree.queues[kept_by[0]].path, kept_by[1])))
                continue
            rule = self._veto(member) if self._veto is not None else ""
            if rule:
                kept.append((member, rule))
                continue
            run.append((order, number, member))
            self._uids.add(member.uid)
            self._count(requests, guards)
            for name in tuple(unmet):
                unmet[name] -= requests.get(name, 0)
                if unmet[name] <= 0:
                    del unmet[name]
        return kept

    def top_up(self, leaves: list[Queue], short: dict[str, int], running: Set[int]) -> Steps[Selection]:
        """Take what is still short from all leaves together; return the pods that were kept, and by what."""
        kept: list[tuple[Member, Guarantee | str]] = []
        busy: list[tuple[Member, str]] = []
        useful: list[Ordered] = []
        parts: list[list[Ordered]] = []
        for leaf in leaves:
            owner = next((self._tree.queues[one].path for one in leaf.line if one in running), "")
            for member, pause in _chunks(self._of(leaf.number)):
                if pause:
                    parts.append(sorted(useful))
                    useful = []
                    yield
                if member.uid in self._uids:
                    continue
                if owner:
                    busy.append((member, owner))
                elif member.exempt:
                    kept.append((member, member.exempt))
                else:
                    useful.append((member.order, leaf.number, member))
        parts.append(sorted(useful))
        useful = []
        kept += yield from self.take(merge(*parts), short)
        yield from _free(parts)

        guaranteed: Counter[Guarantee] = Counter()
        exempt: Counter[str] = Counter()
        owners: Counter[str] = Counter()
        for (member, by), pause in _chunks(kept):
            if pause:
                yield
            if not member.requests.keys().isdisjoint(short):
                if isinstance(by, Guarantee):
                    guaranteed[by] += 1
                else:
                    exempt[by] += 1
        for (member, path), pause in _chunks(busy):
            if pause:
                yield
            if not member.requests.keys().isdisjoint(short):
                owners[path] += 1
        return Selection(victims=(), freed={}, guaranteed=guaranteed, exempt=exempt, busy=owners)

    def reprieve(self, need: Amounts) -> Steps[tuple[Member, ...]]:
        """Let every pod stay that is not needed for what was reached; return those that go, in order."""
        taken: list[Ordered] = []
        for one, pause in _chunks(merge(*self._runs)):
            if pause:
                yield
            taken.append(one)
        self._runs.clear()  # `taken` has their pods, so that this frees none
        spare = {
            name: self.freed[name] - min(need[name], self.freed[name]) for name in need if name in self.freed
        }
        goes: list[Member] = []
        while taken:
            for _, _, member in reversed(taken[-CHUNK:]):
                requests = member.requests
                for name, amount in spare.items():
                    if requests.get(name, 0) > amount:
                        goes.append(member)
                        break
                else:
                    for name in spare:
                        spare[name] -= requests.get(name, 0)
                    for name, amount in requests.items():
                        self.freed[name] -= amount
            del taken[-CHUNK:]
            if taken:
                yield
        return tuple(reversed(goes))

    def _of(self, leaf: int) -> list[Member]:
        """Return the pods of a leaf as they were when it was first read."""
        known = self._read.get(leaf)
        if known is None:
            known = self._read[leaf] = list(self._members(leaf))
        return known

    def _guards(self, leaf: int) -> list[tuple[int, dict[str, int]]]:
        """Return what is above the guarantees of a leaf and its ancestors, by queue; live."""
        guards = []
        for queue in self._tree.line(leaf):
            if queue.guaranteed:
                spare = self._spare.get(queue.number)
                if spare is None:
                    held = self._usage.of(queue.number)
                    spare = {name: held.get(name, 0) - least for name, least in queue.guaranteed.items()}
                    self._spare[queue.number] = spare
                guards.append((queue.number, spare))
        return guards

    def _count(self, requests: Amounts, guards: list[tuple[int, dict[str, int]]]) -> None:
        for name, amount in requests.items():
            self.freed[name] = self.freed.get(name, 0) + amount
            for _, spare in guards:
                if name in spare:
                    spare[name] -= amount


def _kept_by(guards: list[tuple[int, dict[str, int]]], requests: Amounts) -> tuple[int, str] | None:
    """Return the nearest queue, and the resource, whose guarantee a pod's removal would break."""
    for number, spare in guards:
        for name, most in spare.items():
            if requests.get(name, 0) > max(most, 0):
                return number, name
    return None
