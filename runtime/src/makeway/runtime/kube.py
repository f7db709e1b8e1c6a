"""The connection to the API server: raw bytes in and out, a time-out on every call.

No client library: models cost 1.4 ms of CPU a pod, watches have no time-outs and hide 410
(kubernetes-asyncio 36.1). No write is repeated here: whoever calls knows what may be. Every
failure is one of two:

* `ApiError`: the server answered with a status of 400 or more (or a redirect, which is not followed);
* `ApiUnavailable`: there is no usable answer. The request may or may not have had its effect.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Self

import aiohttp
import msgspec

from makeway.bus.reasons import reason_of
from makeway.core.k8s.objects import Namespace
from makeway.runtime.kube_access import Access, ConfigurationError, load_access
from makeway.runtime.kubeconfig import ApiServer
from makeway.runtime.proxy import proxy_for
from makeway.runtime.tls import ReloadedContext, load_certificate

__all__ = ["Api", "ApiError", "ApiUnavailable", "ConfigurationError"]

RETRY_AFTER_LIMIT_SECONDS = 60.0
"""How much of a server's Retry-After is heeded: a wrong header must not park what has no deadline."""

CONNECT_TIMEOUT_SECONDS = 5.0
"""For TCP and TLS together; a server that needs longer is treated as away."""

READ_BUFFER_BYTES = 2 * 1024 * 1024
"""How much of an answer may wait to be read: more than an object, so that reading seldom pauses."""

LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""Longest watch line. etcd takes 1.5 MiB an object by default; JSON and a raised limit fit well inside."""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""What to accept where an object's metadata is all that is wanted: of a node, a fortieth of its bytes."""

CONNECTIONS = 100
"""Most connections of a client that is told nothing else."""

MESSAGE_LIMIT = 2000
"""Characters of an error's message that are kept: an answer may be a proxy's whole page."""


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
    """Read an error's answer, whether it is a Status object or plain text."""
    seconds = _seconds(retry_after)
    try:
        answer = _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body[:MESSAGE_LIMIT].decode(errors="replace").strip()
        return ApiError(status, _phrase(status), text, seconds)
    if seconds is None and answer.details is not None and answer.details.retry_after_seconds > 0:
        seconds = float(answer.details.retry_after_seconds)
    causes: dict[str, str] = {}
    for cause in (answer.details.causes if answer.details is not None else None) or ():
        told = f"{causes[cause.reason]} {cause.message}" if cause.reason in causes else cause.message
        causes[cause.reason] = told[:MESSAGE_LIMIT]
    return ApiError(status, answer.reason or _phrase(status), answer.message[:MESSAGE_LIMIT], seconds, causes)


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a write a second time where the connection broke after the first.

    It takes DELETE and PUT for idempotent; but the answer that was lost may have been a success, and what is
    deleted has to be read again first. Reads it may repeat: a kept connection is often found dead that way.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(_describe(error)) from error


@lru_cache(maxsize=32)
def _timeout(total_seconds: float) -> aiohttp.ClientTimeout:
    """The time-outs of a request; callers have a few totals, and making the object takes longer than this."""
    return aiohttp.ClientTimeout(total=total_seconds, sock_connect=CONNECT_TIMEOUT_SECONDS)


