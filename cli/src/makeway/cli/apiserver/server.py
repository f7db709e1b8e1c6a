"""The aggregated API server: kube-apiserver passes questions on, and says whose they are.

A connection without a certificate of the request-header authority is not taken. Every question is judged by a
SubjectAccessReview, whatever kube-apiserver has judged before.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from makeway.bus.reasons import reason_of
from makeway.cli.apiserver.answering import Answer, Answerer
from makeway.cli.apiserver.front_proxy import (
    CONFIGMAP,
    FrontProxy,
    User,
    common_name,
    front_proxy_of,
    user_of,
)
from makeway.cli.apiserver.limits import TurnLimits, Turns, account_of
from makeway.cli.apiserver.metrics import AskMetrics
from makeway.cli.apiserver.question import (
    GROUP,
    MOST_BYTES,
    ROOT,
    NoQuestion,
    TenantQuestion,
    group,
    question_of,
    resources,
)
from makeway.runtime.http import parse_listen
from makeway.runtime.kube import Api, ApiError, ApiUnavailable
from makeway.runtime.tls import load_certificate

_POLL_SECONDS: Final = 60.0
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}

_log = structlog.get_logger()


class FrontProxyChanged(Exception):  # noqa: N818 - it is what happened
    """The request-header authority is another than at the start; a new process takes it."""


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def read_front_proxy(api: Api) -> FrontProxy:
    """Read by what kube-apiserver is known. Raises ApiError, ApiUnavailable, ValueError."""
    body = await api.request("GET", CONFIGMAP)
    try:
        return front_proxy_of(msgspec.json.decode(body, type=_ConfigMap).data)
    except (ValueError, msgspec.DecodeError) as error:
        raise ValueError(f"ConfigMap kube-system/extension-apiserver-authentication: {error}") from error


def tls_context(proxy: FrontProxy, certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context that takes connections of the front proxy alone.

    Raises:
        ValueError: the authority, or the files of the serving certificate, cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=proxy.authority)
    except ssl.SSLError as error:
        raise ValueError(f"the request-header authority of this cluster: {reason_of(error)}") from error
    try:
        load_certificate(context, certificate, key)
    except OSError as error:
        raise ValueError(f"serving certificate {certificate} with key {key}: {reason_of(error)}") from error
    return context


@dataclass(frozen=True)
class AskServer:
    """Judges and answers questions."""

    api: Api
    proxy: FrontProxy
    answerer: Answerer
    metrics: AskMetrics
    turns: Turns
    running: asyncio.Semaphore

    @classmethod
    def of(
        cls, api: Api, proxy: FrontProxy, answerer: Answerer, registry: CollectorRegistry, limits: TurnLimits
    ) -> AskServer:
        """Return one with nothing asked yet."""
        return cls(
            api, proxy, answerer, AskMetrics(registry), Turns(limits), asyncio.Semaphore(limits.running)
        )

    def application(self) -> web.Application:
        """Return what aiohttp serves."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        socket = request.transport.get_extra_info("ssl_object") if request.transport else None
        peer = common_name(socket.getpeercert()) if socket is not None else ""
        user = user_of(self.proxy, peer, request.headers.items())
        if user is None:
            return self._refused("none", 401, "this API is asked through the cluster's API server")
        if found := _DISCOVERY.get(request.path.rstrip("/")):
            return _json(200, found)
        try:
            question = question_of(request.method, request.path, await request.read())
        except NoQuestion as error:
            return self._refused("none", error.status, str(error))
        except web.HTTPRequestEntityTooLarge:
            return self._refused("none", 413, f"a question has at most {MOST_BYTES // 1024} KiB")
        return await self._in_turn(user, question)

    async def _in_turn(self, user: User, question: TenantQuestion) -> web.Response:
        account = account_of(user.name)
        wait = self.turns.take(account, time.monotonic())
        if wait:
            text = "one question at a time, and some a minute; ask again later"
            return self._refused(question.resource, 429, text, retry_after=wait)
        try:
            if not await self._allowed(user, question):
                right = question.right()
                name = f" {right['name']}" if "name" in right else ""
                text = f"user {user.name} may not get pods{name} in namespace {question.namespace}"
                return self._refused(question.resource, 403, text)
            async with self.running:
                started = time.monotonic()
                answer = await self.answerer.answer(question)
                self.metrics.duration.observe(time.monotonic() - started)
        except (ApiError, ApiUnavailable) as error:
            answer = Answer(503, message="rights cannot be judged now; ask again", log=str(error))
        finally:
            self.turns.end(account)
        if answer.status != 200:
            if answer.status >= 500:
                _log.warning("question_unanswered", resource=question.resource, reason=answer.log)
            return self._refused(question.resource, answer.status, answer.message)
        self.metrics.questions.labels(question.resource, "200").inc()
        return web.Response(body=answer.body, content_type="application/json")

    async def _allowed(self, user: User, question: TenantQuestion) -> bool:
        """Ask whether a user may read what the question is about. Raises ApiError, ApiUnavailable."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": user.groups,
                "uid": user.uid,
                "extra": user.extra,
                "resourceAttributes": question.right(),
            },
        }
        answer = await self.api.call(self.api.authorization.create_subject_access_review, body)
        return msgspec.json.decode(answer, type=_Review).status.allowed

    def _refused(self, resource: str, code: int, message: str, *, retry_after: float = 0.0) -> web.Response:
        self.metrics.questions.labels(resource, str(code)).inc()
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, "Unknown"),
            "code": code,
        }
        response = _json(code, status)
        if retry_after:
            response.headers["Retry-After"] = str(max(1, round(retry_after)))
        return response


async def listening(server: AskServer, listen: str, context: ssl.SSLContext) -> web.AppRunner:
    """Listen with TLS. Raises ValueError, OSError."""
    host, port = parse_listen(listen)
    runner = web.AppRunner(server.application(), access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port, ssl_context=context).start()
    except OSError:
        await runner.cleanup()
        raise
    _log.info("questions_taken", host=host, port=runner.addresses[0][1])
    return runner


async def renew_forever(
    api: Api, proxy: FrontProxy, context: ssl.SSLContext, certificate: Path, key: Path
) -> None:
    """Take a renewed serving certificate for new connections. Raises FrontProxyChanged."""
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        try:
            load_certificate(context, certificate, key)
            changed = await read_front_proxy(api) != proxy
        except (ApiError, ApiUnavailable, OSError, ValueError) as error:
            _log.warning("certificates_unusable", error=str(error))
            continue
        if changed:
            raise FrontProxyChanged("kube-apiserver is known by another certificate")


def _json(status: int, value: Mapping[str, Any]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


_DISCOVERY: Final[Mapping[str, Mapping[str, Any]]] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]},
    f"/apis/{GROUP}": group(),
    ROOT: resources(),
}
