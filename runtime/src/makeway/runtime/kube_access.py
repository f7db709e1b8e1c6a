"""Where the API server is and how to prove who we are: kubeconfig or in-cluster, tokens renewed.

Loading is kubernetes-asyncio's (36.1); this module decides which source is used, when a token is
read again, and turns every way in which loading fails into one `ConfigurationError`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_kube_config
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

TOKEN_LIFE_SECONDS = 60.0
"""How long a token is used before its source is read again. The kubelet renews projected tokens at
80 % of their life, which is at least 10 minutes, so a minute is always early enough."""

RENEWAL_SECONDS = 10.0
"""How long reading the source of a token may take. It may be a program (exec) that hangs."""


class ConfigurationError(Exception):
    """The connection's configuration cannot be used; the message says what to change."""


class _Loader(Protocol):
    """What kubernetes-asyncio's kubeconfig loader offers."""

    async def load_and_set(self, client_configuration: Any) -> None:
        """Authenticate (reading token files or running the exec plugin) and fill `configuration`."""


class Access:
    """A loaded configuration, and the `Authorization` header that goes with it at this moment.

    Client certificates that are files are read again when they change (`makeway.runtime.tls`).
    """

    def __init__(
        self,
        configuration: Any,
        loader: _Loader | None,
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
            if self._loader is not None and self._clock() >= self._fresh_until:
                await self._renew(self._loader)
            value = await self.configuration.get_api_key_with_prefix("BearerToken")
        except TimeoutError as error:
            raise ConfigurationError(
                f"cannot renew the API token: its source gave none in {RENEWAL_SECONDS:.0f} s"
            ) from error
        except (ConfigException, OSError, ValueError, AssertionError) as error:
            raise ConfigurationError(f"cannot renew the API token: {error}") from error
        return value.strip() if value else None

    async def _renew(self, loader: _Loader) -> None:
        """Read the token's source, once for all who need it."""
        async with asyncio.timeout(RENEWAL_SECONDS), self._renewing:
            if self._clock() >= self._fresh_until:
                await loader.load_and_set(self.configuration)
                self._fresh_until = self._clock() + TOKEN_LIFE_SECONDS


def _in_cluster() -> bool:
    return bool(os.environ.get(SERVICE_HOST_ENV_NAME)) and Path(SERVICE_TOKEN_FILENAME).is_file()


def _kubeconfig_paths(kubeconfig: str | None) -> str:
    """The kubeconfig files to merge, joined as in $KUBECONFIG; at least one exists."""
    source = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(p).expanduser() for p in source.split(os.pathsep) if p]
    if not any(p.is_file() for p in paths):
        raise ConfigurationError(
            f"no kubeconfig at {source} and no service account: give --kubeconfig or set KUBECONFIG"
        )
    return os.pathsep.join(map(str, paths))


async def load_access(kubeconfig: str | None, context: str | None) -> Access:
    """Find the API server: the given file; else in-cluster, unless a context is named; else the default file.

    The default file is `$KUBECONFIG`, else `~/.kube/config`.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    configuration = Configuration()
    if kubeconfig is None and context is None and _in_cluster():
        try:
            InClusterConfigLoader(SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME).load_and_set(configuration)
        except (ConfigException, OSError) as error:
            raise ConfigurationError(f"in-cluster configuration: {error}") from error
        return Access(configuration, None)
    source = _kubeconfig_paths(kubeconfig)
    try:
        loader = await load_kube_config(
            config_file=source,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, OSError, ValueError, TypeError, AssertionError, yaml.YAMLError) as error:
        raise ConfigurationError(f"kubeconfig {source}: {error}") from error
    return Access(configuration, loader)
