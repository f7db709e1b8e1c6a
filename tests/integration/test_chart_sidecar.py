"""Planner and NATS in the scheduler's pod: what is rendered runs, each container as its own account."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from integration.builders import make_node, make_pod
from integration.charting import NAMESPACE, Manifest, Release, render
from integration.conftest import Install
from integration.granting import denied
from integration.installing import Installed, ours, until_ended
from makeway.dev.paths import CHECKOUT

pytestmark = pytest.mark.wide

SIDECAR = ("bridge=plugin", "planner.placement=sidecar", "nats.placement=sidecar")
ENFORCES = ("policy.document.mode=enforce", "scheduler.fallback=false", "scheduler.planTimeout=2s")
"""Only a plan evicts, however slow the machine is."""

_IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount"
_PAGE = CHECKOUT / "docs" / "kubeadm.md"


async def _admitted(installed: Installed) -> Manifest:
    """The scheduler's pod as the API server would store it."""
    template = installed.release.get("Deployment", "makeway-scheduler")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
    metadata = {"name": "tried", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    stdin = json.dumps({**pod, "metadata": metadata})
    said = await installed.cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=stdin)
    admitted: Manifest = json.loads(said)
    return admitted


async def test_a_pod_of_scheduler_planner_and_nats_preempts(install: Install) -> None:
    manifests = render(*SIDECAR, "scheduler.replicas=1", *ENFORCES)
    installed = install(manifests)
    await installed.come_up()
    await installed.start_services(planners=1)
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(ours("low", "low", 1))
        (pod,) = await space.create(ours("high", "high", 1))
        await until_ended(bus, pod.metadata.uid, seconds=60)
        assert await space.until_bound("high") == "n1"
    admitted = await _admitted(installed)

    # Neither asked as the other, and neither was refused.
    assert denied(installed.events()) == []
    planner = {event.verb for event in installed.events("makeway-planner")}
    assert {"list", "watch"} <= planner
    assert not {"delete", "patch"} & planner
    mounted = {
        container["name"]: [one["name"] for one in container["volumeMounts"] if one["mountPath"] == _IN_POD]
        for container in admitted["spec"]["containers"]
    }
    assert mounted["planner"] == ["planner-token"]
    assert mounted["scheduler"][0].startswith("kube-api-access-")
    assert admitted["spec"]["serviceAccountName"] == "makeway-scheduler"


def _commands() -> str:
    """What the page has run on the node, in its order."""
    return "\n".join(re.findall(r"^ *```sh\n(.*?)^ *```", _PAGE.read_text(), re.DOTALL | re.MULTILINE))


def _install_on_node(release: Release, kubeconfig: Path) -> None:
    """Run the page's commands, with another place for the root of the node's file system."""
    (release.host / "etc/kubernetes/manifests").mkdir(parents=True)
    (release.host / "var/lib").mkdir(parents=True)
    access = yaml.safe_load(kubeconfig.read_text())
    (release.host / "etc/kubernetes/scheduler.conf").write_text(yaml.safe_dump(access))
    (release.host / "etc/kubernetes/manifests/kube-scheduler.yaml").write_text("kind: Pod\n")
    commands = re.sub(r"(?<![\w/])/(etc/kubernetes|var/lib)/", rf"{release.host}/\1/", _commands())
    commands = commands.replace("makeway-system", NAMESPACE)
    # Only root may give a file to another user.
    script = f"set -euo pipefail\nchown() {{ true; }}\n{commands}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("without_scheduler")
async def test_a_static_pod_beside_kube_scheduler_preempts(install: Install) -> None:
    manifests = render(
        *SIDECAR, "scheduler.install=replacement", "scheduler.names[0]=default-scheduler", *ENFORCES
    )
    installed = install(manifests)
    await installed.apply()
    _install_on_node(installed.release, installed.cluster.info.kubeconfig)
    await installed.come_up(replacing=True)
    await installed.start_services(planners=1)
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(make_pod("low").priority("low").cpu(1))
        (pod,) = await space.create(make_pod("high").priority("high").cpu(1))
        await until_ended(bus, pod.metadata.uid, seconds=60)
        assert await space.until_bound("high") == "n1"

    assert denied(installed.events()) == []
    assert "list" in {event.verb for event in installed.events("makeway-planner")}
    # What the kubelet reads is what was rendered.
    written = installed.release.host / "etc/kubernetes/manifests/makeway-planner.yaml"
    static = yaml.safe_load(written.read_text())
    assert [one["name"] for one in static["spec"]["containers"]] == ["planner", "nats"]
