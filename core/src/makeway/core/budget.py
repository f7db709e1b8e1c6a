"""Which pods a PodDisruptionBudget protects, and how many of them may go.

Source: pkg/scheduler/framework/plugins/defaultpreemption, filterPodsWithPDBViolation: pods are taken
in order of importance, each lowers every budget that matches it, and a pod that takes a budget below
zero violates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from makeway.core.objects import PodDisruptionBudget
from makeway.core.selector import Selector, SelectorError, compile_selector


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget with its selector compiled.

    `selector` is None where it matches nothing: absent, empty, or not valid. `disrupted` are names of
    pods whose eviction the API server has already counted.
    """

    namespace: str
    name: str
    allowed: int
    selector: Selector | None
    disrupted: frozenset[str]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    def covers(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Say whether evicting this pod would use up one of what is allowed."""
        return (
            self.selector is not None
            and namespace == self.namespace
            and bool(labels)
            and name not in self.disrupted
            and self.selector.matches(labels)
        )


def budget_of(pdb: PodDisruptionBudget) -> Budget:
    """Compile a PodDisruptionBudget. Never raises: an invalid selector matches nothing."""
    selector: Selector | None = None
    if pdb.spec.selector is not None:
        try:
            selector = compile_selector(pdb.spec.selector)
        except SelectorError:
            selector = None
    if selector is not None and selector.empty:
        selector = None
    return Budget(
        namespace=pdb.metadata.namespace,
        name=pdb.metadata.name,
        allowed=pdb.status.disruptions_allowed,
        selector=selector,
        disrupted=frozenset(pdb.status.disrupted_pods or ()),
    )
