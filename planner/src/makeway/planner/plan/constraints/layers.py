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

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from makeway.core.k8s import ports
from makeway.core.k8s.affinity import Term, matches_all
from makeway.core.k8s.selector import Selector
from makeway.core.k8s.spread import Spread
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.constraints.tally import BoundedTallies, Tally, Weigh, Weights
from makeway.planner.snapshot import bounds
from makeway.planner.snapshot.columns import MOST, Flags, Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

PORT_TAKEN = "Host port taken"
ANTI_AFFINITY = "Pod anti-affinity"
OTHERS_ANTI_AFFINITY = "Existing pods' anti-affinity"
CLAIM_TAKEN = "ReadWriteOncePod claim in use"
NO_AFFINITY = "Pod affinity"
SPREAD_OVER = "Topology spread over "

MOST_KEYS = 10
"""So many topology keys have layers, of each sort of constraint, so that a question has 32 at the most.
Beyond them verification decides: any user may write a pod with a thousand, and each takes 8 bytes a slot."""

_PYTHON = 100
"""Steps of a tally for a signature that is weighed by itself, without numpy."""

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
        signatures = batch.columns.signature
        uses = np.zeros((len(self.layers), *signatures.shape), np.int64)
        room = np.zeros((len(self.layers), batch.rows.size), np.int64)
        leaving = np.zeros_like(room)
        for number, layer in enumerate(self.layers):
            uses[number] = layer.use.of(signatures)
            room[number] = layer.room[batch.rows]
            concerned = room[number] < MOST
            for place, pods in batch.awaited.items():
                if concerned[place]:
                    leaving[number, place] = layer.use.total(snapshot, pods)
                    room[number, place] += leaving[number, place]
            for place, pods in batch.nominated.items():
                if concerned[place]:
                    room[number, place] -= layer.use.total(snapshot, pods)
        return BatchLayers(
            self.layers, uses, room, leaving, self._required_affinity(snapshot, batch, signatures)
        )

    def _required_affinity(
        self, snapshot: Snapshot, batch: NodeBatch, signatures: Ints
    ) -> AffinityOnNodes | None:
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
            affinity, affinity.use.of(signatures), there, anywhere, affinity.may_come[batch.rows]
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


def layers_of(
    snapshot: Snapshot, constraints: Constraints, placed: Iterable[Placed], tallies: BoundedTallies
) -> Layers:
    """Work out the layers of a preemptor. O(nodes) a layer, besides what the tallies catch up with.

    Raises:
        AllowanceUsedUp: the tallies' allowance did not suffice.
    """
    return layers_of_each(snapshot, (constraints,), placed, tallies)[0]


def layers_of_each(
    snapshot: Snapshot, several: Sequence[Constraints], placed: Iterable[Placed], tallies: BoundedTallies
) -> list[Layers]:
    """Work out the layers of several preemptors at once, as `layers_of` does for one.

    One after the other, those of the first would be of signatures that the keys of the next number anew.
    """
    pods = tuple(placed)
    snapshot.use_label_keys(_keys(selector for one in several for selector in one.selectors))
    return [_layers(_LayerBuilder(snapshot, tallies, pods, one.left_out), one) for one in several]


def _keys(selectors: Iterable[Selector | None]) -> frozenset[str]:
    """Return the label keys that some selectors look at."""
    given = (selector for selector in selectors if selector is not None)
    return frozenset(one.key for selector in given for one in selector.requirements)


def _layers(builder: _LayerBuilder, constraints: Constraints) -> Layers:
    layers: list[Layer] = []
    if constraints.ports:
        layers.append(_ports(builder, constraints))
    if constraints.anti_affinity:
        layers += _anti_affinity(builder, constraints)
    if constraints.has_affinity:
        others = _others_anti_affinity(builder, constraints)
        asks = constraints.affinity or constraints.anti_affinity
        if asks or any((layer.room < 0).any() for layer in others):
            layers += others  # else upstream's plugin skips the pod, also where it meets a nominated pod
    if constraints.spreads:
        layers += _spreads(builder, constraints)
    if constraints.claims:
        layers += _claims(builder, constraints)
    required = _required_affinity(builder, constraints) if constraints.affinity else None
    return Layers(tuple(layers), required, tuple(dict.fromkeys(builder.left_out)))


