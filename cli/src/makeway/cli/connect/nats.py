"""Where an installation's NATS is, and a way to it from here.

The chart, and `makeway dev up`, write a ConfigMap `makeway-installation` into makeway's namespace. The
address in it is one for processes in the cluster; from elsewhere kubectl forwards a port to that Service.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from makeway.bus.errors import BusUnavailable
from makeway.bus.subjects import DEFAULT_PREFIX
from makeway.runtime.kube import Api, ApiError

CONFIGMAP: Final = "makeway-installation"

_PORT: Final = 4222
_REACH_SECONDS: Final = 2.0
_FORWARD_SECONDS: Final = 10.0
_SERVICE: Final = re.compile(r"(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(\.svc(\..+)?)?")
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class NatsAddress:
    """Where NATS is, under which prefix, and who says so.

    `tls`: what makes the TLS context of each connection; None where the installation names no certificates.
    """

    url: str
    prefix: str
    origin: str
    tls: Callable[[], ssl.SSLContext] | None = None


@dataclass(frozen=True)
class Way:
    """How an address is reached from here. `tls_hostname`: whose certificate it has, where not the URL's."""

    url: str
    tls_hostname: str = ""


USUAL: Final = NatsAddress(f"nats://127.0.0.1:{_PORT}", DEFAULT_PREFIX, "the usual address; give --nats-url")


class InstallationData(msgspec.Struct, rename="camel"):
    """What the ConfigMap says.

    Attributes:
        nats_url: address of NATS for processes in the cluster.
        subject_prefix: first part of every subject.
        chart_version: version of the chart that wrote it; empty where no chart did.
        scheduler_name: `schedulerName` of the pods that makeway's scheduler is for.
        nats_secret: Secret beside it for commands that read, with `user` and `password`, and with `ca.crt`,
            `tls.crt` and `tls.key` where NATS asks for certificates; empty for none.
        nats_operator_secret: the same for commands that write; empty takes `nats_secret`.
    """

    nats_url: str = ""
    subject_prefix: str = DEFAULT_PREFIX
    chart_version: str = ""
    scheduler_name: str = ""
    nats_secret: str = ""
    nats_operator_secret: str = ""


class _Login(msgspec.Struct):
    user: bytes
    password: bytes
    authority: bytes = msgspec.field(default=b"", name="ca.crt")
    certificate: bytes = msgspec.field(default=b"", name="tls.crt")
    key: bytes = msgspec.field(default=b"", name="tls.key")


class _Secret(msgspec.Struct):
    data: _Login


class _ConfigMap(msgspec.Struct):
    data: InstallationData = msgspec.field(default_factory=InstallationData)


async def read_installation(api: Api, namespace: str) -> InstallationData | None:
    """Read the ConfigMap; None where there is none.

    Raises:
        ApiError, ApiUnavailable: it could not be read.
        ValueError: it holds something else.
    """
    try:
        body = await api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}")
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    try:
        return msgspec.json.decode(body, type=_ConfigMap).data
    except msgspec.DecodeError as error:
        raise ValueError(f"ConfigMap {namespace}/{CONFIGMAP} is not makeway's: {error}") from error


async def installed(api: Api, namespace: str, *, writes: bool = False) -> NatsAddress:
    """Ask the installation where NATS is and how to log in; the usual address where there is none.

    `writes`: as a user who may do more than read. Raises as above.
    """
    found = await read_installation(api, namespace)
    if found is None or not found.nats_url:
        return NatsAddress(
            USUAL.url,
            USUAL.prefix,
            f"the usual address: there is no ConfigMap {namespace}/{CONFIGMAP}; "
            "give --makeway-namespace or --nats-url",
        )
    secret = (found.nats_operator_secret if writes else "") or found.nats_secret
    origin = f"as ConfigMap {namespace}/{CONFIGMAP} says"
    if not secret:
        return NatsAddress(found.nats_url, found.subject_prefix, origin)
    login = await _read_login(api, namespace, secret)
    try:
        url, tls = _logged_in(found.nats_url, login), _tls(login)
    except (OSError, ValueError) as error:
        raise ValueError(f"Secret {namespace}/{secret} cannot be used to log in to NATS: {error}") from error
    return NatsAddress(url, found.subject_prefix, origin, tls)


