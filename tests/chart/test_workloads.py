"""Every workload of the chart: what its users add to it, and by what it gets into a NATS of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.conftest import Run
from makeway.dev.binaries import KUBERNETES_VERSION
from makeway.dev.paths import CHART

Manifest = dict[str, Any]

EVERYTHING: Mapping[str, Any] = {
    "bridge": "plugin",
    "nominator": {"besidePlugin": True, "verify": "shadow"},
    "shadow": {"profile": {"plugins": {"multiPoint": {"enabled": [{"name": "Theirs"}]}}}},
    "ui": {"enabled": True},
}
LOGINS = {
    "planner": "planner",
    "evictor": "evictor",
    "scheduler": "scheduler",
    "nominator": "nominator",
    "shadow": "shadow",
    "streams": "streams",
    "ui": "viewer",
}
"""Each component with pods that connect to NATS, and as whom."""
CONFIGURED = ("scheduler", "shadow")
"""Those whose configuration names the files of NATS; the others' environment does."""


def rendered(run: Run, tmp_path: Path, *values: Mapping[str, Any]) -> list[Manifest]:
    """Render the chart with these values, the last going first."""
    files = []
    for number, one in enumerate((EVERYTHING, *values)):
        file = tmp_path / f"values-{number}.yaml"
        file.write_text(yaml.safe_dump(dict(one)))
        files.append(f"--values={file}")
    text = run("helm", "template", "makeway", CHART, f"--kube-version={KUBERNETES_VERSION}", *files)
    return [one for one in yaml.safe_load_all(text) if one]