class _LayerBuilder:
    """What all layers are worked out from, and what was left out."""

    def __init__(
        self,
        snapshot: Snapshot,
        tallies: BoundedTallies,
        placed: tuple[Placed, ...],
        left_out: Iterable[str],
    ) -> None:
        self.snapshot = snapshot
        self.tallies = tallies
        self.placed = placed
        self.left_out = list(left_out)

    def tally(self, key: Hashable, weigh: Weigh, counted: Weigh | None = None, cost: int = 1) -> Tally:
        return self.tallies.get(self.snapshot, key, weigh, counted, cost)

    def held(self, tally: Tally) -> Ints:
        """Return int64[nodes], what is counted on each node, assumed pods included."""
        nodes = self.snapshot.columns.nodes
        held = tally.held[:nodes]
        if not self.placed:
            return held
        held = held.copy()
        for row, pod in self.placed:
            held[row] += tally.counted.total(self.snapshot, (pod,))
        return held

    def domains(self, key: str) -> Ints:
        return self.snapshot.topology.domains(key, self.snapshot.columns.nodes)

    def totals(self, held: Ints, domains: Ints, counted: Flags, key: str) -> Ints:
        """Return int64[domains], what the counted nodes of each domain hold."""
        count = max(1, self.snapshot.topology.count(key))
        return np.bincount(domains[counted], weights=held[counted], minlength=count).astype(np.int64)

    def resolved(self, terms: tuple[Term, ...]) -> tuple[Term, ...]:
        """Return terms that name the namespaces which they select now. A selector is matched once for all."""
        snapshot = self.snapshot
        if all(term.namespace_selector is None for term in terms):
            return terms
        stamp = snapshot.namespaces_changed
        return tuple(
            self.tallies.remembered(("resolved", term), stamp, partial(term.resolved, _Namespaces(snapshot)))
            for term in terms
        )

    def labels_ready(self, selectors: Iterable[Selector | None]) -> bool:
        """Report whether signatures tell apart what these selectors look at."""
        return self.snapshot.tells_apart(_keys(selectors))


class _Namespaces(Mapping[str, Mapping[str, str]]):
    """The labels of all namespaces, by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._namespaces = snapshot.namespaces

    def __getitem__(self, name: str) -> Mapping[str, str]:
        return self._namespaces[name].metadata.labels or {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._namespaces)

    def __len__(self) -> int:
        return len(self._namespaces)


def _ports(builder: _LayerBuilder, constraints: Constraints) -> Layer:
    wanted, signatures = constraints.ports, builder.snapshot.signatures

    def conflict(taken: tuple[ports.HostPort, ...]) -> int:
        return int(ports.conflict(wanted, taken))

    def weigh(numbers: Ints) -> Ints:
        return signatures.of_ports(conflict, numbers)

    tally = builder.tally(("ports", wanted), weigh, cost=_PYTHON)
    return Layer(tally.key, PORT_TAKEN, tally.use, -builder.held(tally))


def _anti_affinity(builder: _LayerBuilder, constraints: Constraints) -> list[Layer]:
    """The preemptor's own terms, one layer a topology key."""
    if not builder.labels_ready(term.selector for term in constraints.anti_affinity):
        builder.left_out.append(bounds.POD_ANTI_AFFINITY)
        return []
    signatures = builder.snapshot.signatures
    terms = builder.resolved(constraints.anti_affinity)
    keys = sorted({term.topology_key for term in terms})
    if len(keys) > MOST_KEYS:
        builder.left_out.append(bounds.POD_ANTI_AFFINITY)
    layers = []
    for key in keys[:MOST_KEYS]:
        mine = tuple(term for term in terms if term.topology_key == key)

        def weigh(numbers: Ints, mine: tuple[Term, ...] = mine) -> Ints:
            weights = np.zeros(signatures.size, np.int64)
            for term in mine:
                weights[signatures.selected_by(term, numbers)] += 1
            return weights[numbers]

        tally = builder.tally(("anti-affinity", mine), weigh, cost=len(mine))
        layers.append(_none_in_domain(builder, ANTI_AFFINITY, key, tally))
    return layers


