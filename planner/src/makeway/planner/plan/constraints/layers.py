"""Constraints as layers: how much each pod uses, and how much room each node has, as for a resource.

A host port, or a required anti-affinity, has room 0 and each pod in conflict uses 1. A hard topology
spread has room for `min + maxSkew - self` matching pods in a domain. Where the domain is wider than the
node, what the domain's other nodes hold is taken off the room. So the same pass that frees and reprieves
resources does it for these. Required affinity is the opposite, it needs pods to stay, and is looked at
once, with all removable pods gone, as kube-scheduler's dry run does.

A layer may be looser than the scheduler's filter, never stricter. Sources: kube-scheduler's NodePorts,
InterPodAffinity, PodTopologySpread and VolumeRestrictions plugins.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.tally import Weights
from makeway.planner.snapshot.columns import MOST, Flags, Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

PORT_TAKEN = "Host port taken"
ANTI_AFFINITY = "Pod anti-affinity"
OTHERS_ANTI_AFFINITY = "Existing pods' anti-affinity"
CLAIM_TAKEN = "ReadWriteOncePod claim in use"
NO_AFFINITY = "Pod affinity"
SPREAD_OVER = "Topology spread over "

Placed = tuple[int, PodRecord]
"""A row, and a pod that the scheduler has placed there though the API does not show it."""


@dataclass(frozen=True, slots=True)
class SpreadCounts:
    """What a topology spread counts, for plans that place more than one pod.

    `totals`: int64[domains], pods that count, with all there that are; `exists`: bool[domains], it has nodes
    that count. A pod may come where the total is at most the least one plus `slack`; plus nothing where there
    are `few` domains.
    """

    totals: Ints
    exists: Flags
    slack: int
    few: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """One constraint over all nodes.

    `use`: what each pod takes; `key` says all that it depends on. `room`: int64[nodes],
    what is left with all pods there that are; below 0 the preemptor cannot come, MOST where the constraint
    does not look at the node. `domains`: int64[nodes], within which pods on other nodes count too, negative
    for a node in none; None where each node is by itself, and `topology_key` empty. `spread`: of a topology
    spread, what it counts.
    """

    key: Hashable
    reason: str
    use: Weights
    room: Ints
    domains: Ints | None = None
    spread: SpreadCounts | None = None
    topology_key: str = ""


@dataclass(frozen=True, slots=True)
class RequiredAffinity:
    """Required affinity: pods that must be there.

    `use`: 1 for a pod that all terms select. `there`: int64[terms, nodes], how many are in
    the node's domain. `anywhere`: sum over the terms of all that there are; where it falls to 0 the preemptor
    is the first of its series, on the nodes where it then `may_come`: bool[nodes]. `domains`:
    int64[terms, nodes], negative for a node in none.
    """

    key: Hashable
    use: Weights
    there: Ints
    anywhere: int
    may_come: Flags
    domains: Ints


@dataclass(frozen=True, slots=True)
class Layers:
    """All constraints of one preemptor, over all nodes; `left_out`: those that only verification looks at."""

    layers: tuple[Layer, ...] = ()
    required_affinity: RequiredAffinity | None = None
    left_out: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """All that the layers depend on besides nodes and pods."""
        affinity = () if self.required_affinity is None else (self.required_affinity.key,)
        return (*(layer.key for layer in self.layers), *affinity)

    @property
    def weights(self) -> tuple[Weights, ...]:
        """What pods count for each of the layers, then for required affinity, if there is any."""
        affinity = () if self.required_affinity is None else (self.required_affinity.use,)
        return (*(layer.use for layer in self.layers), *affinity)

    def differ(self, other: Layers, rows: int) -> Flags:
        """Return bool[rows]: nodes on which there is not the same room as in layers with the same keys."""
        differs = np.zeros(rows, np.bool_)
        for layer, before in zip(self.layers, other.layers, strict=True):
            known = before.room.size
            differs[:known] |= layer.room[:known] != before.room
        mine, others = self.required_affinity, other.required_affinity
        if mine is not None and others is not None:
            known = others.may_come.size
            differs[:known] |= (mine.there[:, :known] != others.there).any(axis=0)
            differs[:known] |= mine.may_come[:known] != others.may_come
            if mine.anywhere != others.anywhere:
                differs[:known] |= mine.may_come[:known]
        return differs

    def for_batch(self, snapshot: Snapshot, batch: NodeBatch) -> BatchLayers:
        """Apply them to the nodes of a batch. O(layers · slots · nodes)."""
        columns = batch.columns
        uses = np.zeros((len(self.layers), columns.depth, batch.rows.size), np.int64)
        room = np.zeros((len(self.layers), batch.rows.size), np.int64)
        leaving = np.zeros_like(room)
        for number, layer in enumerate(self.layers):
            uses[number] = layer.use.of(columns.signature)
            room[number] = layer.room[batch.rows]
            concerned = room[number] < MOST
            for place, pods in batch.awaited.items():
                if concerned[place]:
                    leaving[number, place] = layer.use.total(snapshot, pods)
                    room[number, place] += leaving[number, place]
            for place, pods in batch.nominated.items():
                if concerned[place]:
                    room[number, place] -= layer.use.total(snapshot, pods)
        return BatchLayers(self.layers, uses, room, leaving, self._required_affinity(snapshot, batch))

    def _required_affinity(self, snapshot: Snapshot, batch: NodeBatch) -> AffinityOnNodes | None:
        affinity = self.required_affinity
        if affinity is None:
            return None
        there = affinity.there[:, batch.rows]
        anywhere = np.full(batch.rows.size, affinity.anywhere, np.int64)
        for place, pods in batch.awaited.items():
            gone = affinity.use.total(snapshot, pods)
            there[:, place] -= gone
            anywhere[place] -= gone * there.shape[0]
        return AffinityOnNodes(
            affinity, affinity.use.of(batch.columns.signature), there, anywhere, affinity.may_come[batch.rows]
        )


@dataclass(frozen=True, slots=True)
class AffinityOnNodes:
    """Required affinity on the nodes of a batch: `uses`: int64[slots, M], `there`: int64[terms, M].

    `whole`: over all nodes.
    """

    whole: RequiredAffinity
    uses: Ints
    there: Ints
    anywhere: Ints
    may_come: Flags

    def kept(self, removable: Flags, elsewhere: tuple[Ints, Ints] | None = None) -> Flags:
        """Return on which nodes it still holds with all removable pods gone. `removable`: bool[slots, M].

        `elsewhere`: what goes with them on other nodes, of the node's domain, int64[terms, M], and of all,
        int64[M], summed over the terms.
        """
        gone = np.einsum("sn,sn->n", self.uses, removable.astype(np.int64))
        there, anywhere = self.there - gone, self.anywhere - gone * self.there.shape[0]
        if elsewhere is not None:
            there, anywhere = there - elsewhere[0], anywhere - elsewhere[1]
        holds: Flags = (there > 0).all(axis=0)
        first = anywhere <= 0
        holds |= first & self.may_come
        return holds


@dataclass(frozen=True, slots=True)
class BatchLayers:
    """Layers over the nodes of a batch; E layers, M nodes.

    `uses`: int64[E, slots, M]. `room`: int64[E, M], with the awaited gone and the nominated there.
    `leaving`: int64[E, M], what the awaited use as long as they are there. `more`: the names of layers that
    follow `layers` in the arrays.
    """

    layers: tuple[Layer, ...]
    uses: Ints
    room: Ints
    leaving: Ints
    required_affinity: AffinityOnNodes | None
    more: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What stands in the way where a layer has no room."""
        return (*(layer.reason for layer in self.layers), *self.more)

    def used_by(self, snapshot: Snapshot, pod: PodRecord) -> Ints:
        """Return int64[layers], what a pod uses of the layers that depend on its signature alone."""
        return np.array([layer.use.total(snapshot, (pod,)) for layer in self.layers], np.int64)

    def with_more(self, names: tuple[str, ...], uses: Ints, room: Ints, leaving: Ints) -> BatchLayers:
        """Add layers that look at more of a pod than its signature."""
        if not names:
            return self
        return replace(
            self,
            uses=np.concatenate([self.uses, uses]),
            room=np.concatenate([self.room, room]),
            leaving=np.concatenate([self.leaving, leaving]),
            more=names,
        )


def least_of_others(totals: Ints, exists: Flags) -> Ints:
    """Return int64[domains], the least that any other existing domain holds; MOST where there is none."""
    held = np.where(exists, totals, MOST)
    if held.size == 1:
        return np.full(1, MOST, np.int64)
    first = int(held.argmin())
    least = np.full(held.shape, held[first], np.int64)
    least[first] = np.delete(held, first).min()
    return least
