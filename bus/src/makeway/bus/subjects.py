"""Names on the bus: subjects, streams and their limits. Pure; the only place that spells them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NewType

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, OrderKind

OrderId = NewType("OrderId", str)
PodUid = NewType("PodUid", str)

DEFAULT_PREFIX = "makeway"

SERVICES = ("planner", "evictor", "scheduler", "nominator", "shadow", "streams")
"""Components that log in to NATS as themselves."""

PEOPLE = "cli"
"""Whoever else connects: the commands that people run."""

READER = "consumer-"
"""What the login of a named consumer begins with, before the consumer's name."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


def token(value: str) -> str:
    """Check that an id can stand as one token of a subject, and return it.

    Raises:
        ValueError: it is empty, too long, or has a dot, a wildcard, a blank or a control character.
    """
    if not _TOKEN.fullmatch(value):
        raise ValueError(f"{value!r} cannot be part of a subject: use letters, digits, '-' and '_'")
    return value


def queue_hash(path: str) -> str:
    """A queue's path as a token: it may have dots, and letters that no subject takes."""
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def _about(kind: OrderKind, about: str) -> str:
    """What orders and decisions are about, as the last two tokens of their subjects."""
    return f"{kind}.{queue_hash(about) if kind == 'quota' else token(about)}"


_INBOXES = "_INBOX.makeway."
STATUS = "status"
"""The token below a component's inbox under which others say how they are."""

OTHER_ACCOUNT = "_R_.>"
"""Subjects that a server makes for answers to another account; who asks cannot choose them."""


def matches(subject: str, pattern: str) -> bool:
    """Report whether a subject is one of a pattern's, with `*` for one token and `>` for the rest.

    One with an empty token is none: NATS takes it for a reply, and then for no subject that is allowed.
    """
    tokens, wanted = subject.split("."), pattern.split(".")
    if not all(tokens):
        return False
    if wanted[-1] == ">":
        tokens, wanted = tokens[: len(wanted) - 1], wanted[:-1]
        if len(subject.split(".")) == len(wanted):
            return False
    return len(tokens) == len(wanted) and all(
        want in ("*", one) for one, want in zip(tokens, wanted, strict=True)
    )


def inbox(component: str) -> str:
    """Where a component's requests are answered, without the last dot: only it may listen there."""
    return f"{_INBOXES}{component if component in SERVICES or component.startswith(READER) else PEOPLE}"


_ASKERS: Mapping[str, tuple[str, ...]] = {
    "planner": ("scheduler", "nominator", "shadow", PEOPLE),
    "shadow": ("nominator", PEOPLE),
}


def answers(component: str) -> tuple[str, ...]:
    """Where a component answers: in the inboxes of those that ask it, or in another account.

    Any other subject might be one of a stream's, and the answer would be stored as a message of ours; so a
    login has no `allow_responses` either. The planner asks all how they are, and is answered apart: one inbox
    tells where its client's next ones are, in which NATS alone answers.
    """
    askers = (f"{inbox(one)}.>" for one in _ASKERS.get(component, (PEOPLE,)))
    return (f"{inbox('planner')}.{STATUS}.>", *askers, OTHER_ACCOUNT)


