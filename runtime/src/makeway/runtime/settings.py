"""The options that several commands share: their values, and how they stand on the command line.

The dataclasses are what services take; they know nothing of the command line. The `...Option`
aliases are `typer` annotations, so that a command declares `nats_url: NatsUrlOption = NATS.url`
and every command spells, documents and reads the option alike. Each can be given by its
environment variable, `MAKEWAY_` + the option's name.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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

    url: str = "nats://127.0.0.1:4222"
    creds: Path | None = None
    nkey: Path | None = None
    user: str = ""
    password_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    subject_prefix: str = "makeway"

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

    kubeconfig: Path | None = None
    context: str | None = None


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """Where /metrics, /healthz and /readyz are served.

    listen: HOST:PORT or :PORT (all addresses). Port 0 takes a free one, which is logged.
    """

    listen: str


@dataclass(frozen=True, kw_only=True)
class ConfigSettings:
    """Where policy and queues are read from.

    namespace: of the ConfigMaps. policy_configmap, queues_configmap: their names; empty reads none.
    policy_file, queues_file: read instead of the ConfigMap; for use without a cluster of one's own.
    """

    namespace: str = "makeway-system"
    policy_configmap: str = "makeway-policy"
    queues_configmap: str = "makeway-queues"
    policy_file: Path | None = None
    queues_file: Path | None = None

    def policy_object(self) -> tuple[str, str, str] | None:
        """Return kind, namespace and name of the object that holds the policy; None where it is a file's."""
        if self.policy_file is not None or not self.policy_configmap:
            return None
        return "ConfigMap", self.namespace, self.policy_configmap


@dataclass(frozen=True, kw_only=True)
class SignatureSettings:
    """How messages are signed and verified.

    mode: off, log or require. signing_keys: the directory of the private keys, `<kind>.pem` each.
    keys_configmap: of the public keys, in the configuration's namespace.
    """

    mode: SignatureMode = "off"
    signing_keys: Path | None = None
    keys_configmap: str = "makeway-keys"


_NATS = "NATS"
_SIGNATURES = "Signatures"
_KUBE = "Kubernetes"
_CONFIGURATION = "Configuration"
_PROCESS = "Process"

NatsUrlOption = Annotated[
    str,
    typer.Option(
        "--nats-url",
        envvar="MAKEWAY_NATS_URL",
        metavar="URL[,URL]",
        help="NATS server, or several.",
        rich_help_panel=_NATS,
    ),
]
NatsCredsOption = Annotated[
    Path | None,
    typer.Option(
        "--nats-creds",
        envvar="MAKEWAY_NATS_CREDS",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Credentials file for NATS. None by default.",
        rich_help_panel=_NATS,
    ),
]
NatsUserOption = Annotated[
    str,
    typer.Option(
        "--nats-user",
        envvar="MAKEWAY_NATS_USER",
        metavar="NAME",
        help="User of NATS, whose password is in a file. Empty: as the URL says.",
        rich_help_panel=_NATS,
    ),
]


def _nats_file(option: str, help_: str) -> Any:
    return typer.Option(
        f"--nats-{option}",
        envvar=f"MAKEWAY_NATS_{option.upper().replace('-', '_')}",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help=help_,
        rich_help_panel=_NATS,
    )


