"""The control planes that tests share: a value for each, under the name of its fixture.

A test that needs other options asks for the fixture `private_cluster`, which starts one for it alone. What
tests of two files can do with belongs here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration.pod_groups import FORM, apiserver_arguments
from makeway.dev.binaries import KUBERNETES
from makeway.dev.options import (
    EVICTOR,
    KWOK,
    NATS,
    NOMINATOR,
    PLANNER,
    SCHEDULER,
    SHADOW,
    USUAL,
    ClusterOptions,
)

RESIZES = "InPlacePodVerticalScalingSchedulerPreemption"
"""The feature gate, of Kubernetes 1.37, by which a resize in place without room preempts."""


@dataclass(frozen=True)
class Kind:
    """One control plane."""

    options: Callable[[], ClusterOptions]
    """Skips the test where this minor version of Kubernetes has no such cluster."""
    replicas: tuple[str, ...] = ()
    """Services that run once more."""
    whole: bool = False
    """Whether one process runs all tests that need it: else each starts one. The largest come first."""
    traced: bool = False
    """Whether its parts send their traces to the tests' collector."""
    only: tuple[str, str] = ("", "")
    """The one minor version of Kubernetes that has it, and why."""


LIMITED_PODS = Path(__file__).with_name("limited_pods.yaml")

KINDS: dict[str, Kind] = {
    # Parts that can be killed between any two side effects. There makeway alone preempts, so that a pod
    # that is bound was helped by makeway.
    "plugin_crash_cluster": Kind(lambda: ClusterOptions(failpoints=True, fallback=False), whole=True),
    # The scheduler places a gang as one, and asks makeway for room for it; and it makes room for resizes.
    # Both within the chart's admission policies.
    "gang_planning_cluster": Kind(
        lambda: ClusterOptions(
            failpoints=True,
            admission_policies=True,
            scheduler_feature_gates=(("GenericWorkload", True), (RESIZES, True)),
            apiserver_arguments=apiserver_arguments(RESIZES),
        ),
        whole=True,
        only=("1.37", "kube-scheduler asks for room for a gang as one from 1.37 on"),
    ),
    # The evictor alone, within the chart's admission policies: tests write nominations and orders.
    "evictor_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({NATS, KWOK, EVICTOR}),
            failpoints=True,
            admission_policies=True,
            apiserver_arguments=apiserver_arguments() if FORM else (),
        ),
        whole=True,
    ),
    # Planner, evictor and scheduler go through the fault proxy.
    "fault_cluster": Kind(
        lambda: ClusterOptions(
            fallback=False, faulty=(PLANNER, EVICTOR, SCHEDULER), plugin_arguments=(("notAfter", "20s"),)
        ),
        whole=True,
    ),
    # The API server has PodGroups, of which the scheduler takes no notice. There makeway alone preempts,
    # within the chart's admission policies. Trees of groups are of 1.37.
    "group_cluster": Kind(
        lambda: ClusterOptions(
            fallback=False,
            failpoints=True,
            admission_policies=True,
            apiserver_arguments=apiserver_arguments(
                *(
                    ("TopologyAwareWorkloadScheduling", "CompositePodGroup")
                    if KUBERNETES.name == "1.37"
                    else ()
                )
            ),
        ),
        whole=True,
    ),
    # The API server alone, with the chart's admission policies, and critical pods limited as by a provider.
    "api_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({KWOK}),
            admission_policies=True,
            apiserver_arguments=(f"--admission-control-config-file={LIMITED_PODS}",),
        ),
        whole=True,
    ),
    # kube-scheduler, and none of makeway's parts: the tests install the chart there, one after another.
    "chart_control_plane": Kind(
        lambda: ClusterOptions(components=frozenset({SCHEDULER, KWOK}), plugin=False), whole=True
    ),
    # NATS asks for certificates, and all parts trace.
    "tls_cluster": Kind(
        lambda: ClusterOptions(known_nats_clients=True, fallback=False), whole=True, traced=True
    ),
    # The same from outside the scheduler, apart: a shadow that the nominator asks does not trace.
    "tls_external_cluster": Kind(
        lambda: ClusterOptions(
            known_nats_clients=True,
            components=frozenset({*USUAL, NOMINATOR, SHADOW}),
            plugin=False,
            fallback=False,
        ),
        whole=True,
    ),
    "traced_external_cluster": Kind(
        lambda: ClusterOptions(components=frozenset({*USUAL, NOMINATOR}), plugin=False, fallback=False),
        whole=True,
        traced=True,
    ),
    # Every service twice, each process by lines of its own that tests cut.
    "cut_cluster": Kind(
        lambda: ClusterOptions(partitions=True, fallback=False, planner_arguments=("--leader-elect",)),
        replicas=(SCHEDULER, PLANNER, EVICTOR),
        whole=True,
    ),
    # Three nats-servers, of which each holds every stream.
    "three_servers_cluster": Kind(lambda: ClusterOptions(nats_servers=3), whole=True),
    # Orders that hold for five seconds.
    "short_orders_cluster": Kind(lambda: ClusterOptions(plugin_arguments=(("notAfter", "5s"),)), whole=True),
    # kube-scheduler's own preemptions, which a planner compares: no evictor, no plugin.
    "observed_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({NATS, SCHEDULER, KWOK, PLANNER}), plugin=False, mode="observe"
        ),
        whole=True,
    ),
    # kube-scheduler alone, without MakeWay.
    "plain_cluster": Kind(
        lambda: ClusterOptions(components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False), whole=True
    ),
    # A scheduler that has a filter of another author, with nominator and shadow.
    "shadow_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({*USUAL, NOMINATOR, SHADOW}), plugin=False, fallback=False, test_plugins=True
        ),
        whole=True,
    ),
    # A scheduler of two profiles, and no planner: tests say what is in force.
    "queue_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({NATS, SCHEDULER, KWOK}),
            fallback=False,
            profiles=("default-scheduler", "second"),
        ),
        whole=True,
    ),
    # For drawn clusters: kube-scheduler with the tests' own filters.
    "drawn_plain_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({NATS, SCHEDULER, KWOK}), plugin=False, test_plugins=True, failpoints=True
        ),
        whole=True,
    ),
    # The same with MakeWay, and a fallback for when there is no plan.
    "drawn_cluster": Kind(lambda: ClusterOptions(test_plugins=True, failpoints=True), whole=True),
    # The scheduler places a gang together, and preempts for each of its pods.
    "gang_cluster": Kind(
        lambda: ClusterOptions(
            scheduler_feature_gates=(("GenericWorkload", True), ("GangScheduling", True)),
            apiserver_arguments=apiserver_arguments(),
        ),
        whole=True,
        only=("1.36", "only kube-scheduler 1.36 evicts for a gang pod by pod"),
    ),
    # Everything, as the demo runs it.
    "shared_cluster": Kind(ClusterOptions),
    # kube-scheduler, and the nominator that preempts from outside.
    "external_cluster": Kind(
        lambda: ClusterOptions(
            components=frozenset({*USUAL, NOMINATOR}),
            plugin=False,
            fallback=False,
            failpoints=True,
            admission_policies=True,
        )
    ),
    # As plugin_crash_cluster, with three planners, of which one leads, and four evictors.
    "replicated_cluster": Kind(
        lambda: ClusterOptions(failpoints=True, fallback=False, planner_arguments=("--leader-elect",)),
        replicas=(PLANNER, PLANNER, EVICTOR, EVICTOR, EVICTOR),
    ),
}
