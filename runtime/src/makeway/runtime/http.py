"""The HTTP side of a service: /metrics, /healthz and /readyz, as Kubernetes components have them.

`/healthz` reports whether the process should be restarted, `/readyz` whether it does its work. Each
calls a function that returns what is wrong by check name (all checks by name, an empty message
where all is well). A failing answer is 503 and lists every check, and so does `?verbose`:

    [+]nats ok
    [-]snapshot failed: no list of pods yet
    readyz check failed

Whoever reaches the port may ask, so what that takes is bounded: connections are few, and metrics are rendered
in a tenth of the loop's time, once for all who wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from makeway.runtime.shared_reads import SharedReads

Checks = Callable[[], Mapping[str, str]]
"""Every check by name; the value is what is wrong, or empty where the check passes."""

MOST_CONNECTIONS: Final = 64
"""Open at the same time. For one more the eldest ends: slow readers keep no probe and no Prometheus out."""

RENDERING_SHARE: Final = 0.1
"""Part of the loop's time in which metrics are rendered at the most."""

_Handler = Callable[[web.Request], Awaitable[web.Response]]

_log = structlog.get_logger()


def parse_listen(listen: str) -> tuple[str, int]:
    """Split "HOST:PORT", "[V6]:PORT" or ":PORT" (all addresses). Port 0 takes any free one.

    Raises:
        ValueError: with a sentence for the person who wrote the option.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"listen address {listen!r}: use HOST:PORT or :PORT, as in :9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True)
class Server:
    """A running HTTP server. `port` is the real one, also where 0 was asked for."""

    port: int
    _runner: web.AppRunner
    _listener: asyncio.Server

    async def close(self) -> None:
        """Stop listening and end the open connections."""
        self._listener.close()
        await self._runner.cleanup()


async def serve(listen: str, *, ready: Checks, live: Checks, registry: CollectorRegistry) -> Server:
    """Listen and answer until `close`.

    Raises:
        ValueError: the address is not HOST:PORT.
        OSError: the address is taken or not ours.
    """
    host, port = parse_listen(listen)
    app = web.Application()
    app.router.add_get("/metrics", _Metrics(registry).answer)
    app.router.add_get("/healthz", _checks("healthz", live))
    app.router.add_get("/readyz", _checks("readyz", ready))
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        assert runner.server is not None  # noqa: S101 - it was set up
        listener = await asyncio.get_running_loop().create_server(
            _accepting(runner.server), host or None, port
        )
    except OSError:
        await runner.cleanup()
        raise
    bound_port = int(listener.sockets[0].getsockname()[1])
    _log.info("http_listening", host=host, port=bound_port)
    return Server(bound_port, runner, listener)


def _accepting(server: web.Server) -> Callable[[], asyncio.Protocol]:
    """Return what makes the protocol of a new connection, and ends the eldest where there are too many."""

    def accept() -> asyncio.Protocol:
        transports = [one.transport for one in server.connections if one.transport is not None]
        for eldest in transports[: max(0, len(transports) + 1 - MOST_CONNECTIONS)]:
            eldest.abort()
        return server()

    return accept


@dataclass(frozen=True)
class _Encoding:
    content_type: str
    encode: Callable[[CollectorRegistry], bytes] = field(compare=False)


class _Metrics:
    """Renders the metrics: no answer is older than its question, and all who wait share the next."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._rendered = SharedReads(self._render, math.inf)
        self._turn = asyncio.Lock()
        self._rests_until = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        body = await self._rendered(_Encoding(content_type, encode))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _render(self, encoding: _Encoding) -> bytes:
        async with self._turn:
            await asyncio.sleep(self._rests_until - time.monotonic())
            begun = time.monotonic()
            try:
                return encoding.encode(self._registry)
            finally:
                self._rests_until = begun + (time.monotonic() - begun) / RENDERING_SHARE


def _checks(name: str, checks: Checks) -> _Handler:
    async def answer(request: web.Request) -> web.Response:
        status, text = report(name, checks(), verbose="verbose" in request.query)
        return web.Response(status=status, text=text, headers={"Cache-Control": "no-store"})

    return answer


def report(name: str, checks: Mapping[str, str], *, verbose: bool) -> tuple[int, str]:
    """The answer to a health request: its HTTP status and its text."""
    failed = any(checks.values())
    if not failed and not verbose:
        return 200, "ok"
    lines = [f"[-]{check} failed: {why}" if why else f"[+]{check} ok" for check, why in checks.items()]
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    return (503 if failed else 200), "\n".join(lines) + "\n"