async def _read_login(api: Api, namespace: str, secret: str) -> _Login:
    body = await api.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{secret}")
    try:
        return msgspec.json.decode(body, type=_Secret).data
    except msgspec.DecodeError as error:
        raise ValueError(f"Secret {namespace}/{secret} has no user and password: {error}") from error


def _logged_in(urls: str, login: _Login) -> str:
    """Put user and password into every URL."""
    user, password = (quote(text.decode(), safe="") for text in (login.user, login.password))
    return ",".join(
        f"{url.scheme or 'nats'}://{user}:{password}@{url.netloc.rpartition('@')[2]}"
        for url in (urlsplit(one.strip()) for one in urls.split(","))
    )


def _tls(login: _Login) -> Callable[[], ssl.SSLContext] | None:
    """Return what makes the TLS context of each connection; None where the Secret has no authority.

    Raises:
        ValueError, OSError (ssl.SSLError is one): certificates that cannot be used.
    """
    if not login.authority:
        return None
    context = ssl.create_default_context(cadata=login.authority.decode())
    if login.certificate:
        # OpenSSL reads a client certificate from files alone.
        with TemporaryDirectory(prefix="makeway-") as directory:
            files = Path(directory, "tls.crt"), Path(directory, "tls.key")
            for file, data in zip(files, (login.certificate, login.key), strict=True):
                file.touch(mode=0o600)
                file.write_bytes(data)
            context.load_cert_chain(*files)
    return lambda: context


@asynccontextmanager
async def reachable(urls: str, kubeconfig: Path | None, context: str | None) -> AsyncIterator[Way]:
    """Return the address where it can be reached from here; else one of a port that kubectl forwards.

    An address that names no Service is given as it is too: whoever connects says what is wrong. Through a
    forwarded port the server's certificate is still that of the Service.

    Raises:
        BusUnavailable: only a forwarded port would do, and none can be had; says what to run.
    """
    first = urlsplit(urls.split(",", maxsplit=1)[0].strip())
    service = _SERVICE.fullmatch(first.hostname or "")
    if service is None or _is_address(first.hostname or "") or await _answers(first):
        yield Way(urls)
        return
    port = first.port or _PORT
    options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    options += [f"--context={context}"] if context else []
    forward = ["port-forward", "-n", service["namespace"], f"svc/{service['service']}"]
    by_hand = " ".join(["kubectl", *options, *forward, f"{port}:{port}"])
    advice = f"run `{by_hand}` and give --nats-url nats://127.0.0.1:{port}"
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise BusUnavailable(f"{first.hostname} cannot be reached from here; {advice}")
    async with _forwarded([kubectl, *options, *forward, f":{port}"], advice) as local:
        user = f"{first.netloc.rpartition('@')[0]}@" if "@" in first.netloc else ""
        yield Way(f"{first.scheme or 'nats'}://{user}127.0.0.1:{local}", first.hostname or "")


@asynccontextmanager
async def _forwarded(command: list[str], advice: str) -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    if process.stdout is None or process.stderr is None:
        raise BusUnavailable("kubectl port-forward has no output")
    try:
        try:
            async with asyncio.timeout(_FORWARD_SECONDS):
                line = (await process.stdout.readline()).decode()
                said = "" if line else (await process.stderr.read()).decode().strip()
        except TimeoutError:
            line, said = "", f"no answer in {_FORWARD_SECONDS:.0f} s"
        found = _FORWARDING.search(line)
        if found is None:
            raise BusUnavailable(f"kubectl port-forward: {said or line.strip()}; {advice}")
        yield int(found[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _is_address(host: str) -> bool:
    return host.replace(".", "").isdecimal()


async def _answers(url: SplitResult) -> bool:
    """Whether something takes connections there."""
    try:
        async with asyncio.timeout(_REACH_SECONDS):
            _, writer = await asyncio.open_connection(url.hostname, url.port or _PORT)
    except OSError:
        return False
    writer.close()
    return True
