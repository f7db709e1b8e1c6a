"""The bus as services use it: one object that publishes, takes orders, follows streams and serves plans."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, NoReturn, TypeVar

import nats.errors
import structlog
from nats.aio.msg import Msg

from makeway.bus import codec, metrics, quarantine, streams, tracing
from makeway.bus.comparison import Comparison
from makeway.bus.components import Components
from makeway.bus.connection import Connection, ConnectionTimings
from makeway.bus.epochs import Epochs
from makeway.bus.errors import BusUnavailable, Malformed
from makeway.bus.follow import Follower, Start, StreamMessage, follow
from makeway.bus.jetstream import API, JetStream, JetStreamError, StoredMessage, translated
from makeway.bus.login import Login
from makeway.bus.messages import Begun, ControlState, DecisionRecord, EvictionOrder, Outcome
from makeway.bus.named_consumers import ConsumersKeeper, NamedConsumer, ensure_named_consumers
from makeway.bus.orders_consumer import OrdersConsumer
from makeway.bus.permissions import passing
from makeway.bus.publishing import AlreadyExists, Published, publish
from makeway.bus.quarantine import QuarantinedMessage
from makeway.bus.reconciler import StreamReconciler
from makeway.bus.repairs import Repairs
from makeway.bus.service import Responder, serve
from makeway.bus.signatures import FAILURES, Signatures
from makeway.bus.signing import SigningKind
from makeway.bus.subjects import DEFAULT_PREFIX, SERVICES, Subjects, inbox
from makeway.bus.user_key import KeyLogin

PlanHandler = Callable[[bytes, str], Awaitable[bytes]]
"""Given a request, and who asks: what the reply subjects of one connection have in common."""

QueueHandler = Callable[[bytes], Awaitable[bytes]]

_KEEP_SECONDS = 5.0
"""Between two looks of who keeps the streams: without one of them no order is stored."""

_ASK_SECONDS = 1.0

GROUPS_AT_ONCE = 64
"""Questions about groups in one planner's hands, of which one is planned at a time."""

COMMITS_AT_ONCE = 512
"""Commits in one planner's hands; most wait for their nominations to be seen."""

_FORGERIES = 4
"""So many times an outcome is written where others that count for nothing are in its place."""

_M = TypeVar("_M", EvictionOrder, Begun, Outcome)

_log = structlog.get_logger()


@dataclass(frozen=True)
class Last(Generic[_M]):
    """The last message of a subject: what it says, its sequence in the stream, when it was stored."""

    message: _M
    sequence: int
    time: datetime


@dataclass(frozen=True)
class Unverified:
    """The last message of a subject where its signature does not hold: it says nothing."""

    sequence: int


