"""Which bound pods are of which PodGroup, and which of them can only go together.

Owned by the snapshot. A pod event costs O(nodes that its unit is on) at the most, however many pods that has;
a changed group costs O(groups below it), and its pods are only touched where its priority is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from operator import attrgetter

import numpy as np
from msgspec.structs import replace

from makeway.core.comparison import Share
from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, Membership, membership
from makeway.core.policy.facts import at_priority_of
from makeway.core.unit import COMPOSITE_RANK, GROUP_RANK, POD_RANK
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.group_tree import GroupTree
from makeway.planner.snapshot.records import PodRecord

NO_GROUP = 0
"""The number of a pod that is in no group."""

POD_GROUP = "pod-group"
"""The rule that keeps a pod since what has to go with it may not go, or is not known."""

_UNREAD = Membership(unknown="pod groups have not been read yet")


class GroupMembers:
    """The pods of one PodGroup, and what it means to be one of them.

    `pods`: all that are known, `bound`: those bound to nodes. `rows`: how many are on each node that is
    there; `requests`: what the bound request together. `start`: of the one that has been running longest.
    `leaving`: how many of the bound are being deleted. `applying`: its priority is still being entered.
    """

    __slots__ = (
        "applying",
        "bound",
        "key",
        "leaving",
        "min_count",
        "number",
        "pods",
        "priority",
        "requests",
        "rows",
        "start",
        "unit",
        "unknown",
    )

    def __init__(self, key: GroupKey, number: int) -> None:
        self.key = key
        self.number = number
        self.pods: dict[str, PodRecord] = {}
        self.bound: dict[str, PodRecord] = {}
        self.rows: Counter[int] = Counter()
        self.requests: Counter[str] = Counter()
        self.start = NOT_STARTED
        self.leaving = 0
        self.unit: WholeGroup | None = None
        self.priority: int | None = None
        self.min_count = 0
        self.unknown = ""
        self.applying = False

    @property
    def spare(self) -> int | None:
        """How many of its pods may go without breaking its gang; None where it is none, or broken already."""
        staying = len(self.bound) - self.leaving
        gang = self.unit is None and 0 < self.min_count <= staying
        return staying - self.min_count if gang else None

    def add(self, pod: PodRecord) -> None:
        """Count a pod, which it does not have yet."""
        self.pods[pod.uid] = pod
        if pod.node:
            self.bound[pod.uid] = pod
            self.requests.update(pod.requests)
            self.start = min(self.start, pod.start_micros)
            self.leaving += pod.terminating

    def discard(self, pod: PodRecord) -> None:
        """Count a pod of it no longer; resources that it alone requested are forgotten."""
        del self.pods[pod.uid]
        if pod.node:
            del self.bound[pod.uid]
            self.leaving -= pod.terminating
            self.requests.subtract(pod.requests)
            for name in pod.requests:
                if not self.requests[name]:
                    del self.requests[name]
            if self.start == pod.start_micros:
                self.start = min((one.start_micros for one in self.bound.values()), default=NOT_STARTED)


class WholeGroup:
    """What can only go whole: the pods of one group or more. `version` counts what changes about it."""

    __slots__ = ("_staying", "groups", "key", "number", "version")

    def __init__(self, key: GroupKey, number: int) -> None:
        self.key = key
        self.number = number
        self.groups: dict[GroupKey, GroupMembers] = {}
        self.version = 0
        self._staying: tuple[int, tuple[PodRecord, ...], str] = -1, (), ""

    @property
    def rows(self) -> set[int]:
        """The rows of the nodes that its pods are on. O(groups · rows)."""
        return {row for group in self.groups.values() for row in group.rows}

    @property
    def size(self) -> int:
        """How many pods would go: those that are not terminating."""
        return sum(len(group.bound) - group.leaving for group in self.groups.values())

    @property
    def start(self) -> int:
        """Since when the one of them runs that has been running longest."""
        return min((group.start for group in self.groups.values()), default=NOT_STARTED)

    @property
    def rank(self) -> int:
        """How important it is among equals in priority."""
        return COMPOSITE_RANK if self.key.composite else GROUP_RANK

    def members(self) -> tuple[PodRecord, ...]:
        """Return its bound pods that are not terminating, group by group, in the order of names.

        Not as they came: who takes over a snapshot gets them in another order. O(1) while nothing changes.
        """
        return self._known()[1]

    @property
    def first(self) -> str:
        """The lowest UID of those, which orders equally important units; empty where there are none."""
        return self._known()[2]

    def _known(self) -> tuple[int, tuple[PodRecord, ...], str]:
        if self._staying[0] != self.version:
            members: list[PodRecord] = []
            for key in sorted(self.groups):
                staying = (pod for pod in self.groups[key].bound.values() if not pod.terminating)
                members += sorted(staying, key=attrgetter("name"))
            self._staying = self.version, tuple(members), min((pod.uid for pod in members), default="")
        return self._staying


class PodGroups:
    """All groups. Where they are not `followed` no pod is in any, and nothing here costs anything.

    `listed`: all of them have been read; until then the pods that name one stay. `composites`: parents are
    followed. By number of a PodGroup: `unit_of`: int64, its unit's number, 0 for none; `unknown`: bool, its
    pods stay; `rank`: int64, of its pods by themselves; `surplus`: int64, how many may go without breaking
    its gang, -1 where it is none or can only go whole.
    """

    def __init__(self) -> None:
        self.followed = False
        self.listed = False
        self.composites = False
        self._tree = GroupTree()
        self.records = self._tree.records
        self.unit_of: Ints = np.zeros(8, np.int64)
        self.unknown: Flags = np.zeros(8, np.bool_)
        self.rank: Ints = np.full(8, POD_RANK, np.int64)
        self.surplus: Ints = np.full(8, -1, np.int64)
        self._groups: dict[str, GroupMembers] = {}
        self._by_number: dict[int, GroupMembers] = {}
        self._units: dict[GroupKey, WholeGroup] = {}
        self._units_by_number: dict[int, WholeGroup] = {}
        self._widest: dict[str, int] = {}
        self._free: list[int] = []
        self._free_units: list[int] = []

    # ---------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        """How many groups pods name."""
        return len(self._groups)

    def of(self, pod: PodRecord) -> GroupMembers | None:
        """Return the group of a pod; None where it is in none, or groups are not followed."""
        return self._groups.get(f"{pod.namespace}/{pod.group}") if pod.group else None

    def record_of(self, group: str) -> GroupRecord | None:
        """Return a PodGroup by `namespace/name`; None where it is not known."""
        namespace, _, name = group.partition("/")
        return self.records.get(GroupKey(namespace, name))

    def surplus_of(self, gang: str) -> int:
        """Return how many pods of a PodGroup, by its key as text, may go without breaking its gang."""
        group = self._groups.get(gang.partition(" ")[2])
        return 0 if group is None else max(0, int(self.surplus[group.number]))

    def unit(self, number: int) -> WholeGroup:
        """Return a unit by number."""
        return self._units_by_number[number]

    def unit_of_pod(self, pod: PodRecord) -> WholeGroup | None:
        """Return the unit that a pod can only go with."""
        group = self.of(pod)
        return None if group is None else group.unit

    def share_of(self, pod: PodRecord) -> Share | None:
        """Return what removing a bound pod means for its group; None where it breaks none. O(1).

        A unit can spare no pod, a gang those above its minCount; one that is below it is broken already.
        """
        group = self.of(pod)
        if group is None:
            return None
        if group.unit is not None:
            return Share(str(group.unit.key), group.unit.size)
        spare = group.spare
        return None if spare is None else Share(str(group.key), group.min_count + spare, spare)

    def widest(self, resource: str) -> int:
        """Return the most of a resource that all units with a pod on one node request, wherever they run.

        O(groups and nodes of units) where a unit has changed since, else O(1).
        """
        known = self._widest.get(resource)
        if known is None:
            on_rows: Counter[int] = Counter()
            for unit in self._units.values():
                requested = sum(group.requests[resource] for group in unit.groups.values())
                on_rows.update(dict.fromkeys(unit.rows, requested))
            known = self._widest[resource] = max(on_rows.values(), default=0)
        return known

    def losing(self, pods: Iterable[PodRecord | None]) -> Counter[int]:
        """Count by number of a gang how many pods it has less once these, which stay by now, have gone.

        Pods that are not known (None), and those of units, count for none. O(pods).
        """
        fewer: Counter[int] = Counter()
        for pod in pods:
            group = None if pod is None or pod.terminating or not pod.node else self.of(pod)
            if group is not None and group.min_count and group.unit is None:
                fewer[group.number] += 1
        return fewer

    def by_number(self, number: int) -> GroupMembers:
        """Return a group by number."""
        return self._by_number[number]

    def uids(self, name: str) -> list[str]:
        """Return the pods of a group, by its id."""
        group = self._groups.get(name)
        return [] if group is None else list(group.pods)

    def ids(self) -> list[str]:
        """Return what `resolve` takes, of all groups."""
        return list(self._groups)

    def touched_by(self, pod: PodRecord) -> list[int]:
        """Return the rows where something is another if this pod comes, goes or changes."""
        group = self.of(pod)
        return [] if group is None else list(self._touched(group))

    def _touched(self, group: GroupMembers) -> Iterable[int]:
        if group.unit is not None:
            self._note_change(group.unit)
            return group.unit.rows
        return group.rows if group.min_count else ()

    def find(self, key: GroupKey) -> GroupRecord | None:
        """Return a group as it was read; one without parents where these are not followed."""
        record = self.records.get(key)
        if record is not None and record.parent and not self.composites:
            return replace(record, parent="")
        return record

    # --------------------------------------------------------------------------------- changing

    def entered(self, pod: PodRecord) -> PodRecord:
        """Return a pod as it is entered: at its groups' priority. That of a critical pod never falls."""
        if not pod.group:
            return pod
        facts = at_priority_of(pod.facts, self._group(pod).priority if self.followed else None)
        return pod if facts == pod.facts else replace(pod, priority=facts.priority, facts=facts)

    def join(self, pod: PodRecord, row: int | None) -> int:
        """Count a pod as a member; return its group's number. `row`: of its node, None where there is none.

        One that is terminating is no part of what goes together: plans see it as a pod by itself.
        """
        if not pod.group or not self.followed:
            return NO_GROUP
        group = self._group(pod)
        group.add(pod)
        if pod.node:
            _count(group, row, 1)
            self._tell_surplus(group)
        return NO_GROUP if pod.terminating else group.number

    def number_of(self, pod: PodRecord) -> int:
        """Return what `join` has returned for a pod."""
        group = self.of(pod)
        joined = group is not None and pod.uid in group.pods and not pod.terminating
        return group.number if group is not None and joined else NO_GROUP

    def settle(self, pods: Collection[PodRecord], row: int, times: int = 1) -> set[int]:
        """Count bound pods on the row of their node, which has come, or (-1) no longer, since it is gone.

        Return the rows where something is another now. O(pods, and rows of their units).
        """
        settled: dict[int, GroupMembers] = {}
        for pod in pods:
            group = self.of(pod)
            if group is not None and pod.uid in group.bound:
                _count(group, row, times)
                settled[group.number] = group
        return {touched for group in settled.values() for touched in self._touched(group)}

    def leave(self, pod: PodRecord, row: int | None) -> None:
        """Count a pod no longer. O(pods of its group) where it was the one running longest."""
        group = self.of(pod)
        if group is None or pod.uid not in group.pods:
            return
        group.discard(pod)
        if pod.node:
            _count(group, row, -1)
            self._tell_surplus(group)
        self.drop_empty(group)

    def drop_empty(self, group: GroupMembers) -> None:
        """Forget a group that no pod names."""
        if not group.pods and not group.applying and self._by_number.get(group.number) is group:
            self._forget(group)

    # Each returns the ids of the PodGroups for which it means something else now; None where nothing differs.

    def put(self, record: GroupRecord) -> list[str] | None:
        """Add a group or change it. O(groups below it)."""
        if self.records.get(record.key) == record:
            return None
        return [name for name in self._tree.put(record) if name in self._groups]

    def remove(self, key: GroupKey) -> list[str] | None:
        """Forget a group; its pods stay. O(groups below it)."""
        if key not in self.records:
            return None
        return [name for name in self._tree.remove(key) if name in self._groups]

    def know(self, followed: bool, listed: bool, composites: bool) -> list[str] | None:
        """Take over whether groups are followed, all have been listed, and their parents are followed."""
        if (self.followed, self.listed, self.composites) == (followed, listed, composites):
            return None
        self.followed, self.listed, self.composites = followed, listed, composites
        return list(self._groups)

    def resolve(self, name: str) -> tuple[GroupMembers | None, list[int]]:
        """Work out anew what a PodGroup, by its id, means for its pods.

        Return the group where its pods have another priority now, and the rows where something differs.
        """
        group = self._groups.get(name)
        if group is None:
            return None, []
        found = membership(group.key, self.find) if self.listed else _UNREAD
        record = self.records.get(group.key)
        min_count = 0 if record is None else record.min_count
        told = group.unit and group.unit.key, group.unknown, group.min_count
        repriced = group.priority != found.priority
        if (found.unit, found.unknown, min_count) == told and not repriced:
            return None, []
        rows = {*group.rows, *(group.unit.rows if group.unit is not None else ())}
        group.unknown, group.min_count, group.priority = found.unknown, min_count, found.priority
        self._move(group, found.unit)
        rows.update(group.unit.rows if group.unit is not None else ())
        self.tell(group)
        return (group if repriced and group.pods else None), list(rows)

    def tell(self, group: GroupMembers) -> None:
        """Put down in the arrays what a group means."""
        number = group.number
        self.unit_of[number] = 0 if group.unit is None else group.unit.number
        self.unknown[number] = bool(group.unknown) or group.applying
        self.rank[number] = GROUP_RANK
        self._tell_surplus(group)
        if group.unit is not None:
            self._note_change(group.unit)

    def _note_change(self, unit: WholeGroup) -> None:
        unit.version += 1
        self._widest.clear()

    def _tell_surplus(self, group: GroupMembers) -> None:
        gang = group.min_count > 0 and group.unit is None
        self.surplus[group.number] = (group.spare or 0) if gang else -1

    def _group(self, pod: PodRecord) -> GroupMembers:
        name = f"{pod.namespace}/{pod.group}"
        group = self._groups.get(name)
        if group is None:
            number = self._free.pop() if self._free else len(self._by_number) + 1
            if number >= self.unit_of.size:
                self.unit_of = extended(self.unit_of, number)
                self.unknown = extended(self.unknown, number)
                self.rank = extended(self.rank, number, POD_RANK)
                self.surplus = extended(self.surplus, number, -1)
            group = self._groups[name] = GroupMembers(GroupKey(pod.namespace, pod.group), number)
            self._by_number[number] = group
            self.resolve(name)
            self.tell(group)
        return group

    def _forget(self, group: GroupMembers) -> None:
        self._move(group, None)
        del self._groups[f"{group.key.namespace}/{group.key.name}"], self._by_number[group.number]
        self._free.append(group.number)

    def _move(self, group: GroupMembers, to: GroupKey | None) -> None:
        """Let a group be part of another unit, or of none. O(1)."""
        before = group.unit
        if before is not None and before.key != to:
            del before.groups[group.key]
            self._note_change(before)
            group.unit = None
            if not before.groups:
                del self._units[before.key], self._units_by_number[before.number]
                self._free_units.append(before.number)
        if to is not None and group.unit is None:
            unit = self._units.get(to)
            if unit is None:
                number = self._free_units.pop() if self._free_units else len(self._units) + 1
                unit = self._units[to] = self._units_by_number[number] = WholeGroup(to, number)
            unit.groups[group.key] = group
            self._note_change(unit)
            group.unit = unit


def _count(group: GroupMembers, row: int | None, times: int) -> None:
    """Count a pod of a group on a row, where its node has one; or (-1) no longer."""
    if row is not None:
        group.rows[row] += times
        if not group.rows[row]:
            del group.rows[row]
