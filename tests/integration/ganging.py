"""What tests of gangs do: make pod groups and their members, and the rooms that they need."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from integration.arming import Failpoints
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.configuring import HOLDING, policy
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.invariants import assert_invariants
from integration.pod_groups import form
from integration.preempting import EVICTOR_USER, deletes_of, run_victims, sized
from integration.space import Space, open_space
from integration.waiting import NotYet, until
from makeway.bus.messages import Outcome


@dataclass(frozen=True)
class Gang:
    """A PodGroup and the names of its members."""

    uid: str
    members: list[str]


def groups_path(space: Space, name: str = "") -> str:
    """The API path of the space's PodGroups, or of one."""
    groups = f"/apis/scheduling.k8s.io/{form().version}/namespaces/{space.namespace}/podgroups"
    return f"{groups}/{name}" if name else groups


async def pod_group(space: Space, name: str, **spec: Any) -> str:
    """Create a PodGroup; gives its UID."""
    manifest = {
        "apiVersion": f"scheduling.k8s.io/{form().version}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    uid: str = json.loads(await space.post(groups_path(space), manifest))["metadata"]["uid"]
    return uid


def in_group(name: str) -> dict[str, Any]:
    """The fields of a pod's spec that make it a member of a group."""
    return {"schedulingGroup": {"podGroupName": name}}


async def gang(space: Space, name: str = "gang", *, members: int = 3, queue: str = "", **spec: Any) -> Gang:
    """Create a gang of so many members, all of which it needs. `spec`: more fields of its PodGroup."""
    uid = await pod_group(
        space,
        name,
        schedulingPolicy={"gang": {"minCount": members}},
        disruptionMode=form().single,
        priorityClassName="high",
        **spec,
    )
    names = [f"{name}-{number}" for number in range(members)]
    pods = [sized(one, "high", 1000).spec(**in_group(name)) for one in names]
    await space.create(*(pod.label("queue", queue) if queue else pod for pod in pods))
    return Gang(uid, names)


@asynccontextmanager
async def faulty_space(cluster: RunningCluster, unit: Sequence[str]) -> AsyncIterator[Space]:
    """Give a space in which gangs wait without a plan; the checker judges it, and the cluster is healed.

    A large pod fills n0, and the pods of a unit n1 and n2; node `spare` has a taint.
    """
    failpoints = Failpoints(cluster)
    async with policy(cluster, protection=HOLDING), open_space(cluster) as opened:
        try:
            await _set_stage(opened, unit)
            yield opened
            await assert_invariants(opened, wait=False)
        finally:
            failpoints.disarm()
            await cluster.heal()


async def _set_stage(space: Space, names: Sequence[str]) -> None:
    spare = make_node("spare").cpu("1").taint("tests.makeway.dev/spare", "true")
    await space.add_nodes(*(make_node(f"n{number}").cpu("1") for number in range(3)), spare)
    await pod_group(
        space, "old", schedulingPolicy={"basic": {}}, disruptionMode=form().whole, priorityClassName="low"
    )
    each = len(names) // 2
    unit = [
        sized(name, "low", 1000 // each).on(f"n{1 + number // each}").spec(**in_group("old"))
        for number, name in enumerate(names)
    ]
    await run_victims(space, sized("large", "low", 1000).on("n0"), *unit)


async def first_outcome(space: Space, train: Gang) -> Outcome:
    """Wait until the gang's first order has ended; gives its outcome."""

    async def ended() -> Outcome:
        orders = await space.bus.group_orders(train.uid)
        outcomes = await space.bus.outcomes(orders[0].order_id) if orders else []
        if not outcomes:
            raise NotYet(f"{len(orders)} orders")
        return outcomes[0]

    return await until("the first order has ended", ended)


async def small_and_large(space: Space) -> None:
    """Three nodes with one large pod each, and three with four small ones."""
    names = [f"n{number}" for number in range(6)]
    await space.add_nodes(*(make_node(name).cpu("1") for name in names))
    large = [sized(f"large-{name}", "low", 1000).on(name) for name in names[:3]]
    small = [sized(f"small-{name}-{one}", "low", 250).on(name) for name in names[3:] for one in range(4)]
    await run_victims(space, *large, *small)


async def takes_the_room_with_the_fewest_pods(space: Space) -> None:
    """Check that a gang gets the room that costs the fewest pods, by one order of kind group."""
    await small_and_large(space)

    train = await gang(space)

    for name in train.members:
        await space.until_bound(name)
    (order,) = await space.bus.group_orders(train.uid)
    assert order.kind == "group"
    assert sorted(victim.name for victim in order.victims) == ["large-n0", "large-n1", "large-n2"]
    assert {one.name for one in order.members} == set(train.members)
    for victim in order.victims:
        assert [event.user for event in deletes_of(space, victim.name)] == [EVICTOR_USER]
    assert len([name for name in await space.pods() if name.startswith("small-")]) == 12


async def is_refused_where_a_victim_may_not_be_deleted(space: Space) -> None:
    """Check that an order of which one delete is refused deletes no victim and leaves no nomination."""
    await space.add_nodes(make_node("n0").cpu("1"), make_node("n1").cpu("1"))
    victims = [sized(f"low-{n}", "low", 1000).on(f"n{n}") for n in range(2)]
    await run_victims(space, victims[0], victims[1].label(*UNDELETABLE))
    async with deletes_refused(space, "low-1"):
        train = await gang(space, members=2)

        async def refused() -> bool:
            found = await space.bus.group_orders(train.uid)
            outcomes = [one for order in found for one in await space.bus.outcomes(order.order_id)]
            if not outcomes:
                raise NotYet(f"{len(found)} orders")
            return outcomes[0].result in {"failed", "refused"}

        assert await until("the order is refused", refused)
        pods = await space.pods()
        assert [pods[f"low-{n}"].metadata.deletion_timestamp for n in range(2)] == [None, None]

        async def cleared() -> bool:
            pods = await space.pods()
            shown = {name: pods[name].status.nominated_node_name for name in train.members}
            if any(shown.values()):
                raise NotYet(str(shown))
            return True

        await until("no nomination is left", cleared)
