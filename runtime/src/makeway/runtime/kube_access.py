"""Which API server, and as whom: kubernetes_asyncio.config, corrected where kubectl does otherwise.

Each correction, and the library's line that it is for, is listed in
docs/decisions/runtime.md. Sources:
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from makeway.bus.reasons import reason_of
from makeway.runtime.kube import ConfigurationError
from makeway.runtime.proxy import proxy_for

TOKEN_LIFE_SECONDS = 60.0
"""How long a token is used before its source is read again. The kubelet renews projected tokens at
80 % of their life, which is at least 10 minutes, so a minute is always early enough."""

RENEWAL_SECONDS = 10.0
"""How long reading the source of a token may take. It may be a program (exec) that hangs."""

_RENEWED_BEFORE: Final = timedelta(minutes=5)
"""A credential from a program is asked for anew so long before it ends."""

_MESSAGE_LIMIT: Final = 500
"""Characters of what a program says that are passed on."""

_INSECURE: Final = "insecure-skip-tls-verify"

_log = structlog.get_logger()

logging.getLogger(KubeConfigLoader.__module__).disabled = True  # it logs what it raises

_FAILURES: Final = (ConfigException, OSError, ValueError)
_MALFORMED: Final = (KeyError, TypeError, AttributeError, AssertionError)
"""What the library raises for a file of another shape."""


class _Loader(Protocol):
    """A source of access."""

    async def renew(self, access: Access, *, refused: bool) -> None:
        """Read what does not last again: a token, a program's certificate. `refused`: by the server."""


