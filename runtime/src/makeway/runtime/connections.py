"""What every service opens when it starts, and closes when it ends: health, the API server and the bus.

A NATS that is away at the start is waited for, as one that goes away later is: the process serves health and
metrics meanwhile, is not ready, and says why. It evicts and plans nothing, since orders and requests come
through NATS.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog
from prometheus_client import CollectorRegistry
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential_jitter

from makeway.bus.client import Bus
from makeway.bus.errors import BusRefused, BusUnavailable
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.signing.keys import SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.runtime import http
from makeway.runtime.key_ring import KeyRing, KeysMissingError
from makeway.runtime.kube import CONNECTIONS, Api
from makeway.runtime.process import unless_signalled
from makeway.runtime.settings import ServiceSettings

_TIMINGS: Final = ConnectionTimings(connect=5.0)
"""Of one attempt; the client tries several times within it."""


class OtherClusterError(Exception):
    """The API server is another cluster's by now: nothing that this process remembers holds."""


_LONGEST_WAIT_SECONDS: Final = 10.0

T = TypeVar("T")

_log = structlog.get_logger()


class Starting:
    """What `/readyz` says of a process: what its start waits for, then its own `checks`."""

    def __init__(self) -> None:
        self._trouble = "not reached yet"
        self._awaits = "nats"
        self.checks: http.Checks = lambda: {self._awaits: self._trouble}

    def ready(self) -> Mapping[str, str]:
        """Return the checks as they are now."""
        return self.checks()

    async def reach(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what `call` returns, once NATS answers it.

        Raises:
            BusError: it cannot be used as it is configured; other errors as `call` raises them.
            SystemExit: the process was told to stop.
        """
        trying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential_jitter(max=_LONGEST_WAIT_SECONDS),
            before_sleep=self._tell,
        )
        return await unless_signalled(trying(call))

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._trouble = str(error or "")
        if isinstance(error, KeysMissingError):
            self._awaits = "keys"
            _log.warning("keys_awaited", attempt=state.attempt_number, error=self._trouble)
        else:
            self._awaits = "nats"
            _log.warning("nats_awaited", attempt=state.attempt_number, error=self._trouble)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, BusUnavailable | KeysMissingError) and not isinstance(error, BusRefused)


@dataclass(frozen=True)
class Connections:
    """One API server, the cluster that it is, the bus with its streams, and where health is served."""

    api: Api
    cluster_uid: str
    bus: Bus
    keys: KeyRing
    starting: Starting
    server: http.Server


@contextlib.asynccontextmanager
async def connected(
    component: str,
    settings: ServiceSettings,
    *,
    signs: Sequence[SigningKind],
    registry: CollectorRegistry,
    connections: int = CONNECTIONS,
) -> AsyncIterator[Connections]:
    """Open all under the name of the component and its process; `connections`: as `Api.connect`.

    `signs`: what the component signs. Required keys are waited for, as NATS is.

    Raises:
        ConfigurationError, ApiError, ApiUnavailable: the API server cannot be used.
        BusError: NATS cannot be used as it is configured.
        ValueError, OSError: an option is wrong, or the address to listen on is taken.
        SystemExit: the process was told to stop while it waited for NATS.
    """
    nats, kube, signatures = settings.nats, settings.kube, settings.signatures
    async with contextlib.AsyncExitStack() as closing:
        api = await Api.connect(
            kubeconfig=str(kube.kubeconfig) if kube.kubeconfig else None,
            context=kube.context,
            user_agent=f"makeway-{component}/{settings.identity}",
            connections=connections,
        )
        closing.push_async_callback(api.close)
        cluster_uid = await api.cluster_uid()
        starting = Starting()
        server = await http.serve(settings.listen, ready=starting.ready, live=dict, registry=registry)
        closing.push_async_callback(server.close)
        signing = Signatures(signatures.mode)
        keys = KeyRing(
            api,
            signing,
            kinds=signs,
            directory=signatures.signing_keys,
            namespace=settings.config.namespace,
        )
        await starting.reach(keys.read_first)

        async def open_bus() -> Bus:
            bus = await Bus.connect(
                nats.servers(),
                name=f"{component}/{settings.identity}",
                prefix=nats.subject_prefix,
                login=nats.login(),
                tls=nats.tls(),
                timings=_TIMINGS,
                signatures=signing,
            )
            try:
                await bus.watch_streams()
            except BaseException:
                await bus.close()
                raise
            return bus

        bus = await starting.reach(open_bus)
        closing.push_async_callback(bus.close)
        yield Connections(api, cluster_uid, bus, keys, starting, server)
