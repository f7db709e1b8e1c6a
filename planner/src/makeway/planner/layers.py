"""Constraints as layers: how much each pod uses, and how much room each node has, as for a resource.

A host port, or a required anti-affinity, has room 0 and each pod in conflict uses 1. A hard topology
spread has room for `min + maxSkew - self` matching pods in a domain. Where the domain is wider than the
node, what the domain's other nodes hold is taken off the room. So the same pass that frees and gives back
resources does it for these. Required affinity is the opposite, it needs pods to stay, and is looked at
once, with all removable pods gone, as kube-scheduler's dry run does.

A layer may be looser than the scheduler's filter, never stricter. Sources: kube-scheduler's NodePorts,
InterPodAffinity, PodTopologySpread and VolumeRestrictions plugins.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from makeway.core import ports
from makeway.core.affinity import Term, means_all
from makeway.core.spread import Spread
from makeway.planner.columns import MOST, Flags, Ints
from makeway.planner.constraints import Constraints
from makeway.planner.kinds import Kind
from makeway.planner.overlay import Block
from makeway.planner.records import PodRecord
from makeway.planner.snapshot import Snapshot
from makeway.planner.tally import Tally, Weigh

PORT_TAKEN = "Host port taken"
ANTI_AFFINITY = "Pod anti-affinity"
OTHERS_ANTI_AFFINITY = "Existing pods' anti-affinity"
CLAIM_TAKEN = "ReadWriteOncePod claim in use"
NO_AFFINITY = "Pod affinity"
SPREAD_OVER = "Topology spread over "

MOST_KEYS = 10
"""So many topology keys have layers, of each sort of constraint, so that a question has 32 at the most.
Beyond them verification decides: anybody may write a pod with a thousand, and each takes 8 bytes a slot."""

Placed = tuple[int, PodRecord]
"""A row, and a pod that the scheduler has placed there though the API does not show it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One constraint over all nodes.

    `use`: int64[kinds], what each pod takes; `key` says all that it depends on. `room`: int64[nodes], what
    is left with all pods there that are; below 0 the preemptor cannot come, MOST where the constraint does
    not look at the node.
    """

    key: Hashable
    reason: str
    use: Ints
    room: Ints


@dataclass(frozen=True, slots=True)
class Company:
    """Required affinity: pods that must be there.

    `use`: int64[kinds], 1 for a pod that all terms mean. `there`: int64[terms, nodes], how many are in the
    node's domain. `anywhere`: sum over the terms of all that there are; where it falls to 0 the preemptor
    is the first of its series, on the nodes where it then `may_come`: bool[nodes].
    """

    key: Hashable
    use: Ints
    there: Ints
    anywhere: int
    may_come: Flags


@dataclass(frozen=True, slots=True)
class Layers:
    """All constraints of one preemptor, over all nodes."""

    layers: tuple[Layer, ...] = ()
    company: Company | None = None

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """All that the layers depend on besides nodes and pods."""
        company = () if self.company is None else (self.company.key,)
        return (*(layer.key for layer in self.layers), *company)

    def differ(self, other: Layers, rows: int) -> Flags:
        """Give bool[rows]: nodes on which there is not the same room as in layers with the same keys."""
        differs = np.zeros(rows, np.bool_)
        for mine, others in zip(self.layers, other.layers, strict=True):
            known = others.room.size
            differs[:known] |= mine.room[:known] != others.room
        if self.company is not None and other.company is not None:
            known = other.company.may_come.size
            differs[:known] |= (self.company.there[:, :known] != other.company.there).any(axis=0)
            differs[:known] |= self.company.may_come[:known] != other.company.may_come
            if self.company.anywhere != other.company.anywhere:
                differs[:known] |= self.company.may_come[:known]
        return differs

    def on(self, snapshot: Snapshot, block: Block, slots: int) -> Requirements:
        """Lay them over the nodes of a block. O(layers · slots · nodes)."""
        kinds = block.columns.kind[:slots, block.nodes]
        uses = np.zeros((len(self.layers), slots, block.nodes.size), np.int64)
        room = np.zeros((len(self.layers), block.nodes.size), np.int64)
        leaving = np.zeros_like(room)
        for number, layer in enumerate(self.layers):
            uses[number] = layer.use[kinds]
            room[number] = layer.room[block.rows]
            concerned = room[number] < MOST
            for place, pods in block.awaited.items():
                if concerned[place]:
                    leaving[number, place] = _sum(snapshot, layer.use, pods)
                    room[number, place] += leaving[number, place]
            for place, pods in block.nominated.items():
                if concerned[place]:
                    room[number, place] -= _sum(snapshot, layer.use, pods)
        return Requirements(self.layers, uses, room, leaving, self._company(snapshot, block, kinds))

    def _company(self, snapshot: Snapshot, block: Block, kinds: Ints) -> Present | None:
        if self.company is None:
            return None
        there = self.company.there[:, block.rows]
        anywhere = np.full(block.nodes.size, self.company.anywhere, np.int64)
        for place, pods in block.awaited.items():
            gone = _sum(snapshot, self.company.use, pods)
            there[:, place] -= gone
            anywhere[place] -= gone * there.shape[0]
        return Present(self.company.use[kinds], there, anywhere, self.company.may_come[block.rows])


@dataclass(frozen=True, slots=True)
class Present:
    """Required affinity on the nodes of a block: `uses`: int64[slots, M], `there`: int64[terms, M]."""

    uses: Ints
    there: Ints
    anywhere: Ints
    may_come: Flags

    def kept(self, removable: Flags) -> Flags:
        """Say on which nodes it still holds with all removable pods gone. `removable`: bool[slots, M]."""
        gone = np.einsum("sn,sn->n", self.uses, removable.astype(np.int64))
        holds: Flags = (self.there - gone > 0).all(axis=0)
        first = self.anywhere - gone * self.there.shape[0] <= 0
        holds |= first & self.may_come
        return holds


@dataclass(frozen=True, slots=True)
class Requirements:
    """Layers over the nodes of a block; E layers, M nodes.

    `uses`: int64[E, slots, M]. `room`: int64[E, M], with the awaited gone and the nominated there.
    `leaving`: int64[E, M], what the awaited use as long as they are there. `more`: the names of layers that
    follow `layers` in the arrays.
    """

    layers: tuple[Layer, ...]
    uses: Ints
    room: Ints
    leaving: Ints
    company: Present | None
    more: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What stands in the way where a layer has no room."""
        return (*(layer.reason for layer in self.layers), *self.more)

    def used_by(self, kind: int) -> Ints:
        """Give int64[layers], what a pod of a kind uses; of further layers its kind says nothing."""
        return np.array([layer.use[kind] for layer in self.layers], np.int64)

    def with_more(self, names: tuple[str, ...], uses: Ints, room: Ints, leaving: Ints) -> Requirements:
        """Add layers that look at more of a pod than its kind."""
        if not names:
            return self
        return replace(
            self,
            uses=np.concatenate([self.uses, uses]),
            room=np.concatenate([self.room, room]),
            leaving=np.concatenate([self.leaving, leaving]),
            more=names,
        )