class Bus:
    """A connection to the bus under one subject prefix."""

    def __init__(
        self,
        connection: Connection,
        *,
        name: str,
        subjects: Subjects,
        api: str = API,
        signatures: Signatures | None = None,
    ) -> None:
        self.connection = connection
        self.jetstream = JetStream(connection.client, api)
        self.subjects = subjects
        self.epochs = Epochs(self.jetstream, subjects)
        self.repairs = Repairs(connection, subjects)
        self.components = Components(connection, subjects)
        self.source = f"makeway/{name}"
        self.signatures = signatures or Signatures()
        self._keeper: StreamReconciler | None = None
        self._passing = passing(subjects, name.partition("/")[0])

    @classmethod
    async def connect(
        cls,
        servers: str | Sequence[str],
        *,
        name: str,
        prefix: str = DEFAULT_PREFIX,
        login: Login | KeyLogin | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        tls_hostname: str = "",
        timings: ConnectionTimings | None = None,
        signatures: Signatures | None = None,
    ) -> Bus:
        """Connect to NATS.

        Args:
            servers: one URL, several with commas, or a list.
            name: `<component>/<identity>`, the source of all that is published here.
            prefix: of every subject.
            login: how the client proves who it is, where the URL does not say all.
            tls: the TLS context for each connection; given, nothing goes in clear.
            tls_hostname: the name on the server's certificate, where it is not the URL's.
            timings: other than the usual ones.
            signatures: of what is published and read; none by default.

        Raises:
            ValueError: the prefix cannot be one.
            BusRefused: a URL, the credentials or TLS are wrong.
            BusUnavailable: no server answered in time.
        """
        subjects = Subjects(prefix)
        urls = servers.split(",") if isinstance(servers, str) else servers
        connection = await Connection.open(
            [url.strip() for url in urls],
            name=f"makeway/{name}",
            probe_subject=subjects.probe,
            inbox=inbox(name.partition("/")[0]),
            login=login,
            tls=tls,
            tls_hostname=tls_hostname,
            timings=timings,
        )
        api = API if name.partition("/")[0] in SERVICES else await _api_of_people(connection, subjects)
        return cls(connection, name=name, subjects=subjects, api=api, signatures=signatures)

    async def close(self) -> None:
        """Close the connection."""
        if self._keeper:
            self._keeper.close()
        await self.connection.close()

    def healthy(self) -> str:
        """What is wrong with the connection, as a readiness check; empty where nothing is."""
        return self.connection.unhealthy()

    def disconnected(self) -> str:
        """For how long there has been no connection, and why; empty where there is one."""
        return self.connection.disconnected()

    async def until_lost(self) -> NoReturn:
        """Run as a part of the process: raises `ConnectionLost` when only a restart can help."""
        await self.connection.until_lost()

    async def ensure_streams(
        self, replicas: int = 1, consumers: Iterable[NamedConsumer] | None = None
    ) -> None:
        """Create or reconcile the streams, once, and named consumers, where they are given.

        Raises:
            StreamConflict: a stream or consumer of the name cannot be made what it must be.
            BusUnavailable: NATS does not answer.
        """
        await streams.ensure_streams(self.jetstream, self.subjects, replicas)
        if consumers is not None:
            await ensure_named_consumers(self.jetstream, self.subjects, consumers)

    async def keep_streams(self, replicas: int = 1, consumers: Iterable[NamedConsumer] | None = None) -> None:
        """Do so until `close`, now and whenever they may have gone or drifted.

        Raises nothing: what stands in the way is logged, and tried again.
        """
        named = ConsumersKeeper(self.jetstream, self.subjects, consumers)

        async def ensure() -> None:
            await self.ensure_streams(replicas)
            await named.ensure()

        if self._keeper is None:
            self._keeper = StreamReconciler(self.connection, ensure, _KEEP_SECONDS, at_once=True)

    async def watch_streams(self) -> None:
        """Look at the streams now and, until `close`, once a minute and after each reconnection.

        What is missing or otherwise is logged, and is in the metric. Nothing is changed.

        Raises:
            BusUnavailable: NATS does not answer.
        """

        async def look() -> None:
            try:
                wrong = await streams.wrong_streams(self.jetstream, self.subjects)
            except JetStreamError as error:
                raise BusUnavailable(str(error)) from error
            metrics.STREAMS_WRONG.set(len(wrong))
            for stream, detail in wrong.items():
                _log.error("stream_wrong", stream=stream, detail=detail)

        await look()
        if self._keeper is None:
            self._keeper = StreamReconciler(self.connection, look)

    # ------------------------------------------------------------------------------------ plans

    async def serve_plan(self, handler: PlanHandler) -> Responder:
        """Answer every plan request with `handler`, one at a time.

        The leader alone does, so nothing is shared out: a leader that hangs would keep its share, for as long
        as NATS takes it for connected, from the one that has taken over. Where two lead for a moment, the
        first answer counts.

        An error of the handler leaves that request without an answer, which the asker's time-out
        covers; it is logged and counted, and the next request is served.
        """
        return await self._serve_plan(self.subjects.plan, handler, at_once=1)

    async def serve_group_plan(self, handler: PlanHandler) -> Responder:
        """Answer every plan request for a pod group; as `serve_plan`, and beside it.

        Some are handed to `handler` at once: one may wait for what it is about.
        """
        return await self._serve_plan(self.subjects.plan_group, handler, at_once=GROUPS_AT_ONCE)

    async def _serve_plan(
        self, subject: str, handler: PlanHandler, at_once: int, span: str = "plan"
    ) -> Responder:
        async def answer(message: Msg) -> bytes:
            with tracing.span(span, tracing.traceparent_of(message.headers)):
                return await handler(message.data, message.reply.rpartition(".")[0])

        return await self._serve(subject, "plan_request_failed", answer, at_once)

    async def serve_commits(self, handler: PlanHandler) -> Responder:
        """Answer commits; as `serve_group_plan`."""
        return await self._serve_plan(self.subjects.commit, handler, COMMITS_AT_ONCE, "commit")

    async def serve_queues(self, handler: QueueHandler) -> Responder:
        """Answer questions about queues; as `serve_plan`."""
        return await self._serve(
            self.subjects.queues, "queue_request_failed", lambda message: handler(message.data)
        )

    async def _serve(
        self, subject: str, failed: str, handler: Callable[[Msg], Awaitable[bytes]], at_once: int = 1
    ) -> Responder:
        service = await serve(self.connection, subject, handler, failed=failed, at_once=at_once)
        # Without a round trip the next line of the caller may come before the server knows.
        await self.connection.round_trip()
        return service

    async def request_plan(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask the planner, as the plugin does.

        Raises:
            BusUnavailable: no planner is there (at once), or none answered in time.
        """
        return await self._request_plan(self.subjects.plan, request, timeout_seconds)

    async def request_group_plan(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask the planner about a pod group; raises as `request_plan`."""
        return await self._request_plan(self.subjects.plan_group, request, timeout_seconds)

    async def _request_plan(self, subject: str, request: bytes, timeout_seconds: float) -> bytes:
        with translated("ask the planner"):
            answer = await self.connection.client.request(
                subject, request, timeout=timeout_seconds, headers=tracing.headers() or None
            )
        return answer.data

    async def request_commit(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask the planner to store an order; raises as `request_plan`."""
        return await self._request_plan(self.subjects.commit, request, timeout_seconds)

    async def request_verified_plan(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask a shadow scheduler for a plan that its filters have verified; raises as `request_plan`."""
        with translated("ask the shadow scheduler"):
            answer = await self.connection.client.request(
                self.subjects.verify, request, timeout=timeout_seconds
            )
        return answer.data

    async def request_queues(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask the leading planner about queues; raises as `request_plan`."""
        with translated("ask the planner about queues"):
            answer = await self.connection.client.request(
                self.subjects.queues, request, timeout=timeout_seconds
            )
        return answer.data

    # ------------------------------------------------------------------------------- publishing

    async def publish_order(
        self, order: EvictionOrder, expected_last_sequence: int
    ) -> Published | AlreadyExists:
        """Commit an order, where the last one of its pod, group or queue is the one the writer has read.

        `expected_last_sequence`: of that order, 0 for none. Raises ValueError where it names none, else
        as `makeway.bus.publishing.publish`.
        """
        subject = self.subjects.order(order)
        if not subject:
            raise ValueError("an order needs a preemptor; of kind group, a group; of kind quota, a queue")
        return await publish(
            self.jetstream,
            "order",
            stream=self.subjects.orders_stream,
            subject=subject,
            message_id=order.order_id,
            data=self.signatures.wrap(order, self.source, subject),
            expected_last_sequence=expected_last_sequence,
        )

    async def publish_begun(self, begun: Begun) -> None:
        """Say that an order has begun, once or again. Raises as `makeway.bus.publishing.publish`."""
        subject = self.subjects.begun(begun.order_id)
        await publish(
            self.jetstream,
            "begun",
            stream=self.subjects.begun_stream,
            subject=subject,
            message_id=codec.envelope_id(begun),
            data=self.signatures.wrap(begun, self.source, subject),
            expected_last_sequence=None,
        )

    async def publish_outcome(self, outcome: Outcome) -> Published | AlreadyExists:
        """Write the one outcome of an order. `AlreadyExists` holds the other writer's.

        What is stored under no good signature is no outcome, and is replaced, whatever it is. Raises as
        `makeway.bus.publishing.publish`.
        """
        subject, id_ = self.subjects.outcome(outcome.order_id), codec.envelope_id(outcome)
        data = self.signatures.wrap(outcome, self.source, subject)
        message_id, expected = id_, 0
        for _ in range(_FORGERIES):
            answer = await publish(
                self.jetstream,
                "outcome",
                stream=self.subjects.outcomes_stream,
                subject=subject,
                message_id=message_id,
                data=data,
                expected_last_sequence=expected,
            )
            if not isinstance(answer, AlreadyExists) or not self._counts_for_nothing(answer.existing):
                return answer
            # Within the duplicate window the stream takes no second message of an id, on whatever subject
            # the first one is: this one cannot be foreseen.
            expected = answer.existing.sequence if answer.existing else 0
            message_id = f"{id_}-{secrets.token_hex(8)}"
        raise BusUnavailable(f"{subject} is written again and again by one who cannot sign")

    def _counts_for_nothing(self, stored: StoredMessage | None) -> bool:
        """Report whether an outcome may be written in place of what is stored, or of nothing."""
        if stored is None:
            return True
        return self.signatures.refuses(stored.data, stored.subject, SigningKind.OUTCOME)

    async def publish_decision(self, record: DecisionRecord) -> Published:
        """Write a decision record, at least once. Raises as `makeway.bus.publishing.publish`."""
        answer = await publish(
            self.jetstream,
            "decision",
            stream=self.subjects.decisions_stream,
            subject=self.subjects.decision_of(record),
            message_id=record.decision_id,
            data=codec.wrap(record, self.source),
            expected_last_sequence=None,
        )
        if isinstance(answer, AlreadyExists):
            raise BusUnavailable("a record was refused for a sequence that no writer expected")
        return answer

    async def publish_comparison(self, comparison: Comparison) -> None:
        """Write a comparison beside the decision it is about. Raises as `makeway.bus.publishing.publish`."""
        await publish(
            self.jetstream,
            "comparison",
            stream=self.subjects.decisions_stream,
            subject=self.subjects.comparison(comparison.preemptor.uid),
            message_id=codec.envelope_id(comparison),
            data=codec.wrap(comparison, self.source),
            expected_last_sequence=None,
        )

    async def publish_recording(self, name: str, number: int, data: bytes, after: int) -> int:
        """Write a part of a recording, `number` from 0, and return its sequence. Reads nothing.

        name: of the recording, to which no other writes.
        after: the sequence of the part before; 0 for the first.

        Raises:
            BusUnavailable: the part before is not the last one stored, as after NATS has lost it; or as
                `makeway.bus.publishing.publish`.
        """
        published = await publish(
            self.jetstream,
            "recording",
            stream=self.subjects.recordings_stream,
            subject=self.subjects.recording(name),
            message_id=f"{name}.{number}",
            data=data,
            expected_last_sequence=after,
            only_writer=True,
        )
        if isinstance(published, AlreadyExists):
            raise BusUnavailable(f"part {number - 1} of recording {name} is not the last one stored")
        return published.sequence

    async def publish_control(
        self, state: ControlState, expected_last_sequence: int, at: datetime
    ) -> Published | AlreadyExists:
        """Say what is in force, where the last word is the one that the writer has read.

        `expected_last_sequence`: of that, 0 for none. `AlreadyExists`: another leader has spoken.
        Raises as `makeway.bus.publishing.publish`.
        """
        return await publish(
            self.jetstream,
            "control",
            stream=self.subjects.control_stream,
            subject=self.subjects.control,
            message_id=codec.envelope_id(state),
            data=self.signatures.wrap(state, self.source, self.subjects.control, at=at),
            expected_last_sequence=expected_last_sequence,
        )

    async def quarantine(self, message: QuarantinedMessage) -> None:
        """Put a message aside, once however often it is called; raises as `publishing.publish`."""
        headers, data = quarantine.encode(message)
        await publish(
            self.jetstream,
            "quarantine",
            stream=self.subjects.quarantine_stream,
            subject=self.subjects.quarantined(message.component),
            message_id=quarantine.message_id(message),
            data=data,
            expected_last_sequence=None,
            headers=headers,
        )

    # ---------------------------------------------------------------------------------- reading

    async def last_order(self, preemptor_uid: str) -> Last[EvictionOrder] | Unverified | None:
        """The last order for a preemptor, live or not, or the void in its place.

        Raises:
            Malformed: it is not understood.
            BusUnavailable: it could not be read.
        """
        return await self._last_order(self.subjects.pod_order(preemptor_uid), SigningKind.QUOTA_ORDER)

    async def last_group_order(self, group_uid: str) -> Last[EvictionOrder] | Unverified | None:
        """The last order for a PodGroup; as `last_order`."""
        return await self._last_order(self.subjects.group_order(group_uid), SigningKind.ORDER)

    async def last_quota_order(self, queue: str) -> Last[EvictionOrder] | Unverified | None:
        """The last quota order of a queue, given by its path; as `last_order`."""
        return await self._last_order(self.subjects.quota_order(queue), SigningKind.QUOTA_ORDER)

    async def _last_order(self, subject: str, kind: SigningKind) -> Last[EvictionOrder] | Unverified | None:
        return await self._last(self.subjects.orders_stream, subject, self.signatures.order, kind)

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        """The outcome of an order, None while it is live; one whose signature does not hold is none.

        Raises as `last_order`.
        """
        subject = self.subjects.outcome(order_id)
        last = await self._last(
            self.subjects.outcomes_stream, subject, self.signatures.outcome, SigningKind.OUTCOME
        )
        return last if isinstance(last, Last) else None

    async def begun(self, order_id: str) -> Begun | None:
        """What an order's evictor knew when it began; None where none has, or its signature does not hold.

        A stream that does not exist yet holds none. Raises as `last_order`.
        """
        stream, subject = self.subjects.begun_stream, self.subjects.begun(order_id)
        last = await self._last(
            stream, subject, self.signatures.begun, SigningKind.OUTCOME, missing_is_empty=True
        )
        return last.message if isinstance(last, Last) else None

    async def control(self) -> tuple[ControlState | None, int]:
        """The last control state, of whatever cluster, and its sequence; 0 where nothing was ever said.

        The state is None too where it is not understood, or of a time that cannot be.

        Raises:
            BusUnavailable: it could not be read.
        """
        try:
            stored = await self.jetstream.last_message(self.subjects.control_stream, self.subjects.control)
        except JetStreamError as error:
            raise BusUnavailable(str(error)) from error
        if stored is None:
            return None, 0
        try:
            state = self.signatures.control(stored.data, self.subjects.control, datetime.now(UTC))
        except Malformed as error:
            metrics.MALFORMED.labels("control", error.reason).inc()
            return None, stored.sequence
        return state, stored.sequence

    async def _last(
        self,
        stream: str,
        subject: str,
        decode: Callable[[bytes, str], _M],
        kind: SigningKind,
        *,
        missing_is_empty: bool = False,
    ) -> Last[_M] | Unverified | None:
        try:
            stored = await self.jetstream.last_message(stream, subject)
        except JetStreamError as error:
            if missing_is_empty and error.not_found:
                return None
            raise BusUnavailable(str(error)) from error
        if stored is None:
            return None
        try:
            message = decode(stored.data, subject)
        except Malformed as error:
            if error.reason not in FAILURES and not self.signatures.refuses(stored.data, subject, kind):
                raise
            return Unverified(stored.sequence)
        return Last(message, stored.sequence, stored.time)

    async def orders_consumer(self) -> OrdersConsumer:
        """Join the evictors' shared consumer.

        Raises:
            StreamConflict: a consumer of the name exists that cannot be used.
            BusUnavailable: NATS does not answer, or there is no such stream yet.
        """
        consumer = OrdersConsumer(self.connection, self.jetstream, self.subjects)
        try:
            await consumer.open()
        except JetStreamError as error:
            raise BusUnavailable(str(error)) from error
        return consumer

    def follow(
        self,
        stream: str,
        *,
        start: Start,
        subjects: Sequence[str] = (),
        caught_up: asyncio.Event | None = None,
        at_end: Callable[[float], None] | None = None,
        stop_at_end: bool = False,
        restarted: Callable[[], None] | None = None,
    ) -> AsyncIterator[StreamMessage]:
        """Read a stream in order, each message once, across reconnections; see `makeway.bus.follow.follow`.

        `stream`: its name, as in `bus.subjects.orders_stream`. `subjects`: only these, wildcards allowed; all
        where empty. `caught_up`, `at_end`, `stop_at_end`: as there. `restarted`: called where the stream was
        made anew, or has lost what was read from it; all that it holds is then read again.
        """
        subject = "" if stop_at_end else self._passing.get(stream, "")
        follower = Follower(
            self.connection, self.jetstream, stream, subjects, start, restarted=restarted, passing=subject
        )
        return follow(follower, caught_up=caught_up, at_end=at_end, stop_at_end=stop_at_end)


async def _api_of_people(connection: Connection, subjects: Subjects) -> str:
    """Return the prefix of the JetStream API for this login: a viewer's account has another than the rest."""
    try:
        await connection.client.request(
            f"{subjects.viewers_api}.STREAM.INFO.{subjects.control_stream}", timeout=_ASK_SECONDS
        )
    except (nats.errors.Error, OSError):
        return API
    return subjects.viewers_api
