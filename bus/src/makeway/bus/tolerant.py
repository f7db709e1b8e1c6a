"""A NATS client whose read loop survives what a hostile publisher can put round a payload.

A NATS server takes any bytes but blanks in a subject and nearly any in a header, and a stream
keeps them. nats-py 2.16 decodes both as UTF-8 in its read loop, where an exception ends the loop for
good while `is_connected` stays true (nats.py#914): one such message in a stream would end every
process that it is delivered to.

And nats-py notes who waits for an answer before it finds out that it cannot ask: each request while there
is no connection stays in its memory for good.
"""

from __future__ import annotations

from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg


class TolerantClient(Client):
    """nats-py's client; bytes that are no UTF-8 reach it escaped, so that they can be shown."""

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 - as nats-py has it
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Ask, where that can be done; raises what nats-py would, before it notes anything."""
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        if len(payload) > self.max_payload:
            raise nats.errors.MaxPayloadError
        return await super().request(subject, payload, timeout, old_style, headers)

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
