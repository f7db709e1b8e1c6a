"""kubernetes-asyncio's client over a session of ours, for what its rest.py leaves out.

What that is: docs/decisions/runtime.md.

Certificates are read again where they change, redirects are not followed, no write is sent twice, and no
request looks for proxies or a `.netrc`.
"""

from __future__ import annotations

import ssl
import sys
from typing import Any, Final

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.rest import RESTClientObject

from makeway.bus.reasons import reason_of
from makeway.runtime.kube import ConfigurationError, describe
from makeway.runtime.kube_access import load_access
from makeway.runtime.tls import ReloadedContext, load_certificate

READ_BUFFER_BYTES: Final = 2 * 1024 * 1024
"""How much of an answer may wait to be read: more than an object, so that reading seldom pauses."""

NESTED: Final = 12_000
"""How deep a decoder recurses: kube-apiserver takes objects that nest 10,000 deep, as metadata.managedFields
does where the author of a pod writes it so. Python's own limit, 1,000, ends a decoder with a RecursionError.
A level takes 32 bytes of stack where it is skipped, as by all that reads pods into its own types, and 400
where it is kept, as for a nominator's question: 5 MB, of the 8 MiB that a process has by default."""


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a write a second time where the connection broke after the first.

    It takes DELETE and PUT for idempotent; but the answer that was lost may have been a success, and what is
    deleted has to be read again first. Reads it may repeat: a kept connection is often found dead that way.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(describe(error)) from error


class _Session:
    """aiohttp's session as the library's rest.py calls it."""

    def __init__(self, access: Configuration, connections: int) -> None:
        """Raises OSError, ValueError: certificates that cannot be used."""
        self._tls = ReloadedContext(
            lambda: _tls_context(access), (access.ssl_ca_cert, access.cert_file, access.key_file)
        )
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )

    async def request(self, **arguments: Any) -> aiohttp.ClientResponse:
        if arguments["method"] != "GET":
            arguments["middlewares"] = (_once,)
        # Connections are kept by context, so that a new one makes new connections.
        return await self._http.request(**arguments, ssl=self._tls.current(), allow_redirects=False)

    async def close(self) -> None:
        await self._http.close()


def _tls_context(access: Configuration) -> ssl.SSLContext:
    """The context for a server and a user. Raises OSError, ValueError."""
    context = ssl.create_default_context(cafile=access.ssl_ca_cert)
    if access.cert_file:
        load_certificate(context, access.cert_file, access.key_file)
    if not access.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Rest(RESTClientObject):
    """The library's, without the session that it opens."""

    def __init__(self, configuration: Configuration, session: Any) -> None:
        self.pool_manager = session
        self.server_hostname = configuration.tls_server_name
        self.proxy = configuration.proxy
        self.proxy_headers = configuration.proxy_headers


class Client(ApiClient):  # type: ignore[misc]
    """The library's client, over a session with `request` and `close`."""

    def __init__(self, configuration: Configuration, session: Any, user_agent: str) -> None:
        self.configuration = configuration
        self.client_side_validation = configuration.client_side_validation
        self.cookie = None
        self.pool_threads = 1
        self.rest_client = _Rest(configuration, session)
        # The server's gzip saves nothing inside a cluster and costs CPU at both ends;
        # kube-scheduler and kube-controller-manager turn it off too.
        self.default_headers = {"Accept-Encoding": "identity", "User-Agent": user_agent}

    def sanitize_for_serialization(self, obj: Any) -> Any:
        """Return what a request is made of as JSON has it. Only models have to be turned into that.

        The library copies dictionaries and lists as well, five times a request, for values that JSON lacks.
        """
        return obj if isinstance(obj, dict | list) else super().sanitize_for_serialization(obj)


async def open_client(
    kubeconfig: str | None, context: str | None, *, user_agent: str, connections: int
) -> Client:
    """Load the configuration and make the pool, as `Api.connect`."""
    access = await load_access(kubeconfig, context)
    sys.setrecursionlimit(max(NESTED, sys.getrecursionlimit()))
    try:
        return Client(access, _Session(access, connections), user_agent)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"TLS configuration of {access.host}: {reason_of(error)}") from error
