"""makeway-scheduler: its KubeSchedulerConfiguration and its command.

The order of PostFilter plugins is what matters. Plugins named under `postFilter` that also come by
`multiPoint` run first, in the order given there; so DynamicResources frees an idle claim before any pod is
evicted, MakeWayQueues ends what no eviction helps, MakeWay plans, and DefaultPreemption acts where MakeWay
leaves a pod to it: under multiPoint it is disabled and enabled again, so that it comes after MakeWay at every
point. Source: kube-scheduler's pkg/scheduler/framework/runtime/framework.go, expandMultiPointPlugins.
"""

from pathlib import Path
from typing import Any

import yaml

from makeway.dev import signing_keys
from makeway.dev.nats_identities import NatsIdentity
from makeway.dev.options import EXTENDED_RESOURCE, SCHEDULER, SHADOW, ClusterOptions
from makeway.dev.probes import http_ok, unverified
from makeway.dev.processes import Program
from makeway.dev.site import Site

LEASE_NAMESPACE = "kube-system"
LEASE_NAME = "makeway-scheduler"
STOCK_NAME = "kube-scheduler"
"""Of the Lease, and of the kubeconfig, of a kube-scheduler that knows nothing of makeway."""

STOCK_USER = "system:kube-scheduler"
"""The user of such a scheduler, with the rights that Kubernetes itself gives it."""

_ELECTION = {
    "leaderElect": True,
    "resourceLock": "leases",
    "resourceNamespace": LEASE_NAMESPACE,
    # Short, so that the successor of a killed scheduler leads within seconds.
    "leaseDuration": "6s",
    "renewDeadline": "4s",
    "retryPeriod": "500ms",
}

QUEUE_SORT = {"enabled": [{"name": "NominatedSort"}], "disabled": [{"name": "PrioritySort"}]}
"""NominatedSort in place of kube-scheduler's own order of the scheduling queue."""

_TEST_PLUGINS = ["TestAloof", "TestPermit", "TestPreBind", "TestBind"]


def is_stock(options: ClusterOptions) -> bool:
    """Report whether the scheduler is kube-scheduler as it is, with its own user and Lease.

    Behind a proxy or on lines of its own it has an account as a plugin's scheduler has.
    """
    hooked = SCHEDULER in options.faulty or options.partitions
    return not (options.plugin or options.test_plugins or hooked)


def lease_name(options: ClusterOptions) -> str:
    """Return the name of the Lease that its schedulers stand for."""
    return STOCK_NAME if is_stock(options) else LEASE_NAME


def configuration(
    options: ClusterOptions,
    kubeconfig: Path,
    nats_url: str,
    keys: Path | None = None,
    identity: NatsIdentity | None = None,
) -> dict[str, Any]:
    """Build the KubeSchedulerConfiguration, with the same plugins in every profile.

    `keys`: the directory of what it signs with, where there are signatures. `identity`: by what NATS knows
    it, where the URL has no login.
    """
    plugins: dict[str, Any] = {}
    if options.plugin or options.test_plugins:
        plugins["plugins"] = _plugins(options)
    if options.plugin:
        login = identity.arguments() if identity else {}
        plugins["pluginConfig"] = [
            {"name": "MakeWay", "args": {**_arguments(options, nats_url, keys), **login}},
            {"name": "MakeWayQueues", "args": {**_queue_arguments(options, nats_url, keys), **login}},
        ]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 300, "burst": 600, **_encoding(options)},
        "leaderElection": {**_ELECTION, "resourceName": lease_name(options)},
        # Pods that failed come back quickly, so that tests of recovery are short.
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
        "extenders": [_extender(url) for url in options.extenders],
        "profiles": [{"schedulerName": name, **plugins} for name in options.profiles],
    }


def _extender(url: str) -> dict[str, Any]:
    managed = [{"name": EXTENDED_RESOURCE, "ignoredByScheduler": True}]
    return {"urlPrefix": url, "filterVerb": "filter", "managedResources": managed}


def _encoding(options: ClusterOptions) -> dict[str, Any]:
    """JSON where a fault proxy has to read the events; else kube-scheduler's own choice, Protobuf."""
    json = "application/json"
    return {"contentType": json, "acceptContentTypes": json} if SCHEDULER in options.faulty else {}


