"""The evictor's metrics, in one block.

KEP-4832 asks that less than 1 % of preemption executions fail. With these metrics that is

    sum(rate(makeway_preemption_executions_total{operation="evict",result=~"failed|expired"}[1h]))
      / sum(rate(makeway_preemption_executions_total{operation="evict"}[1h]))  < 0.01

The labels are taken when an execution ends, never before.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class EvictorMetrics:
    """Every metric of one evictor process, in the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=_SECONDS)
        self.orders = counter(
            "makeway_evictor_orders",
            "Orders ended by this evictor. result: succeeded, failed, expired, refused, cancelled. "
            "reason: empty where it succeeded, else a constant such as stale-epoch or delete-refused.",
            ["result", "reason"],
        )
        self.victims = counter(
            "makeway_evictor_victims",
            "Victims of ended orders. result: deleted, terminating, gone, spared, failed, notAttempted.",
            ["result"],
        )
        self.executions = counter(
            "makeway_preemption_executions",
            "Preemption work that ended. operation: evict (an order), rollback (of an order that did not "
            "succeed). result: for evict succeeded, failed, expired, refused, cancelled; for rollback "
            "succeeded, refused.",
            ["operation", "result"],
        )
        self.execution_seconds = histogram(
            "makeway_preemption_execution_duration_seconds",
            "From the order's receipt (evict) or the rollback's begin (rollback) to its end. "
            "Labels as of makeway_preemption_executions_total.",
            ["operation", "result"],
        )
        self.order_to_last_delete_seconds = histogram(
            "makeway_evictor_order_to_last_delete_seconds",
            "From an order's creation by the scheduler to its last accepted delete; orders that "
            "succeeded with at least one delete.",
        )
        self.api_requests = counter(
            "makeway_evictor_api_requests",
            "Requests to the API server. operation: get_pod, get_node, get_priority_class, get_namespace, "
            "get_lease, mark, delete, evict (where disruption budgets are hard), dry_run (of either, where "
            "pods of a group go together), get_pod_group, list_pods, clear_mark, clear_nomination, "
            "condition. result: "
            "ok, gone (404 or another UID), temporary, permanent.",
            ["operation", "result"],
        )
        self.watch_restarts = counter(
            "makeway_evictor_watch_restarts",
            "Watches of the pods of namespaces from which groups of disruption mode all go that ended, by "
            "resource (pods) and reason: ended, silent-or-cut, throttled, refused, expired, set-back, error, "
            "undecodable (a pod: its namespace is listed for each order from then on).",
            ["resource", "reason"],
        )
        self.retries = counter(
            "makeway_evictor_retries",
            "Attempts that failed and were followed by another. operation: read, evict, clear, rollback, "
            "publish. reason: throttled (429), budget (a disruption budget allows no more now), server-error "
            "(5xx), unavailable (no answer), conflict (409), stale (what was read is too old to act on), "
            "unauthorized (401, and 403 to what was allowed before), bus (NATS), refused "
            "(permanent, only in rollbacks).",
            ["operation", "reason"],
        )
        self.rollbacks = counter(
            "makeway_evictor_rollbacks",
            "What rollbacks undid. object: nomination, mark (DisruptionTarget).",
            ["object"],
        )
        self.parked = counter(
            "makeway_evictor_parked_messages",
            "Messages of the orders stream that were put aside. reason: too-large, too-deep, not-json, "
            "invalid, unknown-version, unknown-type, wrong-subject, too-many-deliveries, outcome-refused, "
            "defect.",
            ["reason"],
        )
        self.not_parked = counter(
            "makeway_evictor_not_parked_messages",
            "Attempts to put a message aside that the quarantine did not take; the message comes again.",
        )
        self.defects = counter(
            "makeway_evictor_defects",
            "Orders that ended in an error that has no rule; they are tried again, then put aside.",
        )
        self.repairs = counter(
            "makeway_evictor_repairs",
            "Proposed repairs of marks left behind. result: cleared, gone, not-marked, live (an order names "
            "the pod), mode, other-cluster, failed (it is proposed again), malformed.",
            ["result"],
        )
        self.redelivered = counter(
            "makeway_evictor_redelivered_orders",
            "Orders that came a second time or more. state: ended (an outcome exists), live.",
            ["state"],
        )
        self.control = counter(
            "makeway_evictor_control_states",
            "Control states read. result: taken, refused (not understood, another cluster's, or of a time "
            "that cannot be).",
            ["result"],
        )
        self.control_revision = gauge(
            "makeway_evictor_control_revision",
            "Revision of the effective control state; 0 for none.",
        )
        self.events_dropped = counter(
            "makeway_evictor_events_dropped",
            "Kubernetes Events that were not written. reason: queue-full, refused.",
            ["reason"],
        )
        self.in_flight = gauge(
            "makeway_evictor_orders_in_flight",
            "Orders in hand: being carried out or rolled back, or waiting for their turn.",
        )
        self.given_back = counter(
            "makeway_evictor_orders_given_back",
            "Orders that were given back to the stream for a few seconds, since orders that only wait, of "
            "their namespace or of all, have their share of this evictor's places.",
        )
        self.over_caps = counter(
            "makeway_evictor_orders_over_caps",
            "Orders over one of the policy's caps on evictions. cap: victims-per-minute, victims-share (of "
            "all pods, in ten minutes), victims-per-namespace. what: waited, refused (when "
            "its time ended, or too many waited).",
            ["cap", "what"],
        )
        self.held = gauge(
            "makeway_evictor_orders_held_by_caps",
            "Orders in hand that wait for the policy's caps on evictions.",
        )
        self.recent = gauge(
            "makeway_evictor_recent_victims",
            "Pods evicted recently, by all evictors as far as this one knows. span: minute, ten-minutes.",
            ["span"],
        )
        self.allowed = gauge(
            "makeway_evictor_allowed_victims",
            "How many pods may be evicted by the policy's caps, or by the default ones, which hold quotas "
            "and unverified orders only: more evictions are alerted on. span: minute, ten-minutes.",
            ["span"],
        )
        self.breaker = gauge(
            "makeway_evictor_breaker_open",
            "For how many causes the evictor's breaker is open. scope: cluster (nothing is deleted), "
            "namespaces (nothing is deleted for their preemptors).",
            ["scope"],
        )
        self.breaker_evidence = counter(
            "makeway_evictor_breaker_evidence",
            "What speaks for opening the breaker. cause: wasted-victims (in victims), mismatches (in "
            "orders), signatures (in orders), clock-skew (in readings).",
            ["cause"],
        )
        self.waiting = gauge(
            "makeway_evictor_orders_waiting",
            "Orders in hand that wait for one of the slots (--concurrency).",
        )