def layers_of(snapshot: Snapshot, constraints: Constraints, placed: Iterable[Placed]) -> Layers:
    """Work out the layers of a preemptor. O(nodes) a layer, besides what the tallies catch up with."""
    desk = _Desk(snapshot, tuple(placed))
    layers: list[Layer] = []
    if constraints.ports:
        layers.append(_ports(desk, constraints))
    if constraints.anti_affinity:
        layers += _anti_affinity(desk, constraints)
    if constraints.social:
        others = _others_anti_affinity(desk, constraints)
        asks = constraints.affinity or constraints.anti_affinity
        if asks or any((layer.room < 0).any() for layer in others):
            layers += others  # else upstream's plugin skips the pod, also where it meets a nominated pod
    if len(constraints.spreads) <= MOST_KEYS:  # which nodes count is known only with all of them
        layers += [_spread(desk, constraints, spread) for spread in constraints.spreads]
    if constraints.claims:
        layers += _claims(desk, constraints)
    company = _company(desk, constraints) if constraints.affinity else None
    return Layers(tuple(layers), company)


@dataclass(frozen=True, slots=True)
class _Desk:
    """What all layers are worked out from."""

    snapshot: Snapshot
    placed: tuple[Placed, ...]

    def tally(self, key: Hashable, weigh: Weigh, counted: Weigh | None = None) -> Tally:
        return self.snapshot.tallies.get(self.snapshot, key, weigh, counted)

    def held(self, tally: Tally) -> Ints:
        """Give int64[nodes], what is counted on each node, assumed pods included."""
        nodes = self.snapshot.columns.nodes
        held = tally.held[:nodes]
        if not self.placed:
            return held
        held = held.copy()
        for row, pod in self.placed:
            held[row] += tally.counts(self.snapshot.kind(pod.uid))
        return held

    def domains(self, key: str) -> Ints:
        return self.snapshot.topology.domains(key, self.snapshot.columns.nodes)

    def totals(self, held: Ints, domains: Ints, counted: Flags, key: str) -> Ints:
        """Give int64[domains], what the counted nodes of each domain hold."""
        count = max(1, self.snapshot.topology.count(key))
        return np.bincount(domains[counted], weights=held[counted], minlength=count).astype(np.int64)

    def namespaces(self) -> dict[str, dict[str, str]]:
        return {name: one.metadata.labels or {} for name, one in self.snapshot.namespaces.items()}


