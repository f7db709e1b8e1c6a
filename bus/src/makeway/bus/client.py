"""The bus as services use it: one object that publishes, takes orders, follows streams and serves plans."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NoReturn

import nats.errors
import structlog
from nats.aio.msg import Msg

from makeway.bus import metrics, tracing
from makeway.bus.components import Components
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import StreamPosition
from makeway.bus.nats.connection import Connection, ConnectionTimings
from makeway.bus.nats.follow import Follower, follow
from makeway.bus.nats.jetstream import API, JetStream, JetStreamError, StoredMessage, translated
from makeway.bus.nats.login import Login
from makeway.bus.nats.serving import Responder, serve
from makeway.bus.nats.user_key import KeyLogin
from makeway.bus.records import Records
from makeway.bus.repairs import Repairs
from makeway.bus.signing.signatures import Signatures
from makeway.bus.streams import configs as streams
from makeway.bus.streams.epochs import Epochs
from makeway.bus.streams.named_consumers import NamedConsumer, ensure_named_consumers
from makeway.bus.streams.orders_consumer import OrdersConsumer
from makeway.bus.streams.reconciler import StreamReconciler
from makeway.bus.subjects import DEFAULT_PREFIX, SERVICES, Subjects

PlanHandler = Callable[[bytes, str], Awaitable[bytes]]
"""Given a request, and who asks: what the reply subjects of one connection have in common."""

QueueHandler = Callable[[bytes], Awaitable[bytes]]

_KEEP_SECONDS = 5.0
"""Between two looks of who keeps the streams: without one of them no order is stored."""

_ASK_SECONDS = 1.0

PLANS_AT_ONCE = 64
"""Questions about pods in one planner's hands, and about groups, of which one each is planned at a time."""

COMMITS_AT_ONCE = 512
"""Commits in one planner's hands; most wait for their nominations to be seen."""

_log = structlog.get_logger()


class Bus(Records):
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
        jetstream = JetStream(connection.client, api)
        super().__init__(jetstream, subjects, source=f"makeway/{name}", signatures=signatures)
        self.connection = connection
        self.epochs = Epochs(jetstream, subjects)
        self.repairs = Repairs(connection, subjects)
        self.components = Components(connection, subjects)
        self._keeper: StreamReconciler | None = None
        self._passing = subjects.passing(name.partition("/")[0])

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
            component=name.partition("/")[0],
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

        Raises nothing: what stands in the way is logged, and tried again. Where no consumer is wanted, a
        login that may not ask for consumers is asked for no more: there is none to keep.
        """
        wanted = None if consumers is None else tuple(consumers)

        async def ensure() -> None:
            nonlocal wanted
            await self.ensure_streams(replicas)
            if wanted is None:
                return
            try:
                await ensure_named_consumers(self.jetstream, self.subjects, wanted)
            except BusUnavailable as error:
                if wanted:
                    raise
                wanted = None
                _log.warning("named_consumers_not_looked_at", error=str(error))

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
        """Answer every plan request with `handler`, to which some are handed at once: one may wait.

        The leader alone does, so nothing is shared out: a leader that hangs would keep its share, for as long
        as NATS takes it for connected, from the one that has taken over. Where two lead for a moment, the
        first answer counts.

        An error of the handler leaves that request without an answer, which the asker's time-out
        covers; it is logged and counted, and the next request is served.
        """
        return await self._serve_plan(self.subjects.plan, handler, PLANS_AT_ONCE)

    async def serve_group_plan(self, handler: PlanHandler) -> Responder:
        """Answer every plan request for a pod group; as `serve_plan`, and beside it."""
        return await self._serve_plan(self.subjects.plan_group, handler, PLANS_AT_ONCE)

    async def _serve_plan(
        self, subject: str, handler: PlanHandler, at_once: int, span: str = "plan"
    ) -> Responder:
        async def answer(message: Msg) -> bytes:
            with tracing.span(span, tracing.traceparent_of(message.headers)):
                return await handler(message.data, message.reply.rpartition(".")[0])

        return await self._serve(subject, answer, at_once, failed="plan_request_failed")

    async def serve_commits(self, handler: PlanHandler) -> Responder:
        """Answer commits; as `serve_group_plan`."""
        return await self._serve_plan(self.subjects.commit, handler, COMMITS_AT_ONCE, "commit")

    async def serve_queues(self, handler: QueueHandler) -> Responder:
        """Answer questions about queues, one at a time; else as `serve_plan`."""
        return await self._serve(
            self.subjects.queues, lambda message: handler(message.data), failed="queue_request_failed"
        )

    async def _serve(
        self, subject: str, handler: Callable[[Msg], Awaitable[bytes]], at_once: int = 1, *, failed: str
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
        return await self._request("the planner", self.subjects.plan, request, timeout_seconds)

    async def request_commit(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask the planner to store an order; raises as `request_plan`."""
        return await self._request("the planner", self.subjects.commit, request, timeout_seconds)

    async def request_verified_plan(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask a shadow scheduler for a plan that its filters have verified; raises as `request_plan`."""
        return await self._request("the shadow scheduler", self.subjects.verify, request, timeout_seconds)

    async def request_queues(self, request: bytes, timeout_seconds: float) -> bytes:
        """Ask the leading planner about queues; raises as `request_plan`."""
        return await self._request("the planner about queues", self.subjects.queues, request, timeout_seconds)

    async def _request(self, whom: str, subject: str, request: bytes, timeout_seconds: float) -> bytes:
        with translated(f"ask {whom}"):
            try:
                answer = await self.connection.client.request(
                    subject, request, timeout=timeout_seconds, headers=tracing.headers() or None
                )
            except nats.errors.NoRespondersError as error:
                raise BusUnavailable(f"ask {whom}: none listens on this NATS") from error
        return answer.data

    # ---------------------------------------------------------------------------------- streams

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
        since: datetime | timedelta | None = None,
        after: int = 0,
        subjects: Sequence[str] = (),
        caught_up: asyncio.Event | None = None,
        at_end: Callable[[float], None] | None = None,
        stop_at_end: bool = False,
        restarted: Callable[[], None] | None = None,
        reached: Callable[[StreamPosition], None] | None = None,
    ) -> AsyncGenerator[StoredMessage]:
        """Read a stream in order, each message once, across reconnections; as `makeway.bus.nats.follow`.

        `stream`: its name, as in `bus.subjects.orders_stream`. `since`, `after`: from which time on or how
        long ago, or behind which sequence; by default all that the stream holds. `subjects`: only these,
        wildcards allowed; all where empty. `caught_up`, `at_end`, `stop_at_end`: as there. `restarted`:
        called where the stream was made anew, or has lost what was read from it; all that it holds is then
        read again.
        `reached`: called with how far the caller has worked on what the stream holds, whenever that is
        further.
        """
        subject = "" if stop_at_end else self._passing.get(stream, "")
        follower = Follower(
            self.connection,
            self.jetstream,
            stream,
            subjects,
            since=since,
            after=after,
            restarted=restarted,
            reached=reached,
            passing=subject,
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
