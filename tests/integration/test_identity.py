"""Only UIDs identify: names that come again, preemptors and nodes that are not what they were.

The short form runs a few of each; the long one recreates 1,000 victims, and does everything else
MAKEWAY_REPEAT times (20). The moment at which the world changes is random, so that in many repetitions every
step of an order is met.
"""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from integration.builders import PodBuilder, make_node, make_pod
from integration.preempting import EVICTOR_USER, settle
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.objects import Pod
from makeway.dev.kwok import NEVER
from makeway.runtime.kube import ApiError

REPEAT = int(os.environ.get("MAKEWAY_REPEAT", "20"))
LANES = 5
LATEST_SECONDS = 0.06
_numbers = count(1)


def sized(name: str, priority: str) -> PodBuilder:
    return make_pod(name).priority(priority).cpu("500m")


async def recreate(space: Space, pod: PodBuilder) -> Pod:
    """Delete a pod at once and create it under its name as soon as that is free."""
    await space.delete(pod.name, grace_seconds=0)

    async def created() -> list[Pod]:
        try:
            return await space.create(pod)
        except ApiError as error:
            if error.status != 409:
                raise
            raise NotYet(str(error)) from error

    return (await until(f"{pod.name} is there again", created, seconds=20, every=0.002))[0]


async def accepted_deletes(space: Space) -> set[str]:
    """The UIDs that an evictor's accepted deletes were conditional on."""
    return {
        event.precondition_uid
        for event in space.audit.events(verb="delete", resource="pods", subresource="", user=EVICTOR_USER)
        if event.accepted and event.namespace == space.namespace
    }


async def recreate_one(space: Space, lane: str, source: random.Random) -> str:
    """One preemption whose victim is made anew under its name meanwhile; gives the new pod's UID."""
    number = next(_numbers)
    victim, preemptor = f"victim-{number}", f"p-{number}"
    # Only this test ends the victim: KWOK's own deletes name no UID and may meet the new pod.
    await space.run(sized(victim, "low").leaves(NEVER).on(lane))
    await space.create(sized(preemptor, "high").spec(nodeSelector=on(space, lane)))
    await space.until_nominated(preemptor, seconds=30)
    await asyncio.sleep(source.random() * LATEST_SECONDS)
    new = await recreate(space, make_pod(victim).priority("low").cpu("1m").leaves(NEVER).on("spare"))
    assert await space.until_bound(preemptor, seconds=30) == lane

    await asyncio.sleep(0.1)
    pod = await space.pod(victim)
    assert pod is not None, f"{victim} was deleted in its new incarnation"
    assert pod.metadata.uid == new.metadata.uid
    assert pod.metadata.deletion_timestamp is None
    assert "DisruptionTarget" not in {c.type for c in pod.status.conditions or ()}
    await asyncio.gather(*(space.delete(name, grace_seconds=0) for name in (victim, preemptor)))
    await space.until_gone(preemptor)
    return new.metadata.uid


