"""The options that several commands share: their values, and how they stand on the command line.

The dataclasses are what services take. The `...Option` aliases are `typer` annotations: a field of such a
type is an option of every command that takes the dataclass, spelt, documented and read alike.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from makeway.bus.nats.login import Login
from makeway.bus.nats.user_key import KeyLogin, key_login
from makeway.bus.reasons import reason_of
from makeway.bus.signing.signatures import SignatureMode
from makeway.runtime.tls import ReloadedContext, load_certificate

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class NatsSettings:
    """How to reach NATS.

    url: server, or several with commas; the rest of a cluster is learnt from the first answer.
    creds: a `.creds` file (user JWT and nkey seed). None where the server asks for nothing.
    nkey: a file with the seed of an nkey.
    user, password_file: a login without a `.creds` file, for where the URL may not hold a password. At most
        one of the three; the files are read at each connection.
    tls_ca: the authority of the servers' certificates. None trusts the system's.
    tls_cert, tls_key: a client certificate, for servers that ask for one. Given any of the three, no
        connection is made in clear. The files are read again when they change.
    subject_prefix: first tokens of every subject and, upper-cased, of every stream's name. Two
        clusters on one NATS need two prefixes.
    """

    url: NatsUrlOption = "nats://127.0.0.1:4222"
    creds: NatsCredsOption = None
    nkey: NatsNkeyOption = None
    user: NatsUserOption = ""
    password_file: NatsPasswordFileOption = None
    tls_ca: NatsTlsCaOption = None
    tls_cert: NatsTlsCertOption = None
    tls_key: NatsTlsKeyOption = None
    subject_prefix: SubjectPrefixOption = "makeway"

    def servers(self) -> list[str]:
        """The URL option as a list."""
        return [part.strip() for part in self.url.split(",") if part.strip()]

    def login(self) -> Login | KeyLogin | None:
        """How to prove who this is; None where the URL says all.

        Raises:
            ValueError: more than one way, a user without a password file or the reverse, or a password that
                cannot be read.
        """
        if key := key_login(self.creds, self.nkey):
            if self.user or self.password_file:
                raise ValueError("--nats-user and --nats-creds or --nats-nkey are two logins: give one")
            return key
        if not self.user and self.password_file is None:
            return None
        if not self.user or self.password_file is None:
            raise ValueError("--nats-user and --nats-password-file go together: give both")
        try:
            return Login(self.user, self.password_file)
        except OSError as error:
            raise ValueError(f"--nats-password-file {self.password_file}: {reason_of(error)}") from error

    def tls(self) -> Callable[[], ssl.SSLContext] | None:
        """What makes the TLS context of each connection; None where nothing is configured.

        Raises:
            ValueError: a certificate without a key, or files that cannot be used.
        """
        return nats_tls(self.tls_ca, self.tls_cert, self.tls_key)


def nats_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Callable[[], ssl.SSLContext] | None:
    """What makes the TLS context of each connection to NATS; as `NatsSettings.tls`."""
    if (cert is None) != (key is None):
        raise ValueError("--nats-tls-cert and --nats-tls-key go together: give both")
    if ca is None and cert is None:
        return None

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
        if cert is not None:
            load_certificate(context, cert, key)
        return context

    files = [str(file) for file in (ca, cert, key) if file is not None]
    try:
        return ReloadedContext(make, files).current
    except OSError as error:
        raise ValueError(f"TLS for NATS: {', '.join(files)}: {reason_of(error)}") from error


@dataclass(frozen=True, kw_only=True)
class KubeSettings:
    """How to reach the Kubernetes API.

    kubeconfig: a file; None means the pod's service account where there is one, else $KUBECONFIG,
        else ~/.kube/config.
    context: a context of that file; None means its current one.
    """

    kubeconfig: KubeconfigOption = None
    context: ContextOption = None


@dataclass(frozen=True, kw_only=True)
class ConfigSettings:
    """Where policy and queues are read from. namespace: of their ConfigMaps."""

    namespace: ConfigNamespaceOption = "makeway-system"


@dataclass(frozen=True, kw_only=True)
class SignatureSettings:
    """How messages are signed and verified.

    mode: off, log or require. signing_keys: the directory of the private keys, `<kind>.pem` each.
    """

    mode: SignaturesOption = "off"
    signing_keys: SigningKeysOption = None


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The settings that every service has, and the name of this process.

    listen: where /metrics, /healthz and /readyz are served, HOST:PORT or :PORT (all addresses). Port 0 takes
        a free one, which is logged.
    """

    identity: str
    nats: NatsSettings
    kube: KubeSettings
    listen: str
    config: ConfigSettings
    signatures: SignatureSettings
    otlp_endpoint: str = ""


