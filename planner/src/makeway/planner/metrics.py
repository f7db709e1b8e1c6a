"""The planner's metrics, in one block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from makeway.bus.comparison import Comparison
from makeway.bus.queue_report import QUOTA_WAITS
from makeway.core.policy.mode import MODES, Mode
from makeway.planner.snapshot.bounds import LEFT_OUT

_PLAN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_VICTIMS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)
_GROUP_PLAN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LOST_WORK_SECONDS = (60, 600, 3600, 4 * 3600, 24 * 3600, 4 * 24 * 3600, 30 * 24 * 3600)
_GROUP_VICTIMS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000)
_GROUP_MEMBERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 5000)


STATE: Final[Mapping[str, str]] = {
    "snapshot_age_seconds": (
        "How long ago the quietest of the watches was heard; bookmarks come about every minute."
    ),
    "orders_in_flight": "Orders without an outcome, as read from the streams.",
    "marked_pods": "Pods that carry preemption's DisruptionTarget and are not being deleted.",
    "comparisons_waiting": (
        "Plans of mode observe of which it is not known yet what DefaultPreemption does."
    ),
    "preemption_loops": (
        "Pairs of owners of which one's replaced pods were preempted five times for the other within ten "
        "minutes, by makeway or by others, and those that makeway holds back since."
    ),
    "preemptors_paused": (
        "Pods and pod groups that wait, since room was made for them three times or more and they were not "
        "bound."
    ),
    "pods_left_out": (
        "Pods whose required anti-affinity or host ports are beyond the planner's bounds, so that only the "
        "scheduler's filters know them."
    ),
}
"""Gauges of what a planner holds, and what each says."""


class NamespaceOrders(Collector):
    """The gauge whose labels are the namespaces that have orders at the moment; `count` bounds them."""

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauge as it is now."""
        gauge = GaugeMetricFamily(
            "makeway_planner_namespace_orders_in_flight",
            "Orders without an outcome by their preemptors' namespace: the 19 with the most by name, all "
            "others as `other`.",
            labels=["preemptor_namespace"],
        )
        for namespace, orders in self._count().items():
            gauge.add_metric([namespace], orders)
        yield gauge


