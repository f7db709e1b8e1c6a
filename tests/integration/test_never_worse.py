"""A pod that kube-scheduler places by preemption, makeway places too: two control planes side by side."""

import asyncio

from integration.builders import make_node
from integration.drawing import ZONE
from integration.preempting import assert_only_ordered_pods_were_deleted, outcome_of_order, run_victims, sized
from integration.space import Space
from integration.volumes import VOLUMES, bound_claim, volume_of

SHARE = 500
"""Milli-CPU of a node, of each pod that fills one, and of the preemptor."""


async def bound_beside_its_volume(space: Space) -> str:
    """Let a pod ask for room whose volume is in a zone that ranks last, and give the node it is bound to.

    25 full nodes are in zone a, with pods of low priority; 2 in zone c, with pods of middle priority.
    """
    cheap = [f"a{number:02}" for number in range(25)]
    dear = ["c1", "c2"]
    nodes = [make_node(name).cpu(f"{SHARE}m").label(ZONE, name[0]) for name in cheap + dear]
    await space.add_nodes(*nodes)
    await space.run(*[sized(f"on-{name}", "low", SHARE).on(name) for name in cheap])
    await run_victims(space, *[sized(f"on-{name}", "mid", SHARE).on(name) for name in dear])
    await bound_claim(space, ["c"])
    try:
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        (preemptor,) = await space.create(sized("p", "high", SHARE).spec(volumes=[volume]))

        node = await space.until_bound("p")
        if space.cluster.owned.options.plugin:
            await outcome_of_order(space, preemptor)
            await assert_only_ordered_pods_were_deleted(space, [preemptor])
        return node
    finally:
        await space.api.request("DELETE", f"{VOLUMES}/{volume_of(space)}")


async def test_a_pod_goes_to_its_volumes_zone_past_25_other_nodes(space: Space, plain_space: Space) -> None:
    by_makeway, by_kube_scheduler = await asyncio.gather(
        bound_beside_its_volume(space), bound_beside_its_volume(plain_space)
    )

    assert by_makeway in {"c1", "c2"}
    assert by_kube_scheduler in {"c1", "c2"}
