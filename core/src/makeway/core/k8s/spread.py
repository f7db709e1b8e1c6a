"""Hard topology spread constraints, compiled. Source: kube-scheduler's PodTopologySpread plugin.

Constraints that a profile adds by default need the pod's Services and ReplicaSets; they are left to the
scheduler's own filter.
"""

from __future__ import annotations

from dataclasses import dataclass

from makeway.core.k8s.objects import Pod, TopologySpreadConstraint
from makeway.core.k8s.selector import Requirement, Selector, compile_selector

_HARD = "DoNotSchedule"


@dataclass(frozen=True, slots=True)
class Spread:
    """One constraint with its defaults filled in. `selector` None counts nothing."""

    topology_key: str
    max_skew: int
    min_domains: int
    selector: Selector | None
    honour_node_affinity: bool
    honour_taints: bool
    counts_itself: bool


def hard_spreads(pod: Pod) -> tuple[Spread, ...]:
    """Return the constraints that forbid a node. Raises SelectorError."""
    return tuple(
        _spread(pod, constraint)
        for constraint in pod.spec.topology_spread_constraints or ()
        if constraint.when_unsatisfiable == _HARD
    )


def _spread(pod: Pod, constraint: TopologySpreadConstraint) -> Spread:
    labels = pod.metadata.labels or {}
    selector = None if constraint.label_selector is None else compile_selector(constraint.label_selector)
    keys = [key for key in constraint.match_label_keys or () if key in labels]
    if selector is not None and keys:
        merged = tuple(Requirement(key, "In", frozenset({labels[key]})) for key in sorted(keys))
        selector = Selector(merged + selector.requirements)
    return Spread(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        selector=selector,
        honour_node_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honour_taints=(constraint.node_taints_policy or "Ignore") == "Honor",
        counts_itself=selector is not None and selector.matches(labels),
    )
