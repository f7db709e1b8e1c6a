"""What a preemptor asks of a node besides resources, taken from its spec and its profile's filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from makeway.core.k8s.affinity import Term, affinity_terms, anti_affinity_terms
from makeway.core.k8s.nodes import RequiredNodes, required_nodes, selected_nodes
from makeway.core.k8s.objects import NodeAffinity, Pod, Toleration
from makeway.core.k8s.ports import HostPort, host_ports
from makeway.core.k8s.selector import Selector
from makeway.core.k8s.spread import Spread, hard_spreads
from makeway.planner.snapshot import bounds
from makeway.planner.snapshot.signatures.table import claims_of

PORTS = "NodePorts"
AFFINITY = "InterPodAffinity"
SPREAD = "PodTopologySpread"
VOLUMES = "VolumeRestrictions"
CORDONS = "NodeUnschedulable"
TAINTS = "TaintToleration"
NODES = "NodeAffinity"
BINDING = "VolumeBinding"
ZONING = "VolumeZone"

_T = TypeVar("_T")

_ANY_TAINT = Toleration(operator="Exists")


class _NodeAffinityArgs(msgspec.Struct):
    """NodeAffinityArgs, with every name in lower case."""

    addedaffinity: NodeAffinity | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """Hashable, so that preemptors that are alike share what was worked out.

    `has_affinity`: the profile's filters look at pod affinity, also that of pods that are there. `nodes`,
    `tolerations`: the pod's own requirements on nodes, which decide where spread counts. Which nodes it can
    use at all: `required`, its own selectors and the profile's, all of which a node has to match;
    `checks_taints`, `checks_cordons`, whether the profile's filters look at those; `binds`, `zoned`: the
    claims whose volumes' affinity, and whose zones, they look at. `left_out`: what is more than is looked at,
    and asks for nothing here.
    """

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[HostPort, ...] = ()
    has_affinity: bool = False
    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    nodes: RequiredNodes = field(default_factory=RequiredNodes)
    tolerations: tuple[Toleration, ...] = ()
    required: tuple[RequiredNodes, ...] = ()
    checks_taints: bool = False
    checks_cordons: bool = False
    binds: tuple[str, ...] = ()
    zoned: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def selectors(self) -> tuple[Selector | None, ...]:
        """All selectors of other pods' labels."""
        terms = (*self.affinity, *self.anti_affinity)
        return (*(one.selector for one in terms), *(one.selector for one in self.spreads))


def constraints_of(
    pod: Pod, filters: Sequence[str], arguments: Mapping[str, msgspec.Raw] | None = None
) -> Constraints:
    """Take the constraints that the profile's filters look at; no filters named means all of them.

    Raises SelectorError where a selector is none that Kubernetes accepts, msgspec.DecodeError where an
    argument of a filter is none.
    """

    def asks(name: str) -> bool:
        return not filters or name in filters

    spec, affinity = pod.spec, pod.spec.affinity
    left_out: list[str] = []

    def within(what: str, large: bool) -> bool:
        if large:
            left_out.append(what)
        return not large

    has_affinity = asks(AFFINITY)
    required, forbidden = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else (None, None)
    terms: tuple[Term, ...] = ()
    anti_terms: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()
    if has_affinity and within(bounds.POD_AFFINITY, bounds.is_large_affinity(required)):
        terms = affinity_terms(pod)
        terms = terms if within(bounds.POD_AFFINITY, bounds.is_large_matching(terms)) else ()
    if has_affinity and within(bounds.POD_ANTI_AFFINITY, bounds.is_large_affinity(forbidden)):
        anti_terms = anti_affinity_terms(pod)
        large = bounds.is_large_matching(anti_terms)
        anti_terms = anti_terms if within(bounds.POD_ANTI_AFFINITY, large) else ()
    nodes = within(bounds.NODE_AFFINITY, bounds.is_large_node_selection(pod))
    tolerations = within(bounds.TOLERATIONS, len(spec.tolerations or ()) > bounds.MOST_TERMS)
    if asks(SPREAD) and spec.topology_spread_constraints:
        # Which domains count depends on the nodes that the pod may use.
        large = not (nodes and tolerations) or bounds.is_large_spread(spec.topology_spread_constraints)
        spreads = hard_spreads(pod) if within(bounds.TOPOLOGY_SPREAD, large) else ()
    ports = host_ports(pod) if asks(PORTS) else ()
    claims = claims_of(pod) if asks(VOLUMES) or asks(BINDING) or asks(ZONING) else ()
    claims = claims if within(bounds.CLAIMS, len(claims) > bounds.MOST_TERMS) else ()
    own = required_nodes(pod) if nodes else RequiredNodes()
    both = (own, _added((arguments or {}).get(NODES))) if asks(NODES) else ()
    return Constraints(
        namespace=pod.metadata.namespace,
        labels=tuple(sorted((pod.metadata.labels or {}).items())),
        ports=ports if within(bounds.HOST_PORTS, len(ports) > bounds.MOST_TERMS) else (),
        has_affinity=has_affinity,
        affinity=terms,
        anti_affinity=anti_terms,
        spreads=spreads,
        claims=claims if asks(VOLUMES) else (),
        nodes=own,
        tolerations=(spec.tolerations or ()) if tolerations else (_ANY_TAINT,),
        required=tuple(one for one in both if not one.anywhere),
        checks_taints=asks(TAINTS),
        checks_cordons=asks(CORDONS),
        binds=claims if asks(BINDING) else (),
        zoned=claims if asks(ZONING) else (),
        left_out=tuple(left_out),
    )


def _added(arguments: msgspec.Raw | None) -> RequiredNodes:
    """Read which nodes a profile requires for each of its pods."""
    added = read_arguments(arguments, _NodeAffinityArgs, _NodeAffinityArgs()).addedaffinity
    return selected_nodes(added.required if added is not None else None)


def read_arguments(arguments: msgspec.Raw | None, into: type[_T], default: _T) -> _T:
    """Read a filter plugin's arguments, whose names may come capitalised or not.

    The scheduler's internal types have no JSON names. Raises msgspec.DecodeError, ValidationError.
    """
    if arguments is None:
        return default
    decoded = msgspec.json.decode(arguments)
    if not isinstance(decoded, dict):
        return default
    return msgspec.convert({str(name).lower(): value for name, value in decoded.items()}, into)
