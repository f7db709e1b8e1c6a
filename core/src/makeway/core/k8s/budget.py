"""Which pods a PodDisruptionBudget protects, and how many of them may go.

As kube-scheduler counts (pkg/scheduler/framework/plugins/defaultpreemption, filterPodsWithPDBViolation): pods
are taken in order of importance, each lowers every budget that matches it, and a pod that takes a budget
below zero violates it. Where budgets are hard, as the eviction API counts
(pkg/registry/core/pod/storage/eviction.go): an empty selector covers every pod, pods without labels may be
covered too. It looks at whether the budget's status is of its present spec, and whether the pod is healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from makeway.core.k8s.objects import Pod, PodDisruptionBudget
from makeway.core.k8s.selector import Selector, SelectorError, compile_selector


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget with its selector compiled.

    `selector` is None where it matches nothing: absent, or not valid. `disrupted` are names of
    pods whose eviction the API server has already counted. `settled`: its status is of its present spec; else
    the eviction API allows nothing. `frees_unready`: pods that are not Ready are evicted whatever it allows.
    """

    namespace: str
    name: str
    allowed: int
    selector: Selector | None
    disrupted: frozenset[str]
    settled: bool = True
    frees_unready: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    def covers(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether kube-scheduler counts this pod: never with an empty selector or without labels."""
        return (
            bool(labels)
            and self.selector is not None
            and not self.selector.empty
            and self.covers_eviction(namespace, name, labels)
        )

    def covers_eviction(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the eviction API would use up one of what is allowed for this pod."""
        return (
            self.selector is not None
            and namespace == self.namespace
            and name not in self.disrupted
            and self.selector.matches(labels)
        )

    @property
    def covers_unlabelled(self) -> bool:
        """Whether the eviction API counts pods without labels: only then do the two views differ."""
        return self.selector is not None and self.selector.matches({})


def budget_of(pdb: PodDisruptionBudget) -> Budget:
    """Compile a PodDisruptionBudget. Never raises: an invalid selector matches nothing."""
    selector: Selector | None = None
    if pdb.spec.selector is not None:
        try:
            selector = compile_selector(pdb.spec.selector)
        except SelectorError:
            selector = None
    return Budget(
        namespace=pdb.metadata.namespace,
        name=pdb.metadata.name,
        allowed=pdb.status.disruptions_allowed,
        selector=selector,
        disrupted=frozenset(pdb.status.disrupted_pods or ()),
        settled=(pdb.status.observed_generation or 0) >= (pdb.metadata.generation or 0),
        frees_unready=_frees_unready(pdb),
    )


def _frees_unready(pdb: PodDisruptionBudget) -> bool:
    """Report whether pods that are not Ready may go: always, or while enough others are (IfHealthyBudget)."""
    if pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return pdb.status.current_healthy >= pdb.status.desired_healthy > 0


Health = Literal[0, 1, 2]
READY: Final = 0
UNREADY: Final = 1
PENDING: Final = 2
"""A pod in phase Pending: the eviction API asks no budget about it."""


def health_of(pod: Pod) -> Health:
    """Return what the eviction API makes of a pod's status; O(conditions)."""
    if pod.status.phase == "Pending":
        return PENDING
    ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
    return READY if ready else UNREADY
