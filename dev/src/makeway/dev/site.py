"""The ground a cluster stands on before anything runs: directory, ports, certificates, kubeconfigs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from makeway.bus.subjects import Subjects
from makeway.dev import failpoints, nats_identities
from makeway.dev.errors import DevError
from makeway.dev.kubeconfig import write_with_certificate
from makeway.dev.nats_identities import NatsIdentities, NatsIdentity
from makeway.dev.nats_permissions import permissions
from makeway.dev.options import MOST_NATS_SERVERS, NATS, ClusterOptions
from makeway.dev.pki import Authority, KeyPair
from makeway.dev.ports import Ports

_NATS_NAMES = (NATS, *(f"{NATS}-{number}" for number in range(2, MOST_NATS_SERVERS + 1)))

_PORTS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    *(f"{name}{use}" for name in _NATS_NAMES for use in ("", "-monitor", "-route")),
    "scheduler",
    "kwok",
    "planner",
    "evictor",
    "nominator",
    "shadow",
    "fault-proxy",
    "fault-proxy-planner",
    "fault-proxy-evictor",
    "fault-proxy-scheduler",
    "fault-proxy-nominator",
)


API_LINE = "api"
"""The end of a process's line to the API server; the others are the nats-servers."""

_CUT = {"planner": 3, "evictor": 4, "scheduler": 2, "nominator": 2}
"""How many processes of a service may have lines of their own."""


def _line_names(options: ClusterOptions) -> list[tuple[str, str]]:
    """Each process with each end of its lines; none where no lines are cut."""
    if not options.partitions:
        return []
    processes = [
        service if number == 1 else f"{service}-{number}"
        for service, count in _CUT.items()
        for number in range(1, count + 1)
    ]
    return [(process, end) for process in processes for end in (API_LINE, *nats_servers(options))]


NATS_PASSWORD = "makeway-dev"  # noqa: S105 - of a server on loopback, for development
"""Of every login; whoever gives none is the developer, who may do everything."""


def nats_servers(options: ClusterOptions) -> tuple[str, ...]:
    """Return the names of a cluster's nats-servers."""
    return _NATS_NAMES[: options.nats_servers]


@dataclass(frozen=True)
class Site:
    """What the programs of one cluster are given."""

    directory: Path
    options: ClusterOptions
    built: Mapping[str, Path]
    """The executables by name."""
    ports: Mapping[str, int]
    """A port of 127.0.0.1 for each of etcd, etcd-peer, kube-apiserver, ..., the same through restarts."""
    lines: Mapping[tuple[str, str], int]
    """The port of each line that may be cut, by process and end; empty where there are none."""
    authority: Path
    """Certificate of the cluster's authority."""
    serving: KeyPair
    """What every TLS server of the cluster presents."""
    admin: KeyPair
    token_key: Path
    """Signs service account tokens."""
    nats_identities: NatsIdentities | None
    """By what NATS knows its clients, in a cluster whose NATS lets in no others."""

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    def server_for(self, account: str) -> str:
        """URL of the API server for a component: itself, or the fault proxy in front of it."""
        if account in self.options.faulty:
            return f"https://127.0.0.1:{self.ports[f'fault-proxy-{account}']}"
        return self.server

    def server_of(self, process: str) -> str:
        """URL of the API server for one process: as for its service, or by a line of its own."""
        if port := self.lines.get((process, API_LINE)):
            return f"https://127.0.0.1:{port}"
        return self.server_for(process.partition("-")[0])

    def nats_urls_of(self, process: str) -> str:
        """URLs of all nats-servers for one process, with its login, separated by commas."""
        ports = [self.lines.get((process, name), self.ports[name]) for name in nats_servers(self.options)]
        if self.nats_identities:
            return ",".join(f"tls://127.0.0.1:{port}" for port in ports)
        login = f"{process.partition('-')[0]}:{NATS_PASSWORD}"
        return ",".join(f"nats://{login}@127.0.0.1:{port}" for port in ports)

    @property
    def nats_url(self) -> str:
        """URL of the first nats-server."""
        return f"{'tls' if self.nats_identities else 'nats'}://127.0.0.1:{self.ports[NATS]}"

    def nats_identity_of(self, process: str) -> NatsIdentity | None:
        """By what NATS knows a process; None where its URL has its login."""
        return self.nats_identities.logins[process.partition("-")[0]] if self.nats_identities else None

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON object a line."""
        return self.directory / "audit.log"

    @property
    def failpoints(self) -> Path:
        """Where tests arm failpoints, in a cluster that has them."""
        return self.directory / "failpoints"

    @property
    def failpoint_environment(self) -> dict[str, str]:
        """What a process is told of failpoints."""
        return {failpoints.VARIABLE: str(self.failpoints)} if self.options.failpoints else {}

    def kubeconfig(self, name: str) -> Path:
        """Path of a component's kubeconfig."""
        return self.directory / "kubeconfig" / f"{name}.yaml"

    def config(self, name: str) -> Path:
        """Path of a configuration file."""
        return self.directory / "config" / name


def prepare(directory: Path, options: ClusterOptions, built: Mapping[str, Path], ports: Ports) -> Site:
    """Make the directories, choose ports, issue certificates, write the kubeconfigs that need no API server.

    Raises:
        DevError: no port is free, or the directory holds a cluster already.
    """
    if (directory / "pki").exists():
        raise DevError(f"{directory} holds a cluster already, or what is left of one; use another directory")
    for name in ("config", "kubeconfig", "bin", "logs"):
        (directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.failpoints:
        (directory / "failpoints" / failpoints.FIRED).mkdir(mode=0o700, parents=True)
    for name, path in built.items():
        (directory / "bin" / name).symlink_to(path)
    authority = Authority(directory / "pki")
    site = Site(
        directory=directory,
        options=options,
        built=built,
        ports={name: ports.take() for name in (*_PORTS, *(["toxiproxy"] if options.partitions else []))},
        lines={line: ports.take() for line in _line_names(options)},
        authority=authority.certificate,
        serving=authority.serving("serving"),
        admin=authority.client("makeway-dev-admin", "system:masters"),
        token_key=authority.signing_key("service-account"),
        nats_identities=_nats_identities(directory, options) if options.known_nats_clients else None,
    )
    clients = {
        "admin": site.admin,
        "kube-controller-manager": authority.client("system:kube-controller-manager"),
        "kube-scheduler": authority.client("system:kube-scheduler"),
        # A name of its own, so that the audit log tells the kubelets' deletes from all others'.
        "kwok": authority.client("makeway-dev-kwok", "system:masters"),
    }
    for name, client in clients.items():
        write_with_certificate(site.kubeconfig(name), site.server, authority.certificate, client, name)
    return site


def _nats_identities(directory: Path, options: ClusterOptions) -> NatsIdentities:
    return nats_identities.make(directory / "nats-pki", permissions(Subjects(options.subject_prefix)))
