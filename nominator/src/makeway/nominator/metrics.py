"""The nominator's metrics, in one block."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class NominatorMetrics:
    """Every metric of one nominator, in the given registry; also what its list-watches report to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leading = Gauge(
            "makeway_nominator_leading", "1 in the nominator that holds the Lease, else 0.", registry=registry
        )
        self.classes = Gauge(
            "makeway_nominator_classes", "PriorityClasses that are opted in.", registry=registry
        )
        self.waiting = Gauge(
            "makeway_nominator_waiting_pods",
            "Unschedulable pods of those classes for which no order is in flight.",
            registry=registry,
        )
        self.in_flight = Gauge(
            "makeway_nominator_orders_in_flight",
            "Orders whose preemptors are not bound yet.",
            registry=registry,
        )
        self.plans = Counter(
            "makeway_nominator_plans",
            "Plans asked for. result: candidates, observed (mode observe), refused, not_synced, unreachable, "
            "unmodelled (only the scheduler's filters can judge the pod), unreadable.",
            ["result"],
            registry=registry,
        )
        self.orders = Counter(
            "makeway_nominator_orders",
            "Orders that ended. result: bound, succeeded, failed, expired, refused, cancelled, not_stored "
            "(the planner stored none, or did not answer), "
            "changed (the pod or the plan changed before the order was written), waited (none was written: "
            "terminating pods were to make the room, and the pod was not bound).",
            ["result"],
            registry=registry,
        )
        self.lost = Counter(
            "makeway_nominator_nominations_lost",
            "Nominations of orders in flight that others removed or changed. Where kube-scheduler clears "
            "them, preemption from outside does not work on this cluster.",
            ["how"],
            registry=registry,
        )
        self.cleared = Counter(
            "makeway_nominator_nominations_cleared",
            "Nominations taken back. reason: not_stored (their orders), over (their orders came to nothing, "
            "or another pod was bound in their place), orphaned (no order is in flight).",
            ["reason"],
            registry=registry,
        )
        self.shadow_answers = Gauge(
            "makeway_nominator_shadow_answers",
            "1 where the shadow scheduler answered when it was asked last, else 0; with --verify=shadow.",
            registry=registry,
        )
        self.bound_seconds = Histogram(
            "makeway_nominator_pending_to_bound_seconds",
            "From when a pod was first seen to be unschedulable until it was bound, for pods with an order.",
            buckets=(0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 120, 300),
            registry=registry,
        )
        self.relists = Counter(
            "makeway_nominator_relists", "Complete lists.", ["resource", "reason"], registry=registry
        )
        self.reconnections = Counter(
            "makeway_nominator_watch_reconnections",
            "Watches that ended.",
            ["resource", "reason"],
            registry=registry,
        )
        self.decode_errors = Counter(
            "makeway_nominator_decode_errors",
            "Objects and messages that could not be read. source: a resource, orders, outcomes, control.",
            ["source"],
            registry=registry,
        )
        for how in ("cleared", "changed"):
            self.lost.labels(how)

    def listed(self, resource: str, reason: str) -> None:
        """Count a completed list."""
        self.relists.labels(resource, reason).inc()

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended."""
        self.reconnections.labels(resource, reason).inc()

    def undecodable(self, resource: str) -> None:
        """Count an object that could not be read."""
        self.decode_errors.labels(resource).inc()
