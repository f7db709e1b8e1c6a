"""What the constraints of a preemptor come to on all nodes: layers, counted from what the snapshot holds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from makeway.core.k8s import ports
from makeway.core.k8s.affinity import Term, matches_all
from makeway.core.k8s.selector import Selector
from makeway.core.k8s.spread import Spread
from makeway.planner.plan.constraints.layers import (
    ANTI_AFFINITY,
    CLAIM_TAKEN,
    OTHERS_ANTI_AFFINITY,
    PORT_TAKEN,
    SPREAD_OVER,
    Layer,
    Layers,
    Placed,
    RequiredAffinity,
    SpreadCounts,
    least_of_others,
)
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.constraints.tally import Tallies, Tally, Weigh
from makeway.planner.snapshot import bounds
from makeway.planner.snapshot.columns import MOST, Flags, Ints
from makeway.planner.snapshot.state import Snapshot

MOST_KEYS = 10
"""So many topology keys have layers, of each sort of constraint, so that a question has 32 at the most.
Beyond them verification decides: any user may write a pod with a thousand, and each takes 8 bytes a slot."""

MOST_LAYERS = 36
"""Constraints of one question that have layers: of a pod all, of a group those of the kinds of members that
come first. More than a pod has at the most, and fewer than `Tallies` remembers in any case."""

MOST_SELECTORS = 2 * bounds.MOST_NAMESPACE_SELECTORS
"""Selectors of namespaces of one question, as many as a pod has at the most: affinity and anti-affinity."""

_PYTHON = 100
"""Steps of a tally for a signature that is weighed by itself, without numpy, or for a namespace."""


def layers_of(
    snapshot: Snapshot, constraints: Constraints, placed: Iterable[Placed], tallies: Tallies
) -> Layers:
    """Work out the layers of a preemptor. O(nodes) a layer, besides what the tallies catch up with.

    Raises:
        AllowanceUsedUp: the tallies' allowance did not suffice.
    """
    return layers_of_each(snapshot, (constraints,), placed, tallies)[0]


def layers_of_each(
    snapshot: Snapshot, several: Sequence[Constraints], placed: Iterable[Placed], tallies: Tallies
) -> list[Layers]:
    """Work out the layers of several preemptors at once, as `layers_of` does for one.

    One after the other, those of the first would be of signatures that the keys of the next number anew.
    """
    pods = tuple(placed)
    snapshot.use_label_keys(_keys(selector for one in several for selector in one.selectors))
    found: list[Layers] = []
    selectors = set[Selector]()
    for one in several:
        most = MOST_LAYERS - sum(len(layers.weights) for layers in found)
        builder = _LayerBuilder(snapshot, tallies, pods, [*one.left_out], most, selectors)
        found.append(_layers(builder, one))
    return found


def _keys(selectors: Iterable[Selector | None]) -> frozenset[str]:
    """Return the label keys that some selectors look at."""
    given = (selector for selector in selectors if selector is not None)
    return frozenset(one.key for selector in given for one in selector.requirements)


def _layers(builder: _LayerBuilder, constraints: Constraints) -> Layers:
    layers: list[Layer] = []
    if constraints.ports and builder.within(1, bounds.HOST_PORTS):
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


@dataclass(eq=False)
class _LayerBuilder:
    """What all layers are worked out from, what was left out, and how many more layers there may be.

    `selectors`: of namespaces, which the question has so far.
    """

    snapshot: Snapshot
    tallies: Tallies
    placed: tuple[Placed, ...]
    left_out: list[str]
    most: int
    selectors: set[Selector]

    def within(self, layers: int, bound: str, most: int = MOST_LAYERS) -> bool:
        """Report whether there may be so many layers more; else note what is left out."""
        if layers > min(self.most, most):
            self.left_out.append(bound)
            return False
        return True

    def tally(self, key: Hashable, weigh: Weigh, counted: Weigh | None = None, cost: int = 1) -> Tally:
        """Return the tally of one more layer."""
        self.most -= 1
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

    def resolved(self, terms: tuple[Term, ...], bound: str) -> tuple[Term, ...]:
        """Return terms that name the namespaces which they select now; none beyond the bound of a question.

        A selector is matched with all namespaces once for all terms, and until these change.
        """
        own = {one for term in terms if (one := term.namespace_selector) is not None and not one.empty}
        if len(self.selectors | own) > MOST_SELECTORS:
            self.left_out.append(bound)
            return ()
        self.selectors |= own
        return tuple(term.resolved(self._selected) for term in terms)

    def _selected(self, selector: Selector) -> frozenset[str]:
        stamp, namespaces = self.snapshot.namespaces_changed, self.snapshot.namespaces

        def matched() -> frozenset[str]:
            self.tallies.allowance.whole(_PYTHON * len(namespaces))
            found = (name for name, one in namespaces.items() if selector.matches(one.metadata.labels or {}))
            return frozenset(found)

        found: frozenset[str] = self.tallies.remembered(("namespaces", selector), stamp, matched)
        return found

    def labels_ready(self, selectors: Iterable[Selector | None]) -> bool:
        """Report whether signatures tell apart what these selectors look at."""
        return self.snapshot.tells_apart(_keys(selectors))


def _ports(builder: _LayerBuilder, constraints: Constraints) -> Layer:
    wanted, signatures = constraints.ports, builder.snapshot.signatures

    def conflict(taken: tuple[ports.HostPort, ...]) -> int:
        return int(ports.conflict(wanted, taken))

    def weigh(numbers: Ints) -> Ints:
        return signatures.of_ports(conflict, numbers)

    tally = builder.tally(("ports", wanted), weigh, cost=_PYTHON)
    return Layer(tally.key, PORT_TAKEN, tally.use, -builder.held(tally))


def _by_key(
    builder: _LayerBuilder, terms: Sequence[Term], bound: str
) -> Iterator[tuple[str, tuple[Term, ...]]]:
    """Yield the terms of each topology key, in the keys' order; what is beyond the bounds is left out."""
    keys = sorted({term.topology_key for term in terms})
    builder.within(len(keys), bound, MOST_KEYS)
    for key in keys[: min(MOST_KEYS, builder.most)]:
        yield key, tuple(term for term in terms if term.topology_key == key)


