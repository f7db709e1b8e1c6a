"""Some nodes of a model as they are at one moment, and several such parts as one."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.tally import Weights
from makeway.planner.plan.evaluate import lower_pods, removable_pods
from makeway.planner.plan.gang.model import NodePods
from makeway.planner.plan.groups import BatchGroups, PlanGroups
from makeway.planner.plan.lost_work import LostWorkOf
from makeway.planner.snapshot.columns import MOST, Flags, Ints
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.records import PodRecord

_BY_SLOT: Final = ("uses", "priority start", "removable budgets lost gang unit follows queue")
"""Arrays of a part by slot and node, those between two pauses together."""


@dataclass(frozen=True, slots=True)
class Part(NodePods):
    """Some of the nodes of a model. `units`: those of the parts before, and of this one.

    `requests`: by resource int64[D, N]. `weighed`: the same, of each of the weights that were asked for, what
    pods count. `nominated`: by node.
    """

    requests: Mapping[str, Ints]
    weighed: tuple[Ints, ...]
    nominated: Mapping[int, Sequence[PodRecord]]


def part_of(
    batch: NodeBatch,
    *,
    planning: PlanGroups,
    asked: Ints,
    served: Flags,
    counted: tuple[str, ...],
    queues: Weights | None,
    labelled: Weights | None,
    weights: Sequence[Weights],
) -> Part:
    """Look at some nodes. `served`: bool[R], by devices. `counted`: resources that queues limit.

    `queues`: the numbers of the pods' queues plus 1, where they count; `labelled`: as labels name them now.
    """
    batch, groups = planning.ordered(batch)
    columns, snapshot = batch.columns, planning.snapshot
    planning.rules.exempt(columns)
    removable = _removable(batch, groups, planning, labelled)
    shape, rows = removable.shape, batch.rows.tolist()
    allocatable = columns.allocatable[asked]
    room = allocatable - columns.requested[asked] - batch.reserved[asked]
    room = np.where(served[:, None] & (allocatable == 0), MOST, room)
    none = np.broadcast_to(0, shape)
    units, unit = planning.numbered(() if groups is None else groups.units)
    alone = columns.group if len(snapshot.groups) else none
    if groups is not None:
        alone = np.where(groups.unit > 0, 0, alone)
    spare = np.flatnonzero(np.bincount(alone[removable])).tolist() if any(alone.strides) else ()
    return Part(
        snapshot=snapshot,
        rows=batch.rows,
        names=[snapshot.names[row] for row in rows],
        room=room,
        removable=removable,
        uses=np.where(removable, columns.requests(asked), 0),
        requests={
            name: columns.request(columns.resources[name]) for name in counted if name in columns.resources
        },
        priority=columns.priority,
        start=columns.start,
        budgets=columns.budgets if len(snapshot.budgets) else none,
        lost=_lost(columns, removable, planning.lost_work),
        gang=alone,
        unit=none if groups is None else unit[groups.unit],
        follows=np.broadcast_to(np.False_, shape) if groups is None else groups.follows,
        weighed=tuple(one.as_known(columns.signature) for one in weights),
        queue=np.broadcast_to(-1, shape) if queues is None else queues.as_known(columns.signature) - 1,
        pods=_pods(batch, rows),
        awaited=batch.awaited,
        nominated=batch.nominated,
        units=units,
        spare=_spare(planning, spare),
    )


def _lost(columns: NodeSlots, removable: Flags, lost_work: LostWorkOf | None) -> Ints:
    """Return int64[D, N], what removable pods lose; 0 where it does not count."""
    if lost_work is None:
        return np.broadcast_to(0, removable.shape)
    lost = np.zeros(removable.shape, np.int64)
    slots, places = np.nonzero(removable)
    lost[slots, places] = lost_work.of_pods(columns, slots, places).at(lost_work.second)
    return lost


def _pods(batch: NodeBatch, rows: Sequence[int]) -> list[list[PodRecord]]:
    """Return the pods of each node in the order of its columns. `rows`: of the nodes."""
    of_nodes = [batch.of_rows[row] for row in rows]
    for place, moved in batch.moved.items():
        of_nodes[place] = moved
    if batch.order is None:
        return of_nodes
    orders = batch.order.T.tolist()
    return [
        [pods[at] for at in order if at < len(pods)] for pods, order in zip(of_nodes, orders, strict=True)
    ]


def joined(parts: Sequence[Part]) -> Generator[None, None, Part]:
    """Put parts together, nodes in the order of their rows. Pauses now and then. O(slots · nodes)."""
    depth = max(part.removable.shape[0] for part in parts)
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    first = np.cumsum([0, *(part.rows.size for part in parts)])
    placed = np.empty(rows.size, np.int64)
    placed[order] = np.arange(rows.size)

    places = [
        placed[start : start + part.rows.size] for start, part in zip(first.tolist(), parts, strict=False)
    ]
    to = [
        slice(int(one[0]), int(one[-1]) + 1) if one.size and int(one[-1] - one[0]) == one.size - 1 else one
        for one in places
    ]

    def deep(arrays: Sequence[Any], empty: int = 0) -> Any:
        """Return arrays by slot and node as one, nodes in order. `empty`: what is where there is no pod."""
        shape = *arrays[0].shape[:-2], depth, rows.size
        if not any(any(one.strides[-2:]) for one in arrays):
            return np.broadcast_to(arrays[0].dtype.type(empty), shape)
        found = np.empty(shape, arrays[0].dtype)
        for one, there in zip(arrays, to, strict=True):
            found[..., : one.shape[-2], there] = one
            found[..., one.shape[-2] :, there] = empty
        return found

    def by_node(of_parts: Iterable[Mapping[int, Sequence[PodRecord]]]) -> dict[int, Sequence[PodRecord]]:
        return {
            int(placed[offset + node]): pods
            for offset, one in zip(first.tolist(), of_parts, strict=False)
            for node, pods in one.items()
        }

    found: dict[str, Any] = {}
    for several in _BY_SLOT:
        for name in several.split():
            found[name] = deep([getattr(part, name) for part in parts], -1 if name == "queue" else 0)
        yield
    names = [name for part in parts for name in part.names]
    pods = [one for part in parts for one in part.pods]
    return Part(
        snapshot=parts[0].snapshot,
        rows=rows[order],
        names=[names[at] for at in order.tolist()],
        room=np.concatenate([part.room for part in parts], axis=1)[:, order],
        **found,
        requests={name: deep([part.requests[name] for part in parts]) for name in parts[0].requests},
        weighed=tuple(deep(arrays) for arrays in zip(*(part.weighed for part in parts), strict=True)),
        pods=[pods[at] for at in order.tolist()],
        awaited=by_node(part.awaited for part in parts),
        nominated=by_node(part.nominated for part in parts),
        units=parts[-1].units,
        spare={gang: left for part in parts for gang, left in part.spare.items()},
    )


def _removable(
    batch: NodeBatch, groups: BatchGroups | None, planning: PlanGroups, labelled: Weights | None
) -> Flags:
    """Return bool[D, N]: the pods that every rule about single pods and units allows to go."""
    snapshot, columns, taken, rules = planning.snapshot, batch.columns, planning.debits, planning.rules
    policy = snapshot.exemptions.policy
    lower = lower_pods(columns, rules.priority, rules.reclaimable(snapshot, columns, labelled))
    removable = removable_pods(columns, lower, rules)
    if policy.hard_budgets and len(snapshot.budgets):
        sets = columns.budgets
        removable &= ~(snapshot.budgets.hard(sets) & snapshot.budgets.exhausted(sets, taken))
    undecided = frozenset(one for one in snapshot.undecided if policy.has_hard_budgets(one))
    if undecided:
        removable &= ~snapshot.signatures.of_namespaces(undecided)[columns.signature]
    if groups is not None:
        removable = groups.whole(removable & ~groups.kept)
    return removable


def _spare(planning: PlanGroups, numbers: Iterable[int]) -> dict[int, int]:
    """Return how many pods each gang can lose without falling below its minCount; none that is below it."""
    spare: dict[int, int] = {}
    snapshot, fewer = planning.snapshot, planning.leaving_gangs
    for number in numbers:
        left = snapshot.groups.by_number(number).spare if number else None
        if left is not None and left >= fewer[number]:
            spare[number] = left - fewer[number]
    return spare
