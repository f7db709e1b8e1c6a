"""The connection to the API server through kubernetes-asyncio: raw bytes out, a time-out on every call.

The library is loaded at the first connection; no answer is read into its models (1.4 ms of CPU a pod), and
neither its watch nor its leader election is used (docs/decisions/runtime.md). No write is
repeated here: whoever calls knows what may be. Every failure is one of two:

* `ApiError`: the server answered with a status of 400 or more (or a redirect, which is not followed);
* `ApiUnavailable`: there is no usable answer. The request may or may not have had its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, Protocol, Self

import aiohttp
import msgspec

from makeway.bus.reasons import reason_of
from makeway.core.k8s.objects import Namespace
from makeway.core.text import one_line

__all__ = ["Api", "ApiError", "ApiUnavailable", "ConfigurationError", "Requests"]

RETRY_AFTER_LIMIT_SECONDS = 60.0
"""How much of a server's Retry-After is heeded: a wrong header must not park what has no deadline."""

CONNECT_TIMEOUT_SECONDS = 5.0
"""For TCP and TLS together; a server that needs longer is treated as away."""

LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""Longest watch line. etcd takes 1.5 MiB an object by default; JSON and a raised limit fit well inside."""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""What to accept where an object's metadata is all that is wanted: of a node, a fortieth of its bytes."""

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
"""Content types of patches, which typed operations take as `_content_type`."""

CONNECTIONS = 100
"""Most connections of a client that is told nothing else."""

MESSAGE_LIMIT = 2000
"""Characters of an error's message that are kept: an answer may be a proxy's whole page."""


class ConfigurationError(Exception):
    """The connection's configuration cannot be used; the message says what to change."""


class ApiError(Exception):
    """The API server said no.

    `reason` is the Status object's, or the HTTP phrase where the body is plain text (API priority
    and fairness, proxies). `retry_after_seconds` is what the server asks for, in the Retry-After header
    or the Status object's details, as far as it is heeded. `causes`: the Status object's, reason to
    message; several of one reason are joined.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_seconds: float | None = None,
        causes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.causes = causes or {}
        self.status = status
        self.reason = reason
        self.message = message
        asked = retry_after_seconds
        self.retry_after_seconds = None if asked is None else min(asked, RETRY_AFTER_LIMIT_SECONDS)


class ApiUnavailable(Exception):  # noqa: N818 - it names a state of the server
    """No usable answer: refused, reset, timed out, or cut off. The effect of a write is unknown."""


class AnswerTooLong(ApiUnavailable):
    """The answer is longer than was asked for; it was not read to its end."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct, rename="camel"):
    """metav1.Status."""

    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode
_decode_namespace = msgspec.json.Decoder(Namespace).decode


def _phrase(status: int) -> str:
    """The CamelCase phrase of an HTTP status: 429 is TooManyRequests."""
    try:
        return "".join(word.capitalize() for word in HTTPStatus(status).phrase.split())
    except ValueError:
        return "Unknown"


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; its date form is not used by the API server and is ignored."""
    return float(header) if header is not None and header.isdecimal() else None


def api_error(status: int, body: bytes, retry_after: str | None) -> ApiError:
    """Read an error's answer, whether it is a Status object or plain text; webhooks write some of it."""
    seconds = _seconds(retry_after)
    try:
        answer = _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = one_line(body[:MESSAGE_LIMIT].decode(errors="replace").strip(), MESSAGE_LIMIT)
        return ApiError(status, _phrase(status), text, seconds)
    if seconds is None and answer.details is not None and answer.details.retry_after_seconds > 0:
        seconds = float(answer.details.retry_after_seconds)
    causes: dict[str, str] = {}
    for cause in (answer.details.causes if answer.details is not None else None) or ():
        told = f"{causes[cause.reason]} {cause.message}" if cause.reason in causes else cause.message
        causes[cause.reason] = one_line(told, MESSAGE_LIMIT)
    message = one_line(answer.message, MESSAGE_LIMIT)
    return ApiError(status, answer.reason or _phrase(status), message, seconds, causes)


