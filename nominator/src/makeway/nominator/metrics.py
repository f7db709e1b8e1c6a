"""The nominator's metrics, in one block."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class NominatorMetrics:
    """Every metric of one nominator, in the given registry; also what its list-watches report to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"makeway_nominator_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"makeway_nominator_{name}", about, registry=registry)

        self.leading = gauge("leading", "1 in the nominator that holds the Lease, else 0.")
        self.clock_ahead = gauge(
            "clock_ahead_seconds",
            "How far the nominator's clock is ahead of the API server's at the least; negative: behind. "
            "Beyond 2 it leaves the Lease to another nominator, beyond 10 it leads no more.",
        )
        self.classes = gauge("classes", "PriorityClasses that are opted in.")
        self.waiting = gauge(
            "waiting_pods", "Unschedulable pods of those classes for which no order is in flight."
        )
        self.in_flight = gauge("orders_in_flight", "Orders whose preemptors are not bound yet.")
        self.plans = counter(
            "plans",
            "Plans asked for. result: candidates, observed (mode observe), refused, not_synced, unreachable, "
            "unmodelled (only the scheduler's filters can judge the pod), unreadable.",
            "result",
        )
        self.orders = counter(
            "orders",
            "Orders that ended. result: bound, succeeded, failed, expired, refused, cancelled, not_stored "
            "(the planner stored none, or did not answer), "
            "changed (the pod or the plan changed before the order was written), waited (none was written: "
            "terminating pods were to make the room, and the pod was not bound).",
            "result",
        )
        self.lost = counter(
            "nominations_lost",
            "Nominations of orders in flight that others removed or changed. Where kube-scheduler clears "
            "them, preemption from outside does not work on this cluster.",
            "how",
        )
        self.cleared = counter(
            "nominations_cleared",
            "Nominations taken back. reason: not_stored (their orders), over (their orders came to nothing, "
            "or another pod was bound in their place), orphaned (no order is in flight).",
            "reason",
        )
        self.shadow_answers = gauge(
            "shadow_answers",
            "1 where the shadow scheduler answered when it was asked last, else 0; with --verify=shadow.",
        )
        self.bound_seconds = Histogram(
            "makeway_nominator_pending_to_bound_seconds",
            "From when a pod was first seen to be unschedulable until it was bound, for pods with an order.",
            buckets=(0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 120, 300),
            registry=registry,
        )
        self.relists = counter("relists", "Complete lists.", "resource", "reason")
        self.reconnections = counter("watch_reconnections", "Watches that ended.", "resource", "reason")
        self.decode_errors = counter(
            "decode_errors",
            "Objects and messages that could not be read. source: a resource, orders, outcomes, control.",
            "source",
        )
        for how in ("cleared", "changed"):
            self.lost.labels(how)

    def rests(self) -> None:
        """Show that no pod and no order is looked after here: dashboards sum over nominators."""
        self.waiting.set(0)
        self.in_flight.set(0)

    def listed(self, resource: str, reason: str) -> None:
        """Count a completed list."""
        self.relists.labels(resource, reason).inc()

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended."""
        self.reconnections.labels(resource, reason).inc()

    def undecodable(self, resource: str) -> None:
        """Count an object that could not be read."""
        self.decode_errors.labels(resource).inc()
