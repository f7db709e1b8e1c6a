"""The planner's metrics, in one block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
_GROUP_VICTIMS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000)
_GROUP_MEMBERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 5000)


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
        self.attempts = Counter(
            "makeway_planner_plan_requests",
            "Plan requests. result: candidates, unmodelled (only nodes that the scheduler must verify), "
            "refused, notSynced, braked, malformed, otherCluster, oldBridge (a plugin that writes its orders "
            "itself), tooLate (waited or took longer than its time-out).",
            ["result"],
            registry=registry,
        )
        self.group_attempts = Counter(
            "makeway_planner_group_plan_requests",
            "Plan requests for pod groups. result: plan, and as of makeway_planner_plan_requests_total.",
            ["result"],
            registry=registry,
        )
        self.group_plan_seconds = Histogram(
            "makeway_planner_group_plan_duration_seconds",
            "Time of a plan for a pod group, with the pauses in which others were served. result: plan, "
            "refused.",
            ["result"],
            buckets=_GROUP_PLAN_SECONDS,
            registry=registry,
        )
        self.group_members = Histogram(
            "makeway_planner_group_members",
            "Members that a plan for a pod group places.",
            buckets=_GROUP_MEMBERS,
            registry=registry,
        )
        self.group_victims = Histogram(
            "makeway_planner_group_victims",
            "Victims of a plan for a pod group, awaited ones not counted.",
            buckets=_GROUP_VICTIMS,
            registry=registry,
        )
        self.refusals = Counter(
            "makeway_planner_refusals",
            "Plans that found nothing. reason: PreemptionPolicyNever, NoPotentialNodes, "
            "ResourceNotOffered, NoLowerPriorityPods, PodsSpared (by rules about the pod), "
            "ForbiddenByPolicy (victims against a hard budget, or too many), NotEnoughRoom, "
            "PlacesNotFound (for a group, whose scheduler may find some), "
            "QueueRoomOnItsWay (terminating pods make it), "
            "DaemonSetStartDelay, DaemonSetNoVictims, PreemptionLoop, "
            "MemberNotSeen (a pod of the group that is asked about).",
            ["reason"],
            registry=registry,
        )
        self.left_out = Counter(
            "makeway_planner_constraints_left_out",
            "Plans that left a constraint to the scheduler's filters: it is larger than the planner looks "
            "at, or pods are still being grouped by a label that it asks for. constraint: "
            f"{', '.join(LEFT_OUT)}.",
            ["constraint"],
            registry=registry,
        )
        self.plan_seconds = Histogram(
            "makeway_planner_plan_duration_seconds",
            "Time of a plan, without decoding and replying. result: candidates, unmodelled, refused.",
            ["result"],
            buckets=_PLAN_SECONDS,
            registry=registry,
        )
        self.victims = Histogram(
            "makeway_planner_victims",
            "Victims on the best candidate of a plan, awaited ones not counted.",
            buckets=_VICTIMS,
            registry=registry,
        )
        self.commits = Counter(
            "makeway_planner_commits",
            "Orders that bridges asked for. result: stored, void (there is no such order).",
            ["result"],
            registry=registry,
        )
        self.recordings = Counter(
            "makeway_planner_recordings",
            "Recordings for `makeway replay` that ended. result: complete, failed (NATS took no part), "
            "overflowed (changes came faster than they could be written).",
            ["result"],
            registry=registry,
        )
        self.recorded_bytes = Counter(
            "makeway_planner_recorded_bytes",
            "Bytes written into recordings, compressed.",
            registry=registry,
        )
        self.lists = Counter(
            "makeway_planner_lists",
            "Complete lists read. resource: nodes, pods, priorityclasses, poddisruptionbudgets, namespaces. "
            "reason: initial, expired, error.",
            ["resource", "reason"],
            registry=registry,
        )
        self.watch_restarts = Counter(
            "makeway_planner_watch_restarts",
            "Watches that ended. resource: as of makeway_planner_lists_total. reason: ended, "
            "silent-or-cut, throttled, refused, expired, error.",
            ["resource", "reason"],
            registry=registry,
        )
        self.decode_errors = Counter(
            "makeway_planner_decode_errors",
            "Objects and messages that could not be read. source: the resources of "
            "makeway_planner_lists_total, plan, orders, outcomes.",
            ["source"],
            registry=registry,
        )
        self.decisions = Counter(
            "makeway_planner_decision_records",
            "Decision records. result: written, dropped (the queue was full), failed (NATS did not take it).",
            ["result"],
            registry=registry,
        )
        self.comparisons = Counter(
            "makeway_planner_comparisons",
            "Plans of mode observe compared with what DefaultPreemption did. result: same, equal (another "
            "choice, as good), better, worse (makeway's would have been), makewayOnly (no pod was evicted), "
            "defaultOnly (makeway refused), undetermined.",
            ["result"],
            registry=registry,
        )
        self.compared_victims = Counter(
            "makeway_planner_compared_victims",
            "Victims of both choices, where there are both. choice: makeway, default.",
            ["choice"],
            registry=registry,
        )
        self.compared_violations = Counter(
            "makeway_planner_compared_pdb_violations",
            "Victims beyond what disruption budgets allowed, where there are both choices. choice: makeway, "
            "default.",
            ["choice"],
            registry=registry,
        )
        self.compared_groups = Counter(
            "makeway_planner_compared_groups_broken",
            "Pod groups of which some pods went and others stayed, where there are both choices. choice: "
            "makeway, default.",
            ["choice"],
            registry=registry,
        )
        self.comparison_records = Counter(
            "makeway_planner_comparison_records",
            "Comparisons on their way to the bus. result: written, dropped (a queue was full), failed "
            "(NATS did not take it, or it could not be planned).",
            ["result"],
            registry=registry,
        )
        self.proposals = Counter(
            "makeway_planner_repair_proposals",
            "Repairs of marks left behind that were proposed to the evictors.",
            registry=registry,
        )
        self.control = Counter(
            "makeway_planner_control_states",
            "Control states published to plugin and evictors. result: published, failed (it is tried again).",
            ["result"],
            registry=registry,
        )
        self.control_revision = Gauge(
            "makeway_planner_control_revision",
            "Revision of the control state that stands, as this planner said or found it while leading; 0 "
            "for none.",
            registry=registry,
        )
        self.control_mode = Gauge(
            "makeway_planner_control_mode",
            "1 for the mode of that control state, 0 for the others: off, observe, enforce. Namespaces and "
            "components may be held to less.",
            ["mode"],
            registry=registry,
        )
        self.quota_processes = Counter(
            "makeway_planner_quota_processes",
            "Processes that enforce a lowered quota, ended. result: notNeeded (usage was not above it), "
            "success, bestEffort (some of it is left over), unsuccessful (no pod was evicted), observed "
            "(the mode is observe), cancelled (max was raised, or the quota switched off, before it was "
            "done), undone (a minute after a success usage was above it again; that success counts as well).",
            ["result"],
            registry=registry,
        )
        self.quota_waiting = Gauge(
            "makeway_planner_quota_waiting_processes",
            "Processes that enforce a lowered quota and wait for something that may pass. reason: "
            f"{', '.join(sorted(QUOTA_WAITS))}.",
            ["reason"],
            registry=registry,
        )
        self.quota_victims = Counter(
            "makeway_planner_quota_victims",
            "Pods that quota orders removed.",
            registry=registry,
        )
        self.quota_orders = Counter(
            "makeway_planner_quota_orders",
            "Quota orders. result: committed, adopted (one was live already), failed (NATS did not take it).",
            ["result"],
            registry=registry,
        )
        self.quota_plan_seconds = Histogram(
            "makeway_planner_quota_plan_duration_seconds",
            "Time to choose the victims of one lowered quota.",
            buckets=_PLAN_SECONDS,
            registry=registry,
        )
        self.leading = Gauge(
            "makeway_planner_leading",
            "1 while this planner answers plan requests, else 0.",
            registry=registry,
        )

    def watch_state(
        self,
        *,
        age: Callable[[], float],
        revision: Callable[[], float],
        in_flight: Callable[[], float],
        by_namespace: Callable[[], Mapping[str, int]],
        marks: Callable[[], float],
        comparing: Callable[[], float],
        loops: Callable[[], float],
        paused: Callable[[], float],
        left_out: Callable[[], float],
        sizes: Mapping[str, Callable[[], float]],
    ) -> None:
        """Add the gauges that are read from the planner's state when they are asked for."""
        Gauge(
            "makeway_planner_snapshot_age_seconds",
            "How long ago the quietest of the watches was heard; bookmarks come about every minute.",
            registry=self.registry,
        ).set_function(age)
        Gauge(
            "makeway_planner_snapshot_revision",
            "Changes to the snapshot since the process began.",
            registry=self.registry,
        ).set_function(revision)
        Gauge(
            "makeway_planner_orders_in_flight",
            "Orders without an outcome, as read from the streams.",
            registry=self.registry,
        ).set_function(in_flight)
        self.registry.register(NamespaceOrders(by_namespace))
        Gauge(
            "makeway_planner_marked_pods",
            "Pods that carry preemption's DisruptionTarget and are not being deleted.",
            registry=self.registry,
        ).set_function(marks)
        Gauge(
            "makeway_planner_comparisons_waiting",
            "Plans of mode observe of which it is not known yet what DefaultPreemption does.",
            registry=self.registry,
        ).set_function(comparing)
        Gauge(
            "makeway_planner_preemption_loops",
            "Pairs of owners of which one's replaced pods were preempted five times for the other within ten "
            "minutes, by makeway or by others, and those that makeway holds back since.",
            registry=self.registry,
        ).set_function(loops)
        Gauge(
            "makeway_planner_preemptors_paused",
            "Pods and pod groups that wait, since room was made for them three times or more and they were "
            "not bound.",
            registry=self.registry,
        ).set_function(paused)
        Gauge(
            "makeway_planner_pods_left_out",
            "Pods whose required anti-affinity or host ports are beyond the planner's bounds, so that "
            "only the scheduler's filters know them.",
            registry=self.registry,
        ).set_function(left_out)
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