def _ports(desk: _Desk, constraints: Constraints) -> Layer:
    wanted = constraints.ports

    def weigh(kind: Kind) -> int:
        return int(ports.conflict(wanted, kind.ports))

    tally = desk.tally(("ports", wanted), weigh)
    return Layer(tally.key, PORT_TAKEN, tally.use, -desk.held(tally))


def _anti_affinity(desk: _Desk, constraints: Constraints) -> list[Layer]:
    """The preemptor's own terms, one layer a topology key."""
    namespaces = desk.namespaces()
    terms = [term.resolved(namespaces) for term in constraints.anti_affinity]
    layers = []
    for key in sorted({term.topology_key for term in terms})[:MOST_KEYS]:
        mine = tuple(term for term in terms if term.topology_key == key)

        def weigh(kind: Kind, mine: tuple[Term, ...] = mine) -> int:
            labels = dict(kind.labels)
            return sum(term.means(kind.namespace, None, labels) for term in mine)

        tally = desk.tally(("anti-affinity", mine), weigh)
        layers.append(_none_in_domain(desk, ANTI_AFFINITY, key, tally))
    return layers


def _others_anti_affinity(desk: _Desk, constraints: Constraints) -> list[Layer]:
    """The terms of pods that are there and mean the preemptor, one layer a topology key."""
    namespace = constraints.namespace
    known = desk.snapshot.namespaces.get(namespace)
    namespace_labels = (known.metadata.labels or {}) if known is not None else {}
    labels = dict(constraints.labels)
    told = (namespace, tuple(sorted(namespace_labels.items())), constraints.labels)
    kinds = desk.snapshot.kinds

    def mentioned() -> tuple[str, ...]:
        terms = (term for kind in kinds.forbidding() for term in kind.anti_affinity)
        return tuple(
            sorted({term.topology_key for term in terms if term.means(namespace, namespace_labels, labels)})
        )

    layers = []
    for key in desk.snapshot.tallies.remembered(("keys", told), kinds.forbidden, mentioned)[:MOST_KEYS]:

        def weigh(kind: Kind, key: str = key) -> int:
            return sum(
                term.topology_key == key and term.means(namespace, namespace_labels, labels)
                for term in kind.anti_affinity
            )

        tally = desk.tally(("others-anti-affinity", key, told), weigh)
        layers.append(_none_in_domain(desk, OTHERS_ANTI_AFFINITY, key, tally))
    return layers


def _none_in_domain(desk: _Desk, reason: str, key: str, tally: Tally) -> Layer:
    domains = desk.domains(key)
    labelled = domains >= 0
    totals = desk.totals(desk.held(tally), domains, labelled, key)
    return Layer(tally.key, f"{reason} by {key}", tally.use, np.where(labelled, -totals[domains], MOST))