def _anti_affinity(builder: _LayerBuilder, constraints: Constraints) -> list[Layer]:
    """The preemptor's own terms, one layer a topology key."""
    if not builder.labels_ready(term.selector for term in constraints.anti_affinity):
        builder.left_out.append(bounds.POD_ANTI_AFFINITY)
        return []
    signatures = builder.snapshot.signatures
    terms = builder.resolved(constraints.anti_affinity, bounds.POD_ANTI_AFFINITY)
    layers = []
    for key, mine in _by_key(builder, terms, bounds.POD_ANTI_AFFINITY):

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
    layers = []
    for key, mine in _by_key(builder, terms, bounds.EXISTING_ANTI_AFFINITY):

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
    if not builder.within(len(spreads), bounds.TOPOLOGY_SPREAD, MOST_KEYS):
        return []
    if not builder.labels_ready(spread.selector for spread in spreads):
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


def _claims(builder: _LayerBuilder, constraints: Constraints) -> list[Layer]:
    """ReadWriteOncePod claims that another pod uses, wherever it runs."""
    namespace, signatures = constraints.namespace, builder.snapshot.signatures
    exclusive = frozenset(
        claim for claim in constraints.claims if (namespace, claim) in builder.snapshot.exclusive_claims
    )
    if not exclusive or not builder.within(1, bounds.CLAIMS):
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
    if not builder.within(1, bounds.POD_AFFINITY):
        return None
    if not builder.labels_ready(term.selector for term in constraints.affinity):
        builder.left_out.append(bounds.POD_AFFINITY)
        return None
    signatures = builder.snapshot.signatures
    terms = builder.resolved(constraints.affinity, bounds.POD_AFFINITY)
    if not terms:
        return None

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
