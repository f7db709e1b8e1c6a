"""Which API server, and as whom: in-cluster or kubeconfig, tokens renewed.

This module decides which source is used and when a token is read again, and turns every way in which loading
fails into one `ConfigurationError`; `makeway.runtime.kubeconfig` reads files.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from makeway.bus.reasons import reason_of
from makeway.runtime.kubeconfig import ApiServer, Kubeconfig, KubeconfigError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"

TOKEN_LIFE_SECONDS = 60.0
"""How long a token is used before its source is read again. The kubelet renews projected tokens at
80 % of their life, which is at least 10 minutes, so a minute is always early enough."""

RENEWAL_SECONDS = 10.0
"""How long reading the source of a token may take. It may be a program (exec) that hangs."""


class ConfigurationError(Exception):
    """The connection's configuration cannot be used; the message says what to change."""


class _Loader(Protocol):
    """What a source of access offers."""

    async def load_and_set(self, configuration: ApiServer) -> None:
        """Authenticate (reading token files or running the user's program) and fill `configuration`."""


class _ServiceAccount:
    """The account that a pod has been given."""

    async def load_and_set(self, configuration: ApiServer) -> None:
        """Raises OSError, KubeconfigError."""
        host, port = os.environ[_HOST], os.environ.get(_PORT, "")
        token = (_ACCOUNT / "token").read_text().strip()
        if not token or not port:
            raise KubeconfigError(f"{_ACCOUNT / 'token'} is empty" if port else f"${_PORT} is not set")
        configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        configuration.ssl_ca_cert = str(_ACCOUNT / "ca.crt")
        configuration.authorization = f"Bearer {token}"


class Access:
    """A loaded configuration, and the `Authorization` header that goes with it at this moment.

    Client certificates that are files are read again when they change (`makeway.runtime.tls`).
    """

    def __init__(
        self,
        configuration: ApiServer,
        loader: _Loader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.configuration = configuration
        self._loader = loader
        self._clock = clock
        self._fresh_until = clock() + TOKEN_LIFE_SECONDS
        self._renewing = asyncio.Lock()

    def expire(self) -> None:
        """Read the token's source again before the next request: the server answered 401."""
        self._fresh_until = self._clock()

    async def authorization(self) -> str | None:
        """The header's value, or None where a client certificate says who we are.

        Raises:
            ConfigurationError: the token's source cannot be read any more.
        """
        try:
            if self._clock() >= self._fresh_until:
                await self._renew()
        except TimeoutError as error:
            raise ConfigurationError(
                f"cannot renew the API token: its source gave none in {RENEWAL_SECONDS:.0f} s"
            ) from error
        except (KubeconfigError, OSError, ValueError) as error:
            raise ConfigurationError(f"cannot renew the API token: {reason_of(error)}") from error
        return self.configuration.authorization

    async def _renew(self) -> None:
        """Read the token's source, once for all who need it."""
        async with asyncio.timeout(RENEWAL_SECONDS), self._renewing:
            if self._clock() >= self._fresh_until:
                await self._loader.load_and_set(self.configuration)
                self._fresh_until = self._clock() + TOKEN_LIFE_SECONDS


def _in_cluster() -> bool:
    return bool(os.environ.get(_HOST)) and (_ACCOUNT / "token").is_file()


def _kubeconfig_paths(kubeconfig: str | None) -> list[Path]:
    """The kubeconfig files to merge; at least one exists."""
    source = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(p).expanduser() for p in source.split(os.pathsep) if p]
    if not any(p.is_file() for p in paths):
        raise ConfigurationError(
            f"there is no kubeconfig {source}, and no service account: give --kubeconfig or set KUBECONFIG"
        )
    return paths


async def load_access(kubeconfig: str | None, context: str | None) -> Access:
    """Find the API server: the given file; else in-cluster, unless a context is named; else the default file.

    The default file is `$KUBECONFIG`, else `~/.kube/config`.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    configuration = ApiServer()
    if kubeconfig is None and context is None and _in_cluster():
        account = _ServiceAccount()
        try:
            await account.load_and_set(configuration)
        except (KubeconfigError, OSError) as error:
            raise ConfigurationError(f"in-cluster configuration: {reason_of(error)}") from error
        return Access(configuration, account)
    paths = _kubeconfig_paths(kubeconfig)
    try:
        loader = Kubeconfig(paths, context)
        await loader.load_and_set(configuration)
    except (KubeconfigError, OSError, ValueError) as error:
        named = os.pathsep.join(map(str, paths))
        raise ConfigurationError(f"kubeconfig {named}: {reason_of(error)}") from error
    return Access(configuration, loader)
