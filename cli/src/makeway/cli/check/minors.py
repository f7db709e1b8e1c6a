"""Whether API server and schedulers are of minor versions of Kubernetes that may run together. Pure.

Source: Kubernetes' version skew policy: a scheduler is never newer than an API server, and at most one minor
version older.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from makeway.bus.component_status import ComponentStatus
from makeway.cli.check.result import CheckResult

MINORS: Final = (35, 36, 37)
"""Minor versions of kube-scheduler that makeway-scheduler is built from; a test compares them with go.mod."""

_MINOR: Final = re.compile(r"1\.([0-9]{1,3})")
_ALPHA_GROUPS: Final = "36"
"""The minor whose kube-scheduler waits for v1alpha2 of pod groups, which the next does not serve."""

_BUILT: Final = f"1.{MINORS[0]} to 1.{MINORS[-1]}"
_NEXT: Final = (
    "it does not have what kube-scheduler 1.38 changes for preemption: PreemptionManager of pod groups, "
    "budgets with an empty selector, extenders asked without victims, PreQueueingHint; and with the gate "
    "CompositePodGroup on it schedules nothing where v1alpha3 of pod groups is not served"
)
"""As of v1.38.0-beta.0: kube-scheduler/framework/interface.go, pkg/scheduler/framework/preemption and
pkg/features; see docs/versions.md."""


def judge_api_server(version: str, minor: int, *, plugin: bool = True) -> CheckResult:
    """Judge whether there is a makeway-scheduler for an API server. `plugin`: whether one is needed."""
    name = "Kubernetes"
    if not plugin:
        if minor in MINORS:
            return CheckResult(name, "ok", f"{version}; makeway was tested with it")
        return CheckResult(
            name, "warning", f"{version}; makeway was tested with {_BUILT}", "see docs/versions.md"
        )
    if minor in MINORS:
        return CheckResult(name, "ok", f"{version}; makeway-scheduler is built for it")
    detail = f"makeway-scheduler is kube-scheduler {_BUILT}"
    if minor == MINORS[-1] + 1:
        remedy = "a scheduler one minor behind is allowed; try it in mode observe first (docs/versions.md)"
        return CheckResult(name, "warning", f"{version} was not tested; {detail}; {_NEXT}", remedy)
    return CheckResult(name, "wrong", f"{version} is not supported; {detail}", "see docs/versions.md")


def judge_schedulers(statuses: Sequence[ComponentStatus], minor: int) -> Iterator[CheckResult]:
    """Judge which kube-scheduler each of them says that it is. `minor`: of the API server."""
    schedulers = [one for one in statuses if one.component in ("scheduler", "shadow")]
    results = [_scheduler(one, minor) for one in schedulers]
    yield from (result for result in results if result.state != "ok")
    if results and all(result.state == "ok" for result in results):
        yield CheckResult("kube-scheduler", "ok", f"every scheduler is 1.{minor}, as the API server")


def _scheduler(one: ComponentStatus, minor: int) -> CheckResult:
    name = f"kube-scheduler of {one.identity}"
    found = _MINOR.fullmatch(one.kubernetes)
    if found is None:
        detail = "it does not say which kube-scheduler it is"
        return CheckResult(name, "unknown", detail, "upgrade makeway-scheduler; see docs/versions.md")
    behind = minor - int(found[1])
    if behind == 0:
        return CheckResult(name, "ok", one.kubernetes)
    remedy = (
        f"run makeway-scheduler of 1.{minor}: scheduler.kubernetesVersion of the chart, or its image's tag"
        if minor in MINORS
        else "see docs/versions.md"
    )
    if behind == 1:
        allowed = "Kubernetes allows it, and it was not tested"
        if found[1] == _ALPHA_GROUPS:
            allowed += "; with the gates of pod groups on it schedules nothing"
        return CheckResult(
            name, "warning", f"{one.kubernetes}, the API server is 1.{minor}: {allowed}", remedy
        )
    apart = "newer than" if behind < 0 else f"{behind} minor versions older than"
    return CheckResult(name, "wrong", f"{one.kubernetes}, {apart} the API server, 1.{minor}", remedy)
