"""makeway-scheduler in place of the cluster's own, with the rights and the configuration of the chart."""

import pytest

from integration.builders import make_node, make_pod
from integration.charting import render
from integration.conftest import Install
from integration.granting import denied
from integration.installing import until_ended

pytestmark = pytest.mark.wide

_IMPERSONATOR = "makeway-dev-admin"
"""Who the audit log names for what was done as system:kube-scheduler."""


@pytest.mark.usefixtures("without_scheduler")
async def test_it_preempts_for_every_pod_as_the_clusters_own_scheduler(install: Install) -> None:
    manifests = render(
        "bridge=plugin",
        "scheduler.install=replacement",
        "scheduler.names[0]=default-scheduler",
        "scheduler.fallback=false",
        "policy.document.mode=enforce",
    )
    installed = install(manifests)
    await installed.come_up(replacing=True)
    await installed.start_services()
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(make_pod("low").priority("low").cpu(1))
        (pod,) = await space.create(make_pod("high").priority("high").cpu(1))
        order = await until_ended(bus, pod.metadata.uid)
        assert await space.until_bound("high") == "n1"

    assert order.fence.name == "kube-scheduler"
    assert denied(installed.events()) == []
    assert denied(event for event in installed.audit.events() if event.user == _IMPERSONATOR) == []
