"""A nominator process whose clock is off is not ready, and takes no Lease; against a real nats-server."""

import asyncio
import contextlib
from email.utils import formatdate
from pathlib import Path
from time import time

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fixtures_nats import ConnectBus, NatsServer, connect_bus, nats_binary, nats_server
from makeway.nominator import process
from makeway.runtime.lease import LeaseSettings
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

HOUR = 3600


async def test_a_nominator_whose_clock_is_off_is_not_ready_and_takes_no_lease(
    connect_bus: ConnectBus,
    nats_server: NatsServer,
    tmp_path: Path,
    unused_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "REGISTRY", CollectorRegistry())
    await (await connect_bus("streams/one")).ensure_streams()
    written = list[str]()

    async def an_hour_ahead(request: web.Request) -> web.StreamResponse:
        """Answer as an API server that has one namespace, and another time."""
        if request.method != "GET":
            written.append(f"{request.method} {request.path}")
        headers = {"Date": formatdate(time() + HOUR, usegmt=True)}
        if request.path.endswith("/kube-system"):
            told = {"metadata": {"name": "kube-system", "uid": "cluster-1"}}
            return web.json_response(told, headers=headers)
        if "watch" in request.query:
            await asyncio.sleep(60)
        listed = {"metadata": {"resourceVersion": "1"}, "items": []}
        is_list = request.path.endswith(("pods", "priorityclasses", "configmaps", "version"))
        return web.json_response(listed, headers=headers, status=200 if is_list else 404)

    async with served(an_hour_ahead) as port:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=port))
        settings = ServiceSettings(
            identity="one",
            nats=NatsSettings(url=nats_server.url),
            kube=KubeSettings(kubeconfig=kubeconfig),
            listen=f"127.0.0.1:{unused_tcp_port}",
            config=ConfigSettings(),
            signatures=SignatureSettings(),
        )
        lease = LeaseSettings(namespace="makeway-system", name="makeway-nominator", retry=0.2, leave_for=0.0)
        running = asyncio.create_task(process.run(settings, mode="enforce", verify="none", lease=lease))
        try:
            async with asyncio.timeout(20):
                while "s behind" not in (said := (await get(unused_tcp_port, "readyz"))[1]):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            before = len(written)
            await asyncio.sleep(1)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    assert "[-]clock failed: this nominator's clock is" in said
    assert written[before:] == []
