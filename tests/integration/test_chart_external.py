"""The chart with `bridge: external` beside kube-scheduler: its grants suffice, and all are used."""

import pytest

from integration.builders import make_node, make_pod
from integration.charting import NAMESPACE, render
from integration.conftest import Install
from integration.granting import denied, grants, unused
from integration.installing import until_ended
from integration.priority_classes import opted_in
from integration.waiting import NotYet, until

pytestmark = pytest.mark.wide

RARELY_USED = {
    "makeway-nominator": {
        "create events.events.k8s.io": "only about a class that asks for what it cannot have"
    },
    "makeway-evictor": {
        f"get leases.coordination.k8s.io {NAMESPACE}/makeway-planner": "only for orders of lowered quotas",
        "create pods/eviction": "only where disruption budgets are hard",
        "get daemonsets.apps": "only of pods that claim a DaemonSet as their owner",
        f"patch configmaps {NAMESPACE}/makeway-breaker": "only when the breaker opens",
        f"get configmaps {NAMESPACE}/makeway-tolerations": "only where a victim's PriorityClass is gone",
    },
}
"""What this test does not make the components do, and why they may need it."""


async def test_it_makes_room_beside_a_scheduler_that_is_not_touched(install: Install) -> None:
    manifests = [*render("bridge=external", "policy.document.mode=enforce"), opted_in("opted-in")]
    installed = install(manifests)
    await installed.come_up(scheduler=False)
    await installed.start_services(nominators=True)
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1))
        await space.run(make_pod("low").priority("low").cpu(1))
        (pod,) = await space.create(make_pod("high").spec(priorityClassName="opted-in").cpu(1))
        order = await until_ended(bus, pod.metadata.uid)
        assert await space.until_bound("high") == "n1"

        for account, exceptions in RARELY_USED.items():
            granted = grants(manifests, account)
            assert granted, account

            async def used(account: str = account, left: set[str] = {*exceptions}) -> bool:  # noqa: B006
                found = unused(grants(manifests, account), installed.events(account))
                if found != left:
                    raise NotYet(f"{account}: unused {sorted(found - left)}, used {sorted(left - found)}")
                return True

            await until(f"{account} has used what it is granted", used, every=0.5)

    assert order.fence.name == "makeway-nominator"
    assert denied(installed.events()) == []
    for name, log in installed.logs().items():
        assert "ermissions violation" not in log, f"{name}:\n{log[-3000:]}"
