"""The page's process in a cluster from its parts: connections, the gate, and how it ends."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import structlog
from prometheus_client import REGISTRY

from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.cli.shared_options import parse_since
from makeway.runtime import http
from makeway.runtime.kube import Api
from makeway.runtime.process import run_until_signalled
from makeway.runtime.settings import ServiceSettings
from makeway.ui.edge.app import Site, page_app
from makeway.ui.edge.gate import ClusterGate
from makeway.ui.edge.reader import Reader
from makeway.ui.edge.server import listening, serve
from makeway.ui.edge.sources import Sources

_OWN_NAMES = ("127.0.0.1", "localhost")
"""Under which kubectl port-forward shows it."""

_log = structlog.get_logger()


async def run(
    shared: ServiceSettings, *, page_listen: str, hosts: tuple[str, ...], https: bool, since: str
) -> int:
    """Serve the page until told to stop; returns the exit code.

    Raises:
        ConfigurationError: the API server cannot be used.
        BusError: NATS cannot be used.
        ValueError, OSError: an option is wrong, or an address to listen on is taken.
    """
    now = datetime.now(UTC)
    look_back = now - parse_since(since, now)
    host, port = http.parse_listen(page_listen)
    async with contextlib.AsyncExitStack() as closing:
        api = await Api.connect(
            kubeconfig=str(shared.kube.kubeconfig) if shared.kube.kubeconfig else None,
            context=shared.kube.context,
            user_agent="makeway/ui",
        )
        closing.push_async_callback(api.close)
        bus = await Bus.connect(
            shared.nats.servers(),
            name=f"ui/{shared.identity}",
            prefix=shared.nats.subject_prefix,
            login=shared.nats.login(),
            tls=shared.nats.tls(),
        )
        closing.push_async_callback(bus.close)
        reader = Reader(bus, look_back)

        def checks() -> dict[str, str]:
            return {"nats": bus.healthy(), "streams": reader.trouble}

        health = await http.serve(
            shared.listen, ready=checks, live=lambda: {"process": ""}, registry=REGISTRY
        )
        closing.push_async_callback(health.close)
        site = Site(
            gate=ClusterGate(api),
            hosts=(*_OWN_NAMES, *(name.lower() for name in hosts)),
            secure=https,
        )
        where = listening(host or "0.0.0.0", port)  # noqa: S104 - as the option says
        _log.info("ui_started", server=api.server, port=where.getsockname()[1], health_port=health.port)
        app = page_app(site, Sources(bus, api, shared.config, reader))
        return await run_until_signalled(serve(app, where), reader.run(), expected=(BusError,))
