"""Forged messages in a real nats-server's streams: they neither end an order nor keep a real one out."""

from datetime import UTC, datetime

import pytest

from builders_bus import make_order, make_outcome
from builders_keys import signatures
from fixtures_nats import ConnectBus
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.errors import Malformed
from makeway.bus.messages import Outcome
from makeway.bus.nats.publishing import AlreadyExists, Published
from makeway.bus.records import Last, Unverified
from makeway.bus.signing.keys import SigningKind
from narrowing import as_a

pytestmark = pytest.mark.nats

ORDER = make_order("uid-1")
OUTCOME = make_outcome(ORDER)


async def signing(connect_bus: ConnectBus) -> Bus:
    """A part that signs, and requires that others do."""
    bus = await connect_bus("evictor/real")
    bus.signatures = signatures()
    return bus


async def forge(bus: Bus, subject: str, data: bytes, message_id: str = "") -> None:
    """Store bytes as whoever may publish can, under an id where one is given."""
    headers = {"Nats-Msg-Id": message_id} if message_id else {}
    await bus.jetstream.publish(subject, data, headers=headers, timeout_seconds=2)


def failed(outcome: Outcome = OUTCOME) -> bytes:
    """The bytes of an outcome that nobody has signed."""
    return codec.wrap(make_outcome(ORDER, result="failed"), "makeway/evictor/forger")


async def stands(bus: Bus) -> Outcome | None:
    """The outcome that ends the order."""
    last = await bus.outcome(ORDER.order_id)
    return last.message if last else None


@pytest.mark.parametrize(
    ("data", "order_id", "message_id"),
    [
        *((data, ORDER.order_id, "") for data in (failed(), b"{}", b"\xff", b"x" * 10_000)),
        (failed(), ORDER.order_id, codec.envelope_id(OUTCOME)),
        (failed(), "ord-another", codec.envelope_id(OUTCOME)),
    ],
    ids=["unsigned", "empty", "no JSON", "long", "the real one's id", "the real one's id elsewhere"],
)
async def test_what_is_forged_as_an_outcome_ends_nothing_and_makes_place(
    bus: Bus, connect_bus: ConnectBus, data: bytes, order_id: str, message_id: str
) -> None:
    evictor = await signing(connect_bus)
    await forge(bus, evictor.subjects.outcome(order_id), data, message_id)

    assert await stands(evictor) is None
    assert isinstance(await evictor.publish_outcome(OUTCOME), Published)
    assert await stands(evictor) == OUTCOME


async def test_of_two_evictors_that_replace_a_forged_outcome_the_first_one_stands(
    bus: Bus, connect_bus: ConnectBus
) -> None:
    first, second = await signing(connect_bus), await signing(connect_bus)
    await forge(bus, first.subjects.outcome(ORDER.order_id), failed())

    await first.publish_outcome(OUTCOME)
    as_a(
        AlreadyExists, await second.publish_outcome(make_outcome(ORDER, result="failed", evictor="evictor-2"))
    )

    assert await stands(second) == OUTCOME


@pytest.mark.parametrize("data", [codec.wrap(ORDER, "makeway/planner/forger"), b"{}"], ids=["unsigned", "no"])
async def test_a_forged_last_order_leaves_its_place_to_the_next(
    bus: Bus, connect_bus: ConnectBus, data: bytes
) -> None:
    scheduler = await signing(connect_bus)
    await forge(bus, scheduler.subjects.orders_of("pod", "uid-1"), data)

    last = as_a(Unverified, await scheduler.last_order("uid-1"))

    assert isinstance(await scheduler.publish_order(ORDER, last.sequence), Published)
    standing = as_a(Last, await scheduler.last_order("uid-1"))
    assert standing.message == ORDER


async def test_a_forged_control_state_is_none_and_is_written_over(bus: Bus, connect_bus: ConnectBus) -> None:
    planner, now = await signing(connect_bus), datetime.now(UTC)
    state = ControlState(revision=7, mode="enforce", cluster_uid="c")
    await forge(bus, planner.subjects.control, codec.wrap(state, "makeway/planner/forger", at=now))

    found, sequence = await planner.control()

    assert found is None
    assert isinstance(await planner.publish_control(state, sequence, now), Published)
    assert (await planner.control())[0] == state


async def test_a_signed_message_that_is_not_understood_still_stands(
    bus: Bus, connect_bus: ConnectBus
) -> None:
    evictor = await signing(connect_bus)
    subject = evictor.subjects.outcome(ORDER.order_id)
    envelope = codec.envelope_of(OUTCOME, "makeway/evictor/newer")
    newer = codec.encode(
        signatures().signing[SigningKind.OUTCOME].sign(envelope, SigningKind.OUTCOME, subject)
    ).replace(b".v1", b".v9")
    await forge(bus, subject, newer)

    with pytest.raises(Malformed, match="unknown-version"):
        await evictor.outcome(ORDER.order_id)
    assert isinstance(await evictor.publish_outcome(OUTCOME), AlreadyExists)
