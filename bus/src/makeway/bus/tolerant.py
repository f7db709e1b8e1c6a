"""A NATS client whose read loop survives what a hostile publisher can put round a payload.

A NATS server takes any bytes but blanks in a subject and nearly any in a header, and a stream
keeps them. nats-py 2.16 decodes both as UTF-8 in its read loop, where an exception ends the loop for
good while `is_connected` stays true (nats.py#914): one such message in a stream would end every
process that it is delivered to.
"""

from __future__ import annotations

from nats.aio.client import Client


class TolerantClient(Client):
    """nats-py's client; bytes that are no UTF-8 reach it escaped, so that they can be shown."""

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
