"""Fakes of the API server whose typed calls end in their own `request`, as the library sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from kubernetes_asyncio.client import Configuration

from makeway.runtime.kube import TypedApis
from makeway.runtime.kube_client import Client


class SilentWatch:
    """A fake whose watches stand, and tell nothing."""

    async def stream(self, path: str, **_: object) -> AsyncIterator[list[bytes]]:
        """Yield nothing, ever."""
        await asyncio.Event().wait()
        yield []


class FakeApis(TypedApis):
    """A fake that has `request(method, path, ...)` has kubernetes-asyncio's typed APIs by this class.

    `request` is given what differs from the defaults of `Api.request`, but for the time-out, which ends it;
    what it raises, `call` raises.
    """

    request: Any

    def __init__(self) -> None:
        """As it is: a fake has a `client` without this."""

    @cached_property
    def client(self) -> Client:
        """The library's client over `request`."""
        return Client(Configuration(host="http://fake"), _Session(self), "test")


class _Session:
    """Hands what the library sends to a fake."""

    def __init__(self, fake: Any) -> None:
        self._fake = fake

    async def request(self, **sent: Any) -> _Response:
        path, _, query = sent["url"].removeprefix("http://fake").partition("?")
        options: dict[str, Any] = {}
        if query:
            options["query"] = dict(parse_qsl(query, keep_blank_values=True))
        if sent.get("data") is not None:
            options["body"] = sent["data"].encode()
        if (content_type := sent["headers"]["Content-Type"]) != "application/json":
            options["content_type"] = content_type
        return _Response(await self._fake.request(sent["method"], path, **options))


class _Response:
    status = 200

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def __aenter__(self) -> _Response:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass
