"""A proxy in front of the API server that spoils what tests tell it to; one port for each component.

A component whose kubeconfig points here speaks TLS with the cluster's serving certificate and HTTP/1.1; its
bearer token is passed on, so the API server knows it as ever. Tests add rules on the control port:

    POST   /rules     a Rule as JSON
    DELETE /rules     no rules any more
    GET    /applied   what was injected, as JSON

Started as a process of the cluster: `python -m makeway.dev.fault_proxy '<Settings as JSON>'`.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import web

from makeway.dev.fault_rules import FaultRule, FaultRules, expired_event, refusal
from makeway.dev.probes import http_ok
from makeway.dev.processes import Program
from makeway.dev.site import Site

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}
_RECOMPUTED = {*_HOP_BY_HOP, "content-length", "accept-encoding"}
_POLL_SECONDS = 0.1
_LINE_LIMIT = 32 * 1024 * 1024

_decode_rule = msgspec.json.Decoder(FaultRule).decode


@dataclass(frozen=True)
class ProxySettings:
    """Where to listen, and what is behind. `ports`: by component."""

    upstream: str
    authority: str
    certificate: str
    key: str
    control: int
    ports: dict[str, int]


def program(site: Site) -> Program:
    """The proxy as a program of the cluster, for the components that go through it."""
    settings = ProxySettings(
        upstream=site.server,
        authority=str(site.authority),
        certificate=str(site.serving.certificate),
        key=str(site.serving.key),
        control=site.ports["fault-proxy"],
        ports={name: site.ports[f"fault-proxy-{name}"] for name in site.options.faulty},
    )
    return Program(
        name="fault-proxy",
        argv=(sys.executable, "-m", "makeway.dev.fault_proxy", msgspec.json.encode(settings).decode()),
        ready=http_ok(f"http://127.0.0.1:{settings.control}/applied"),
        base=True,
    )


class FaultProxy:
    """All ports of one proxy."""

    def __init__(self, settings: ProxySettings, rules: FaultRules, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._rules = rules
        self._session = session
        self._tls = ssl.create_default_context(cafile=settings.authority)

    def handler(self, component: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """What answers the requests of one component."""

        async def handle(request: web.Request) -> web.StreamResponse:
            rule = self._rules.for_request(component, request.method, request.path_qs)
            if rule is not None and rule.action == "answer":
                body, headers = refusal(rule.status, rule.retry_after)
                return web.Response(status=rule.status, body=body, headers=headers)
            if rule is not None and rule.action == "delay":
                await asyncio.sleep(rule.seconds)
            try:
                return await self._forward(component, request, rule)
            except (aiohttp.ClientError, OSError):
                # The API server, or the client, has gone: the client shall see a broken connection.
                return _break(request)

        return handle

    async def _forward(
        self, component: str, request: web.Request, rule: FaultRule | None
    ) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _RECOMPUTED}
        async with self._session.request(
            request.method,
            self._settings.upstream + request.raw_path,
            headers={**headers, "Accept-Encoding": "identity"},
            data=await request.read() or None,
            ssl=self._tls,
            allow_redirects=False,
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if _is_watch(request) and answer.status == 200:
                return await self._watch(component, request, answer, kept)
            body = await answer.read()
            if rule is not None and rule.action == "drop":
                return _break(request)
            if rule is None or rule.action != "cut":
                kept.pop("Content-Length", None)
                return web.Response(status=answer.status, body=body, headers=kept)
            spoilt = web.StreamResponse(status=answer.status, headers=kept)
            spoilt.content_length = len(body)
            await spoilt.prepare(request)
            await spoilt.write(body[: len(body) // 2])
            # Half of the body has to leave before the connection is broken.
            await asyncio.sleep(_POLL_SECONDS)
            return _break(request)

    async def _watch(
        self, component: str, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for line in _lines(answer):
            rule = self._rules.for_event(component, request.path_qs, line)
            match rule.action if rule else "":
                case "freeze":
                    await asyncio.sleep(rule.seconds if rule else 0)
                    return _break(request)
                case "skip":
                    continue
                case "close":
                    break
                case "expire":
                    await response.write(expired_event())
                    break
            await response.write(line)
        await response.write_eof()
        return response


def _is_watch(request: web.Request) -> bool:
    return request.query.get("watch") in ("1", "true")


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The events of a watch, each with its line end."""
    pending = bytearray()
    async for chunk in answer.content.iter_any():
        pending += chunk
        while (end := pending.find(b"\n")) >= 0:
            yield bytes(pending[: end + 1])
            del pending[: end + 1]


def _break(request: web.Request) -> web.Response:
    """Break the client's connection; the answer that is returned is not sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def control(rules: FaultRules) -> web.Application:
    """What tests speak to."""

    async def add(request: web.Request) -> web.Response:
        try:
            rules.add(_decode_rule(await request.read()))
        except (msgspec.DecodeError, ValueError) as error:
            return web.Response(status=400, text=str(error))
        return web.Response(status=201)

    async def clear(_: web.Request) -> web.Response:
        rules.clear()
        return web.Response(status=204)

    async def applied(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(rules.applied), content_type="application/json")

    application = web.Application()
    application.add_routes(
        [web.post("/rules", add), web.delete("/rules", clear), web.get("/applied", applied)]
    )
    return application


async def serve(settings: ProxySettings) -> None:
    """Listen on every port until SIGTERM."""
    rules = FaultRules()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(settings.certificate, settings.key)
    runners: list[web.AppRunner] = []
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        proxy = FaultProxy(settings, rules, session)
        for component, port in settings.ports.items():
            application = web.Application(client_max_size=_LINE_LIMIT)
            application.router.add_route("*", "/{path:.*}", proxy.handler(component))
            runners.append(await _listen(application, port, tls))
        runners.append(await _listen(control(rules), settings.control, None))
        await stopped.wait()
        for runner in runners:
            await runner.cleanup()


async def _listen(application: web.Application, port: int, tls: ssl.SSLContext | None) -> web.AppRunner:
    # A client that goes away ends its request here too, so that no watch is left open behind it.
    runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    return runner


def main() -> None:
    """Read the settings and serve."""
    settings = msgspec.json.decode(sys.argv[1], type=ProxySettings)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
