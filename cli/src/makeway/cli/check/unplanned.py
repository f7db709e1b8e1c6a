"""What becomes of pods that there is no plan for, in mode enforce. Pure."""

from __future__ import annotations

from typing import Final

from makeway.bus.control import Unplanned
from makeway.cli.check.result import CheckResult

_NAME: Final = "scheduler without a plan"
_ACTS: Final = "kube-scheduler's own preemption acts, where the profile has it"


def unplanned_result(told: Unplanned) -> CheckResult:
    """Say what restricts preemption, and for whom it acts without a plan all the same."""
    if told.protecting:
        names = ", ".join((*told.protecting, *told.restricting))
        return CheckResult(_NAME, "ok", f"nothing is evicted, since pods are protected: {names}")
    if not told.restricting:
        return CheckResult(_NAME, "ok", f"nothing restricts preemption: {_ACTS}")
    acting = [name for name in ("default", "system") if getattr(told, name) == "fallback"]
    names = ", ".join(told.restricting)
    if len(acting) == 1:
        rest = f"pods wait, but {_ACTS} for those of whenUnplanned.{acting[0]}"
    else:
        rest = f"{_ACTS}, by whenUnplanned" if acting else "pods wait"
    return CheckResult(_NAME, "ok", f"preemption is restricted by {names}: {rest}")
