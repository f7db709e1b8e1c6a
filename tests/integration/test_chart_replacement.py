"""makeway-scheduler in place of the cluster's own, with the rights and the configuration of the chart."""

from __future__ import annotations

from pathlib import Path

from integration.builders import make_node, make_pod
from integration.charting import Release, render
from integration.conftest import PrivateCluster
from integration.granting import denied
from integration.installing import Installed, until_ended
from makeway.dev.options import KWOK, ClusterOptions

_IMPERSONATOR = "makeway-dev-admin"
"""Who the audit log names for what was done as system:kube-scheduler."""


async def test_it_preempts_for_every_pod_as_the_clusters_own_scheduler(
    private_cluster: PrivateCluster, tmp_path: Path
) -> None:
    cluster = await private_cluster(ClusterOptions(components=frozenset({KWOK})))
    manifests = render(
        "bridge=plugin",
        "scheduler.install=replacement",
        "scheduler.names[0]=default-scheduler",
        "scheduler.fallback=false",
        "policy.document.mode=enforce",
    )
    release = Release(cluster, manifests, tmp_path / "release")
    installed = Installed(cluster, release)
    try:
        await installed.come_up(replacing=True)
        await installed.start_services()
        async with installed.space() as space, installed.bus() as bus:
            await space.add_nodes(make_node("n1").cpu(1))
            await space.run(make_pod("low").priority("low").cpu(1))
            (pod,) = await space.create(make_pod("high").priority("high").cpu(1))
            order = await until_ended(bus, pod.metadata.uid)
            assert await space.until_bound("high") == "n1"
    finally:
        release.stop()

    assert order.fence.name == "kube-scheduler"
    assert denied(installed.events()) == []
    assert denied(event for event in installed.audit.events() if event.user == _IMPERSONATOR) == []