def _others_anti_affinity(builder: _LayerBuilder, constraints: Constraints) -> list[Layer]:
    """The terms of pods that are there and match the preemptor, one layer a topology key.

    What they come to depends on nothing else, so preemptors that the same terms match share a tally.
    """
    namespace, signatures = constraints.namespace, builder.snapshot.signatures
    if signatures.left_out:
        builder.left_out.append(bounds.EXISTING_ANTI_AFFINITY)
    known = builder.snapshot.namespaces.get(namespace)
    namespace_labels = (known.metadata.labels or {}) if known is not None else {}
    anti_affinity = signatures.anti_affinity
    told = (namespace, tuple(sorted(namespace_labels.items())), constraints.labels)

    def matching() -> list[Term] | None:
        return anti_affinity.matching(namespace, namespace_labels, dict(constraints.labels))

    terms = builder.tallies.remembered(("matching", told), anti_affinity.changes, matching)
    if terms is None:
        builder.left_out.append(bounds.EXISTING_ANTI_AFFINITY)
        return []
    keys = sorted({term.topology_key for term in terms})
    if len(keys) > MOST_KEYS:
        builder.left_out.append(bounds.EXISTING_ANTI_AFFINITY)
    layers = []
    for key in keys[:MOST_KEYS]:
        mine = tuple(term for term in terms if term.topology_key == key)

        def weigh(numbers: Ints, mine: tuple[Term, ...] = mine) -> Ints:
            weights = np.zeros(anti_affinity.size, np.int64)
            for term in mine:
                weights[[*anti_affinity.groups(term)]] += 1
            return signatures.with_anti_affinity(weights, numbers)

        which = frozenset(anti_affinity.number(term) for term in mine)
        layers.append(
            _none_in_domain(builder, OTHERS_ANTI_AFFINITY, key, builder.tally(("others", which), weigh))
        )
    return layers


def _none_in_domain(builder: _LayerBuilder, reason: str, key: str, tally: Tally) -> Layer:
    domains = builder.domains(key)
    labelled = domains >= 0
    totals = builder.totals(builder.held(tally), domains, labelled, key)
    room = np.where(labelled, -totals[domains], MOST)
    return Layer(tally.key, f"{reason} by {key}", tally.use, room, domains, topology_key=key)


def _spreads(builder: _LayerBuilder, constraints: Constraints) -> list[Layer]:
    """One layer a constraint, or none at all: which nodes count is known only with all of them."""
    spreads = constraints.spreads
    if len(spreads) > MOST_KEYS or not builder.labels_ready(spread.selector for spread in spreads):
        builder.left_out.append(bounds.TOPOLOGY_SPREAD)
        return []
    return [_spread(builder, constraints, spread) for spread in spreads]


def _spread(builder: _LayerBuilder, constraints: Constraints, spread: Spread) -> Layer:
    """At most `min + maxSkew - self` in a domain, where `min` is the least that another domain holds.

    A domain that holds no more than the others never violates it, so its own count need not lower `min`.
    Terminating pods do not count. A node that lacks the label of any constraint can never do.
    """
    selector, namespace, signatures = spread.selector, constraints.namespace, builder.snapshot.signatures
    selected = Term("", frozenset({namespace}), None, selector)

    def weigh(numbers: Ints) -> Ints:
        weights = np.zeros(signatures.size, np.int64)
        weights[signatures.selected_by(selected, numbers)] = 1
        return np.where(signatures.terminating[numbers], 0, weights[numbers])

    def counted(numbers: Ints) -> Ints:
        if selector is None or selector.empty:
            return np.zeros(numbers.size, np.int64)
        return weigh(numbers)

    tally = builder.tally(("spread", namespace, selector), weigh, counted)
    nodes = builder.snapshot.columns.nodes
    domains = builder.domains(spread.topology_key)
    labelled = domains >= 0
    for other in constraints.spreads:
        labelled = labelled & (builder.domains(other.topology_key) >= 0)
    eligible = labelled
    if spread.honour_node_affinity or spread.honour_taints:
        required = constraints.nodes if spread.honour_node_affinity else type(constraints.nodes)()
        tolerations = constraints.tolerations if spread.honour_taints else None
        eligible = eligible & builder.snapshot.topology.eligible(required, tolerations, nodes)
    totals = builder.totals(builder.held(tally), domains, eligible, spread.topology_key)
    exists = np.bincount(domains[eligible], minlength=totals.size) > 0
    slack = spread.max_skew - int(spread.counts_itself)
    most = least_of_others(totals, exists) + slack
    few = int(exists.sum()) < spread.min_domains
    if few:
        most = np.full_like(totals, slack)
    room = np.where(eligible, np.minimum(most - totals, MOST)[domains], MOST)
    room[~labelled] = -MOST
    reason = f"{SPREAD_OVER}{spread.topology_key}"
    counts = SpreadCounts(totals, exists, slack, few)
    key = spread.topology_key
    return Layer((spread, tally.key), reason, tally.use, room, np.where(eligible, domains, -1), counts, key)