NatsNkeyOption = Annotated[
    Path | None, _nats_file("nkey", "File with the seed of an nkey for NATS, in place of credentials.")
]
NatsPasswordFileOption = Annotated[
    Path | None, _nats_file("password-file", "File with that user's password; read at each connection.")
]
NatsTlsCaOption = Annotated[
    Path | None,
    _nats_file("tls-ca", "Certificate authority of NATS (PEM). Given, no connection is made in clear."),
]
NatsTlsCertOption = Annotated[Path | None, _nats_file("tls-cert", "Client certificate for NATS (PEM).")]
NatsTlsKeyOption = Annotated[Path | None, _nats_file("tls-key", "Key of that certificate (PEM).")]
SubjectPrefixOption = Annotated[
    str,
    typer.Option(
        "--subject-prefix",
        envvar="MAKEWAY_SUBJECT_PREFIX",
        metavar="PREFIX",
        help="First part of every subject. One for each cluster that shares the NATS.",
        rich_help_panel=_NATS,
    ),
]
StreamReplicasOption = Annotated[
    int,
    typer.Option(
        "--stream-replicas",
        envvar="MAKEWAY_STREAM_REPLICAS",
        min=1,
        max=5,
        help="Copies of each stream that NATS keeps. 3 on a cluster of three or more.",
        rich_help_panel=_NATS,
    ),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        envvar="MAKEWAY_KUBECONFIG",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Default: the service account in a pod, else $KUBECONFIG, else ~/.kube/config.",
        rich_help_panel=_KUBE,
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        envvar="MAKEWAY_CONTEXT",
        metavar="NAME",
        help="Context of the kubeconfig. Default: its current one.",
        rich_help_panel=_KUBE,
    ),
]
ConfigNamespaceOption = Annotated[
    str,
    typer.Option(
        "--config-namespace",
        envvar="MAKEWAY_CONFIG_NAMESPACE",
        metavar="NAMESPACE",
        help="Where the ConfigMaps of the configuration are.",
        rich_help_panel=_CONFIGURATION,
    ),
]
PolicyConfigMapOption = Annotated[
    str,
    typer.Option(
        "--policy-configmap",
        envvar="MAKEWAY_POLICY_CONFIGMAP",
        metavar="NAME",
        help="ConfigMap whose key policy.yaml is the policy. Empty: there is none.",
        rich_help_panel=_CONFIGURATION,
    ),
]
PolicyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--policy-file",
        envvar="MAKEWAY_POLICY_FILE",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Read the policy from a file instead, every second.",
        rich_help_panel=_CONFIGURATION,
    ),
]
QueuesConfigMapOption = Annotated[
    str,
    typer.Option(
        "--queues-configmap",
        envvar="MAKEWAY_QUEUES_CONFIGMAP",
        metavar="NAME",
        help="ConfigMap whose key queues.yaml defines the queues. Empty: there are none.",
        rich_help_panel=_CONFIGURATION,
    ),
]
QueuesFileOption = Annotated[
    Path | None,
    typer.Option(
        "--queues-file",
        envvar="MAKEWAY_QUEUES_FILE",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Read the queues from a file instead, every second.",
        rich_help_panel=_CONFIGURATION,
    ),
]
SignaturesOption = Annotated[
    SignatureMode,
    typer.Option(
        "--signatures",
        envvar="MAKEWAY_SIGNATURES",
        help="What becomes of orders, outcomes and control states whose signature does not hold: require "
        "refuses them, log takes and counts them, off does not look.",
        rich_help_panel=_SIGNATURES,
    ),
]
SigningKeysOption = Annotated[
    Path | None,
    typer.Option(
        "--signing-keys",
        envvar="MAKEWAY_SIGNING_KEYS",
        metavar="DIRECTORY",
        exists=True,
        file_okay=False,
        help="Where the private keys are that this process signs with. None: it signs nothing.",
        rich_help_panel=_SIGNATURES,
    ),
]
KeysConfigMapOption = Annotated[
    str,
    typer.Option(
        "--keys-configmap",
        envvar="MAKEWAY_KEYS_CONFIGMAP",
        metavar="NAME",
        help="ConfigMap of the public keys; see makeway keys.",
        rich_help_panel=_SIGNATURES,
    ),
]
ListenOption = Annotated[
    str,
    typer.Option(
        "--listen",
        envvar="MAKEWAY_LISTEN",
        metavar="HOST:PORT",
        help="Address of /metrics, /healthz and /readyz. Port 0 takes a free one and logs it.",
        rich_help_panel=_PROCESS,
    ),
]
OtlpEndpointOption = Annotated[
    str,
    typer.Option(
        "--otlp-endpoint",
        envvar="MAKEWAY_OTLP_ENDPOINT",
        metavar="URL",
        help="Where traces of preemptions are sent by OTLP over HTTP, such as http://collector:4318. Empty: "
        "there are none.",
        rich_help_panel=_PROCESS,
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="MAKEWAY_LOG_FORMAT",
        help="How log lines are written to stderr.",
        rich_help_panel=_PROCESS,
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        envvar="MAKEWAY_LOG_LEVEL",
        help="The least severe level that is written.",
        rich_help_panel=_PROCESS,
    ),
]
