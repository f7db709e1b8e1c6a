"""What a preemptor asks of a node besides resources, taken from its spec and its profile's filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from makeway.core.affinity import Term, affinity_terms, anti_affinity_terms
from makeway.core.nodes import RequiredNodes, required_nodes
from makeway.core.objects import Pod, Toleration
from makeway.core.ports import HostPort, host_ports
from makeway.core.spread import Spread, hard_spreads
from makeway.planner.kinds import claims_of

PORTS = "NodePorts"
AFFINITY = "InterPodAffinity"
SPREAD = "PodTopologySpread"
VOLUMES = "VolumeRestrictions"


@dataclass(frozen=True, slots=True)
class Constraints:
    """Hashable, so that preemptors that are alike share what was worked out.

    `social`: the profile's filters look at pod affinity, also that of pods that are there. `nodes`,
    `tolerations`: the pod's own requirements on nodes, which decide where spread counts.
    """

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[HostPort, ...] = ()
    social: bool = False
    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    nodes: RequiredNodes = field(default_factory=RequiredNodes)
    tolerations: tuple[Toleration, ...] = ()


def constraints_of(pod: Pod, filters: Sequence[str]) -> Constraints:
    """Take the constraints that the profile's filters look at; no filters named means all of them.

    Raises SelectorError where a selector is none that Kubernetes accepts.
    """

    def asks(name: str) -> bool:
        return not filters or name in filters

    social = asks(AFFINITY)
    return Constraints(
        namespace=pod.metadata.namespace,
        labels=tuple(sorted((pod.metadata.labels or {}).items())),
        ports=host_ports(pod) if asks(PORTS) else (),
        social=social,
        affinity=affinity_terms(pod) if social else (),
        anti_affinity=anti_affinity_terms(pod) if social else (),
        spreads=hard_spreads(pod) if asks(SPREAD) else (),
        claims=claims_of(pod) if asks(VOLUMES) else (),
        nodes=required_nodes(pod),
        tolerations=pod.spec.tolerations or (),
    )
