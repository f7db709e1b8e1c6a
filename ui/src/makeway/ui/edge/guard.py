"""What every request must have, and every answer has, before anything else looks at it.

A page on localhost can be asked by any page that the browser shows: by a form, by a script, or under another
name that resolves to 127.0.0.1 (DNS rebinding). So the Host must be one of the page's own, and what a browser
says of where a request comes from must be the page itself. An ASGI middleware; it keeps nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from makeway.ui.edge.answers import failed

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES: Final = 256 * 1024
_MOST_QUERY_BYTES: Final = 4096
_SAFE: Final = ("GET", "HEAD")

SECURITY_HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Guard:
    """Lets through what comes from the page itself, under a name of its own.

    `hosts`: lower-case names, without ports, under which the page may be asked for. `live`: path of what may
    be asked under any name, such as a kubelet's probe.
    """

    def __init__(self, app: App, hosts: Collection[str], live: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._live = frozenset(live)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        why = "" if scope["path"] in self._live else self._refusal(scope)
        if why:
            await failed(HTTPStatus.FORBIDDEN, why)(scope, receive, _secured(send))
            return
        await self._app(scope, _bounded(receive), _secured(send))

    def _refusal(self, scope: Scope) -> str:
        """Return why a request is not answered; empty where it is."""
        headers = Headers(scope=scope)
        if any(len(headers.getlist(name)) > 1 for name in ("host", "origin")):
            return "Host and origin can be said once."
        if (host := _host(headers.get("host", ""))) not in self._hosts:
            return f"This page is not served as {host[:100] or 'a host without a name'}."
        if len(scope.get("query_string", b"")) > _MOST_QUERY_BYTES:
            return "The query is too long."
        origin = headers.get("origin", "")
        if origin and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return "This request comes from another page."
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not _navigates(
            scope, headers
        ):
            return "This request comes from another page."
        if scope["method"] not in _SAFE and not origin and "cookie" in headers:
            return "A request that a browser sends has to name its origin."
        return ""


def _navigates(scope: Scope, headers: Headers) -> bool:
    """Report whether a user follows a link to a page; that shows it, and tells the other page nothing."""
    return scope["method"] in _SAFE and headers.get("sec-fetch-mode") == "navigate"


def _host(header: str) -> str:
    """Return a Host header's name without its port; an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _secured(send: Send) -> Send:
    async def secured(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name, value) for name, value in SECURITY_HEADERS if name not in names),
                *([] if b"cache-control" in names else [(b"cache-control", b"no-store")]),
            ]
        await send(message)

    return secured


class TooLargeError(Exception):
    """A request's body is larger than any that the page sends."""


def _bounded(receive: Receive) -> Receive:
    """Count a body's bytes as they come, whatever its length was said to be."""
    taken = 0

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MOST_BODY_BYTES:
            raise TooLargeError
        return message

    return bounded