def _plugins(options: ClusterOptions) -> dict[str, Any]:
    fallback = ["DefaultPreemption"] if options.fallback else []
    ours = ["MakeWayQueues", "MakeWay", *fallback] if options.plugin else []
    plugins: dict[str, Any] = {
        "multiPoint": _enabled([*ours, *(_TEST_PLUGINS if options.test_plugins else [])])
    }
    if options.plugin:
        plugins["multiPoint"]["disabled"] = [{"name": "DefaultPreemption"}]
        if options.nominated_sort:
            plugins["queueSort"] = QUEUE_SORT
        plugins["postFilter"] = _enabled(["DynamicResources", *ours])
    if options.test_plugins:
        plugins["bind"] = _enabled(["TestBind", "DefaultBinder"])
    return plugins


def _enabled(names: list[str]) -> dict[str, Any]:
    return {"enabled": [{"name": name} for name in names]}


def _arguments(options: ClusterOptions, nats_url: str, keys: Path | None) -> dict[str, Any]:
    return {
        **_queue_arguments(options, nats_url, keys),
        "planTimeout": f"{options.plan_timeout_seconds:g}s",
        **dict(options.plugin_arguments),
    }


def _queue_arguments(options: ClusterOptions, nats_url: str, keys: Path | None) -> dict[str, Any]:
    """Build what MakeWayQueues and MakeWay have in common."""
    verifies = keys is not None and options.signatures != "off"
    return {
        "natsURL": nats_url,
        "subjectPrefix": options.subject_prefix,
        "lease": {"namespace": LEASE_NAMESPACE, "name": LEASE_NAME},
        **({"signatures": options.signatures} if verifies else {}),
    }


def program(site: Site, name: str = SCHEDULER, port: int = 0) -> Program:
    """Ready when it serves; it schedules as soon as it leads. /metrics needs no credentials here.

    `name` and `port`: those of another scheduler beside the first, which stands for the same Lease.
    """
    account = STOCK_NAME if is_stock(site.options) else SCHEDULER
    kubeconfig = site.kubeconfig(name if site.lines else account)
    file = site.config(f"{name}.yaml")
    keys = signing_keys.directory(site.directory, SCHEDULER)
    nats_url, identity = site.nats_urls_of(name), site.nats_identity_of(name)
    written = configuration(site.options, kubeconfig, nats_url, keys, identity)
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    own = "makeway-scheduler" if site.options.plugin or site.options.test_plugins else "kube-scheduler"
    command = (str(site.built[own]), *_access(file, kubeconfig))
    return _program(site, name, command, port or site.ports[SCHEDULER])


def shadow(site: Site) -> Program:
    """`makeway-scheduler shadow`: a scheduler with the cluster's filters that schedules no pod."""
    kubeconfig, file = site.kubeconfig(SHADOW), site.config(f"{SHADOW}.yaml")
    identity = site.nats_identity_of(SHADOW)
    arguments = {
        "natsURL": site.nats_urls_of(SHADOW),
        "subjectPrefix": site.options.subject_prefix,
        **(identity.arguments() if identity else {}),
    }
    profile: dict[str, Any] = {
        "schedulerName": "makeway-shadow",
        "pluginConfig": [{"name": "MakeWay", "args": arguments}],
    }
    if site.options.test_plugins:
        profile["plugins"] = {"multiPoint": _enabled(["TestAloof"])}
    written = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [profile],
    }
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    command = (str(site.built["makeway-scheduler"]), "shadow", *_access(file, kubeconfig))
    return _program(site, SHADOW, command, site.ports[SHADOW])


def _access(file: Path, kubeconfig: Path) -> tuple[str, ...]:
    return (
        f"--config={file}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    )


def _program(site: Site, name: str, command: tuple[str, ...], port: int) -> Program:
    gates = ",".join(f"{name}={str(value).lower()}" for name, value in site.options.scheduler_feature_gates)
    return Program(
        name=name,
        argv=(
            *command,
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={site.serving.certificate}",
            f"--tls-private-key-file={site.serving.key}",
            "-v=2",
            *([f"--feature-gates={gates}"] if gates else []),
        ),
        ready=http_ok(f"https://127.0.0.1:{port}/readyz", unverified()),
        restart=True,
        environment=site.failpoint_environment,
    )
