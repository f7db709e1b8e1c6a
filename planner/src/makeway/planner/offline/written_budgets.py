"""PodDisruptionBudgets as they are written, without the status that their controller gives them. Pure.

Source: pkg/controller/disruption of kube-controller-manager 1.37. In place of the scale of the pods'
workloads the pods that are there are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from makeway.core.k8s.budget import READY, budget_of
from makeway.core.k8s.objects import PodDisruptionBudget, PodDisruptionBudgetStatus, View
from makeway.planner.snapshot.records import PodRecord

_MOST_NAMED: Final = 5

IntOrPercent = int | str


class _Spec(View, frozen=True):
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None


class _Budget(View, frozen=True):
    spec: _Spec = _Spec()
    status: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_Budget).decode


class WrittenBudgets:
    """Those of a cluster that have no status, until all pods have been read."""

    def __init__(self) -> None:
        self._found: list[tuple[PodDisruptionBudget, _Spec]] = []

    def keep(self, budget: PodDisruptionBudget, raw: bytes | msgspec.Raw) -> bool:
        """Keep a budget that has no status; report whether it was kept. `raw`: the same in JSON."""
        written = _decode(raw)
        if written.status is not msgspec.UNSET and bytes(written.status) not in (b"null", b"{}"):
            return False
        self._found.append((budget, written.spec))
        return True

    def counted(self, pods: Iterable[PodRecord]) -> tuple[list[PodDisruptionBudget], str]:
        """Return them with a status as of some pods, and a sentence; forget them.

        O(budgets · pods of a namespace).
        """
        by_namespace: defaultdict[str, list[PodRecord]] = defaultdict(list)
        if self._found:
            for pod in pods:
                by_namespace[pod.namespace].append(pod)
        budgets: list[PodDisruptionBudget] = []
        told: list[str] = []
        for budget, spec in self._found:
            selected = budget_of(budget)
            there = by_namespace[selected.namespace]
            covered = [one for one in there if selected.covers_eviction(one.namespace, one.name, one.labels)]
            healthy = sum(one.health == READY and not one.terminating for one in covered)
            desired = _desired(spec, len(covered))
            allowed = max(0, healthy - desired)
            status = PodDisruptionBudgetStatus(
                disruptions_allowed=allowed,
                current_healthy=healthy,
                desired_healthy=desired,
                observed_generation=budget.metadata.generation,
            )
            budgets.append(msgspec.structs.replace(budget, status=status))
            name = f"{budget.metadata.namespace}/{budget.metadata.name}"
            told.append(f"{name} allows {allowed} of {len(covered)} pods to go")
        self._found = []
        if not told:
            return [], ""
        more = f" and {len(told) - _MOST_NAMED} others" if len(told) > _MOST_NAMED else ""
        return budgets, (
            f"PodDisruptionBudgets without a status are counted here: {', '.join(told[:_MOST_NAMED])}{more}"
        )


def _desired(spec: _Spec, expected: int) -> int:
    """Return how many healthy pods a budget wants of so many."""
    if spec.max_unavailable is not None:
        return max(0, expected - _scaled(spec.max_unavailable, expected))
    return _scaled(spec.min_available if spec.min_available is not None else 0, expected)


def _scaled(value: IntOrPercent, expected: int) -> int:
    """Read a number, or a percentage of the pods, rounded up; what is neither counts as all of them."""
    if isinstance(value, int):
        return value
    percent = value.removesuffix("%")
    if not (value.endswith("%") and percent.isascii() and percent.isdigit() and len(percent) <= 3):
        return expected
    return -(-expected * int(percent) // 100)