class Access(Configuration):  # type: ignore[misc]
    """A loaded configuration whose credentials are renewed: once a minute, after a 401, once for all who ask.

    Certificates that are files are read again where they change (`makeway.runtime.tls`).
    """

    def __init__(self, loader: _Loader, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._loader = loader
        self._clock = clock
        self._fresh_until = clock() + TOKEN_LIFE_SECONDS
        self._refused = False
        self._renewing = asyncio.Lock()

    def expire(self) -> None:
        """Read the token's source again before the next request: the server answered 401."""
        self._fresh_until = self._clock()
        self._refused = True

    async def auth_settings(self) -> dict[str, Any]:
        """Return the library's settings, renewed also where a certificate is all there is.

        Where the source cannot be read, what it said last serves until the server refuses it.

        Raises:
            ConfigurationError: what was said last is refused, and the source cannot be read any more.
        """
        try:
            if self._clock() >= self._fresh_until:
                await self._renew()
        except ConfigurationError as error:
            if self._refused:
                raise
            self._fresh_until = self._clock() + RENEWAL_SECONDS
            _log.warning("token_not_renewed", error=str(error))
        settings: dict[str, Any] = await super().auth_settings()
        return settings

    async def _renew(self) -> None:
        """Read the source where what it said is no longer fresh. Raises ConfigurationError."""
        try:
            async with asyncio.timeout(RENEWAL_SECONDS), self._renewing:
                if self._clock() >= self._fresh_until:
                    await self._loader.renew(self, refused=self._refused)
                    self._refused = False
                    self._fresh_until = self._clock() + TOKEN_LIFE_SECONDS
        except TimeoutError as error:
            raise ConfigurationError(
                f"cannot renew the API token: its source gave none in {RENEWAL_SECONDS:.0f} s"
            ) from error
        except _FAILURES as error:
            raise ConfigurationError(f"cannot renew the API token: {reason_of(error)}") from error


class _ServiceAccount(InClusterConfigLoader):  # type: ignore[misc]
    """The account that a pod has been given."""

    token: str

    def _read_token_file(self) -> None:
        super()._read_token_file()
        self.token = self.token.strip()

    async def renew(self, access: Access, *, refused: bool) -> None:
        self._read_token_file()
        self._set_config(access)


class _Merger(KubeConfigMerger):  # type: ignore[misc]
    """Several files as kubectl merges them: the first that says something wins, its context too."""

    def load_config(self, path: str) -> None:
        before = self.config and self.config.safe_get("current-context")
        try:
            super().load_config(path)
        except yaml.YAMLError as error:
            raise ConfigException(f"{path} is not YAML: {error}") from error
        except _MALFORMED as error:
            if yaml.safe_load(Path(path).read_text()) is None:
                return
            raise ConfigException(f"{path} is not a kubeconfig") from error
        if before:
            self.config.value["current-context"] = before


class _Kubeconfig(KubeConfigLoader):  # type: ignore[misc]
    """A context of one or more files; read once, but for what a user proves who it is by."""

    _user: Any
    _ends: datetime | None = None
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def set_active_context(self, context_name: str | None = None) -> None:
        named = context_name or self._config.safe_get("current-context")
        if named and self._config["contexts"].get_with_name(named, safe=True) is None:
            raise ConfigException(f"there is no context {named}; see `kubectl config get-contexts`")
        super().set_active_context(context_name)
        context = self._current_context["context"]
        self._names = context.safe_get("cluster"), context.safe_get("user") or ""
        if self._names[1] and self._user is None:
            raise ConfigException(f"there is no user {self._names[1]}")
        self._user = self._user or ConfigNode("user", {}, self._cluster.path)
        _check(self._cluster, f"cluster {self._names[0]}")
        _check(self._user, f"user {self._names[1]}")
        if "server" not in self._cluster:
            raise ConfigException(f"cluster {self._names[0]} has no server")

    async def renew(self, access: Access, *, refused: bool) -> None:
        if refused:
            self._ends = None
        await self._load_authentication()
        self._set_config(access)

    async def _load_authentication(self) -> None:
        if self.provider is not None:
            raise ConfigException(
                f"auth-provider {self.provider} of user {self._names[1]} is not used here: "
                "sign in by a program (exec), as kubelogin is one"
            )
        await super()._load_authentication()

    def _load_user_token(self) -> bool:
        if named := self._user.safe_get("tokenFile"):
            try:
                token = (Path(self._get_base_path(self._user.path)) / named).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigException(
                    f"tokenFile of user {self._names[1]} cannot be read: {reason_of(error)}"
                ) from error
        elif not (token := self._user.safe_get("token")):
            return False
        self.token = f"Bearer {token.strip()}"
        return True

    async def load_from_exec_plugin(self) -> bool:
        """Ask the user's program, unless what it said still holds and the server takes it."""
        if self._ends is not None and datetime.now(UTC) < self._ends - _RENEWED_BEFORE:
            return True
        user = f"user {self._names[1]}"
        status = await _Program(self._user["exec"], user, self._about_cluster()).run()
        token, certificate = status.get("token"), status.get("clientCertificateData")
        if not token and not certificate:
            raise ConfigException(f"the program of {user} said neither a token nor a certificate")
        if token:
            self.token = f"Bearer {token}"
        if certificate:
            if not (key := status.get("clientKeyData")):
                raise ConfigException(f"the program of {user} said a certificate without its key")
            self.cert_file = self._kept("certificate", str(certificate))
            self.key_file = self._kept("key", str(key))
        ends = status.get("expirationTimestamp")
        try:
            self._ends = datetime.fromisoformat(str(ends)).astimezone(UTC) if ends else None
        except ValueError:
            self._ends = None
        return True

    def _kept(self, name: str, content: str) -> str:
        """Write a content to a file of its own, put in place whole, and return its path."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="makeway-kubeconfig-")
        path = Path(self._directory.name, name)
        handle, temporary = tempfile.mkstemp(dir=self._directory.name)
        with os.fdopen(handle, "w") as file:
            file.write(content)
        Path(temporary).replace(path)
        return str(path)

    def _about_cluster(self) -> Mapping[str, Any] | None:
        """Return what a program is told of the cluster, where it asks for it."""
        if not self._user["exec"].safe_get("provideClusterInfo"):
            return None
        self._load_cluster_info()
        keys = ("insecure-skip-tls-verify", "tls-server-name", "proxy-url")
        info = {"server": self.host, **{key: self._cluster[key] for key in keys if key in self._cluster}}
        if authority := getattr(self, "ssl_ca_cert", None):
            info["certificate-authority-data"] = base64.b64encode(Path(authority).read_bytes()).decode()
        for one in self._cluster.safe_get("extensions") or ():
            if one.get("name") == "client.authentication.k8s.io/exec":
                info["config"] = one.get("extension")
        return info


class _Program(ExecProvider):  # type: ignore[misc]
    """The program that a user signs in by, run as kubectl runs it."""

    def __init__(self, settings: ConfigNode, user: str, cluster: Mapping[str, Any] | None) -> None:
        super().__init__(settings)
        self._user = user
        self._hint = settings.safe_get("installHint") or ""
        never = settings.safe_get("interactiveMode") == "Never"
        self._interactive = not never and sys.stdin is not None and sys.stdin.isatty()
        if os.sep in self.args[0]:
            self.args[0] = str(Path(settings.path or "").absolute().parent / self.args[0])
        spec = {"interactive": self._interactive, **({"cluster": cluster} if cluster is not None else {})}
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        self.env["KUBERNETES_EXEC_INFO"] = json.dumps(info)

    async def run(self, previous_response: str | None = None) -> Mapping[str, Any]:
        """Return the status of what the program says."""
        named = f"{self.args[0]}, the program of {self._user}"
        try:
            process = await asyncio.create_subprocess_exec(
                *map(str, self.args),
                env=self.env,
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=None if self._interactive else PIPE,
                start_new_session=not self._interactive,
            )
        except OSError as error:
            hint = f". {self._hint}" if self._hint else ""
            raise ConfigException(f"{named}: {reason_of(error)}{hint}") from error
        try:
            # Whoever is at a terminal may have to answer there.
            async with asyncio.timeout(None if self._interactive else RENEWAL_SECONDS):
                said, complained = await process.communicate()
        except (TimeoutError, asyncio.CancelledError) as error:
            with contextlib.suppress(ProcessLookupError):
                if not self._interactive:
                    os.killpg(process.pid, signal.SIGTERM)  # what it has started holds its pipes, too
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise ConfigException(f"{named}, said nothing in {RENEWAL_SECONDS:.0f} s") from error
            raise
        if process.returncode != 0:
            why = (complained or b"").decode(errors="replace").strip()[-_MESSAGE_LIMIT:]
            raise ConfigException(f"{named}, ended with {process.returncode}: {why}")
        try:
            answer = json.loads(said)
            status: Mapping[str, Any] = {**answer["status"]}
            version = answer["apiVersion"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigException(f"{named}, said no ExecCredential") from error
        if version != self.api_version:
            raise ConfigException(f"{named}, answers {version}, not {self.api_version}")
        return status


def _check(entry: ConfigNode, named: str) -> None:
    """Take out what is empty, as kubectl does. Raises ConfigException at "false" in quotes."""
    entry.value = {key: value for key, value in entry.value.items() if value not in (None, "")}
    if not isinstance(entry.value.get(_INSECURE, False), bool):
        raise ConfigException(f"{_INSECURE} of {named} is neither true nor false")


async def load_access(kubeconfig: str | None, context: str | None) -> Access:
    """Find the API server: the given file; else in-cluster, unless a context is named; else the default file.

    The default file is `$KUBECONFIG`, else `~/.kube/config`.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    if kubeconfig is None and context is None and _in_cluster():
        account = _ServiceAccount(SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME, try_refresh_token=False)
        access = Access(account)
        try:
            account.load_and_set(access)
        except _FAILURES as error:
            raise ConfigurationError(f"in-cluster configuration: {reason_of(error)}") from error
    else:
        access = await _from_files(kubeconfig, context)
    access.proxy = access.proxy or proxy_for(access.host)
    return access


def _in_cluster() -> bool:
    return bool(os.environ.get(SERVICE_HOST_ENV_NAME)) and Path(SERVICE_TOKEN_FILENAME).is_file()


def _kubeconfigs(given: str | None) -> str:
    """The files to merge, as in $KUBECONFIG; at least one exists."""
    source = given or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not any(Path(one).expanduser().is_file() for one in source.split(os.pathsep) if one):
        raise ConfigurationError(
            f"there is no kubeconfig {source}, and no service account: give --kubeconfig or set KUBECONFIG"
        )
    return source


async def _from_files(kubeconfig: str | None, context: str | None) -> Access:
    source = _kubeconfigs(kubeconfig)
    try:
        merged = _Merger(source).config
        if not context and not (merged and merged.safe_get("current-context")):
            raise ConfigException("it has no current-context; give --context")
        loader = _Kubeconfig(merged, active_context=context, config_base_path=None)
        access = Access(loader)
        await loader.load_and_set(access)
    except _FAILURES as error:
        raise ConfigurationError(f"kubeconfig {source}: {reason_of(error)}") from error
    except _MALFORMED as error:
        raise ConfigurationError(f"kubeconfig {source}: it is not as a kubeconfig is ({error!r})") from error
    return access