class Subjects:
    """Every subject and stream name under one prefix. Two clusters on one NATS use two prefixes."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        if not all(_TOKEN.fullmatch(part) for part in prefix.split(".")):
            raise ValueError(
                f"subject prefix {prefix!r}: use letters, digits, '-', '_' and inner '.', as in makeway"
            )
        self.prefix = prefix
        self.plan = f"{prefix}.v1.plan"
        self.plan_group = f"{prefix}.v1.plan.group"
        self.commit = f"{prefix}.v1.commit"
        self.verify = f"{prefix}.v1.verify"
        self.control = f"{prefix}.v1.control"
        self.repairs = f"{prefix}.v1.repairs"
        self.queues = f"{prefix}.v1.queues"
        self.status = f"{prefix}.v1.status"
        self.viewers_api = f"{prefix}.v1.api"
        self.orders = f"{prefix}.v1.orders.>"
        self.begun_orders = f"{prefix}.v1.begun.>"
        self.outcomes = f"{prefix}.v1.outcomes.>"
        self.decisions = f"{prefix}.v1.decisions.>"
        self.pod_decisions = f"{prefix}.v1.decisions.pod.*"
        self.group_decisions = f"{prefix}.v1.decisions.group.*"
        self.quota_decisions = f"{prefix}.v1.decisions.quota.*"
        self.comparisons = f"{prefix}.v1.decisions.comparison.>"
        self.quarantine = f"{prefix}.v1.quarantine.>"
        self.recordings = f"{prefix}.v1.recordings.>"
        stem = prefix.replace(".", "_").upper()
        self.orders_stream = f"{stem}_ORDERS"
        self.begun_stream = f"{stem}_BEGUN"
        self.outcomes_stream = f"{stem}_OUTCOMES"
        self.decisions_stream = f"{stem}_DECISIONS"
        self.control_stream = f"{stem}_CONTROL"
        self.quarantine_stream = f"{stem}_QUARANTINE"
        self.recordings_stream = f"{stem}_RECORDINGS"
        self.epochs_bucket = f"{stem}_EPOCHS"

    def of_stream(self, stream: str) -> str:
        """The subjects of one of the streams that are followed or consumed; raises KeyError for another."""
        return {
            self.orders_stream: self.orders,
            self.begun_stream: self.begun_orders,
            self.outcomes_stream: self.outcomes,
            self.decisions_stream: self.decisions,
            self.control_stream: self.control,
        }[stream]

    def passing(self, component: str) -> Mapping[str, str]:
        """The streams that a component follows, each with the subjects whose messages wake it up.

        On core NATS, where nothing is stored: what it takes for true is what the stream answers.
        """
        followed = {
            "planner": (self.orders_stream, self.outcomes_stream),
            "evictor": (self.outcomes_stream, self.control_stream),
            "nominator": (self.outcomes_stream, self.control_stream),
        }
        return {stream: self.of_stream(stream) for stream in followed.get(component, ())}

    def orders_of(self, kind: OrderKind, about: str) -> str:
        """The subject of the orders for a pod or PodGroup (its UID) or queue (its path): one live at once."""
        return f"{self.prefix}.v1.orders.{_about(kind, about)}"

    def order(self, order: EvictionOrder) -> str:
        """The subject that an order belongs on; empty for one that does not name what it is for."""
        about = order.queue if order.kind == "quota" else order.preemptor_uid
        return self.orders_of(order.kind, about) if about else ""

    def begun(self, order_id: str) -> str:
        """The subject that says that an order has begun to delete pods of units."""
        return f"{self.prefix}.v1.begun.{token(order_id)}"

    def outcome(self, order_id: str) -> str:
        """The subject that holds an order's one outcome."""
        return f"{self.prefix}.v1.outcomes.{token(order_id)}"

    def decisions_of(self, kind: OrderKind, about: str) -> str:
        """The subject of the decision records about a pod or PodGroup (its UID) or queue (its path)."""
        return f"{self.prefix}.v1.decisions.{_about(kind, about)}"

    def decision(self, record: DecisionRecord) -> str:
        """The subject of a decision record."""
        of_pods = record.preemptor_uid or record.decision_id
        return self.decisions_of(record.kind, record.queue if record.kind == "quota" else of_pods)

    def comparison(self, preemptor_uid: str) -> str:
        """The subject of comparisons about one preemptor; in the decisions' stream, as all `comparisons`."""
        return f"{self.prefix}.v1.decisions.comparison.{token(preemptor_uid)}"

    def recording(self, name: str) -> str:
        """The subject that holds the parts of one recording, in order."""
        return f"{self.prefix}.v1.recordings.{token(name)}"

    def quarantined(self, component: str) -> str:
        """The subject of the messages that a component (evictor, planner) has put aside."""
        return f"{self.prefix}.v1.quarantine.{token(component)}"
