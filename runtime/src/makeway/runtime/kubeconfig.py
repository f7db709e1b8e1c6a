"""A kubeconfig as kubectl reads it: several files merged, one context, its cluster and its user.

It does what client-go's clientcmd does of it: data before files, paths relative to the file that names them,
the first file wins; and credentials from a program (exec). Left out are impersonation, which is not read, and
auth-providers, of which kubectl has kept OIDC alone: its token is used until it ends, and not renewed.
Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from makeway.bus.reasons import reason_of

_RENEWED_BEFORE: Final = timedelta(minutes=5)
"""A token from a program is asked for anew so long before it ends."""

_MESSAGE_LIMIT: Final = 500
"""Characters of what a program says that are passed on."""


class KubeconfigError(Exception):
    """It cannot be used; the message says what is wrong, and where."""


@dataclass
class ApiServer:
    """How the API server is reached, and as whom. Loaders fill it.

    Certificates are paths of files; `authorization` is the header's value, None where a certificate is all.
    """

    host: str = ""
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    authorization: str | None = None


@dataclass(frozen=True)
class _Entry:
    """A cluster, user or context. `source`: its file, from whose directory relative paths begin."""

    kind: str
    name: str
    fields: Mapping[str, Any]
    source: Path

    def text(self, key: str) -> str:
        """Return a field's text; empty where it is absent. Raises KubeconfigError."""
        value = self.fields.get(key)
        if value is not None and not isinstance(value, str):
            raise KubeconfigError(f"{key} of {self} is not a text")
        return value or ""

    def path(self, named: str) -> Path:
        """Return where a path of the file leads."""
        return self.source.parent / Path(named).expanduser()

    def kept(self, what: str, content: bytes) -> str:
        """Write a content to a file and return its path: the same file for the same entry of the same source.

        Another kubeconfig may have an entry of the same name, such as each `kind` or test cluster's own.
        """
        return _kept(f"{self.source}\n{self.kind}\n{self.name}\n{what}", content)

    def file(self, key: str) -> str | None:
        """Return the path of a file: a field's data, written to one, or else what it names."""
        if data := self.text(f"{key}-data"):
            try:
                return self.kept(key, base64.b64decode(data, validate=True))
            except binascii.Error as error:
                raise KubeconfigError(f"{key}-data of {self} is not base64: {error}") from error
        if not (named := self.text(key)):
            return None
        path = self.path(named)
        if not path.is_file():
            raise KubeconfigError(f"{key} of {self}: there is no file {path}")
        return str(path)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Kubeconfig:
    """A context of one or more files; read once, but for the user's token."""

    def __init__(self, paths: list[Path], context: str | None) -> None:
        documents = [(path, _read(path)) for path in paths if path.is_file()]
        name = context or next(
            (str(found) for _, one in documents if (found := one.get("current-context"))), ""
        )
        if not name:
            raise KubeconfigError("it has no current-context; give --context")
        chosen = _named(documents, "context", name)
        self._cluster = _named(documents, "cluster", chosen.text("cluster"))
        user = chosen.text("user")
        self._user = _named(documents, "user", user) if user else _Entry("user", "", {}, Path())
        self._ends: datetime | None = None

    async def load_and_set(self, configuration: ApiServer) -> None:
        """Fill the configuration, or renew what does not last.

        Raises:
            KubeconfigError: a field is missing or wrong, a file is not there, the user's program failed.
        """
        cluster, user = self._cluster, self._user
        configuration.host = cluster.text("server").rstrip("/")
        if not configuration.host:
            raise KubeconfigError(f"{cluster} has no server")
        configuration.ssl_ca_cert = cluster.file("certificate-authority")
        configuration.verify_ssl = cluster.fields.get("insecure-skip-tls-verify") is not True
        configuration.tls_server_name = cluster.text("tls-server-name") or None
        configuration.proxy = cluster.text("proxy-url") or None
        if "exec" in user.fields:
            await self._executed(configuration)
            return
        configuration.cert_file = user.file("client-certificate")
        configuration.key_file = user.file("client-key")
        configuration.authorization = _authorization(user)

    async def _executed(self, configuration: ApiServer) -> None:
        """Ask the user's program, unless what it said still holds."""
        if self._ends is not None and datetime.now(UTC) < self._ends - _RENEWED_BEFORE:
            return
        status = await _run(self._user, self._cluster, configuration)
        token, certificate = status.get("token"), status.get("clientCertificateData")
        if not token and not certificate:
            raise KubeconfigError(f"the program of {self._user} said neither a token nor a certificate")
        configuration.authorization = f"Bearer {token}" if token else None
        if certificate:
            if not (key := status.get("clientKeyData")):
                raise KubeconfigError(f"the program of {self._user} said a certificate without its key")
            configuration.cert_file = self._user.kept("certificate", str(certificate).encode())
            configuration.key_file = self._user.kept("key", str(key).encode())
        ends = status.get("expirationTimestamp")
        try:
            self._ends = datetime.fromisoformat(str(ends)).astimezone(UTC) if ends else None
        except ValueError:
            self._ends = None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path} cannot be read: {reason_of(error)}") from error
    except yaml.YAMLError as error:
        raise KubeconfigError(f"{path} is not YAML: {error}") from error
    if document is not None and not isinstance(document, dict):
        raise KubeconfigError(f"{path} is not a kubeconfig")
    return document or {}


