"""An evictor process whose start has not come to its end is not ready; against a real nats-server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fixtures_nats import ConnectBus, NatsServer, connect_bus, nats_binary, nats_server
from makeway.evictor import process
from makeway.evictor.judge.fences import Fences
from makeway.runtime.settings import (
    ConfigSettings,
    KubeSettings,
    NatsSettings,
    ServiceSettings,
    SignatureSettings,
)
from served import served
from unit.runtime.test_connections import KUBECONFIG, get

__all__ = ["connect_bus", "nats_binary", "nats_server"]

pytestmark = pytest.mark.nats

BREAKER = "/api/v1/namespaces/makeway-system/configmaps/makeway-breaker"


async def nothing_there(request: web.Request) -> web.StreamResponse:
    """Answer as an API server that has one namespace."""
    if request.path.endswith("/kube-system"):
        return web.json_response({"metadata": {"name": "kube-system", "uid": "cluster-1"}})
    if request.path.endswith("/configmaps") and "watch" not in request.query:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
    if "watch" in request.query:
        await asyncio.sleep(60)
    return web.json_response({}, status=200 if request.path == "/version" else 404)


async def no_right_to_the_breaker(request: web.Request) -> web.StreamResponse:
    if request.path == BREAKER:
        return web.json_response({"message": "no right to makeway-breaker"}, status=403)
    return await nothing_there(request)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each evictor have metrics of its own."""
    monkeypatch.setattr(process, "REGISTRY", CollectorRegistry())


@pytest.fixture
async def readiness(
    connect_bus: ConnectBus,
    nats_server: NatsServer,
    tmp_path: Path,
    unused_tcp_port: int,
    request: pytest.FixtureRequest,
) -> AsyncIterator[int]:
    """Run an evictor beside the API server that the test names; gives the port of its health."""
    await (await connect_bus("streams/one")).ensure_streams()
    kubeconfig = tmp_path / "kubeconfig"
    async with served(request.param) as port:
        kubeconfig.write_text(KUBECONFIG.format(port=port))
        settings = ServiceSettings(
            identity="one",
            nats=NatsSettings(url=nats_server.url),
            kube=KubeSettings(kubeconfig=kubeconfig),
            listen=f"127.0.0.1:{unused_tcp_port}",
            config=ConfigSettings(),
            signatures=SignatureSettings(),
        )
        running = asyncio.create_task(
            process.run(settings, mode="enforce", concurrency=1, fences=Fences.of())
        )
        yield unused_tcp_port
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def ready(port: int) -> str:
    """Return what readiness says once it says the same for two seconds."""
    said, since = "", 0
    for _ in range(200):
        _, text = await get(port, "readyz")
        said, since = text, since + 1 if text == said else 0
        if since == 20:
            break
        await asyncio.sleep(0.1)
    return said


@pytest.mark.parametrize("readiness", [no_right_to_the_breaker], indirect=True)
async def test_it_is_not_ready_while_it_takes_no_orders_for_want_of_the_breaker(readiness: int) -> None:
    assert "no right to makeway-breaker" in await ready(readiness)


@pytest.mark.parametrize("readiness", [nothing_there], indirect=True)
async def test_it_is_ready_where_there_is_nothing_to_read(readiness: int) -> None:
    assert await ready(readiness) == "ok"
