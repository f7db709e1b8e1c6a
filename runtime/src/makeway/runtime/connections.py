"""What every service opens when it starts, and closes when it ends: the API server and the bus."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from makeway.bus.client import Bus
from makeway.runtime.kube import CONNECTIONS, Api
from makeway.runtime.settings import KubeSettings, NatsSettings


@dataclass(frozen=True)
class Connections:
    """One API server, the cluster that it is, and the bus with its streams."""

    api: Api
    cluster_uid: str
    bus: Bus


@contextlib.asynccontextmanager
async def connected(
    component: str,
    identity: str,
    *,
    nats: NatsSettings,
    kube: KubeSettings,
    connections: int = CONNECTIONS,
) -> AsyncIterator[Connections]:
    """Open both under the name `component`/`identity`; `connections`: as `Api.connect`.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used.
        BusError: NATS cannot be used.
        ValueError: an option is wrong.
    """
    async with contextlib.AsyncExitStack() as closing:
        api = await Api.connect(
            kubeconfig=str(kube.kubeconfig) if kube.kubeconfig else None,
            context=kube.context,
            user_agent=f"makeway-{component}/{identity}",
            connections=connections,
        )
        closing.push_async_callback(api.close)
        cluster_uid = await api.cluster_uid()
        bus = await Bus.connect(
            nats.servers(),
            name=f"{component}/{identity}",
            prefix=nats.subject_prefix,
            creds=nats.creds,
            tls=nats.tls(),
        )
        closing.push_async_callback(bus.close)
        await bus.ensure_streams(nats.replicas)
        yield Connections(api, cluster_uid, bus)