def workloads(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The pod of each workload, by its component."""
    return {
        one["metadata"]["name"].removeprefix("makeway-"): one["spec"]["template"]["spec"]
        for one in manifests
        if one["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
    }


def accounts(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == "ServiceAccount"}


def container(pod: Manifest, component: str) -> Manifest:
    (found,) = [one for one in pod["containers"] if one["name"] == component]
    return dict(found)


def test_each_workload_takes_environment_volumes_and_account_annotations(run: Run, tmp_path: Path) -> None:
    def added(component: str) -> Manifest:
        return {
            "extraEnv": [{"name": "ADDED", "value": component}],
            "extraVolumes": [{"name": "added", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "added", "mountPath": f"/added/{component}"}],
            "serviceAccount": {"annotations": {"example.com/role": component}},
        }

    manifests = rendered(
        run,
        tmp_path,
        {component: added(component) for component in LOGINS},
        {"nats": {"trial": added("nats")}},
    )

    pods = workloads(manifests)
    assert set(pods) == {*LOGINS, "nats"}
    for component, pod in pods.items():
        running = container(pod, component)
        assert {"name": "ADDED", "value": component} in running["env"]
        assert {"name": "added", "mountPath": f"/added/{component}"} in running["volumeMounts"]
        assert {"name": "added", "emptyDir": {}} in pod["volumes"]
        account = accounts(manifests)[pod["serviceAccountName"]]
        assert account["metadata"]["annotations"] == {"example.com/role": component}


def test_nats_and_a_streams_keeper_that_makes_no_secret_get_no_api_token(run: Run, tmp_path: Path) -> None:
    theirs = {"nats": {"url": "nats://n:1"}, "signatures": {"generate": False}}
    nats, manifests = workloads(rendered(run, tmp_path))["nats"], rendered(run, tmp_path, theirs)
    pods = {**workloads(manifests), "nats": nats}

    bound = [subject["name"] for one in manifests for subject in one.get("subjects", []) if "name" in subject]
    for component in ("nats", "streams"):
        assert pods[component]["serviceAccountName"] == f"makeway-{component}"
        assert pods[component]["automountServiceAccountToken"] is False
        assert f"makeway-{component}" not in bound
    assert accounts(manifests)["makeway-streams"]["automountServiceAccountToken"] is False


def secrets_by_file(pod: Manifest, component: str) -> dict[str, str]:
    """Where a container sees which Secret."""
    sources = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    mounts = container(pod, component)["volumeMounts"]
    return {one["mountPath"]: sources[one["name"]] for one in mounts if one["name"] in sources}


def files_of_nats(manifests: list[Manifest], pod: Manifest, component: str) -> dict[str, str]:
    """What a component is told of NATS, by the names of the arguments of the scheduler's plugin."""
    if component in CONFIGURED:
        (configmap,) = [
            one
            for one in manifests
            if one["kind"] == "ConfigMap" and one["metadata"]["name"] == f"makeway-{component}"
        ]
        profile = yaml.safe_load(configmap["data"]["scheduler.yaml"])["profiles"][0]
        (arguments,) = [one["args"] for one in profile["pluginConfig"] if one["name"] == "MakeWay"]
        named = {**arguments.get("tls", {}), **arguments}
    else:
        told = {one["name"]: one.get("value", "") for one in container(pod, component)["env"]}
        named = {
            "natsURL": told["MAKEWAY_NATS_URL"],
            "caFile": told.get("MAKEWAY_NATS_TLS_CA", ""),
            "certFile": told.get("MAKEWAY_NATS_TLS_CERT", ""),
            "keyFile": told.get("MAKEWAY_NATS_TLS_KEY", ""),
            "credentialsFile": told.get("MAKEWAY_NATS_CREDS", ""),
            "nkeySeedFile": told.get("MAKEWAY_NATS_NKEY", ""),
        }
    keys = ("natsURL", "caFile", "certFile", "keyFile", "credentialsFile", "nkeySeedFile")
    return {key: named[key] for key in keys if named.get(key)}


@pytest.mark.parametrize(
    ("kind", "login"), [("credentials", "credentialsFile"), ("nkeys", "nkeySeedFile")], ids=lambda one: one
)
@pytest.mark.parametrize("certificates", ["one", "each"])
def test_every_component_gets_into_an_existing_nats_by_its_own_secrets(
    run: Run, tmp_path: Path, kind: str, login: str, certificates: str
) -> None:
    users = set(LOGINS.values())
    each = {"clientCertSecrets": {user: f"{user}-cert" for user in users}} if certificates == "each" else {}
    nats = {
        "url": "tls://nats.nats.svc:4222",
        kind: {user: f"{user}-login" for user in users},
        "tls": {"caSecret": "nats-ca", "clientCertSecret": "nats-client", **each},
    }

    manifests = rendered(run, tmp_path, {"nats": nats})

    pods = workloads(manifests)
    assert set(pods) == set(LOGINS)
    suffix = {"credentials": "nats.creds", "nkeys": "nats.nk"}[kind]
    for component, user in LOGINS.items():
        secrets = secrets_by_file(pods[component], component)
        assert files_of_nats(manifests, pods[component], component) == {
            "natsURL": "tls://nats.nats.svc:4222",
            "caFile": "/etc/makeway/nats-ca/ca.crt",
            "certFile": "/etc/makeway/nats-client/tls.crt",
            "keyFile": "/etc/makeway/nats-client/tls.key",
            login: f"/etc/makeway/nats/{suffix}",
        }
        assert secrets["/etc/makeway/nats-ca"] == "nats-ca"
        assert secrets["/etc/makeway/nats"] == f"{user}-login"
        assert secrets["/etc/makeway/nats-client"] == (
            f"{user}-cert" if certificates == "each" else "nats-client"
        )
    (installation,) = [one for one in manifests if one["metadata"]["name"] == "makeway-installation"]
    of_people = {key: value for key, value in installation["data"].items() if key.startswith("nats")}
    assert of_people == {
        "natsUrl": "tls://nats.nats.svc:4222",
        "natsSecret": "viewer-login",
        "natsCaSecret": "nats-ca",
        "natsClientCertSecret": "viewer-cert" if certificates == "each" else "nats-client",
    }


def test_the_planner_beside_the_scheduler_has_its_own_secrets_too(run: Run, tmp_path: Path) -> None:
    nats = {
        "url": "tls://nats.nats.svc:4222",
        "nkeys": {"planner": "planner-login", "scheduler": "scheduler-login"},
        "tls": {"clientCertSecrets": {"planner": "planner-cert", "scheduler": "scheduler-cert"}},
    }

    manifests = rendered(run, tmp_path, {"nats": nats, "planner": {"placement": "sidecar"}})

    pod = workloads(manifests)["scheduler"]
    for component in ("planner", "scheduler"):
        secrets = secrets_by_file(pod, component)
        assert secrets["/etc/makeway/nats"] == f"{component}-login"
        assert secrets["/etc/makeway/nats-client"] == f"{component}-cert"
