"""Messages of three streams come in the order of their causes, whatever clocks and streams do."""

import random
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec.structs import replace

from builders_bus import make_decision, make_order, make_outcome
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.bus.nats.jetstream import StoredMessage
from makeway.cli.history.order import HOLD, Causes
from makeway.cli.history.streams import entry_of

AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
Message: TypeAlias = DecisionRecord | EvictionOrder | Outcome


def preemption(number: int) -> tuple[Message, ...]:
    order = replace(make_order(f"uid-{number}"), decision_id=f"dec-{number}")
    decision = make_decision(decision_id=order.decision_id, preemptor=order.preemptor)
    return decision, order, make_outcome(order)


def precedes(shown: list[Message]) -> bool:
    """Report whether every order follows its decision, and every outcome its order."""
    seen: set[str] = set()
    for one in shown:
        if isinstance(one, DecisionRecord):
            seen.add(one.decision_id)
        elif isinstance(one, EvictionOrder):
            if one.decision_id not in seen:
                return False
            seen.add(one.order_id)
        elif one.order_id not in seen:
            return False
    return True


def test_a_cause_precedes_its_effect_however_late_it_comes_within_the_hold_and_whatever_clocks_say() -> None:
    source = random.Random(20261127)
    for _ in range(100):
        held: Causes[Message] = Causes()
        coming: list[tuple[datetime, datetime, Message]] = []
        for number in range(20):
            begin = AT + timedelta(milliseconds=number * source.randrange(60))
            for step, message in enumerate(preemption(number)):
                written = begin + timedelta(milliseconds=20 * step + source.randrange(-80, 80))
                came = begin + timedelta(milliseconds=20 * step + source.randrange(200))
                coming.append((came, written, message))
        shown: list[Message] = []
        for came, written, message in sorted(coming, key=lambda one: one[0]):
            held.add(message, written, message, came)
            shown += held.due(came)
        shown += held.rest()

        assert len(shown) == len(coming)
        assert precedes(shown)


def test_nothing_is_held_longer_than_the_hold_once_time_has_passed() -> None:
    decision, order, outcome = preemption(1)
    held: Causes[Message] = Causes()
    for message in (outcome, order, decision):
        held.add(message, AT, message, AT)

    assert held.due(AT + HOLD / 2) == []
    assert held.due(AT + HOLD) == [decision, order, outcome]
    assert not held


def test_what_cannot_be_read_is_told_with_its_place_and_its_text() -> None:
    stored = StoredMessage(subject="s", sequence=3, time=AT, headers={}, data=b"\x1b[31m\n")

    plain = entry_of("order", stored).plain()

    assert (plain["kind"], plain["sequence"]) == ("order", 3)
    assert plain["malformed"]["reason"] == "not-json"
    assert plain["data"] == "\x1b[31m\n"
