"""The chart on a real API server: its grants suffice for its components, and are no more than they use."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from integration.builders import make_node
from integration.bus_reader import BusReader
from integration.charting import NAMESPACE
from integration.granting import denied, grants, unused
from integration.installing import Installed, ours, until_ended
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.dev.binaries import KUBERNETES
from makeway.dev.processes import Process

COMES_AGAIN = "only where an event comes again within minutes"
"""It does where the machine is slow."""

RARELY_USED = {
    "makeway-evictor": {
        f"get leases.coordination.k8s.io {NAMESPACE}/makeway-planner": "only for orders of lowered quotas",
        "create pods/eviction": "only where disruption budgets are hard",
        "get daemonsets.apps": "only of pods that claim a DaemonSet as their owner",
        f"patch configmaps {NAMESPACE}/makeway-breaker": "only when the breaker opens",
        f"get configmaps {NAMESPACE}/makeway-tolerations": "only where a victim's PriorityClass is gone",
    },
    "makeway-scheduler": {
        "patch events.events.k8s.io": COMES_AGAIN,
        "patch events kube-system": COMES_AGAIN,
        "update pods/finalizers": "asked by an admission plugin that is off by default",
        "update persistentvolumes": "only to bind volumes that wait for their first consumer",
        "update persistentvolumeclaims": "only to bind volumes that wait for their first consumer",
        "get resourceclaims.resource.k8s.io": "only for pods with devices",
        "create resourceclaims.resource.k8s.io": "only for pods with devices",
        "update resourceclaims.resource.k8s.io": "only for pods with devices",
        "delete resourceclaims.resource.k8s.io": "only for pods with devices",
        "update resourceclaims/status.resource.k8s.io": "only for pods with devices",
        "patch resourceclaims/status.resource.k8s.io": "only for pods with devices",
        "update resourceclaims/binding.resource.k8s.io": "only for pods with devices",
        "patch resourceclaims/binding.resource.k8s.io": "only for pods with devices",
        **(
            {}
            if KUBERNETES.name == "1.37"
            else {
                "list devicetaintrules.resource.k8s.io": "only with the feature gate of taints on devices",
                "watch devicetaintrules.resource.k8s.io": "only with the feature gate of taints on devices",
            }
        ),
        "list podgroups.scheduling.k8s.io": "only with the feature gate of gang scheduling",
        "watch podgroups.scheduling.k8s.io": "only with the feature gate of gang scheduling",
        "patch podgroups/status.scheduling.k8s.io": "only with the feature gate of gang scheduling",
        "list compositepodgroups.scheduling.k8s.io": "only with the feature gate of trees of groups",
        "watch compositepodgroups.scheduling.k8s.io": "only with the feature gate of trees of groups",
    },
}
"""What this test does not make the components do, and why they may need it."""


async def scrape_scheduler(installed: Installed) -> int:
    """Read its metrics as that account; gives the HTTP status."""
    headers = {"Authorization": f"Bearer {installed.reader_token()}"}
    url = f"{installed.scheduler_url}/metrics"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=False) as answer:
        return answer.status


async def test_it_preempts_with_the_rights_it_grants_and_uses_all_of_them(installed: Installed) -> None:
    before = {account: len(installed.events(account)) for account in RARELY_USED}
    async with installed.space() as space:
        await space.add_nodes(make_node("n1").cpu(2))
        await space.run(ours("first", "low", 2))
        await installed.start_services()
        (second,) = await space.create(ours("second", "mid", 2))
        assert await space.until_bound("second") == "n1"
        async with installed.bus() as bus:
            order = await until_ended(bus, second.metadata.uid)
        assert [victim.name for victim in order.victims] == ["first"]

        # Without a planner DefaultPreemption acts, which deletes by itself.
        for planner, _ in installed.planners:
            planner.pause()
        await space.create(ours("third", "high", 2))
        assert await space.until_bound("third") == "n1"
        assert await space.pod("second") is None
        for planner, _ in installed.planners:
            planner.resume()
        assert await scrape_scheduler(installed) == 200

    for account, exceptions in RARELY_USED.items():
        await _until_all_is_used(installed, account, exceptions, before[account])
    assert denied(installed.events()) == []
    for name, log in installed.logs().items():
        assert "ermissions violation" not in log, f"{name}:\n{log[-3000:]}"


async def _until_all_is_used(
    installed: Installed, account: str, exceptions: Mapping[str, str], before: int
) -> None:
    """Wait until a component has used every right but these, such as that to renew its Lease.

    `before`: how much it had asked for when the test began. What other tests of this installation had it do
    then may have needed what is an exception here.
    """
    granted = grants(installed.release.manifests, account)
    assert granted, account

    async def used() -> bool:
        events = installed.events(account)
        left, untouched = unused(granted, events), unused(granted, events[before:])
        wrong = [right for right in exceptions.keys() - untouched if exceptions[right] != COMES_AGAIN]
        assert not wrong, f"{account} used {sorted(wrong)}"
        if not left <= exceptions.keys():
            raise NotYet(f"unused: {sorted(left - exceptions.keys())}")
        return True

    await until(f"{account} has used what it is granted", used, every=0.5)


async def test_the_successor_of_a_killed_planner_plans_within_ten_seconds_and_doubles_nothing(
    installed: Installed,
) -> None:
    await installed.start_services()
    async with installed.space() as space, installed.bus() as bus:
        await space.add_nodes(make_node("n1").cpu(1), make_node("n2").cpu(1))
        await space.run(ours("a", "low", 1), ours("b", "low", 1))
        leader = await _leader(installed)
        (before,) = await space.create(ours("before", "high", 1))
        await until("there is an order", lambda: bus.orders(before.metadata.uid))

        installed.planners.remove(leader)
        await asyncio.to_thread(leader[0].kill)
        killed = time.monotonic()
        await _until_somebody_plans(space, bus)
        took = time.monotonic() - killed

        (after,) = await space.create(ours("after", "mid", 1))
        await space.until_bound("before")
        await space.until_bound("after")
        orders = [await until_ended(bus, pod.metadata.uid) for pod in (before, after)]
        assert [len(await bus.orders(pod.metadata.uid)) for pod in (before, after)] == [1, 1]

    assert took < 10, f"{took:.1f} s"
    victims = [victim.name for order in orders for victim in order.victims]
    assert sorted(victims) == ["a", "b"]
    assert denied(installed.events()) == []


async def _until_somebody_plans(space: Space, bus: BusReader) -> None:
    """Have the scheduler ask again and again, for pods that nobody can help, until a planner says so."""
    asked: list[str] = []

    async def planned() -> bool:
        (pod,) = await space.create(ours(f"asks-{len(asked)}", "neg", 1))
        asked.append(pod.metadata.uid)
        return any([await bus.decisions(uid) for uid in asked])

    await until("the successor plans", planned, every=0.5)


async def _leader(installed: Installed) -> tuple[Process, str]:
    async def leads() -> tuple[Process, str]:
        async with aiohttp.ClientSession() as session:
            for planner in installed.planners:
                async with session.get(f"{planner[1]}/metrics") as answer:
                    if "makeway_planner_leading 1.0" in await answer.text():
                        return planner
        raise NotYet("no planner leads")

    return await until("a planner leads", leads)


async def test_people_read_with_the_login_that_the_installation_names(installed: Installed) -> None:
    await installed.start_services()
    said = await asyncio.gather(
        *(_makeway(installed, *one) for one in (("check",), ("history",), ("history", "--unreadable")))
    )

    for text in said:
        for sign in ("ermissions violation", "no permission", "in time", "no answer"):
            assert sign not in text, text


async def _makeway(installed: Installed, *command: str) -> str:
    """What a command prints for somebody who logs in to NATS as the viewer."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(installed.cluster.info.kubeconfig),
        "MAKEWAY_NAMESPACE": NAMESPACE,
        **installed.release.nats_environment("viewer"),
    }
    done = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "makeway"), *command, env=environment, stdout=-1, stderr=-2
    )
    said = (await done.communicate())[0].decode()
    assert done.returncode in (0, 1), said
    return said