def on(space: Space, node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": space.node_name(node)}


async def recreations(space: Space, total: int) -> None:
    lanes = [f"n{lane}" for lane in range(LANES)]
    await space.add_nodes(
        *(make_node(lane).cpu("500m") for lane in lanes), make_node("spare").cpu("64").pods(500)
    )

    async def run(lane: str, seed: int) -> list[str]:
        source = random.Random(seed)
        return [await recreate_one(space, lane, source) for _ in range(total // LANES)]

    new = {uid for uids in await asyncio.gather(*map(run, lanes, range(LANES))) for uid in uids}

    assert len(new) == total
    assert not new & await accepted_deletes(space)


async def test_no_pod_made_anew_under_a_victims_name_is_deleted(space: Space) -> None:
    await recreations(space, 25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_none_of_a_thousand_pods_made_anew_is_deleted(space: Space) -> None:
    await recreations(space, 1000)


Change = Callable[[Space, str, str], Awaitable[None]]


async def preemptor_deleted(space: Space, node: str, preemptor: str) -> None:
    await space.delete(preemptor, grace_seconds=0)


async def preemptor_recreated(space: Space, node: str, preemptor: str) -> None:
    await recreate(space, sized(preemptor, "high").spec(nodeSelector=on(space, node)))
    await space.until_bound(preemptor, seconds=40)


async def preemptor_bound_elsewhere(space: Space, node: str, preemptor: str) -> None:
    try:
        await space.post(
            f"/api/v1/namespaces/{space.namespace}/pods/{preemptor}/binding",
            {"metadata": {"name": preemptor}, "target": {"kind": "Node", "name": space.node_name("spare")}},
        )
    except ApiError as error:
        # It may just have been bound where it was to go.
        if error.status != 409:
            raise


async def node_deleted(space: Space, node: str, preemptor: str) -> None:
    await space.delete_node(node)


async def node_recreated(space: Space, node: str, preemptor: str) -> None:
    await space.delete_node(node)
    await space.add_nodes(make_node(node).cpu("500m"))


CHANGES: dict[str, Change] = {
    "the preemptor is deleted": preemptor_deleted,
    "the preemptor is made anew": preemptor_recreated,
    "the preemptor is bound elsewhere": preemptor_bound_elsewhere,
    "the node is deleted": node_deleted,
    "the node is made anew": node_recreated,
}


async def change_once(space: Space, change: Change, source: random.Random) -> None:
    number = next(_numbers)
    node, victim, preemptor = f"m{number}", f"victim-{number}", f"p-{number}"
    await space.add_nodes(make_node(node).cpu("500m"))
    await space.run(sized(victim, "low").on(node))
    await space.create(sized(preemptor, "high").spec(nodeSelector=on(space, node)))
    await space.until_nominated(preemptor, seconds=30)
    await asyncio.sleep(source.random() * LATEST_SECONDS)

    await change(space, node, preemptor)

    async def ended() -> bool:
        pod = await space.pod(preemptor)
        if pod is None or pod.spec.node_name:
            return True
        orders = await space.bus.orders(pod.metadata.uid)
        missing = [o.order_id for o in orders if not await space.bus.outcomes(o.order_id)]
        if missing:
            raise NotYet(f"orders without outcome {missing}")
        return True

    await until("every order has ended", ended, seconds=40, every=0.1)
    await asyncio.gather(*(space.delete(name, grace_seconds=0) for name in (victim, preemptor)))


async def changes(space: Space, change: Change, times: int) -> None:
    """Change the world in the midst of so many orders; the checker judges at the space's end."""
    await space.add_nodes(make_node("spare").cpu("64").pods(500))
    await settle()
    source = random.Random(times)
    for _ in range(times):
        await change_once(space, change, source)


@pytest.mark.parametrize("name", CHANGES)
async def test_an_order_whose_preemptor_or_node_is_not_what_it_was_ends(space: Space, name: str) -> None:
    await changes(space, CHANGES[name], 2)


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * REPEAT)
@pytest.mark.parametrize("name", CHANGES)
async def test_an_order_whose_preemptor_or_node_is_not_what_it_was_always_ends(
    space: Space, name: str
) -> None:
    await changes(space, CHANGES[name], REPEAT)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_preemptor_whose_victim_is_held_by_a_finalizer_may_go_elsewhere_after_grace_and_a_minute(
    space: Space,
) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await space.run(sized("victim", "low").finalizer("tests.makeway.dev/held").grace(2).on("n1"))
    await settle()
    await space.create(sized("p", "high"))
    await space.until_nominated("p")
    await space.add_nodes(make_node("n2").cpu("500m"))
    await space.run(sized("other", "low").on("n2"))

    assert await space.until_bound("p", seconds=2 + 60 + 30) == "n2"

    stuck = json.loads(await space.api.request("GET", f"/api/v1/namespaces/{space.namespace}/pods/victim"))
    assert stuck["metadata"]["deletionTimestamp"]