def _tls_context(configuration: ApiServer) -> ssl.SSLContext:
    """The context for a server and a user. Raises OSError, ValueError."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        load_certificate(context, configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Api:
    """One connection pool to one API server. Made by `connect`, ended by `close`."""

    def __init__(self, access: Access, user_agent: str, connections: int = CONNECTIONS) -> None:
        configuration = access.configuration
        self.server: str = configuration.host.rstrip("/")
        self._access = access
        self._tls = ReloadedContext(
            lambda: _tls_context(configuration),
            (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file),
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._fixed: dict[str, Any] = {"allow_redirects": False}
        if configuration.tls_server_name:
            self._fixed["server_hostname"] = configuration.tls_server_name
        if proxy := configuration.proxy or proxy_for(self.server, os.environ):
            self._fixed["proxy"] = proxy
        # The server's gzip saves nothing inside a cluster and costs CPU at both ends;
        # kube-scheduler and kube-controller-manager turn it off too.
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
        }

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
        access = await load_access(kubeconfig, context)
        try:
            return cls(access, user_agent, connections)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"TLS configuration of {access.configuration.host}: {reason_of(error)}"
            ) from error

    async def close(self) -> None:
        """Close every connection. Calls under way fail as `ApiUnavailable`."""
        await self._session.close()

    async def _arguments(self, path: str, query: Mapping[str, str] | None) -> dict[str, Any]:
        """What every request has in common: URL, headers with a fresh token, TLS name, proxy."""
        headers = dict(self._headers)
        try:
            authorization = await self._access.authorization()
        except ConfigurationError as error:
            raise ApiUnavailable(str(error)) from error
        if authorization:
            headers["Authorization"] = authorization
        return {
            "url": self.server + path,
            "params": query,
            "headers": headers,
            # Connections are kept by context, so that a new one makes new connections.
            "ssl": self._tls.current(),
            **self._fixed,
        }

    async def _refused(self, response: aiohttp.ClientResponse) -> ApiError:
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._access.expire()
        return api_error(response.status, await response.read(), response.headers.get("Retry-After"))

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
        """Send one request and return the body of its answer.

        `accept`: another form of the answer than the object as JSON, such as `METADATA_ONLY`.
        `most_bytes`: what is longer is not read to its end.

        `timeout_seconds` covers everything from waiting for a free connection to the last byte.

        Raises:
            ApiError: the server answered with anything but 2xx.
            AnswerTooLong: the answer is longer than `most_bytes`.
            ApiUnavailable: no complete answer in time; a write may have had its effect.
        """
        arguments = await self._arguments(path, query)
        if body is not None:
            arguments["data"] = body
            arguments["headers"]["Content-Type"] = content_type
        if accept:
            arguments["headers"]["Accept"] = accept
        if method != "GET":
            arguments["middlewares"] = (_once,)
        try:
            async with self._session.request(
                method, timeout=_timeout(timeout_seconds), **arguments
            ) as response:
                if not 200 <= response.status < 300:
                    raise await self._refused(response)
                if most_bytes is None:
                    return await response.read()
                answer = bytearray()
                async for chunk in response.content.iter_any():
                    answer += chunk
                    if len(answer) > most_bytes:
                        raise AnswerTooLong(f"{method} {path}: the answer is longer than {most_bytes} B")
                return bytes(answer)
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailable(f"{method} {path}: {_describe(error)}") from error

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
        arguments = await self._arguments(path, query)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=idle_timeout_seconds
        )
        try:
            async with self._session.request("GET", timeout=timeout, **arguments) as response:
                if not 200 <= response.status < 300:
                    raise await self._refused(response)
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
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailable(f"GET {path}: {_describe(error)}") from error

    async def server_time(self) -> datetime:
        """The server's clock, cut off to the second, from the Date header of an answer.

        Raises:
            ApiError, ApiUnavailable: as `request`; an answer without a date is unavailable.
        """
        arguments = await self._arguments("/version", None)
        try:
            async with self._session.request(
                "GET", timeout=aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_SECONDS), **arguments
            ) as response:
                if not 200 <= response.status < 300:
                    raise await self._refused(response)
                return parsedate_to_datetime(response.headers.get("Date", ""))
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailable(f"GET /version: {_describe(error)}") from error
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


def _describe(error: BaseException) -> str:
    """Return an error in words, with where it happened if the error knows that."""
    host = getattr(error, "host", "")
    where = f"cannot connect to {host}:{getattr(error, 'port', '')}: " if host else ""
    return f"{where}{reason_of(error)}"
