"""A model of NATS: streams with compare-and-set and a duplicate window, a durable consumer, lost requests."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import nats.errors

from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import StreamPosition
from makeway.bus.nats.jetstream import StoredMessage
from makeway.bus.streams.configs import ACK_WAIT_SECONDS
from makeway.bus.subjects import Subjects
from protocol.loop import Process
from protocol.world import UnansweredError, World

DUPLICATE_WINDOW_SECONDS = 120.0
SUBJECTS = Subjects()


@dataclass(frozen=True)
class Stored:
    """A message of a stream."""

    sequence: int
    subject: str
    data: bytes
    message_id: str
    time: datetime
    at: float
    by: str


@dataclass
class Stream:
    """One stream. `made`: how often it was made anew."""

    name: str
    messages: list[Stored] = field(default_factory=list)
    last: int = 0
    made: int = 1
    ids: dict[str, tuple[float, int]] = field(default_factory=dict)
    last_of: dict[str, Stored] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Pending:
    """What the consumer knows of one message that is not acknowledged."""

    message: Stored
    deliveries: int = 0
    due: float = 0.0
    last_to: str = ""


class Nats:
    """The server."""

    compares = True
    """Whether a publish with an expected sequence is compared; a defect of `mutants` where not."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.streams = {
            name: Stream(name)
            for name in (SUBJECTS.orders_stream, SUBJECTS.outcomes_stream, SUBJECTS.control_stream)
        }
        self.waiting: dict[int, Pending] = {}
        self.taken: list[Callable[[str, Stored], None]] = []
        """Called with every message that is stored."""
        self.planners: dict[Process, Callable[..., None]] = {}
        self.committers: dict[Process, Callable[[bytes], Any]] = {}
        self.repairs: dict[Process, Callable[[bytes], Any]] = {}

    def stream_of(self, subject: str) -> Stream:
        """The stream that holds a subject."""
        if subject.startswith(SUBJECTS.orders[:-1]):
            return self.streams[SUBJECTS.orders_stream]
        if subject.startswith(SUBJECTS.outcomes[:-1]):
            return self.streams[SUBJECTS.outcomes_stream]
        return self.streams[SUBJECTS.control_stream]

    def store(
        self, subject: str, data: bytes, message_id: str, expected: int | None, by: str
    ) -> dict[str, Any]:
        """Take a message; the acknowledgement, or an error as JetStream words it."""
        stream = self.stream_of(subject)
        known = stream.ids.get(message_id)
        if known and self.world.loop.virtual - known[0] < DUPLICATE_WINDOW_SECONDS:
            return {"stream": stream.name, "seq": known[1], "duplicate": True}
        last = stream.last_of.get(subject)
        if self.compares and expected is not None and expected != (last.sequence if last else 0):
            return {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence"}}
        stream.last += 1
        now = self.world.loop.virtual
        stored = Stored(stream.last, subject, data, message_id, self.world.now(), now, by)
        stream.messages.append(stored)
        stream.ids[message_id] = (now, stream.last)
        stream.last_of[subject] = stored
        for listener in self.taken:
            listener(stream.name, stored)
        if stream.name == SUBJECTS.orders_stream:
            self.waiting[stream.last] = Pending(stored)
        self._wake(stream)
        return {"stream": stream.name, "seq": stream.last}

    def wipe(self) -> None:
        """Lose orders and outcomes, as a disk that is gone does."""
        for name in (SUBJECTS.orders_stream, SUBJECTS.outcomes_stream):
            old = self.streams[name]
            self.streams[name] = Stream(name, made=old.made + 1)
            self._wake(old)
        self.waiting.clear()

    def _wake(self, stream: Stream) -> None:
        stream.arrived.set()
        stream.arrived = asyncio.Event()

    # -------------------------------------------------------------------------------- the consumer

    def take(self, by: str) -> Pending | None:
        """Give out the next order that nobody holds."""
        now = self.world.loop.virtual
        for pending in self.waiting.values():
            if pending.due <= now or (
                pending.last_to != by and self.world.chance(self.world.faults.repeat, "delivered twice")
            ):
                pending.deliveries += 1
                pending.due = now + ACK_WAIT_SECONDS
                pending.last_to = by
                return pending
        return None

    def next_due(self) -> float:
        """When an order that is held now falls due."""
        return min((p.due for p in self.waiting.values()), default=self.world.loop.virtual + 30.0)


class Delivery:
    """`makeway.bus.streams.orders_consumer.Delivery`."""

    def __init__(self, nats_: Nats, process: Process, pending: Pending) -> None:
        self._nats, self._process, self._pending = nats_, process, pending
        message = pending.message
        self.data, self.subject, self.sequence = message.data, message.subject, message.sequence
        self.deliveries, self.published_at = pending.deliveries, message.time
        self.traceparent = ""

    async def _say(self, act: Callable[[], None]) -> None:
        try:
            await self._nats.world.request(self._process, "nats", act, 2.0)
        except UnansweredError as error:
            raise BusUnavailable("no answer") from error

    def _mine(self) -> Pending | None:
        pending = self._nats.waiting.get(self.sequence)
        return pending if pending is self._pending else None

    async def ack_sync(self) -> None:
        def act() -> None:
            if self._mine() is not None:
                del self._nats.waiting[self.sequence]
                self._nats.world.note(
                    "nats", f"order {self.sequence} is acknowledged by {self._process.identity}"
                )

        await self._say(act)

    async def in_progress(self) -> None:
        def act() -> None:
            if (pending := self._mine()) is not None:
                pending.due = self._nats.world.loop.virtual + ACK_WAIT_SECONDS

        await self._say(act)

    async def nak(self, delay_seconds: float = 0.0) -> None:
        def act() -> None:
            if (pending := self._mine()) is not None:
                pending.due = self._nats.world.loop.virtual + delay_seconds

        await self._say(act)

    async def term(self, reason: str) -> None:
        await self.ack_sync()


class Orders:
    """`makeway.bus.streams.orders_consumer.OrdersConsumer` of one process."""

    def __init__(self, nats_: Nats, process: Process) -> None:
        self._nats, self._process = nats_, process

    async def next(self, timeout_seconds: float) -> Delivery | None:
        """The next order, or None."""
        world, process = self._nats.world, self._process
        until = world.loop.virtual + timeout_seconds
        while world.loop.virtual < until:
            await process.run_on()
            if not world.is_cut(process.name, "nats") and (found := self._nats.take(process.identity)):
                await asyncio.sleep(world.latency())
                world.strike(process)
                await process.run_on()
                world.note(
                    process.identity, f"takes order {found.message.sequence}, delivery {found.deliveries}"
                )
                return Delivery(self._nats, process, found)
            arrived = self._nats.streams[SUBJECTS.orders_stream].arrived
            # Rather often: a message may fall due by a word of another's.
            wait = min(1.0, max(self._nats.next_due() - world.loop.virtual, 0.02))
            if world.is_cut(process.name, "nats"):
                wait = max(wait, world.cut[process.name, "nats"] - world.loop.virtual)
            await _either(arrived, wait)
        return None


async def _either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


class _Client:
    """`nats.aio.client.Client`, as far as JetStream's requests and repairs use it."""

    def __init__(self, nats_: Nats, process: Process) -> None:
        self._nats, self._process = nats_, process

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 2.0,  # noqa: ASYNC109 - nats-py's
        headers: dict[str, str] | None = None,
    ) -> Any:
        try:
            answer = await self._nats.world.request(
                self._process,
                "nats",
                lambda: self._answer(subject, payload, headers or {}),
                timeout,
                stores_order=subject.startswith(SUBJECTS.orders[:-1]),
            )
        except UnansweredError as error:
            raise nats.errors.TimeoutError from error
        return _Answer(json.dumps(answer).encode())

    def _answer(self, subject: str, payload: bytes, headers: dict[str, str]) -> dict[str, Any]:
        if not subject.startswith("$JS.API."):
            expected = headers.get("Nats-Expected-Last-Subject-Sequence")
            return self._nats.store(
                subject,
                payload,
                headers["Nats-Msg-Id"],
                int(expected) if expected is not None else None,
                self._process.identity,
            )
        stream = self._nats.streams[subject.rpartition(".")[2]]
        asked = json.loads(payload)
        if "next_by_subj" in asked:
            behind = (m for m in stream.messages if m.subject == asked["next_by_subj"])
            last = next((m for m in behind if m.sequence >= asked["seq"]), None)
        else:
            last = stream.last_of.get(asked["last_by_subj"])
        if last is None:
            return {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
        time = last.time.isoformat().replace("+00:00", "Z")
        data = base64.b64encode(last.data).decode()
        return {"message": {"subject": last.subject, "seq": last.sequence, "time": time, "data": data}}

    async def publish(self, subject: str, payload: bytes) -> None:
        """A message that is neither stored nor answered: a proposal, to one of the evictors."""
        world = self._nats.world
        await self._process.run_on()
        for _ in range(2 if world.chance(world.faults.repeat, "delivered twice") else 1):
            if world.chance(world.faults.lose_request, "requests lost") or not self._nats.repairs:
                continue
            takers = [p for p in self._nats.repairs if p.alive]
            if takers:
                taker = world.rng.choice(takers)
                handler = self._nats.repairs[taker]
                world.loop.call_later(
                    world.latency(), taker.call, lambda t=taker, h=handler: t.spawn(h(payload)) and None
                )


@dataclass
class _Answer:
    data: bytes


class _Connection:
    def __init__(self, client: _Client) -> None:
        self.client = client


class SimulatedBus(Bus):
    """The bus as it is, over the model; following alone is the model's."""

    def __init__(self, nats_: Nats, process: Process, name: str) -> None:
        connection = cast("Any", _Connection(_Client(nats_, process)))
        super().__init__(connection, name=f"{name}/{process.identity}", subjects=SUBJECTS)
        self._nats, self._process = nats_, process

    async def follow(
        self,
        stream: str,
        *,
        since: datetime | timedelta | None = None,
        caught_up: asyncio.Event | None = None,
        stop_at_end: bool = False,
        restarted: Callable[[], None] | None = None,
        reached: Callable[[StreamPosition], None] | None = None,
        **_: Any,
    ) -> AsyncGenerator[StoredMessage]:
        """Read a stream, each message once and in order, late."""
        world, process = self._nats.world, self._process
        at, made = 0, self._nats.streams[stream].made
        while True:
            await process.run_on()
            held = self._nats.streams[stream]
            if world.is_cut(process.name, "nats"):
                await asyncio.sleep(max(0.01, world.cut[process.name, "nats"] - world.loop.virtual))
                continue
            if held.made != made:
                at, made = 0, held.made
                if restarted is not None:
                    restarted()
            if at < len(held.messages):
                batch = held.messages[at:]
                await asyncio.sleep(world.latency())
                await process.run_on()
                for message in batch:
                    if held is not self._nats.streams[stream]:
                        break
                    at += 1
                    if not isinstance(since, datetime) or message.time >= since:  # else of long before
                        yield StoredMessage(message.subject, message.sequence, message.time, message.data)
                    if reached is not None:
                        reached(StreamPosition(created=str(made), sequence=message.sequence))
                continue
            if caught_up is not None:
                caught_up.set()
            if stop_at_end:
                return
            await held.arrived.wait()