def _spread(desk: _Desk, constraints: Constraints, spread: Spread) -> Layer:
    """At most `min + maxSkew - self` in a domain, where `min` is the least that another domain holds.

    A domain that holds no more than the others never violates it, so its own count need not lower `min`.
    A node that lacks the label of any constraint can never do.
    """
    selector, namespace = spread.selector, constraints.namespace

    def weigh(kind: Kind) -> int:
        return int(
            selector is not None and kind.namespace == namespace and selector.matches(dict(kind.labels))
        )

    def counted(kind: Kind) -> int:
        return 0 if kind.terminating or selector is None or selector.empty else weigh(kind)

    tally = desk.tally(("spread", namespace, selector), weigh, counted)
    nodes = desk.snapshot.columns.nodes
    domains = desk.domains(spread.topology_key)
    labelled = domains >= 0
    for other in constraints.spreads:
        labelled = labelled & (desk.domains(other.topology_key) >= 0)
    eligible = labelled
    if spread.honour_node_affinity or spread.honour_taints:
        required = constraints.nodes if spread.honour_node_affinity else type(constraints.nodes)()
        tolerations = constraints.tolerations if spread.honour_taints else None
        eligible = eligible & desk.snapshot.topology.eligible(required, tolerations, nodes)
    totals = desk.totals(desk.held(tally), domains, eligible, spread.topology_key)
    exists = np.bincount(domains[eligible], minlength=totals.size) > 0
    most = _least_of_others(totals, exists) + spread.max_skew - int(spread.counts_itself)
    if int(exists.sum()) < spread.min_domains:
        most = np.full_like(totals, spread.max_skew - int(spread.counts_itself))
    room = np.where(eligible, np.minimum(most - totals, MOST)[domains], MOST)
    room[~labelled] = -MOST
    return Layer((spread, tally.key), f"{SPREAD_OVER}{spread.topology_key}", tally.use, room)


def _least_of_others(totals: Ints, exists: Flags) -> Ints:
    """Give int64[domains], the least that any other existing domain holds; MOST where there is none."""
    held = np.where(exists, totals, MOST)
    if held.size == 1:
        return np.full(1, MOST, np.int64)
    first = int(held.argmin())
    least = np.full(held.shape, held[first], np.int64)
    least[first] = np.delete(held, first).min()
    return least


def _claims(desk: _Desk, constraints: Constraints) -> list[Layer]:
    """ReadWriteOncePod claims that another pod uses, wherever it runs."""
    namespace = constraints.namespace
    exclusive = frozenset(
        claim for claim in constraints.claims if (namespace, claim) in desk.snapshot.exclusive_claims
    )
    if not exclusive:
        return []

    def weigh(kind: Kind) -> int:
        return len(exclusive.intersection(kind.claims)) if kind.namespace == namespace else 0

    tally = desk.tally(("claims", namespace, exclusive), weigh)
    held = desk.held(tally)
    users = int(held.sum())
    if not users:
        return []  # upstream's plugin skips the pod then, also where a nominated pod will use the claim
    return [Layer(tally.key, CLAIM_TAKEN, tally.use, np.full(held.shape, -users, np.int64))]


def _company(desk: _Desk, constraints: Constraints) -> Company:
    namespaces = desk.namespaces()
    terms = tuple(term.resolved(namespaces) for term in constraints.affinity)

    def weigh(kind: Kind) -> int:
        return int(means_all(terms, kind.namespace, dict(kind.labels)))

    tally = desk.tally(("affinity", terms), weigh)
    held = desk.held(tally)
    first = means_all(terms, constraints.namespace, dict(constraints.labels))
    may_come = np.full(held.size, first)
    there, anywhere = [], 0
    for term in terms[:MOST_KEYS]:
        domains = desk.domains(term.topology_key)
        labelled = domains >= 0
        totals = desk.totals(held, domains, labelled, term.topology_key)
        there.append(np.where(labelled, totals[domains], 0))
        may_come &= labelled
        anywhere += int(totals.sum())
    return Company(tally.key, tally.use, np.array(there, np.int64), anywhere, may_come)


def _sum(snapshot: Snapshot, use: Ints, pods: Iterable[PodRecord]) -> int:
    return sum(int(use[snapshot.kind(pod.uid)]) for pod in pods)
