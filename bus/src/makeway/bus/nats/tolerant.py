"""A NATS client that survives what a hostile publisher can put round a payload, and ends when it is told to.

A NATS server takes any bytes but blanks in a subject and nearly any in a header, and a stream
keeps them. nats-py 2.16 decodes both as UTF-8 in its read loop, where an exception ends the loop for
good while `is_connected` stays true (nats.py#914): one such message in a stream would end every
process that it is delivered to.

And nats-py notes who waits for an answer before it finds out that it cannot ask: each request while there
is no connection stays in its memory for good. It counts no headers to the size of a message, where the server
does, which then closes the connection; and so does the client, for good.

It keeps every address of a server that it ever heard of. Each that is dead costs a reconnection two seconds,
and one that another has by now would be told the login.

And it waits for the answer with asyncio.wait_for, which in Python 3.11 forgets that its task was cancelled
where the answer has just come (cpython#86296): the task goes on as if nothing had been said. So does the task
that reconnects, for ever, after the client was closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

import nats.errors
from nats.aio.client import PING_PROTO, Client, Srv
from nats.aio.msg import Msg

from makeway.bus.nats.user_key import KeyLogin

IN_CLEAR: Final = "the server does not ask for TLS, which was configured: the connection would be in clear"


class TolerantClient(Client):
    """nats-py's client; bytes that are no UTF-8 reach it escaped, so that they can be shown.

    `tls`: asked for a context at each connection, so that renewed certificates count; None for the usual
    one. `needs_tls`: no login is sent in clear, as nats-py 2.16 does where a server does not ask for TLS.
    `login`: read at each connection; None where the URL says all.
    """

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: KeyLogin | None = None,
        *,
        needs_tls: bool = False,
    ) -> None:
        super().__init__()
        self._needs_tls = needs_tls
        self._secured = False
        self._tls = tls
        self._login = login
        self._ended = False

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The context for the connection that is being made."""
        self._secured = True
        return self._tls() if self._tls is not None else super().ssl_context

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 - as nats-py has it
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Ask, where that can be done; raises what nats-py would, before it notes anything.

        nats-py is given no time-out: then it waits for the answer itself.
        """
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        size = len(payload) + (len(f"NATS/1.0\r\n{head}\r\n".encode()) if head else 0)
        if size > self.max_payload:
            raise nats.errors.MaxPayloadError
        try:
            async with asyncio.timeout(timeout):
                return await super().request(subject, payload, None, old_style, headers)  # type: ignore[arg-type]
        except TimeoutError as error:
            raise nats.errors.TimeoutError from error

    async def round_trip(self, seconds: float) -> None:
        """Go to the server and back, behind all that was sent before; raises what nats-py would.

        nats-py's own `flush` sends its PING before what waits to be sent, and cancels what a PONG that comes
        late then ends its read loop with.
        """
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        pong = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        await self._send_command(PING_PROTO)
        await self._flush_pending()
        if not (await asyncio.wait({pong}, timeout=seconds))[0]:
            raise nats.errors.TimeoutError

    async def close(self) -> None:
        """Close, and connect no more."""
        self._ended = True
        if self._flush_queue is not None:  # nats-py asserts it where it has refused a URL
            await super().close()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if (named := info.get("connect_urls")) is not None:
            self._server_pool = [s for s in self._server_pool if not s.discovered or s.uri.netloc in named]
        await super()._process_info(info, initial_connection)

    async def _connect_to_server(self, s: Srv) -> None:
        if self._ended:
            raise asyncio.CancelledError  # as it was when it was closed
        self._secured = False
        await super()._connect_to_server(s)

    def _connect_command(self) -> bytes:
        if self._needs_tls and not self._secured:
            raise nats.errors.Error(IN_CLEAR)
        server = self._current_server
        if self._login is not None:
            key = self._login.key()
            self._auth_configured = True
            self._signature_cb = key.sign
            self._public_nkey = key.public()
            self._user_jwt_cb = key.jwt.encode if key.jwt else None
        elif server is not None and server.uri.username and not callable(self.options["password"]):
            # nats-py would send what the URL has, percent signs and all; a name alone is a token.
            name, password = unquote(server.uri.username), server.uri.password
            self.options |= (
                {"token": name, "user": None, "password": None}
                if password is None
                else {"token": None, "user": name, "password": unquote(password)}
            )
        return super()._connect_command()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        await super()._process_msg(
            sid, readable(subject), readable(reply), data, readable(headers) if headers else headers
        )


def readable(raw: bytes) -> bytes:
    """The same bytes where they are UTF-8; else each byte that is not as a backslash, an x and two digits."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "backslashreplace").encode()
    return raw