_NATS = "NATS"
_SIGNATURES = "Signatures"
_KUBE = "Kubernetes"
_CONFIGURATION = "Configuration"
_PROCESS = "Process"

_FILE: Final[Mapping[str, Any]] = {"metavar": "FILE", "exists": True, "dir_okay": False, "readable": True}


def option(name: str, help_: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option that its environment variable gives as well: `MAKEWAY_` and its name."""
    variable = name.partition("/")[0].removeprefix("--").removeprefix("makeway-").upper().replace("-", "_")
    return typer.Option(name, envvar=f"MAKEWAY_{variable}", help=help_, rich_help_panel=panel, **more)


NatsUrlOption = Annotated[str, option("--nats-url", "NATS server, or several.", _NATS, metavar="URL[,URL]")]
NatsCredsOption = Annotated[
    Path | None, option("--nats-creds", "Credentials file for NATS. None by default.", _NATS, **_FILE)
]
NatsUserOption = Annotated[
    str,
    option(
        "--nats-user",
        "User of NATS, whose password is in a file. Empty: as the URL says.",
        _NATS,
        metavar="NAME",
    ),
]
NatsNkeyOption = Annotated[
    Path | None,
    option("--nats-nkey", "File with the seed of an nkey for NATS, in place of credentials.", _NATS, **_FILE),
]
NatsPasswordFileOption = Annotated[
    Path | None,
    option(
        "--nats-password-file", "File with that user's password; read at each connection.", _NATS, **_FILE
    ),
]
NatsTlsCaOption = Annotated[
    Path | None,
    option(
        "--nats-tls-ca",
        "Certificate authority of NATS (PEM). Given, no connection is made in clear.",
        _NATS,
        **_FILE,
    ),
]
NatsTlsCertOption = Annotated[
    Path | None, option("--nats-tls-cert", "Client certificate for NATS (PEM).", _NATS, **_FILE)
]
NatsTlsKeyOption = Annotated[
    Path | None, option("--nats-tls-key", "Key of that certificate (PEM).", _NATS, **_FILE)
]
SubjectPrefixOption = Annotated[
    str,
    option(
        "--subject-prefix",
        "First part of every subject. One for each cluster that shares the NATS.",
        _NATS,
        metavar="PREFIX",
    ),
]
StreamReplicasOption = Annotated[
    int,
    option(
        "--stream-replicas",
        "Copies of each stream that NATS keeps. 3 on a cluster of three or more.",
        _NATS,
        min=1,
        max=5,
    ),
]
KubeconfigOption = Annotated[
    Path | None,
    option(
        "--kubeconfig",
        "Default: the service account in a pod, else $KUBECONFIG, else ~/.kube/config.",
        _KUBE,
        **_FILE,
    ),
]
ContextOption = Annotated[
    str | None,
    option("--context", "Context of the kubeconfig. Default: its current one.", _KUBE, metavar="NAME"),
]
ConfigNamespaceOption = Annotated[
    str,
    option(
        "--config-namespace",
        "Where the ConfigMaps of the configuration are.",
        _CONFIGURATION,
        metavar="NAMESPACE",
    ),
]
SignaturesOption = Annotated[
    SignatureMode,
    option(
        "--signatures",
        "What becomes of orders, outcomes and control states whose signature does not hold: require "
        "refuses them, log takes and counts them, off does not look.",
        _SIGNATURES,
    ),
]
SigningKeysOption = Annotated[
    Path | None,
    option(
        "--signing-keys",
        "Where the private keys are that this process signs with. None: it signs nothing.",
        _SIGNATURES,
        metavar="DIRECTORY",
        exists=True,
        file_okay=False,
    ),
]
ListenOption = Annotated[
    str,
    option(
        "--listen",
        "Address of /metrics, /healthz and /readyz. Port 0 takes a free one and logs it.",
        _PROCESS,
        metavar="HOST:PORT",
    ),
]
OtlpEndpointOption = Annotated[
    str,
    option(
        "--otlp-endpoint",
        "Where traces of preemptions are sent by OTLP over HTTP, such as http://collector:4318. Empty: "
        "there are none.",
        _PROCESS,
        metavar="URL",
    ),
]
LogFormatOption = Annotated[
    LogFormat, option("--log-format", "How log lines are written to stderr.", _PROCESS)
]
LogLevelOption = Annotated[
    LogLevel, option("--log-level", "The least severe level that is written.", _PROCESS)
]
