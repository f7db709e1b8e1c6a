"""One preemption, or the refusal of one, as the page lists it: bounded, whatever the messages say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder, Outcome, Victim
from makeway.cli.history.story import Message, Row
from makeway.cli.text import safe

MOST_VICTIMS: Final = 20
"""Victims that are listed of one entry; its story has all of them."""

MOST_TEXT: Final = 400
"""Characters of a message that are listed."""

OVERDUE: Final = "overdue"
"""The result of an order that has no outcome, and whose deadline is past."""

_GRACE: Final = timedelta(seconds=2)


class EvictedPod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that had to go, or would have."""

    namespace: str
    name: str
    node: str
    priority: int
    rule: str = ""
    pdb_violating: bool = False
    unit: str = ""


class Entry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A row of the timeline; see `makeway.cli.history.story.Row` for what the fields of one name mean.

    key: of the row, as long as it is kept. revision: of the timeline, when the entry last changed. reason: a
    constant; message: the sentence. victims: the first few; victims_total counts all.
    """

    key: str
    revision: int
    at: datetime
    kind: str
    result: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    queue: str = ""
    node: str = ""
    victims: tuple[EvictedPod, ...] = ()
    victims_total: int = 0
    pdb_violations: int = 0
    reason: str = ""
    message: str = ""
    took_seconds: float | None = None
    times: int = 1
    decision_id: str = ""
    order_id: str = ""
    until: datetime | None = None
    preempted_by: str = ""


def bounded(message: Message) -> tuple[Message, int]:
    """Return a message with what a list shows of it, and how many victims it has.

    What else it says is kept in the stream, and read when it is asked for. O(victims).
    """
    match message:
        case DecisionRecord():
            small = msgspec.structs.replace(
                message,
                victims=message.victims[:MOST_VICTIMS],
                candidates=(),
                nearest=(),
                spared_by_rule={},
                diagnosis=message.diagnosis
                and msgspec.structs.replace(
                    message.diagnosis,
                    message=message.diagnosis.message[:MOST_TEXT],
                    node_reasons={},
                    depends_on=(),
                ),
            )
            return small, len(message.victims)
        case EvictionOrder():
            few = message.victims[:MOST_VICTIMS]
            return (
                msgspec.structs.replace(message, victims=few, awaited=(), nominations_to_clear=()),
                len(message.victims),
            )
        case Outcome():
            few_ended = message.victims[:MOST_VICTIMS]
            text = message.message[:MOST_TEXT]
            return (
                msgspec.structs.replace(
                    message, victims=few_ended, nominations_cleared=(), rollback=None, message=text
                ),
                len(message.victims),
            )
        case Comparison():
            theirs = message.default_preemption
            if theirs is None:
                return message, 0
            few_theirs = msgspec.structs.replace(theirs, victims=theirs.victims[:MOST_VICTIMS])
            small_one = msgspec.structs.replace(
                message, default_preemption=few_theirs, makeway=None, refusal=None
            )
            return small_one, len(theirs.victims)


def entry_of(key: str, row: Row, revision: int, victims_total: int, now: datetime) -> Entry:
    """Return a row as the page lists it."""
    reason, _, message = row.reason.partition(": ")
    result = row.result
    if result == "live" and row.until is not None and row.until + _GRACE < now:
        result = OVERDUE
    return Entry(
        key=key,
        revision=revision,
        at=row.at,
        kind=row.kind,
        result=result,
        namespace=safe(row.namespace),
        name=safe(row.name),
        uid=safe(row.uid),
        queue=safe(row.queue),
        node=safe(row.node),
        victims=gone(row.victims),
        victims_total=max(victims_total, len(row.victims)),
        pdb_violations=row.pdb_violations,
        reason=safe(reason[:MOST_TEXT]),
        message=safe(message[:MOST_TEXT]),
        took_seconds=row.took_seconds,
        times=row.times,
        decision_id=row.decision_id,
        order_id=row.order_id,
        until=row.until,
        preempted_by=safe(row.preempted_by),
    )


def gone(victims: Sequence[Victim]) -> tuple[EvictedPod, ...]:
    """Return the first few victims."""
    return tuple(
        EvictedPod(
            namespace=safe(one.namespace),
            name=safe(one.name),
            node=safe(one.node),
            priority=one.priority,
            rule=safe(one.rule),
            pdb_violating=one.pdb_violating,
            unit=safe(one.unit),
        )
        for one in victims[:MOST_VICTIMS]
    )
