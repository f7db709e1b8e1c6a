"""The programs of the control plane proper, with their arguments: etcd, API server, controllers."""

from pathlib import Path

from makeway.dev.api import AdminApi
from makeway.dev.probes import http_ok, unverified
from makeway.dev.processes import Program
from makeway.dev.site import Site

_AUDIT_POLICY = Path(__file__).with_name("audit-policy.yaml")
SERVICE_RANGE = "10.96.0.0/16"
_WITHOUT_CONTROLLERS = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"
"""No controller makes a namespace's account, or takes a new node's taint off."""
ISSUER = "https://kubernetes.default.svc.cluster.local"


def etcd(site: Site) -> Program:
    """One member on loopback; without fsync, since the data is not to outlive the machine.

    Its space is 8 GiB instead of 2: pods of 1 MiB fill that before the API server compacts.
    """
    client, peer = (f"http://127.0.0.1:{site.ports[name]}" for name in ("etcd", "etcd-peer"))
    return Program(
        name="etcd",
        argv=(
            str(site.built["etcd"]),
            "--name=makeway-dev",
            f"--data-dir={site.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=makeway-dev={peer}",
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={8 * 1024**3}",
            "--log-level=warn",
        ),
        ready=http_ok(f"{client}/health"),
        base=True,
    )


def kube_apiserver(site: Site, api: AdminApi) -> Program:
    """TLS on 127.0.0.1, RBAC, an audit log that is written before each request is answered."""
    return Program(
        name="kube-apiserver",
        argv=(
            str(site.built["kube-apiserver"]),
            f"--etcd-servers=http://127.0.0.1:{site.ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={site.ports['kube-apiserver']}",
            # A Service that points at loopback is refused by validation, and nothing here needs one.
            "--endpoint-reconciler-type=none",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={site.serving.certificate}",
            f"--tls-private-key-file={site.serving.key}",
            f"--client-ca-file={site.authority}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={site.token_key}",
            f"--service-account-signing-key-file={site.token_key}",
            f"--audit-policy-file={_AUDIT_POLICY}",
            f"--audit-log-path={site.audit_log}",
            "--audit-log-format=json",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=10000",
            *([] if site.options.controllers else [_WITHOUT_CONTROLLERS]),
            *site.options.apiserver_arguments,
        ),
        ready=http_ok(f"{site.server}/readyz", api.context),
        base=True,
        ready_seconds=60,
    )


def kube_controller_manager(site: Site) -> Program:
    """All default controllers, each under its own service account; no election, since there is one."""
    kubeconfig = site.kubeconfig("kube-controller-manager")
    port = site.ports["kube-controller-manager"]
    return Program(
        name="kube-controller-manager",
        argv=(
            str(site.built["kube-controller-manager"]),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={site.serving.certificate}",
            f"--tls-private-key-file={site.serving.key}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={site.token_key}",
            f"--root-ca-file={site.authority}",
            # The default of 20 requests a second is what a hundred pods of a Deployment would wait for.
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            # A busy machine that starves KWOK for a while shall not lose its nodes.
            "--node-monitor-grace-period=5m",
        ),
        ready=http_ok(f"https://127.0.0.1:{port}/healthz", unverified()),
    )
