"""Which of kube-scheduler's own integration tests are run: packages below test/integration/scheduler."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from makeway.dev.paths import CHECKOUT

MODULE: Final = CHECKOUT / "tests" / "upstream"
"""The Go module that requires kube-scheduler's sources, and the plugin."""

PACKAGES: Final = MODULE / "suites"
"""Where the packages are put for the compiler, beside those that stand in for upstream's utilities."""

WAITING: Final = CHECKOUT / "plugin" / "ask" / "asked.go"
"""Where the plugin says how long a cycle waits for a plan."""

_REPLACED: Final = {
    "k8s.io/kubernetes/test/integration/util": "testutils",
    "k8s.io/kubernetes/test/integration/scheduler": "schedulerutils",
}
"""What the tests import, and what they get."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One package of tests. `path`: below test/integration/scheduler."""

    name: str
    path: str


SUITES: Final = (
    Suite("podgroup", "preemption/podgroup"),
    Suite("preemption", "preemption"),
    Suite("misc", "preemption/misc"),
    Suite("nominatednodename", "preemption/nominatednodename"),
    Suite("nominated_node_name", "nominated_node_name"),
)

SHORT: Final = (
    "podgroup",
    "^TestPodGroupPreemption$/("
    + "|".join(
        (
            "Full_PodGroup_Preemption$",
            "PDB_Violation_Handling",
            "Priority-based_Victim_Selection",
            "Preempt_the_whole_PodGroup_even",
            "Gang_scheduling:_do_not_reprieve",
            "Basic_scheduling:_preempt_a_pod_group_victim",
            "PreemptNever_preemption_policy_does",
            "preemption_with_pod_anti-affinity",
            "preemption_with_pod_node_port",
            "topology_spread_constraints$",
            "two_topologies,_only_one_eligible",
        )
    )
    + ")",
)
"""A suite and the cases of it that stand for all where all take too long: one of each kind for pod groups."""


def sources(suite: Suite) -> tuple[Path, ...]:
    """Return the suite's files in Go's module cache.

    Raises:
        subprocess.CalledProcessError: Kubernetes' sources are not to be had.
    """
    _go("mod", "download", "k8s.io/kubernetes")
    kubernetes = Path(_go("list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
    return tuple(sorted((kubernetes / "test" / "integration" / "scheduler" / suite.path).glob("*_test.go")))


def module_cache() -> Path:
    """Return the directory of Go's module cache."""
    return Path(_go("env", "GOMODCACHE"))


def _go(*arguments: str) -> str:
    found = subprocess.run(("go", *arguments), cwd=MODULE, check=True, capture_output=True, text=True)
    return found.stdout.strip()


def with_patience(source: str) -> str:
    """Return the file of WAITING with cycles that wait for a plan for a second at least.

    What is tested is what comes of plans, and not how busy the machine is.

    Raises:
        ValueError: the file does not say how long they wait.
    """
    shortest = "LeastWait = 10 * time.Millisecond\n"
    if shortest not in source:
        raise ValueError(f"{WAITING} does not say {shortest.strip()!r}")
    return source.replace(shortest, "LeastWait = time.Second\n")


def with_stand_ins(source: str) -> str:
    """Return a test file that imports the packages that stand in for upstream's utilities."""
    for package, stand_in in _REPLACED.items():
        source = source.replace(f'"{package}"\n', f'"makeway.dev/makeway/tests/upstream/suites/{stand_in}"\n')
    return source