def _named(documents: list[tuple[Path, Mapping[str, Any]]], kind: str, name: str) -> _Entry:
    """Return the first entry of the name, over all files. Raises KubeconfigError."""
    for path, document in documents:
        for entry in document.get(f"{kind}s") or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                fields = entry.get(kind) or {}
                if not isinstance(fields, dict):
                    raise KubeconfigError(f"{path}: {kind} {name} has no fields")
                return _Entry(kind, name, fields, path.absolute())
    raise KubeconfigError(f"there is no {kind} {name or '(unnamed)'}")


def _authorization(user: _Entry) -> str | None:
    """Return the header of a user without a program. Raises KubeconfigError."""
    if named := user.text("tokenFile"):
        try:
            return f"Bearer {user.path(named).read_text().strip()}"
        except (OSError, UnicodeDecodeError) as error:
            raise KubeconfigError(f"tokenFile of {user} cannot be read: {reason_of(error)}") from error
    if token := user.text("token"):
        return f"Bearer {token.strip()}"
    if name := user.text("username"):
        both = f"{name}:{user.text('password')}".encode()
        return f"Basic {base64.b64encode(both).decode()}"
    if "auth-provider" in user.fields:
        return f"Bearer {_oidc_token(user)}"
    return None


def _oidc_token(user: _Entry) -> str:
    provider = user.fields["auth-provider"]
    if not isinstance(provider, dict):
        raise KubeconfigError(f"auth-provider of {user} has no fields")
    remedy = "sign in by kubectl, or use a program (exec), as kubelogin is one"
    if provider.get("name") != "oidc":
        raise KubeconfigError(f"{user}: auth-provider {provider.get('name')} is not known: {remedy}")
    token = str((provider.get("config") or {}).get("id-token") or "")
    try:
        claims = token.split(".")[1]
        ends = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        over = datetime.now(UTC).timestamp() >= float(ends)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise KubeconfigError(f"id-token of {user} is none: {remedy}") from error
    if over:
        raise KubeconfigError(f"id-token of {user} has ended, and is renewed by kubectl alone: {remedy}")
    return token


async def _run(user: _Entry, cluster: _Entry, configuration: ApiServer) -> Mapping[str, Any]:
    """Run a user's program and return the status of what it says. Raises KubeconfigError."""
    settings = user.fields["exec"]
    if not isinstance(settings, dict):
        raise KubeconfigError(f"exec of {user} has no fields")
    command, version = str(settings.get("command") or ""), str(settings.get("apiVersion") or "")
    if not command or not version:
        raise KubeconfigError(f"exec of {user} has no command or no apiVersion")
    if os.sep in command:
        command = str(user.path(command))
    interactive = settings.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": interactive}
    if settings.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster, configuration)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    for one in settings.get("env") or ():
        if not isinstance(one, dict) or "name" not in one:
            raise KubeconfigError(f"env of exec of {user}: an entry has no name")
        environment[str(one["name"])] = str(one.get("value") or "")
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *map(str, settings.get("args") or ()),
            env=environment,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=None if interactive else PIPE,
        )
    except OSError as error:
        hint = f". {settings['installHint']}" if settings.get("installHint") else ""
        raise KubeconfigError(f"{command}, the program of {user}: {reason_of(error)}{hint}") from error
    try:
        said, complained = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    if process.returncode != 0:
        why = (complained or b"").decode(errors="replace").strip()[-_MESSAGE_LIMIT:]
        raise KubeconfigError(f"{command}, the program of {user}, ended with {process.returncode}: {why}")
    try:
        answer = json.loads(said)
        status: Mapping[str, Any] = answer["status"]
        same = answer["apiVersion"] == version
    except (ValueError, KeyError, TypeError) as error:
        raise KubeconfigError(f"{command}, the program of {user}, said no ExecCredential") from error
    if not same:
        raise KubeconfigError(
            f"{command}, the program of {user}, answers {answer['apiVersion']}, not {version}"
        )
    return status


def _cluster_info(cluster: _Entry, configuration: ApiServer) -> dict[str, Any]:
    """Return what a program is told of the cluster, where it asks for it."""
    info: dict[str, Any] = {
        "server": configuration.host,
        "insecure-skip-tls-verify": not configuration.verify_ssl,
    }
    if configuration.tls_server_name:
        info["tls-server-name"] = configuration.tls_server_name
    if configuration.proxy:
        info["proxy-url"] = configuration.proxy
    if configuration.ssl_ca_cert:
        authority = Path(configuration.ssl_ca_cert).read_bytes()
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for one in cluster.fields.get("extensions") or ():
        if isinstance(one, dict) and one.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = one.get("extension")
    return info


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """The process's directory for keys that are data: Python's TLS reads files. It ends with the process."""
    return tempfile.TemporaryDirectory(prefix="makeway-kubeconfig-")


def _kept(name: str, content: bytes) -> str:
    """Write a content to a file of its own, which its owner alone reads, and return its path.

    The same name is the same file, put in place whole: who reads it again finds one or the other.
    """
    base = Path(_directory().name)
    path = base / hashlib.sha256(name.encode()).hexdigest()
    if path.is_file() and path.read_bytes() == content:
        return str(path)
    handle, temporary = tempfile.mkstemp(dir=base)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(temporary).replace(path)
    return str(path)
