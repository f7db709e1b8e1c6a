"""One connection to NATS, with the settings that keep it honest, and a probe that notices when it is not.

What is guarded against, each measured or read in nats-py 2.16:

* Publishes are never buffered while the connection is down (`pending_size=-1` makes them raise at
  once): an order sent minutes late is worse than one that failed.
* It reconnects for ever (the default ends after 60 attempts) and notices a half-open
  connection after 15 s (the default takes 240).
* An unexpected exception in the client's read loop leaves `is_connected` true for ever. The probe
  goes through that loop: PING, which the server alone answers, whoever listens to what. Two misses in a row
  end the process. What a publisher can do to that loop is kept away from it by `makeway.bus.nats.tolerant`.
* An exception in a callback stops the reconnecting, so the callbacks here do nothing that raises. Only
  while the first connection is made, the error callback raises: what is refused for good is not tried again.
* A denied publish shows only as a time-out and a call of the error callback, hence the metric and
  the part it has in readiness.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from makeway.bus import metrics
from makeway.bus.errors import BusAway, BusRefused, BusUnavailable, ConnectionLost
from makeway.bus.nats.login import Login
from makeway.bus.nats.tolerant import IN_CLEAR, TolerantClient
from makeway.bus.nats.user_key import KeyLogin, LoginUnusable
from makeway.bus.reasons import reason_of, wrong_in_tls
from makeway.bus.subjects import answers, inbox

_PORT = 4222
_CLOSING_SECONDS = 2.0
"""How long the client may take to close; the process that closes it ends anyway."""

_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class ConnectionTimings:
    """How long the connection waits for what. All in seconds.

    connect: one attempt at the first connection; then the caller is told what could not be reached.
    reconnect_wait: between two attempts on the same server; short, since a nats-server is back
        within a second of its restart and an order waits for it.
    ping_interval: two unanswered pings make a half-open connection a broken one.
    probe_interval, probe_timeout: see the module; two misses in a row are the end.
    reconnect_limit: after so long without a connection, where a server answers all the same, it is the client
        that is stuck and not the server that is down: the process ends and starts afresh. While no server
        answers it goes on trying; a process that ended then would come back into a back-off of minutes.
    permission_memory: how long a denied publish or subscription keeps the process unready.
    """

    connect: float = 30.0
    reconnect_wait: float = 0.25
    ping_interval: int = 5
    probe_interval: float = 5.0
    probe_timeout: float = 2.5
    reconnect_limit: float = 300.0
    permission_memory: float = 60.0


_ADVICE = {
    "client": "give --nats-tls-cert and --nats-tls-key with a certificate of an authority that it trusts",
    "authority": "give --nats-tls-ca with the authority that issued it",
    "login": "give another login by --nats-creds or --nats-nkey, or another client certificate",
    "name": "address it by a name that its certificate has, or have it issued for this one",
}
"""What to do, by what is wrong."""

_SCHEMES = ("nats", "tls", "ws", "wss")

_REFUSALS = ("authorization violation", "authentication expired", "authentication revoked", IN_CLEAR.lower())
"""What a server answers to credentials that it does not take, or is not given."""

_MISSES_ALLOWED = 2

_ANSWERS_ALLOWED = 3
"""Looks in a row at which a server answered; the client, which tries four times a second, had its chance."""


class Connection:
    """A NATS client, how it is, and who wants to know when it is back."""

    def __init__(self, client: TolerantClient, timings: ConnectionTimings) -> None:
        self.client = client
        self.answers: Sequence[str] = ()
        """Where questions may be answered, as `makeway.bus.subjects.answers`."""
        self._timings = timings
        self._down_since: float | None = None
        self._denied = ""
        self._denied_at = 0.0
        self._misses = 0
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._listeners: set[Callable[[], None]] = set()
        self._probe: asyncio.Task[None] | None = None
        self._last_error = ""
        self._opening = True
        self._open_until = time.monotonic() + timings.connect
        self._closing = False
        self._servers: Sequence[str] = ()
        self._answered = 0
        self._optional: set[str] = set()
        self._refused: set[str] = set()

    @classmethod
    async def open(
        cls,
        servers: Sequence[str],
        *,
        name: str,
        component: str,
        login: Login | KeyLogin | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        tls_hostname: str = "",
        timings: ConnectionTimings | None = None,
    ) -> Connection:
        """Connect, or say why not within `ConnectionTimings.connect`.

        `login`: None where the URL says all. `tls`: the context for each connection; given, or with a URL of
        scheme tls, none is used in clear. `tls_hostname`: the name that the server's certificate has to have,
        where it is not the URL's.

        Raises:
            BusRefused: a URL, the credentials or TLS are wrong; at once.
            BusAway: no server answered. BusUnavailable: one did, and refuses this client.
        """
        _check(servers, login)
        times = timings or ConnectionTimings()
        # As nats.go has it: one such URL counts for all servers.
        asks_for_tls = tls is not None or any(server.startswith("tls://") for server in servers)
        key_login = login if isinstance(login, KeyLogin) else None
        client = TolerantClient(tls, key_login, needs_tls=asks_for_tls)
        connection = cls(client, times)
        connection._servers = tuple(servers)
        connection.answers = answers(component)
        try:
            async with asyncio.timeout(times.connect):
                await connection.client.connect(
                    servers=list(servers),
                    name=name,
                    user=login.user if isinstance(login, Login) else None,
                    password=login.password if isinstance(login, Login) else None,
                    inbox_prefix=inbox(component),
                    pending_size=-1,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=times.reconnect_wait,  # type: ignore[arg-type] # any number of seconds
                    connect_timeout=2,
                    ping_interval=times.ping_interval,
                    max_outstanding_pings=2,
                    error_cb=connection._on_error,
                    disconnected_cb=connection._on_disconnected,
                    reconnected_cb=connection._on_reconnected,
                    closed_cb=connection._on_closed,
                    tls_hostname=tls_hostname or None,
                )
        except TimeoutError:
            await connection.close()
            why = connection._last_error or "no answer"
            advised = any(advice in why for advice in _ADVICE.values())
            raise (BusUnavailable if advised else BusAway)(
                f"cannot connect to NATS at {_hosts(servers)}: {why}"
            ) from None
        except (BusRefused, nats.errors.Error, OSError, ValueError) as error:
            # The client tries again by itself what may pass: what it raises is wrong for good.
            await connection.close()
            raise BusRefused(f"cannot connect to NATS at {_hosts(servers)}: {_said(error)}") from error
        connection._opening = False
        metrics.CONNECTED.set(1)
        connection._probe = asyncio.create_task(connection._probe_forever(), name="nats-probe")
        return connection

    async def close(self) -> None:
        """Stop the probe and close. Nothing is waited for: what matters was acknowledged before."""
        self._closing = True
        if self._probe:
            self._probe.cancel()
        metrics.CONNECTED.set(0)
        # Without a connection nats-py 2.16 flushes into a closed transport, and raises what that raises.
        with contextlib.suppress(TimeoutError, OSError, nats.errors.Error):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.client.close()

    def unhealthy(self) -> str:
        """What is wrong with the connection now, for readiness; empty where nothing is."""
        if self._lost.done():
            return self._lost.result()
        if down := self.disconnected():
            return down
        if self._denied and time.monotonic() - self._denied_at < self._timings.permission_memory:
            return self._denied
        if self._misses:
            return "the last probe was not answered"
        return ""

    def disconnected(self) -> str:
        """For how long there has been no connection, and why; empty where there is one."""
        if self._down_since is None:
            return ""
        seconds = time.monotonic() - self._down_since
        return f"no connection for {seconds:.0f} s: {self._last_error or 'closed'}"

    async def round_trip(self) -> None:
        """Go to the server and back: it has by then worked on everything that was sent before.

        Raises:
            BusUnavailable: it did not answer within `ConnectionTimings.probe_timeout`.
        """
        try:
            await self.client.round_trip(self._timings.probe_timeout)
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"no round trip to NATS: {reason_of(error)}") from error

    async def until_lost(self) -> NoReturn:
        """Wait until the connection is beyond repair. Made a part of the process, it ends it.

        Raises:
            ConnectionLost: always, in the end.
        """
        raise ConnectionLost(await asyncio.shield(self._lost))

    def tolerate(self, subject: str) -> None:
        """Stay ready though the server denies this subject."""
        self._optional.add(subject)

    def is_refused(self, subject: str) -> bool:
        """Report whether the server has denied a subject that is tolerated."""
        return subject in self._refused

    async def subscribe_if_allowed(self, subject: str, cb: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Subscribe to what is not needed: a login that may not is none the worse, and hears nothing."""
        self.tolerate(subject)
        return await self.client.subscribe(subject, cb=cb)

    def add_listener(self, on_reconnected: Callable[[], None]) -> None:
        """Call this after each reconnection; it must not raise."""
        self._listeners.add(on_reconnected)

    def remove_listener(self, on_reconnected: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners.discard(on_reconnected)

    # ------------------------------------------------------------------ callbacks of the client

    async def _on_error(self, error: Exception) -> None:
        said = _said(error)
        kind = "optional" if self._is_optional(error, said) else _kind(error)
        metrics.ERRORS.labels(kind).inc()
        # What the server said tells more than the broken connection that follows it. With TLS 1.3 it judges a
        # client's certificate after the handshake, and what it says may be lost with the connection.
        if kind not in ("connection", "optional") or wrong_in_tls(error) or not self._last_error:
            self._last_error = said
        if self._opening and any(refusal in said.lower() for refusal in _REFUSALS):
            raise BusRefused(said)
        if self._opening and time.monotonic() > self._open_until:
            # The client was told to end and goes on: wait_for of Python 3.11 forgets that, see tolerant.py.
            raise TimeoutError
        if kind == "permission":
            self._denied, self._denied_at = said, time.monotonic()
        _log.log(
            10 if kind in ("connection", "optional") else 30,
            "nats_error",
            kind=kind,
            error=said,
            error_type=type(error).__name__,
        )

    def _is_optional(self, error: Exception, said: str) -> bool:
        if _kind(error) != "permission":
            return False
        named = {subject for subject in self._optional if f'"{subject}"'.lower() in said.lower()}
        self._refused |= named
        return bool(named)

    async def _on_disconnected(self) -> None:
        metrics.CONNECTED.set(0)
        if self._down_since is None:
            self._down_since = time.monotonic()
        if not self._closing:
            _log.warning("nats_disconnected", error=self._last_error)

    async def _on_reconnected(self) -> None:
        self._down_since = None
        self._misses = 0
        self._last_error = ""
        metrics.CONNECTED.set(1)
        metrics.RECONNECTS.inc()
        _log.info("nats_reconnected")
        for listener in tuple(self._listeners):
            listener()

    async def _on_closed(self) -> None:
        if not self._closing:
            self._give_up(f"the NATS client closed itself: {self._last_error or 'no reason given'}")

    # ------------------------------------------------------------------------------- the probe

    async def _probe_forever(self) -> None:
        while not self._lost.done():
            await asyncio.sleep(self._timings.probe_interval)
            if self._down_since is not None:
                self._misses = 0
                if time.monotonic() - self._down_since > self._timings.reconnect_limit:
                    await self._give_up_where_a_server_answers()
                continue
            self._answered = 0
            await self._probe_once()
            if self._misses >= _MISSES_ALLOWED:
                self._give_up(f"{self._misses} probes in a row were not answered on a standing connection")

    async def _give_up_where_a_server_answers(self) -> None:
        """Give up after a few looks in a row that found a server which speaks, while the client has none."""
        self._answered = (
            self._answered + 1 if await _speaks(self._servers, self._timings.probe_timeout) else 0
        )
        if self._answered >= _ANSWERS_ALLOWED and self._down_since is not None:
            self._give_up(
                f"no connection for {self._timings.reconnect_limit:.0f} s, though NATS answers: "
                f"{self._last_error or 'the client does not connect'}"
            )

    async def _probe_once(self) -> None:
        started = time.perf_counter()
        try:
            await self.round_trip()
        except BusUnavailable:
            if self._down_since is None:
                self._misses += 1
                metrics.PROBE_MISSES.inc()
                _log.warning("nats_probe_missed", misses=self._misses)
            return
        self._misses = 0
        metrics.PROBE_SECONDS.observe(time.perf_counter() - started)

    def _give_up(self, why: str) -> None:
        if not self._lost.done():
            _log.error("nats_connection_lost", reason=why)
            self._lost.set_result(why)


async def _speaks(servers: Sequence[str], seconds: float) -> bool:
    """Whether any of the servers takes a connection and says something first, as NATS does.

    Those of a WebSocket, or with TLS from the first byte, wait for us to speak: to be connected has to do.
    """
    for url in (urlsplit(server if "//" in server else f"nats://{server}") for server in servers):
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection(url.hostname, url.port or _PORT)
                if url.scheme in ("ws", "wss") or await reader.read(1):
                    return True
        except OSError:
            continue
        finally:
            if writer is not None:
                writer.close()
    return False


def _said(error: Exception) -> str:
    """Return what went wrong, and what to do about it where that is known."""
    text = reason_of(error)
    if isinstance(error, BusRefused):
        return text
    if refusal := next((one for one in _REFUSALS if one in text.lower()), ""):
        return f"it does not admit this client ({refusal}); {_ADVICE['login']}"
    advice = _ADVICE.get(wrong_in_tls(error))
    return f"{text}; {advice}" if advice else text


def _kind(error: Exception) -> str:
    if "permissions violation" in str(error).lower():
        return "permission"
    if isinstance(error, nats.errors.SlowConsumerError):
        return "slow-consumer"
    if isinstance(error, OSError | nats.errors.StaleConnectionError | nats.errors.UnexpectedEOF | EOFError):
        return "connection"
    return "other"


def _check(servers: Sequence[str], login: Login | KeyLogin | None) -> None:
    """Refuse what the client would try again for ever, or misread."""
    for server in servers:
        scheme, separator, _ = server.partition("://")
        if separator and scheme not in _SCHEMES:
            raise BusRefused(f"NATS URL of {_hosts([server])}: the scheme is none of {', '.join(_SCHEMES)}")
    if isinstance(login, KeyLogin):
        try:
            login.key()
        except LoginUnusable as error:
            raise BusRefused(str(error)) from error


def _hosts(servers: Sequence[str]) -> str:
    """The servers without user and password."""
    return ", ".join(server.rpartition("@")[2].removeprefix("nats://") for server in servers)
