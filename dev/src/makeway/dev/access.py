"""Make for the components their service accounts, roles and tokens, from the manifests the chart ships."""

from collections.abc import Mapping
from types import MappingProxyType

import yaml

from makeway.dev import scheduler, signing_keys
from makeway.dev.api import AdminApi
from makeway.dev.kubeconfig import write_with_token
from makeway.dev.options import EVICTOR, NOMINATOR, SHADOW, ClusterOptions
from makeway.dev.options import SCHEDULER as SCHEDULER_PROCESS
from makeway.dev.paths import ADMISSION_MANIFESTS, RBAC_MANIFESTS
from makeway.dev.site import API_LINE, Site

NAMESPACE = "makeway-system"
ACCOUNTS = ("planner", "evictor", "scheduler", "nominator", "shadow")
INSTALLATION = "makeway-installation"
SCHEDULER = "makeway-scheduler"
POLICY = "makeway-policy"
ADMISSION = "makeway-admission"
BREAKER = "makeway-breaker"
TOLERATIONS = "makeway-tolerations"
_TOKEN_VALID_SECONDS = 30 * 24 * 3600


def grant(site: Site, api: AdminApi) -> None:
    """Apply the manifests, issue a token for each account and write it into the account's kubeconfig.

    Raises:
        DevError: a manifest was refused.
    """
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for account in ACCOUNTS:
        api.apply_file(RBAC_MANIFESTS / f"{account}.yaml")
    for optional in ("pod-groups", "node-claims"):
        api.apply_file(RBAC_MANIFESTS / f"{optional}.yaml")
    if site.options.fallback:
        api.apply_file(RBAC_MANIFESTS / "scheduler-fallback.yaml")
    _configmap(api, BREAKER, {})
    _configmap(api, TOLERATIONS, {})
    for account in ACCOUNTS:
        name = f"makeway-{account}"
        token = api.token(NAMESPACE, name, _TOKEN_VALID_SECONDS)
        write_with_token(site.kubeconfig(account), site.server_of(account), site.authority, token, name)
        for process, end in site.lines:
            if end == API_LINE and process.startswith(f"{account}-"):
                server = site.server_of(process)
                write_with_token(site.kubeconfig(process), server, site.authority, token, name)


def bound(site: Site, api: AdminApi) -> None:
    """Install the chart's admission policies, as for a policy that protects nothing; raises as `grant`.

    Disruption budgets may be hard in any namespace: tests decide that while the cluster runs.
    """
    parameters = {"protectedNamespaces": "", "protectedPriority": "2000000000", "hardBudgetNamespaces": "*"}
    _configmap(api, ADMISSION, parameters)
    api.apply_file(ADMISSION_MANIFESTS / "evictor.yaml")
    api.apply_file(ADMISSION_MANIFESTS / "nominator.yaml")
    api.apply_file(ADMISSION_MANIFESTS / "scheduler.yaml")
    if site.options.fallback:
        api.apply_file(ADMISSION_MANIFESTS / "scheduler-fallback.yaml")


def announce(site: Site, api: AdminApi) -> None:
    """Write what the chart does: where NATS is, the scheduler's profiles, keys of signatures.

    Raises as `grant`.
    """
    options = site.options
    _configmap(
        api,
        INSTALLATION,
        {
            "natsUrl": site.nats_url,
            "subjectPrefix": options.subject_prefix,
            "chartVersion": "",
            "bridge": _bridge(options),
            "verify": "shadow" if SHADOW in options.components else "none",
            "schedulerName": options.profiles[0],
            **_nats_secrets(site, api),
        },
    )
    if options.signatures != "off":
        _configmap(api, signing_keys.CONFIGMAP, signing_keys.make(site), {signing_keys.OUTSIDE: "true"})
    configuration = scheduler.configuration(
        options,
        site.kubeconfig("scheduler"),
        site.nats_url,
        signing_keys.directory(site.directory, "scheduler"),
    )
    _configmap(api, SCHEDULER, {"scheduler.yaml": yaml.safe_dump(configuration, sort_keys=False)})


def _nats_secrets(site: Site, api: AdminApi) -> dict[str, str]:
    """Write what people need of a NATS that lets in only known clients; return where that is."""
    if site.nats_identities is None:
        return {}
    viewer = site.nats_identities.logins["viewer"]
    certificate = {"tls.crt": viewer.client.certificate, "tls.key": viewer.client.key}
    secrets = {
        "natsSecret": ("nats-viewer", {"nats.nk": viewer.seed}),
        "natsCaSecret": ("nats-ca", {"ca.crt": site.nats_identities.authority}),
        "natsClientCertSecret": ("nats-people", certificate),
    }
    for name, files in secrets.values():
        data = {key: file.read_text() for key, file in files.items()}
        metadata = {"name": name, "namespace": NAMESPACE}
        api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    return {key: name for key, (name, _) in secrets.items()}


def _bridge(options: ClusterOptions) -> str:
    """As the chart writes it; a cluster with an evictor alone is one whose plugin is yet to come."""
    with_plugin = options.plugin and SCHEDULER_PROCESS in options.components
    bridges = ["plugin"] if with_plugin else []
    bridges += ["external"] if NOMINATOR in options.components else []
    return ",".join(bridges) or ("plugin" if EVICTOR in options.components else "none")


def restrain(site: Site, api: AdminApi) -> None:
    """Write a policy with the mode and limits that were asked for, where there are any; raises as `grant`.

    `makeway mode` changes it later, as no component has a mode of its own.
    """
    mode, limits = site.options.mode, dict(site.options.limits)
    if mode != "enforce" or limits:
        policy = {"apiVersion": "makeway.dev/v1", "kind": "Policy", "mode": mode}
        text = yaml.safe_dump({**policy, **({"limits": limits} if limits else {})}, sort_keys=False)
        _configmap(api, POLICY, {"policy.yaml": text})


def _configmap(
    api: AdminApi, name: str, data: dict[str, str], annotations: Mapping[str, str] = MappingProxyType({})
) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations)}
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
