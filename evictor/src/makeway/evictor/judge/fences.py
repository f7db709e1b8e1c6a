"""Which fences orders may name: the Leases of the schedulers and of the planner, by configuration. Pure.

An order names the object that tells whether its writer still leads. An order that may name any object is
fenced by none: whoever can write one names a Lease that never changes, or a counter that nobody raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from makeway.bus.messages import EvictionOrder, Fence

LEASE: Final = "lease"
COUNTER: Final = "kv"
SCHEDULER_FENCES: Final = ("lease/kube-system/makeway-scheduler",)
PLANNER_FENCES: Final = ("lease/makeway-system/makeway-planner",)
NOMINATOR_FENCES: Final = ("lease/makeway-system/makeway-nominator",)
"""Where nothing is configured: those of the chart."""

_FORM: Final = "lease/NAMESPACE/NAME, or kv/NAME for a counter on NATS where there is no leader election"


@dataclass(frozen=True, slots=True)
class Fences:
    """The fences of this installation, written as `_written` does.

    `of_schedulers`: of orders for a pod. `of_planners`: of orders for a queue's quota. `of_nominators`: of
    orders for a pod that a nominator writes.
    """

    of_schedulers: frozenset[str]
    of_planners: frozenset[str]
    of_nominators: frozenset[str]

    @classmethod
    def of(
        cls,
        schedulers: Iterable[str] = SCHEDULER_FENCES,
        planners: Iterable[str] = PLANNER_FENCES,
        nominators: Iterable[str] = NOMINATOR_FENCES,
    ) -> Fences:
        """Read fences as options write them. Raises ValueError."""
        return cls(
            _checked("--scheduler-fence", schedulers),
            _checked("--planner-fence", planners),
            _checked("--nominator-fence", nominators),
        )

    def refusal_of(self, order: EvictionOrder) -> str:
        """Return why an order's fence is none of its writer's; empty where it is one."""
        written = _written(order.fence)
        known = self.of_planners if order.kind == "quota" else self.of_schedulers
        if order.is_external:
            known = self.of_nominators
        if written in known:
            return ""
        return f"the fence {written} is none of {', '.join(sorted(known))}"


def _written(fence: Fence) -> str:
    return f"{LEASE}/{fence.namespace}/{fence.name}" if fence.kind == LEASE else f"{COUNTER}/{fence.name}"


def _checked(option: str, fences: Iterable[str]) -> frozenset[str]:
    found = frozenset(fences)
    for one in sorted(found):
        kind, *parts = one.split("/")
        if not all(parts) or {LEASE: 2, COUNTER: 1}.get(kind) != len(parts):
            raise ValueError(f"{option} {one!r} is no fence; write {_FORM}")
    if not found:
        raise ValueError(f"{option} is missing; write {_FORM}")
    return found