_CONNECTING: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS)
"""aiohttp's time-outs of a request; all of it, to the last byte, is bounded by `asyncio.timeout`."""


class Requests(Protocol):
    """What most readers use of `Api`."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, timeout_seconds: float = 10.0
    ) -> bytes:
        """Send a request; raises ApiError or ApiUnavailable."""


async def read_object(api: Requests, path: str, **options: Any) -> bytes | None:
    """Read an object; None where it, or its API, is not there. Raises ApiError, ApiUnavailable.

    `options`: of the request.
    """
    try:
        return await api.request("GET", path, **options)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


class TypedApis:
    """The typed APIs of kubernetes-asyncio over one client; every write goes through one, by `call`."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @cached_property
    def library(self) -> Any:
        """The library's client module, which has the typed APIs."""
        from kubernetes_asyncio import client  # noqa: PLC0415 - loaded with the first connection

        return client

    @cached_property
    def core(self) -> Any:
        """Pods, ConfigMaps, Secrets."""
        return self.library.CoreV1Api(self.client)

    @cached_property
    def events(self) -> Any:
        """Events of events.k8s.io."""
        return self.library.EventsV1Api(self.client)

    @cached_property
    def coordination(self) -> Any:
        """Leases."""
        return self.library.CoordinationV1Api(self.client)

    @cached_property
    def authorization(self) -> Any:
        """Reviews of rights."""
        return self.library.AuthorizationV1Api(self.client)

    @cached_property
    def authentication(self) -> Any:
        """Reviews of tokens: whose one is."""
        return self.library.AuthenticationV1Api(self.client)

    async def call(
        self,
        operation: Callable[..., Awaitable[aiohttp.ClientResponse]],
        *arguments: object,
        timeout_seconds: float = 10.0,
        **options: object,
    ) -> bytes:
        """Call an operation of a typed API once, and return the body of its answer; as `Api.request`."""
        _check_names(one for one in arguments if isinstance(one, str))
        sent = operation(*arguments, **options, _preload_content=False, _request_timeout=_CONNECTING)
        async with self._answer(operation.__name__, sent, timeout_seconds) as response:
            return await response.read()

    @asynccontextmanager
    async def _answer(
        self, what: str, sent: Awaitable[aiohttp.ClientResponse], seconds: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Wait for an answer with 2xx and hand it on; every failure is one of the two."""
        try:
            async with asyncio.timeout(seconds), await sent as response:
                if not 200 <= response.status < 300:
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        self.client.configuration.expire()
                    body = await response.read()
                    raise api_error(response.status, body, response.headers.get("Retry-After"))
                yield response
        except ConfigurationError as error:
            raise ApiUnavailable(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailable(f"{what}: {describe(error)}") from error


class Api(TypedApis):
    """One connection pool to one API server. Made by `connect`, ended by `close`."""

    @classmethod
    async def connect(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        user_agent: str,
        connections: int = CONNECTIONS,
    ) -> Self:
        """Load the configuration and make the pool; no request is sent.

        `connections`: so many at most, beyond which requests wait for one; 0: no limit. Whoever decides at
        the last moment whether a write may be sent needs 0, and bounds the requests before that.

        Raises:
            ConfigurationError: no usable configuration.
        """
        from makeway.runtime.kube_client import open_client  # noqa: PLC0415 - 700 models are loaded with it

        return cls(await open_client(kubeconfig, context, user_agent=user_agent, connections=connections))

    @property
    def server(self) -> str:
        """The server's URL."""
        host: str = self.client.configuration.host
        return host

    async def close(self) -> None:
        """Close every connection. Calls under way fail as `ApiUnavailable`."""
        await self.client.close()

    def _send(
        self,
        method: str,
        path: str,
        timeout: aiohttp.ClientTimeout,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "",
        body: object = None,
        content_type: str = "application/json",
    ) -> Awaitable[aiohttp.ClientResponse]:
        _check_names(path.split("/"))
        sent: Awaitable[aiohttp.ClientResponse] = self.client.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept or "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=timeout,
        )
        return sent

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout_seconds: float = 10.0,
        most_bytes: int | None = None,
    ) -> bytes:
        """Send one request and return the body of its answer. Writes of a known kind: `call`.

        `accept`: another form of the answer than the object as JSON, such as `METADATA_ONLY`.
        `most_bytes`: what is longer is not read to its end.

        `timeout_seconds` covers everything from waiting for a free connection to the last byte.

        Raises:
            ApiError: the server answered with anything but 2xx.
            AnswerTooLong: the answer is longer than `most_bytes`.
            ApiUnavailable: no complete answer in time; a write may have had its effect.
        """
        sent = self._send(
            method,
            path,
            _CONNECTING,
            query=query,
            accept=accept,
            body=None if body is None else msgspec.json.decode(body),
            content_type=content_type,
        )
        async with self._answer(f"{method} {path}", sent, timeout_seconds) as response:
            if most_bytes is None:
                return await response.read()
            answer = bytearray()
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > most_bytes:
                    raise AnswerTooLong(f"{method} {path}: the answer is longer than {most_bytes} B")
            return bytes(answer)

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle_timeout_seconds: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch as they come, without their line ends: all that have come, together.

        First it yields none: the server has accepted the watch; a quiet resource shows no other sign of that.
        Ends when the server ends the watch in an orderly way. Use it under `contextlib.aclosing`
        where the loop may be left early, so that the connection is released at once.

        Raises:
            ApiError: the server refused the watch (410 as an HTTP status included).
            ApiUnavailable: refused, cut off, silent for `idle_timeout_seconds`, or a line over
                `LINE_LIMIT_BYTES`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=idle_timeout_seconds
        )
        sent = self._send("GET", path, timeout, query=query)
        async with self._answer(f"GET {path}", sent, None) as response:
            yield []
            begun: list[bytes] = []
            size = 0
            async for chunk in response.content.iter_any():
                first, *others = chunk.split(b"\n")
                begun.append(first)
                size += len(first)
                if others:
                    lines = [b"".join(begun), *others]
                    begun = [lines.pop()]
                    size = len(begun[0])
                    yield [line for line in lines if line]
                if size > LINE_LIMIT_BYTES:
                    raise ApiUnavailable(f"GET {path}: a watch line is longer than {LINE_LIMIT_BYTES} B")
            if size:
                raise ApiUnavailable(f"GET {path}: the watch ended inside a line")

    async def server_time(self) -> datetime:
        """The server's clock, cut off to the second, from the Date header of an answer.

        Raises:
            ApiError, ApiUnavailable: as `request`; an answer without a date is unavailable.
        """
        sent = self._send("GET", "/version", _CONNECTING)
        async with self._answer("GET /version", sent, CONNECT_TIMEOUT_SECONDS) as response:
            try:
                return parsedate_to_datetime(response.headers.get("Date", ""))
            except ValueError as error:
                raise ApiUnavailable(f"GET /version: no date in the answer: {error}") from error

    async def cluster_uid(self) -> str:
        """The cluster's identity: the UID of the namespace kube-system, which is never recreated.

        Raises:
            ApiError, ApiUnavailable: as `request`; an answer that is no Namespace is unavailable.
        """
        body = await self.request("GET", "/api/v1/namespaces/kube-system")
        try:
            uid = _decode_namespace(body).metadata.uid
        except msgspec.DecodeError as error:
            raise ApiUnavailable(f"namespace kube-system: {error}") from error
        if not uid:
            raise ApiUnavailable("namespace kube-system has no UID")
        return uid


def _check_names(segments: Iterable[str]) -> None:
    """Refuse names that aiohttp would resolve in a path: pod `..` would be its namespace."""
    for one in segments:
        if one in (".", ".."):
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"no object has the name {one}")


def describe(error: BaseException) -> str:
    """Return an error in words, with where it happened if the error knows that."""
    host = getattr(error, "host", "")
    where = f"cannot connect to {host}:{getattr(error, 'port', '')}: " if host else ""
    return f"{where}{reason_of(error)}"
