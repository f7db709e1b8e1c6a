"""What the aggregated API server counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class AskMetrics:
    """What is counted. Labels: `resource` explanations, simulations, queues or none; `code` of HTTP."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.questions = Counter(
            "makeway_apiserver_questions_total",
            "Questions of tenants, by resource (explanations, simulations, queues, none) and HTTP code.",
            ("resource", "code"),
            registry=registry,
        )
        self.duration = Histogram(
            "makeway_apiserver_answer_duration_seconds",
            "How long the answer to a question took, without waiting for a turn.",
            buckets=(0.5, 1, 2, 5, 10, 20, 30),
            registry=registry,
        )
