"""What the chart has for control planes that a provider runs, on an API server configured like theirs."""

from typing import Any

import pytest
import yaml

from integration.charting import NAMESPACE, Manifest, render
from integration.cluster import RunningCluster
from integration.waiting import IN_FORCE_SECONDS, NotYet, until, until_seen
from makeway.dev.binaries import KUBERNETES
from makeway.dev.errors import DevError
from makeway.dev.paths import CHART


@pytest.fixture
def cluster(api_cluster: RunningCluster) -> RunningCluster:
    """Give an API server that limits critical pods."""
    return api_cluster


def pod(namespace: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def created(cluster: RunningCluster, manifest: Manifest) -> Manifest:
    """Create it without effect, and return what the API server made of it. Raises DevError."""
    answer = await cluster.kubectl(
        "create", "--dry-run=server", "-o", "yaml", "-f", "-", stdin=yaml.safe_dump(manifest)
    )
    read: Manifest = yaml.safe_load(answer)
    return read


async def apply(cluster: RunningCluster, *manifests: Manifest) -> None:
    await cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))


def namespaces(*names: str) -> list[Manifest]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def chosen(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] in kinds]


async def test_makeways_pods_are_admitted_where_critical_pods_are_limited(cluster: RunningCluster) -> None:
    await apply(cluster, *namespaces(NAMESPACE))
    critical = pod(NAMESPACE, priorityClassName="system-cluster-critical")
    with pytest.raises(DevError, match="insufficient quota to match these scopes"):
        await created(cluster, critical)

    (quota,) = chosen(render(values=CHART / "presets" / "gke.yaml"), "ResourceQuota")
    await apply(cluster, quota)

    async def admitted() -> Manifest:
        try:
            return await created(cluster, critical)
        except DevError as error:
            raise NotYet(str(error)) from error

    admitted_pod = await until("the quota admits it", admitted, seconds=IN_FORCE_SECONDS)
    assert admitted_pod["spec"]["priority"] == 2_000_000_000


@pytest.mark.skipif(KUBERNETES.name == "1.35", reason="MutatingAdmissionPolicy is of 1.36")
async def test_new_pods_are_makeways_unless_they_name_another_scheduler(cluster: RunningCluster) -> None:
    await apply(cluster, *namespaces("team-a", "team-b"))
    rendered = render("bridge=plugin", "scheduler.namespaces[0]=team-a")
    await apply(cluster, *chosen(rendered, "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"))

    async def scheduler_of(namespace: str, **spec: Any) -> str:
        return str((await created(cluster, pod(namespace, **spec)))["spec"]["schedulerName"])

    await until_seen(
        "pods of team-a are makeway's",
        lambda: scheduler_of("team-a"),
        lambda found: found == "makeway-scheduler",
        seconds=IN_FORCE_SECONDS,
    )
    assert await scheduler_of("team-b") == "default-scheduler"
    assert await scheduler_of("team-a", schedulerName="volcano") == "volcano"
    assert await scheduler_of("team-a", nodeName="n1") == "default-scheduler"
