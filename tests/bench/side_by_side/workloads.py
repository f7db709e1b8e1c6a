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
    """One workload. `of`: the test case of scheduler_perf that its operations are from, in its `directory`.

    `measured`: how many pods are measured. `priority`: that of the preemptors, and else of
    blockers alone. `minutes`: after which it is given up. `gates`: of the API server and the scheduler.
    """

    name: str
    of: str
    params: Mapping[str, int | str]
    measured: int
    directory: str = "default_preemption"
    priority: int = 9999999
    minutes: int = 15
    gates: Mapping[str, bool] = field(default_factory=lambda: _GATES)

    @property
    def earlier_pods(self) -> int:
        """How many pods there are before the measured ones, for which no group preempts."""
        groups, of_group, *alone = (
            int(self.params.get(name, 0))
            for name in (
                "lowPriorityGroups",
                "podsPerGroup",
                "initPods",
                "blockers",
                "largePods",
                "smallPods",
            )
        )
        return groups * of_group + sum(alone)


def _plain(
    of: str,
    nodes: int,
    pods: int,
    measured: int,
    *,
    minutes: int = 15,
    priority: int = 9999999,
    **params: int,
) -> Workload:
    """Return a workload of single pods, named by its number of nodes."""
    sizes = {"initNodes": nodes, "initPods": pods, "measurePods": measured, **params}
    return Workload(f"{of}/{nodes}", of, sizes, measured, priority=priority, minutes=minutes)


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
    return Workload(name, _DISRUPTION_MODE, params, measured=100, gates=_GROUP_GATES)


def _gangs(of: str, gangs: int, pods: int, priority: int, **params: int | str) -> Workload:
    """Return a workload of kube-scheduler's: so many gangs of so many pods each preempt on 100 nodes."""
    name, sizes = f"{of}/{gangs}x{pods}", {"initNodes": 100, "podsPerGroup": pods, **params}
    return Workload(name, of, sizes, gangs * pods, _GANGS, priority, gates=_GROUP_GATES)


def _large() -> Workload:
    """Return a gang of 1,000 on as many nodes, each of which has three low pods: all go."""
    params: dict[str, int | str] = {
        "initNodes": 1000,
        "initPods": 3000,
        "preemptorPodGroups": 1,
        "podsPerGroup": 1000,
        "gangCpuRequest": "3970m",
    }
    of = "GangPreemptionBasic"
    return Workload(f"{of}/1x1000", of, params, 1000, _GANGS, _GANG_PRIORITY, gates=_GROUP_GATES)


def _mixed(nodes: int, minutes: int = 15) -> Workload:
    """Return a gang of 40; each needs a node, of which half have one large pod, the others 30 small ones."""
    params: dict[str, int | str] = {
        "initNodes": nodes,
        "largePods": nodes // 2,
        "smallPods": nodes // 2 * _SMALL_PODS,
        "preemptorPodGroups": 1,
        "podsPerGroup": 40,
        "gangCpuRequest": "3970m",
    }
    return Workload(f"{MIXED}/{nodes}", MIXED, params, 40, _GANGS, _GANG_PRIORITY, minutes, _GROUP_GATES)


_GROUP_GATES = {"GenericWorkload": True, "SchedulerAsyncAPICalls": False}

_GANGS = "workload_preemption"
_GANG_PRIORITY = 8888888
_SMALL_PODS = 30

_DISRUPTION_MODE = "PreemptionPodGroupDisruptionMode"

HOPELESS = "HopelessAfterCounting"
"""Every node has pods of lower priority, and none has room for the preemptor even without them."""

NO_PREEMPTORS = "NoPreemptors"
"""PreemptionAsync without those who preempt: how fast pods are bound where preemption costs nothing."""

ALL_GROUPS = "GangPreemptionAllGroups"
"""GangPreemptionPodGroups, whose groups of lower priority go as a whole or not at all."""

MIXED = "GangPreemptionMixed"
"""Nodes that differ in how many pods would have to go."""

_BASIC = {"initPods": 1000}
_FIVE = {"lowPriorityCpuRequest": "600m", "highPriorityCpuRequest": "3500m"}

