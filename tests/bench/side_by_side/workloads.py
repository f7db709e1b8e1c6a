"""The workloads: kube-scheduler's own, read from its sources, and some that it does not have."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from makeway.dev.paths import CHECKOUT

UPSTREAM_MODULE = CHECKOUT / "tests" / "upstream"
_TEMPLATES = Path(__file__).parent / "templates"
_GATES = {"SchedulerAsyncAPICalls": True}
"""As in the workloads of kube-scheduler that are named AsyncAPICallsEnabled: its defaults to be."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. `of`: the test case of scheduler_perf that its operations are from.

    `preempts`: the measured pods are the preemptors themselves. `minutes`: after which it is given up.
    `gates`: of the API server and the scheduler.
    """

    name: str
    of: str
    params: Mapping[str, int | str]
    preempts: bool = False
    minutes: int = 15
    gates: Mapping[str, bool] = field(default_factory=lambda: _GATES)

    @property
    def earlier_pods(self) -> int:
        """How many pods there are before the measured ones."""
        alone, blockers, groups, of_group = (
            int(self.params.get(name, 0))
            for name in ("initPods", "blockers", "lowPriorityGroups", "podsPerGroup")
        )
        return alone + blockers + groups * of_group


def _sizes(nodes: int, pods: int, measured: int) -> dict[str, int | str]:
    return {"initNodes": nodes, "initPods": pods, "measurePods": measured}


def _groups(mode: str) -> Workload:
    """Return kube-scheduler's workload of 1,000 groups of ten low pods on 1,000 nodes, and 100 preemptors."""
    params: dict[str, int | str] = {
        "initNodes": 1000,
        "lowPriorityGroups": 1000,
        "podsPerGroup": 10,
        "measurePods": 100,
        "disruptionMode": mode,
        "lowPriorityCpuRequest": "300m",
    }
    name = f"{_DISRUPTION_MODE}/{mode or 'none'}"
    gates = {"GenericWorkload": True, "SchedulerAsyncAPICalls": False}
    return Workload(name, _DISRUPTION_MODE, params, preempts=True, gates=gates)


_DISRUPTION_MODE = "PreemptionPodGroupDisruptionMode"

HOPELESS = "HopelessAfterCounting"
"""Every node has pods of lower priority, and none has room for the preemptor even without them."""

NO_PREEMPTORS = "NoPreemptors"
"""PreemptionAsync without those who preempt: how fast pods are bound where preemption costs nothing."""

ALL = (
    Workload("PreemptionBasic/1000", "PreemptionBasic", _sizes(1000, 4000, 1000), preempts=True, minutes=10),
    Workload("PreemptionBasic/5000", "PreemptionBasic", _sizes(5000, 20000, 5000), preempts=True, minutes=40),
    Workload("PreemptionAsync/500", "PreemptionAsync", _sizes(500, 2000, 500)),
    Workload("PreemptionAsync/5000", "PreemptionAsync", _sizes(5000, 20000, 5000), minutes=25),
    Workload(f"{NO_PREEMPTORS}/500", NO_PREEMPTORS, _sizes(500, 2000, 500)),
    Workload(f"{NO_PREEMPTORS}/5000", NO_PREEMPTORS, _sizes(5000, 20000, 5000), minutes=25),
    Workload("Unschedulable/5000", "Unschedulable", _sizes(5000, 100, 10000), minutes=25),
    Workload(f"{HOPELESS}/500", HOPELESS, {**_sizes(500, 1000, 1000), "blockers": 500}),
    Workload(f"{HOPELESS}/5000", HOPELESS, {**_sizes(5000, 10000, 2500), "blockers": 5000}, minutes=25),
    *(_groups(mode) for mode in ("", "single", "all")),
)
BY_NAME = {workload.name: workload for workload in ALL}


def scheduler_perf() -> Path:
    """The directory of scheduler_perf's workloads in the module cache; its template paths begin there."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
    found = subprocess.run(command, cwd=UPSTREAM_MODULE, check=True, capture_output=True, text=True)
    return Path(found.stdout.strip()) / "test" / "integration" / "scheduler_perf" / "default_preemption"


def configuration(workload: Workload, directory: Path, scheduler: Path) -> list[dict[str, Any]]:
    """Give scheduler_perf's configuration for one workload. `scheduler`: kube-scheduler's configuration."""
    cases = yaml.safe_load((directory / "performance-config.yaml").read_text())
    operations = {case["name"]: case["workloadTemplate"] for case in cases}
    preemption = operations["PreemptionAsync"]
    operations[HOPELESS] = _hopeless(preemption)
    operations[NO_PREEMPTORS] = [one for one in preemption if one["opcode"] != "churn"]
    name, _, size = workload.name.partition("/")
    return [
        {
            "name": name,
            "schedulerConfigPath": str(scheduler),
            "workloadTemplate": operations[workload.of],
            "workloads": [
                {
                    "name": size,
                    "labels": ["performance"],
                    "featureGates": dict(workload.gates),
                    "params": dict(workload.params),
                }
            ],
        }
    ]


def _hopeless(preemption: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operations of PreemptionAsync, with blockers on the nodes first and other low pods."""
    nodes, low, *rest = preemption
    blockers = {
        "opcode": "createPods",
        "countParam": "$blockers",
        "podTemplatePath": str(_TEMPLATES / "blocker.yaml"),
    }
    return [nodes, blockers, {**low, "podTemplatePath": str(_TEMPLATES / "low.yaml")}, *rest]