def least_of_others(totals: Ints, exists: Flags) -> Ints:
    """Return int64[domains], the least that any other existing domain holds; MOST where there is none."""
    held = np.where(exists, totals, MOST)
    if held.size == 1:
        return np.full(1, MOST, np.int64)
    first = int(held.argmin())
    least = np.full(held.shape, held[first], np.int64)
    least[first] = np.delete(held, first).min()
    return least


def _claims(builder: _LayerBuilder, constraints: Constraints) -> list[Layer]:
    """ReadWriteOncePod claims that another pod uses, wherever it runs."""
    namespace, signatures = constraints.namespace, builder.snapshot.signatures
    exclusive = frozenset(
        claim for claim in constraints.claims if (namespace, claim) in builder.snapshot.exclusive_claims
    )
    if not exclusive:
        return []

    def used(claims: tuple[str, ...]) -> int:
        return len(exclusive.intersection(claims))

    def weigh(numbers: Ints) -> Ints:
        weights = np.zeros(signatures.size, np.int64)
        inside = signatures.in_namespace(namespace, numbers)
        weights[inside] = signatures.of_claims(used, inside)
        return weights[numbers]

    tally = builder.tally(("claims", namespace, exclusive), weigh, cost=_PYTHON)
    held = builder.held(tally)
    snapshot = builder.snapshot
    users = int(held.sum()) + tally.counted.total(snapshot, snapshot.without_node.claiming.values())
    if not users:
        return []  # upstream's plugin skips the pod then, also where a nominated pod will use the claim
    room = np.full(held.shape, -users, np.int64)
    return [Layer(tally.key, CLAIM_TAKEN, tally.use, room, np.zeros(held.shape, np.int64))]


def _required_affinity(builder: _LayerBuilder, constraints: Constraints) -> RequiredAffinity | None:
    if not builder.labels_ready(term.selector for term in constraints.affinity):
        builder.left_out.append(bounds.POD_AFFINITY)
        return None
    signatures = builder.snapshot.signatures
    terms = builder.resolved(constraints.affinity)

    def weigh(numbers: Ints) -> Ints:
        weights = np.zeros(signatures.size, np.int64)
        selected = numbers
        for term in terms:
            selected = signatures.selected_by(term, selected)
        weights[selected] = 1
        return weights[numbers]

    tally = builder.tally(("affinity", terms), weigh, cost=len(terms))
    held = builder.held(tally)
    first = matches_all(terms, constraints.namespace, dict(constraints.labels))
    may_come = np.full(held.size, first)
    there, anywhere, of_terms = [], 0, []
    for term in terms[:MOST_KEYS]:
        domains = builder.domains(term.topology_key)
        of_terms.append(domains)
        labelled = domains >= 0
        totals = builder.totals(held, domains, labelled, term.topology_key)
        there.append(np.where(labelled, totals[domains], 0))
        may_come &= labelled
        anywhere += int(totals.sum())
    return RequiredAffinity(
        tally.key, tally.use, np.array(there, np.int64), anywhere, may_come, np.array(of_terms, np.int64)
    )
