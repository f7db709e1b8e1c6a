"""Which part of an installation a result of `makeway check` is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from makeway.cli.check.result import CheckResult

MAKEWAY: Final = "makeway"
"""The group of what concerns all parts, and of what has no other."""

_BEGINNINGS: Final[Mapping[str, tuple[str, ...]]] = {
    MAKEWAY: (),
    "Kubernetes": ("Kubernetes", "admission policies", "pod groups", "clocks"),
    "configuration": ("priority classes", "policy", "queues", "brake", "configuration"),
    "NATS": ("NATS", "stream", "quarantine", "evictors' consumer"),
    "planner": ("rights of planner", "preemption loops", "planner"),
    "evictor": ("rights of evictor", "evictor", "caps of ", "breaker"),
    "scheduler": ("rights of scheduler", "scheduler", "kube-scheduler"),
    "nominator": ("rights of nominator", "nominator"),
    "shadow": ("shadow",),
}
"""The groups as they are shown, and how the names of their results begin; the first that fits counts."""


def group_of(name: str) -> str:
    """Return the group of a result, by its name."""
    return next((group for group, beginnings in _BEGINNINGS.items() if name.startswith(beginnings)), MAKEWAY)


def grouped(results: Iterable[CheckResult]) -> list[tuple[str, list[CheckResult]]]:
    """Return results by what they are about, each group in their order; groups without any are left out."""
    found: dict[str, list[CheckResult]] = {group: [] for group in _BEGINNINGS}
    for result in results:
        found[group_of(result.name)].append(result)
    return [(group, of_it) for group, of_it in found.items() if of_it]
