"""Which orders are live, whatever else lies in their stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.messages import EvictionOrder
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects
from makeway.evictor.intake.live_orders import StreamOrders
from unit.evictor.building import NOW, make_order


@dataclass(frozen=True)
class Message:
    data: bytes
    subject: str


class Stream:
    """What is used of the bus; no order has an outcome."""

    subjects = Subjects()
    signatures = Signatures()

    def __init__(self, *orders: EvictionOrder, subject: str = "") -> None:
        self.reads = 0
        self.messages = [Message(b"junk", subject)] + [
            Message(codec.wrap(order, "test"), subject or self.subjects.order(order)) for order in orders
        ]

    async def follow(self, *_: Any, **__: Any) -> AsyncIterator[Message]:
        self.reads += 1
        await asyncio.sleep(0)
        for message in self.messages:
            yield message

    async def outcome(self, _: str) -> None:
        return None


async def live(stream: Stream, uid: str = "a-uid") -> bool:
    return await StreamOrders(cast("Bus", stream)).name(uid, NOW)


@pytest.mark.parametrize(("past", "expected"), [(1, True), (3, False)])
async def test_an_order_lives_until_a_moment_after_its_time(past: int, expected: bool) -> None:
    assert await live(Stream(make_order("a", not_after=NOW - timedelta(seconds=past)))) is expected


async def test_an_order_for_the_end_of_time_is_in_nobodys_way() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    stream = Stream(make_order("b", not_after=last), make_order("a", order_id="ord-2"))

    assert await live(stream)
    assert not await live(stream, "c-uid")


async def test_an_order_on_anothers_subject_is_none() -> None:
    assert not await live(Stream(make_order("a"), subject=Subjects().orders_of("pod", "somebody-else")))


async def test_questions_that_come_together_share_a_read_of_the_orders() -> None:
    stream = Stream(make_order("a"))
    orders = StreamOrders(cast("Bus", stream))

    answers = await asyncio.gather(*(orders.name(uid, NOW) for uid in ["a-uid", *["b-uid"] * 99]))

    assert answers == [True] + [False] * 99
    assert stream.reads == 2  # one that was under way, and one for all who came meanwhile
