"""What is stored behind a message of the subject is the answer, whatever the publish of the order came to."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import pytest

from builders_bus import NOW, make_order
from makeway.bus import codec
from makeway.bus.commit import TOO_LARGE
from makeway.bus.errors import BusUnavailable, KeyNotPublished
from makeway.bus.messages import EvictionOrder, Void
from makeway.bus.nats.jetstream import StoredMessage
from makeway.bus.nats.publishing import AlreadyExists, MessageTooLarge, Published, PublishRefused
from makeway.bus.orders import NOT_ACKNOWLEDGED, TAKEN_BY_NO_STREAM, OrderWriter, voided
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects

SUBJECT: Final = Subjects().orders_of("pod", "uid-preemptor")
LOST: Final = BusUnavailable("no answer")


@dataclass
class Fault:
    """What happens to one publish. `stored`: it is stored all the same; `error`: what its writer hears."""

    error: Exception
    stored: bool = False


class Stream:
    """The stream of orders, and `makeway.bus.client.Bus` over it, as far as a writer uses it."""

    def __init__(self, *faults: Fault | None) -> None:
        self.subjects = Subjects()
        self.signatures = Signatures()
        self.jetstream = self
        self.messages: list[StoredMessage] = []
        self.sequence = 0
        self.faults = deque(faults)
        self.unread: deque[object] = deque()

    def put(self, order: EvictionOrder | bytes) -> int:
        self.sequence += 1
        data = order if isinstance(order, bytes) else codec.wrap(order, "makeway/planner/p")
        self.messages.append(StoredMessage(SUBJECT, self.sequence, NOW, data))
        return self.sequence

    async def publish_order(self, order: EvictionOrder, expected: int) -> Published | AlreadyExists:
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not fault.stored:
            raise fault.error
        last = self.messages[-1] if self.messages else None
        if (last.sequence if last else 0) != expected:
            if last is not None and last.data == codec.wrap(order, "makeway/planner/p"):
                return Published(last.sequence)
            return AlreadyExists(last)
        sequence = self.put(order)
        if fault is not None:
            raise fault.error
        return Published(sequence)

    async def first_message(self, stream: str, subject: str, after: int) -> StoredMessage | None:
        if self.unread:
            found = self.unread.popleft()
            if isinstance(found, Exception):
                raise found
            return None
        return next((one for one in self.messages if one.sequence > after), None)


def writer(stream: Stream) -> tuple[OrderWriter, list[float]]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    bus: Any = stream
    return OrderWriter(bus, sleep=sleep), slept


async def store(stream: Stream, order: EvictionOrder, after: int) -> EvictionOrder:
    return await writer(stream)[0].store(order, after)


def orders(stream: Stream) -> list[EvictionOrder]:
    return [codec.unwrap_order(one.data) for one in stream.messages]


async def test_an_order_that_is_acknowledged_is_the_answer() -> None:
    stream, order = Stream(), make_order()

    assert await store(stream, order, 0) == order
    assert orders(stream) == [order]


@pytest.mark.parametrize("lost", [1, 3])
async def test_an_order_that_was_not_acknowledged_and_not_stored_is_voided(lost: int) -> None:
    stream, order = Stream(*[Fault(LOST)] * lost), make_order()

    answer = await store(stream, order, 0)

    assert answer == voided(order, Void(reason=NOT_ACKNOWLEDGED, message="no answer"))
    assert orders(stream) == [answer]
    assert (answer.victims, answer.not_after) == ((), order.created_at)


async def test_an_order_that_was_stored_without_an_acknowledgement_is_the_answer() -> None:
    stream, order = Stream(Fault(LOST, stored=True), Fault(LOST)), make_order()

    assert await store(stream, order, 0) == order
    assert orders(stream) == [order]


async def test_of_two_writers_of_one_order_both_answer_what_came_first() -> None:
    stream, order = Stream(), make_order()
    refused = voided(order, Void(reason="braked", message="the brake holds all"))

    first = await store(stream, refused, 0)

    assert await store(stream, order, 0) == first == refused
    assert orders(stream) == [refused]


async def test_another_order_that_came_first_is_the_answer_also_once_others_came_behind_it() -> None:
    stream, mine, other = Stream(), make_order(), make_order()
    stream.put(other)
    stream.put(make_order())

    assert await store(stream, mine, 0) == other


async def test_that_nothing_is_read_after_a_conflict_decides_nothing() -> None:
    stream, mine, other = Stream(), make_order(), make_order()
    stream.put(other)
    stream.unread.extend([None, LOST, None])

    answer = await store(stream, mine, 0)

    assert answer == other
    assert orders(stream) == [other]


async def test_what_says_nothing_is_passed_over() -> None:
    stream, order = Stream(), make_order()
    stream.put(b"no order")

    assert await store(stream, order, 0) == order
    assert await writer(stream)[0].first(SUBJECT, 0) == order


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PublishRefused("the stream is sealed"), TAKEN_BY_NO_STREAM), (MessageTooLarge("2 MB"), TOO_LARGE)],
)
async def test_an_order_that_the_stream_refuses_is_voided(error: Exception, reason: str) -> None:
    stream, order = Stream(Fault(error)), make_order()

    answer = await store(stream, order, 0)

    assert answer.void == Void(reason=reason, message=f"{len(order.victims)} victims: {error}")


@pytest.mark.parametrize("error", [KeyNotPublished("not published"), PublishRefused("no")])
async def test_where_nothing_can_be_written_the_writer_says_so(error: Exception) -> None:
    stream, order = Stream(Fault(error), Fault(error)), make_order()

    with pytest.raises(type(error)):
        await store(stream, order, 0)

    assert not stream.messages


async def test_in_a_stream_that_was_made_anew_the_order_is_stored_first() -> None:
    stream, order = Stream(), make_order()
    writing, slept = writer(stream)

    assert await writing.store(order, 7) == order
    assert orders(stream) == [order]
    assert slept


async def test_an_order_of_another_in_a_stream_that_was_made_anew_is_the_answer() -> None:
    stream, mine, other = Stream(), make_order(), make_order()
    stream.put(other)

    assert await store(stream, mine, 7) == other
    assert orders(stream) == [other]


async def test_that_nothing_was_stored_yet_is_no_answer() -> None:
    assert await writer(Stream())[0].first(SUBJECT, 0) is None
