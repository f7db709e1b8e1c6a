"""The start of a process while NATS is away, or cannot be used; against a real nats-server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fixtures_nats import NatsServer, nats_binary, nats_server
from makeway.bus.errors import BusRefused
from makeway.bus.nats.connection import ConnectionTimings
from makeway.runtime.connections import Connections, connected
from makeway.runtime.settings import (
    ConfigSettings,
    KubeSettings,
    NatsSettings,
    ServiceSettings,
    SignatureSettings,
)
from served import served

__all__ = ["nats_binary", "nats_server"]

pytestmark = pytest.mark.nats

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
users: [{{name: test, user: {{token: secret}}}}]
"""


async def namespace(_: web.Request) -> web.Response:
    return web.json_response({"metadata": {"name": "kube-system", "uid": "cluster-1"}})


@asynccontextmanager
async def starting(url: str, directory: Path, port: int = 0) -> AsyncIterator[Connections]:
    kubeconfig = directory / "kubeconfig"
    async with served(namespace) as api_port:
        kubeconfig.write_text(KUBECONFIG.format(port=api_port))
        async with connected(
            "evictor",
            ServiceSettings(
                identity="one",
                nats=NatsSettings(url=url),
                kube=KubeSettings(kubeconfig=kubeconfig),
                listen=f"127.0.0.1:{port}",
                config=ConfigSettings(),
                signatures=SignatureSettings(),
            ),
            signs=(),
            registry=CollectorRegistry(),
        ) as opened:
            yield opened


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            try:
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)
    raise AssertionError("nothing listens")


async def test_a_process_that_starts_while_nats_is_away_serves_health_and_connects_when_it_is_there(
    nats_server: NatsServer, tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.runtime.connections._TIMINGS", ConnectionTimings(connect=0.3))
    nats_server.kill()

    async def start() -> str:
        async with starting(nats_server.url, tmp_path, unused_tcp_port) as opened:
            await opened.bus.connection.round_trip()
            return opened.cluster_uid

    task = asyncio.create_task(start())
    try:
        assert (await get(unused_tcp_port, "healthz"))[0] == 200
        assert (await get(unused_tcp_port, "metrics"))[0] == 200
        for _ in range(100):
            status, why = await get(unused_tcp_port, "readyz")
            if "cannot connect to NATS" in why:
                break
            await asyncio.sleep(0.1)
        assert (status, task.done()) == (503, False)
        assert f"cannot connect to NATS at 127.0.0.1:{nats_server.port}" in why

        nats_server.start()

        assert await asyncio.wait_for(task, 30) == "cluster-1"
    finally:
        task.cancel()


@pytest.mark.parametrize("url", ["nats://a:wrong@127.0.0.1:{port}", "http://127.0.0.1:{port}"])
async def test_what_nats_refuses_for_good_ends_the_start_at_once(
    url: str, nats_server: NatsServer, tmp_path: Path
) -> None:
    nats_server.extra = 'authorization { user: "a", password: "b" }'
    nats_server.restart()

    with pytest.raises(BusRefused):
        async with asyncio.timeout(4), starting(url.format(port=nats_server.port), tmp_path):
            pass


async def test_a_process_waiting_for_nats_ends_when_told(nats_server: NatsServer, tmp_path: Path) -> None:
    nats_server.kill()
    # Not in the test's own task, whose end by SystemExit would end the loop.
    ended: list[object] = []

    async def tell_to_end() -> None:
        """Send SIGTERM while it is handled: otherwise it would end the tests."""
        while not ended:
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)

    async def start() -> None:
        try:
            async with starting(nats_server.url, tmp_path):
                pass
        except SystemExit as exit_:
            ended.append(exit_.code)

    await asyncio.wait_for(asyncio.gather(start(), tell_to_end()), 30)

    assert ended == [0]