ALL = (
    _plain("PreemptionBasic", 1000, 4000, 1000, minutes=10),
    _plain("PreemptionBasic", 5000, 20000, 5000, minutes=40),
    _plain("PreemptionAsync", 500, 2000, 500),
    _plain("PreemptionAsync", 5000, 20000, 5000, minutes=25),
    _plain(NO_PREEMPTORS, 500, 2000, 500),
    _plain(NO_PREEMPTORS, 5000, 20000, 5000, minutes=25),
    _plain("Unschedulable", 5000, 100, 10000, minutes=25, priority=10),
    _plain(HOPELESS, 500, 1000, 1000, blockers=500),
    _plain(HOPELESS, 5000, 10000, 2500, minutes=25, blockers=5000),
    *(_groups(mode) for mode in ("", "single", "all")),
    *(
        _gangs(of, gangs, 100 // gangs, _GANG_PRIORITY, preemptorPodGroups=gangs, **_BASIC, **more)
        for of, more in (("GangPreemptionBasic", {"gangCpuRequest": "3970m"}), ("GangPreemptionAffinity", {}))
        for gangs in (1, 10)
    ),
    *(
        _gangs(
            of, gangs, 100 // gangs, 9999999, highPriorityGroups=gangs, lowPriorityGroups=5 * gangs, **_FIVE
        )
        for of in ("GangPreemptionPodGroups", ALL_GROUPS)
        for gangs in (1, 10)
    ),
    _large(),
    *(_mixed(nodes, minutes) for nodes, minutes in ((100, 15), (1000, 15), (5000, 60))),
)
BY_NAME = {workload.name: workload for workload in ALL}


def scheduler_perf() -> Path:
    """Return scheduler_perf's directory in the module cache."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
    found = subprocess.run(command, cwd=UPSTREAM_MODULE, check=True, capture_output=True, text=True)
    return Path(found.stdout.strip()) / "test" / "integration" / "scheduler_perf"


def configuration(workload: Workload, perf: Path, scheduler: Path) -> list[dict[str, Any]]:
    """Return scheduler_perf's configuration for one workload; template paths begin in its directory.

    `perf`: scheduler_perf's own directory. `scheduler`: kube-scheduler's configuration.
    """
    cases = yaml.safe_load((perf / workload.directory / "performance-config.yaml").read_text())
    operations = {case["name"]: case["workloadTemplate"] for case in cases}
    if "PreemptionAsync" in operations:
        preemption = operations["PreemptionAsync"]
        operations[HOPELESS] = _hopeless(preemption)
        operations[NO_PREEMPTORS] = [one for one in preemption if one["opcode"] != "churn"]
    else:
        operations[ALL_GROUPS] = _whole(operations["GangPreemptionPodGroups"])
        operations[MIXED] = _on_mixed_nodes(operations["GangPreemptionBasic"])
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
    """Return the operations of PreemptionAsync, with blockers on the nodes first and other low pods."""
    nodes, low, *rest = preemption
    blockers = {
        "opcode": "createPods",
        "countParam": "$blockers",
        "podTemplatePath": str(_TEMPLATES / "blocker.yaml"),
    }
    return [nodes, blockers, {**low, "podTemplatePath": str(_TEMPLATES / "low.yaml")}, *rest]


def _whole(pod_groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the operations of GangPreemptionPodGroups, with groups of mode all."""
    own = str(_TEMPLATES / "podgroup-all.yaml")
    return [{**one, "templatePath": own} if one["opcode"] == "createPodGroups" else one for one in pod_groups]


def _on_mixed_nodes(basic: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the operations of GangPreemptionBasic, with other low pods on even nodes than on odd ones.

    These are bound from the beginning: to schedule 77,500 takes longer than scheduler_perf waits.
    """
    nodes, namespaces, low, *gangs = basic
    pods = [
        {
            "opcode": "createPods",
            "countParam": count,
            "namespace": low["namespace"],
            "podTemplatePath": str(_TEMPLATES / f"{kind}.yaml"),
            "templateParams": {"ofNode": _SMALL_PODS},
        }
        for kind, count in (("large", "$largePods"), ("small", "$smallPods"))
    ]
    return [{**nodes, "nodeTemplatePath": str(_TEMPLATES / "node.yaml")}, namespaces, *pods, *gangs]
