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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from makeway.bus.errors import BusAway, BusUnavailable
from makeway.bus.nats.user_key import KeyLogin, parse_credentials, parse_seed
from makeway.bus.reasons import reason_of
from makeway.bus.subjects import DEFAULT_PREFIX
from makeway.runtime.kube import Api, read_object
from makeway.runtime.tls import load_certificate

CONFIGMAP: Final = "makeway-installation"

_PORT: Final = 4222
_REACH_SECONDS: Final = 1.5
_FORWARD_SECONDS: Final = 10.0
_SERVICE: Final = re.compile(r"(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(\.svc(\..+)?)?")
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class NatsAddress:
    """Where NATS is, under which prefix, and who says so.

    `login`: a key of its own, where the installation names one; a password is in the URL. `tls`: what makes
    the TLS context of each connection; None where the installation names no certificates. `trouble`: why
    the installation could not be asked, where the usual address stands in for its answer.
    """

    url: str
    prefix: str
    origin: str
    login: KeyLogin | None = None
    tls: Callable[[], ssl.SSLContext] | None = None
    trouble: str = ""


@dataclass(frozen=True)
class Endpoint:
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
        bridge: who brings plans to the cluster, as makeway.cli.connect.form reads it; empty in older charts.
        scheduler_name: `schedulerName` of the pods that makeway's scheduler is for.
        service_accounts: names of service accounts that are not makeway-COMPONENT, such as
            `evictor=preemption-evictor`, with commas.
        nats_secret: Secret beside it for commands: with `nats.creds`, `nats.nk`, or `user` and
            `password`, and with `ca.crt`, `tls.crt` and `tls.key` where NATS asks for certificates; empty
            for none.
        nats_ca_secret: Secret with `ca.crt`, where the other has none; empty for none.
        nats_client_cert_secret: Secret with `tls.crt` and `tls.key`, where the first has none; empty for
            none.
    """

    nats_url: str = ""
    subject_prefix: str = DEFAULT_PREFIX
    chart_version: str = ""
    bridge: str = ""
    verify: str = ""
    scheduler_name: str = ""
    service_accounts: str = ""
    nats_secret: str = ""
    nats_ca_secret: str = ""
    nats_client_cert_secret: str = ""


class _Keys(msgspec.Struct):
    """What a Secret may hold, of all that NATS may ask for."""

    user: bytes = b""
    password: bytes = b""
    credentials: bytes = msgspec.field(default=b"", name="nats.creds")
    seed: bytes = msgspec.field(default=b"", name="nats.nk")
    authority: bytes = msgspec.field(default=b"", name="ca.crt")
    certificate: bytes = msgspec.field(default=b"", name="tls.crt")
    key: bytes = msgspec.field(default=b"", name="tls.key")


class _Secret(msgspec.Struct):
    data: _Keys = msgspec.field(default_factory=_Keys)


class _ConfigMap(msgspec.Struct):
    data: InstallationData = msgspec.field(default_factory=InstallationData)


async def read_installation(api: Api, namespace: str) -> InstallationData | None:
    """Read the ConfigMap; None where there is none.

    Raises:
        ApiError, ApiUnavailable: it could not be read.
        ValueError: it holds something else.
    """
    body = await read_object(api, f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}")
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=_ConfigMap).data
    except msgspec.DecodeError as error:
        raise ValueError(f"ConfigMap {namespace}/{CONFIGMAP} is not makeway's: {error}") from error


async def installed(
    api: Api, namespace: str, *, reads_login: bool = True, reads_tls: bool = True
) -> NatsAddress:
    """Ask the installation where NATS is and how to log in; the usual address where there is none.

    `reads_login`, `reads_tls`: whether its Secrets are needed
    for these, and no options are given for them. Raises as above.
    """
    found = await read_installation(api, namespace)
    if found is None or not found.nats_url:
        return NatsAddress(
            USUAL.url,
            USUAL.prefix,
            "the usual address",
            trouble=f"there is no ConfigMap {namespace}/{CONFIGMAP}: give --makeway-namespace or --nats-url",
        )
    if not reads_tls:
        found.nats_ca_secret = found.nats_client_cert_secret = ""
    secret = found.nats_secret if reads_login else ""
    origin = f"as ConfigMap {namespace}/{CONFIGMAP} says"
    keys = await _read_keys(api, namespace, secret)
    if not keys.authority:
        keys.authority = (await _read_keys(api, namespace, found.nats_ca_secret)).authority
    if not keys.certificate:
        certificate = await _read_keys(api, namespace, found.nats_client_cert_secret)
        keys.certificate, keys.key = certificate.certificate, certificate.key
    try:
        login = _login(keys, f"Secret {namespace}/{secret}")
        if secret and not (login or keys.user or keys.certificate):
            raise ValueError("it has none of nats.creds, nats.nk, user and password, tls.crt")
        url, tls = _logged_in(found.nats_url, keys), _tls(keys)
    except (OSError, ValueError) as error:
        secrets = dict.fromkeys((secret, found.nats_ca_secret, found.nats_client_cert_secret))
        named = " and ".join(f"{namespace}/{one}" for one in secrets if one)
        raise ValueError(f"Secret {named} cannot be used for NATS: {reason_of(error)}") from error
    return NatsAddress(url, found.subject_prefix, origin, login, tls)


async def _read_keys(api: Api, namespace: str, secret: str) -> _Keys:
    """Read a Secret; an empty name is one that holds nothing."""
    if not secret:
        return _Keys()
    body = await api.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{secret}")
    try:
        return msgspec.json.decode(body, type=_Secret).data
    except msgspec.DecodeError as error:
        raise ValueError(f"Secret {namespace}/{secret} cannot be read: {error}") from error


def _login(keys: _Keys, origin: str) -> KeyLogin | None:
    """Return the login by a key of its own; None where there is none.

    Raises:
        ValueError: it is not in its form.
    """
    text, parse = (keys.credentials, parse_credentials) if keys.credentials else (keys.seed, parse_seed)
    if not text:
        return None
    parse(text)
    return KeyLogin(origin, lambda: text, parse)


def _logged_in(urls: str, keys: _Keys) -> str:
    """Put user and password, if there are any, into every URL."""
    if not keys.user:
        return urls
    user, password = (quote(text.decode(), safe="") for text in (keys.user, keys.password))
    return ",".join(
        f"{url.scheme or 'nats'}://{user}:{password}@{url.netloc.rpartition('@')[2]}"
        for url in (urlsplit(one.strip()) for one in urls.split(","))
    )


def _tls(keys: _Keys) -> Callable[[], ssl.SSLContext] | None:
    """Return what makes the TLS context of each connection; None without an authority and a certificate.

    Raises:
        ValueError, OSError (ssl.SSLError is one): certificates that cannot be used.
    """
    if not (keys.authority or keys.certificate):
        return None
    context = ssl.create_default_context(cadata=keys.authority.decode() or None)
    if keys.certificate:
        # OpenSSL reads a client certificate from files alone.
        with TemporaryDirectory(prefix="makeway-") as directory:
            files = Path(directory, "tls.crt"), Path(directory, "tls.key")
            for file, data in zip(files, (keys.certificate, keys.key), strict=True):
                file.touch(mode=0o600)
                file.write_bytes(data)
            load_certificate(context, *files)
    return lambda: context


@asynccontextmanager
async def reachable(urls: str, kubeconfig: Path | None, context: str | None) -> AsyncIterator[Endpoint]:
    """Return the address where it can be reached from here; else one of a port that kubectl forwards.

    An address that names no Service is given as it is too: whoever connects says what is wrong. Through a
    forwarded port the server's certificate is still that of the Service.

    Raises:
        BusUnavailable: only a forwarded port would do, and none can be had; says what to run.
    """
    first = urlsplit(urls.split(",", maxsplit=1)[0].strip())
    service = _SERVICE.fullmatch(first.hostname or "")
    if service is None or _is_address(first.hostname or "") or not await _refused(first):
        yield Endpoint(urls)
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
        yield Endpoint(f"{first.scheme or 'nats'}://{user}127.0.0.1:{local}", first.hostname or "")


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


async def must_answer(urls: str) -> None:
    """Return if one of these servers takes connections: a command does not wait for one that is away.

    Of what is no address it says nothing; whoever connects does.

    Raises:
        BusAway: none does within 1.5 s.
        ValueError: a port is none.
    """
    servers = [urlsplit(one.strip()) for one in urls.split(",")]
    try:
        servers = [one for one in servers if one.hostname and (one.port or _PORT)]
    except ValueError as error:
        raise ValueError(f"the URL of NATS cannot be used: {error}") from error
    refused = [why for why in await asyncio.gather(*map(_refused, servers)) if why]
    if refused and len(refused) == len(servers):
        hosts = ", ".join(f"{one.hostname}:{one.port or _PORT}" for one in servers)
        raise BusAway(f"cannot connect to NATS at {hosts}: {refused[0]}")


async def _refused(url: SplitResult) -> str:
    """Return why nothing takes connections there; empty where something does."""
    try:
        async with asyncio.timeout(_REACH_SECONDS):
            _, writer = await asyncio.open_connection(url.hostname, url.port or _PORT)
    except OSError as error:
        return reason_of(error)
    writer.close()
    return ""