class PlannerMetrics:
    """Every metric of one planner process, in the given registry; also what its list-watches report to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"makeway_planner_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"makeway_planner_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, *labels: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(f"makeway_planner_{name}", about, labels, buckets=buckets, registry=registry)

        self.attempts = counter(
            "plan_requests",
            "Plan requests. result: candidates, unmodelled (only nodes that the scheduler must verify), "
            "refused, notSynced, braked, malformed, otherCluster, tooLate (waited or took longer than its "
            "time-out), heldBack (orders cannot be stored, or no evictor answers).",
            "result",
        )
        self.group_attempts = counter(
            "group_plan_requests",
            "Plan requests for pod groups. result: plan, and as of makeway_planner_plan_requests_total.",
            "result",
        )
        self.group_plan_seconds = histogram(
            "group_plan_duration_seconds",
            "Time of a plan for a pod group, with the pauses in which others were served. result: plan, "
            "refused.",
            "result",
            buckets=_GROUP_PLAN_SECONDS,
        )
        self.group_members = histogram(
            "group_members", "Members that a plan for a pod group places.", buckets=_GROUP_MEMBERS
        )
        self.group_victims = histogram(
            "group_victims",
            "Victims of a plan for a pod group, awaited ones not counted.",
            buckets=_GROUP_VICTIMS,
        )
        self.refusals = counter(
            "refusals",
            "Plans that found nothing. reason: PreemptionPolicyNever, NoPotentialNodes, "
            "ResourceNotOffered, NoLowerPriorityPods, PodsSpared (by rules about the pod), "
            "ForbiddenByPolicy (victims against a hard budget, or too many), NotEnoughRoom, "
            "PlacesNotFound (for a group, whose scheduler may find some), "
            "QueueRoomOnItsWay (terminating pods make it), "
            "DaemonSetStartDelay, DaemonSetNoVictims, PreemptionLoop, RoomPromised (a node is being made), "
            "MemberNotSeen (a pod of the group that is asked about); and what holds any plan back: "
            "PreemptionPaused, OrdersInFlight, NamespaceShare, EvictorsBreakerOpen.",
            "reason",
        )
        self.left_out = counter(
            "constraints_left_out",
            "Plans that left a constraint to the scheduler's filters: it is larger than the planner looks "
            "at, or pods are still being grouped by a label that it asks for. constraint: "
            f"{', '.join(LEFT_OUT)}.",
            "constraint",
        )
        self.plan_seconds = histogram(
            "plan_duration_seconds",
            "Time of a plan, without decoding and replying. result: candidates, unmodelled, refused.",
            "result",
            buckets=_PLAN_SECONDS,
        )
        self.victims = histogram(
            "victims", "Victims on the best candidate of a plan, awaited ones not counted.", buckets=_VICTIMS
        )
        self.lost_work = histogram(
            "lost_work_seconds",
            "Where a policy ranks by lost work: what the victims on the best candidate of a plan lose, in "
            "seconds of a pod of the preemptor's size.",
            buckets=_LOST_WORK_SECONDS,
        )
        self.lost_work_avoided = counter(
            "lost_work_avoided_seconds",
            "The same: how much less that is than on the candidate that kube-scheduler's rules alone would "
            "have taken.",
        )
        self.commits = counter(
            "commits",
            "Orders that bridges asked for. result: stored, void (there is no such order).",
            "result",
        )
        self.clock_ahead = gauge(
            "clock_ahead_seconds",
            "How far the planner's clock is ahead of the API server's at the least; negative: behind. Beyond "
            "2 it leaves the Lease to another planner, beyond 10 it leads no more.",
        )
        self.recordings = counter(
            "recordings",
            "Recordings for `makeway replay` that ended. result: complete, failed (NATS took no part), "
            "overflowed (changes came faster than they could be written).",
            "result",
        )
        self.lists = counter(
            "lists",
            "Complete lists read. resource: nodes, pods, priorityclasses, poddisruptionbudgets, namespaces. "
            "reason: initial, expired, set-back, error.",
            "resource",
            "reason",
        )
        self.watch_restarts = counter(
            "watch_restarts",
            "Watches that ended. resource: as of makeway_planner_lists_total. reason: ended, "
            "silent-or-cut, throttled, refused, expired, set-back, error.",
            "resource",
            "reason",
        )
        self.decode_errors = counter(
            "decode_errors",
            "Objects and messages that could not be read. source: the resources of "
            "makeway_planner_lists_total, plan, orders, outcomes.",
            "source",
        )
        self.decisions = counter(
            "decision_records",
            "Decision records. result: written, dropped (the queue was full), failed (NATS did not take it).",
            "result",
        )
        self.comparisons = counter(
            "comparisons",
            "Plans of mode observe compared with what DefaultPreemption did. result: same, equal (another "
            "choice, as good), better, worse (makeway's would have been), makewayOnly (no pod was evicted), "
            "defaultOnly (makeway refused), undetermined.",
            "result",
        )
        self.compared_victims = counter(
            "compared_victims",
            "Victims of both choices, where there are both. choice: makeway, default.",
            "choice",
        )
        self.compared_violations = counter(
            "compared_pdb_violations",
            "Victims beyond what disruption budgets allowed, where there are both choices. choice: makeway, "
            "default.",
            "choice",
        )
        self.compared_groups = counter(
            "compared_groups_broken",
            "Pod groups of which some pods went and others stayed, where there are both choices. choice: "
            "makeway, default.",
            "choice",
        )
        self.compared_lost_work = counter(
            "compared_lost_work_seconds",
            "What victims lost of their work, in seconds of a pod of the preemptor's size, where there are "
            "both choices. choice: makeway, default.",
            "choice",
        )
        self.comparison_records = counter(
            "comparison_records",
            "Comparisons on their way to the bus. result: written, dropped (a queue was full), failed "
            "(NATS did not take it, or it could not be planned).",
            "result",
        )
        self.control = counter(
            "control_states",
            "Control states published to plugin and evictors. result: published, failed (it is tried again).",
            "result",
        )
        self.control_revision = gauge(
            "control_revision",
            "Revision of the control state that stands, as this planner said or found it while leading; 0 "
            "for none.",
        )
        self.control_mode = gauge(
            "control_mode",
            "1 for the mode of that control state, 0 for the others: off, observe, enforce. Namespaces and "
            "components may be held to less.",
            "mode",
        )
        self.quota_processes = counter(
            "quota_processes",
            "Processes that enforce a lowered quota, ended. result: notNeeded (usage was not above it), "
            "success, bestEffort (some of it is left over), unsuccessful (no pod was evicted), observed "
            "(the mode is observe), cancelled (max was raised, or the quota switched off, before it was "
            "done), undone (a minute after a success usage was above it again; that success counts as well).",
            "result",
        )
        self.quota_waiting = gauge(
            "quota_waiting_processes",
            "Processes that enforce a lowered quota and wait for something that may pass. reason: "
            f"{', '.join(sorted(QUOTA_WAITS))}.",
            "reason",
        )
        self.quota_victims = counter("quota_victims", "Pods that quota orders removed.")
        self.quota_orders = counter(
            "quota_orders",
            "Quota orders. result: committed, adopted (one was live already), failed (NATS did not take it).",
            "result",
        )
        self.quota_plan_seconds = histogram(
            "quota_plan_duration_seconds",
            "Time to choose the victims of one lowered quota.",
            buckets=_PLAN_SECONDS,
        )
        self.leading = gauge("leading", "1 while this planner answers plan requests, else 0.")

    def watch_state(
        self,
        reads: Mapping[str, Callable[[], float]],
        *,
        by_namespace: Callable[[], Mapping[str, int]],
        sizes: Mapping[str, Callable[[], float]],
    ) -> None:
        """Add the gauges that are read from the planner's state when they are asked for.

        `reads`: what each of STATE reads.
        """
        for name, about in STATE.items():
            gauge = Gauge(f"makeway_planner_{name}", about, registry=self.registry)
            gauge.set_function(reads[name])
        self.registry.register(NamespaceOrders(by_namespace))
        objects = Gauge(
            "makeway_planner_snapshot_objects",
            "Objects in the snapshot. resource: as of makeway_planner_lists_total.",
            ["resource"],
            registry=self.registry,
        )
        for resource, size in sizes.items():
            objects.labels(resource).set_function(size)

    def told(self, revision: int, mode: Mode) -> None:
        """Note the control state that stands."""
        self.control_revision.set(revision)
        for one in MODES:
            self.control_mode.labels(one).set(one == mode)

    def compared(self, comparison: Comparison) -> None:
        """Count a comparison."""
        self.comparisons.labels(comparison.result).inc()
        ours, theirs = comparison.makeway, comparison.default_preemption
        if ours is None or theirs is None or comparison.result == "undetermined":
            return
        for label, choice in (("makeway", ours), ("default", theirs)):
            self.compared_victims.labels(label).inc(len(choice.victims))
            self.compared_lost_work.labels(label).inc(choice.lost_work_seconds)
            self.compared_violations.labels(label).inc(choice.pdb_violations)
            self.compared_groups.labels(label).inc(choice.groups_broken)

    # What list-watches report.

    def listed(self, resource: str, reason: str) -> None:
        """Count a complete list."""
        self.lists.labels(resource, reason).inc()

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended."""
        self.watch_restarts.labels(resource, reason).inc()

    def undecodable(self, resource: str) -> None:
        """Count an object that could not be read."""
        self.decode_errors.labels(resource).inc()
