"""Names on the bus: subjects, streams and their limits. Pure; the only place that spells them."""

from __future__ import annotations

from typing import NewType

OrderId = NewType("OrderId", str)
PodUid = NewType("PodUid", str)

DEFAULT_PREFIX = "makeway"


class Subjects:
    """Every subject and stream name under one prefix. Two clusters on one NATS use two prefixes."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        if (
            not prefix
            or any(c in prefix for c in " \t\r\n*>")
            or prefix.startswith(".")
            or prefix.endswith(".")
        ):
            raise ValueError(
                f"subject prefix {prefix!r}: use letters, digits, '-', '_' and inner '.', as in makeway"
            )
        self.prefix = prefix
        self.plan = f"{prefix}.v1.plan"
        self.control = f"{prefix}.v1.control"
        self.orders = f"{prefix}.v1.orders.>"
        self.outcomes = f"{prefix}.v1.outcomes.>"
        self.decisions = f"{prefix}.v1.decisions.>"
        stem = prefix.replace(".", "_").upper()
        self.orders_stream = f"{stem}_ORDERS"
        self.outcomes_stream = f"{stem}_OUTCOMES"
        self.decisions_stream = f"{stem}_DECISIONS"

    def pod_order(self, preemptor_uid: str) -> str:
        """The subject that holds a preemptor's orders: one live one at a time."""
        return f"{self.prefix}.v1.orders.pod.{preemptor_uid}"

    def quota_order(self, queue_hash: str) -> str:
        """The subject that holds a queue's quota orders; `queue_hash` is a hash of the queue's path."""
        return f"{self.prefix}.v1.orders.quota.{queue_hash}"

    def outcome(self, order_id: str) -> str:
        """The subject that holds an order's one outcome."""
        return f"{self.prefix}.v1.outcomes.{order_id}"

    def decision(self, preemptor_uid: str) -> str:
        """The subject of decision records about one preemptor."""
        return f"{self.prefix}.v1.decisions.pod.{preemptor_uid}"
