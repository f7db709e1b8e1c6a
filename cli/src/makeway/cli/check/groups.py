"""Which part of an installation a result of `makeway check` is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from makeway.cli.check.result import CheckResult

MAKEWAY: Final = "makeway"
"""The group of what concerns all parts, and of what has no other."""

_KUBERNETES: Final = "Kubernetes"
_CONFIGURATION: Final = "configuration"
_NATS: Final = "NATS"

_BEGINNINGS: Final = (
    ("Kubernetes", _KUBERNETES),
    ("your rights", _KUBERNETES),
    ("admission policies", _KUBERNETES),
    ("pod groups", _KUBERNETES),
    ("priority classes", _CONFIGURATION),
    ("clocks", _KUBERNETES),
    ("policy", _CONFIGURATION),
    ("queues", _CONFIGURATION),
    ("brake", _CONFIGURATION),
    ("configuration", _CONFIGURATION),
    ("NATS", _NATS),
    ("stream", _NATS),
    ("quarantine", _NATS),
    ("evictors' consumer", _NATS),
    ("rights of planner", "planner"),
    ("rights of evictor", "evictor"),
    ("rights of scheduler", "scheduler"),
    ("preemption loops", "planner"),
    ("planner", "planner"),
    ("evictor", "evictor"),
    ("caps of ", "evictor"),
    ("breaker", "evictor"),
    ("rights of nominator", "nominator"),
    ("nominator", "nominator"),
    ("shadow", "shadow"),
    ("scheduler", "scheduler"),
    ("kube-scheduler", "scheduler"),
)
"""How the names of results begin, and the group; the first that fits counts."""

_ORDER: Final = (
    MAKEWAY,
    _KUBERNETES,
    _CONFIGURATION,
    _NATS,
    "planner",
    "evictor",
    "scheduler",
    "nominator",
    "shadow",
)


def group_of(name: str) -> str:
    """Return the group of a result, by its name."""
    return next((group for beginning, group in _BEGINNINGS if name.startswith(beginning)), MAKEWAY)


def grouped(results: Iterable[CheckResult]) -> list[tuple[str, list[CheckResult]]]:
    """Return results by what they are about, each group in their order; groups without any are left out."""
    found: dict[str, list[CheckResult]] = {group: [] for group in _ORDER}
    for result in results:
        found[group_of(result.name)].append(result)
    return [(group, of_it) for group, of_it in found.items() if of_it]
