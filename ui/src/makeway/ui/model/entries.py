"""One preemption, or the refusal of one, as the page lists it: bounded, whatever the messages say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from makeway.bus.comparison import Choice, Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome, Victim
from makeway.cli.history.story import Message, Row

MOST_VICTIMS: Final = 20
"""Victims that are listed of one entry; its story has all of them."""

MOST_TEXT: Final = 400
"""Characters of a message that are listed."""


V = TypeVar("V", DecisionRecord, EvictionOrder, Outcome, Choice)


class Entry(Row, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A row of the timeline, with the first few of its victims.

    key: of the row, as long as it is kept. revision: of the timeline, when the entry last changed. reason: a
    constant; message: the sentence. victims_total counts all victims.
    """

    key: str
    revision: int
    message: str = ""
    victims_total: int = 0


def bounded(message: Message) -> tuple[Message, int]:
    """Return a message with what a list shows of it, and how many victims it has.

    What else it says is kept in the stream, and read when it is asked for. O(victims).
    """
    match message:
        case DecisionRecord(diagnosis=why):
            if why is not None:
                text = why.message[:MOST_TEXT]
                why = msgspec.structs.replace(why, message=text, node_reasons={}, depends_on=())
            small: Message = _few(message, candidates=(), nearest=(), spared_by_rule={}, diagnosis=why)
        case EvictionOrder():
            small = _few(message, awaited=(), nominations_to_clear=())
        case Outcome():
            text = message.message[:MOST_TEXT]
            small = _few(message, nominations_cleared=(), rollback=None, message=text)
        case Comparison(default_preemption=Choice() as theirs):
            few = _few(theirs)
            small = msgspec.structs.replace(message, default_preemption=few, makeway=None, refusal=None)
            return small, len(theirs.victims)
        case Comparison():
            return message, 0
    return small, len(message.victims)


def _few(of: V, **others: Any) -> V:
    """Return a value with the first few of its victims, and with other fields changed."""
    return msgspec.structs.replace(of, victims=of.victims[:MOST_VICTIMS], **others)


def entry_of(key: str, row: Row, revision: int, victims_total: int) -> Entry:
    """Return a row as the page lists it."""
    reason, _, message = row.reason.partition(": ")
    fields = msgspec.structs.asdict(row) | {
        "reason": reason[:MOST_TEXT],
        "victims": first(row.victims),
    }
    return Entry(
        **fields,
        key=key,
        revision=revision,
        message=message[:MOST_TEXT],
        victims_total=max(victims_total, len(row.victims)),
    )


def first(victims: Sequence[Victim]) -> tuple[Victim, ...]:
    """Return the first few victims, without what their story alone tells."""
    few = victims[:MOST_VICTIMS]
    return tuple(msgspec.structs.replace(one, detail="", closes=None, facts=None) for one in few)
