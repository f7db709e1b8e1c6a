"""A pod that kube-scheduler places by preemption, makeway places too: two control planes side by side."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integration.builders import make_node
from integration.preempting import assert_only_ordered_pods_were_deleted, outcome_of_order, run_victims, sized
from integration.space import Space
from integration.waiting import NotYet, until

ZONE = "topology.kubernetes.io/zone"
SHARE = 500
"""Milli-CPU of a node, of each pod that fills one, and of the preemptor."""


@asynccontextmanager
async def volume_of_zone(space: Space, zone: str) -> AsyncIterator[str]:
    """Give the name of a claim that is bound to a volume of that zone."""
    name = f"{space.namespace}-data"
    size = {"storage": "1Gi"}
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    claims = f"/api/v1/namespaces/{space.namespace}/persistentvolumeclaims"
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    await space.post(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                **shared,
                "capacity": size,
                "claimRef": {"namespace": space.namespace, "name": "data"},
                "hostPath": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    await space.post(
        claims,
        {
            "metadata": {"name": "data"},
            "spec": {**shared, "volumeName": name, "resources": {"requests": size}},
        },
    )

    async def bound() -> bool:
        claim = json.loads(await space.api.request("GET", f"{claims}/data"))
        if (phase := claim["status"].get("phase")) != "Bound":
            raise NotYet(f"phase {phase}")
        return True

    await until("the claim is bound", bound)
    try:
        yield "data"
    finally:
        await space.api.request("DELETE", f"/api/v1/persistentvolumes/{name}")


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
    async with volume_of_zone(space, "c") as claim:
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        (preemptor,) = await space.create(sized("p", "high", SHARE).spec(volumes=[volume]))
        node = await space.until_bound("p")
        if space.cluster.owned.options.plugin:
            await outcome_of_order(space, preemptor)
            await assert_only_ordered_pods_were_deleted(space, [preemptor])
        return node


async def test_a_pod_goes_to_its_volumes_zone_past_25_other_nodes(space: Space, plain_space: Space) -> None:
    by_makeway, by_kube_scheduler = await asyncio.gather(
        bound_beside_its_volume(space), bound_beside_its_volume(plain_space)
    )

    assert by_makeway in {"c1", "c2"}
    assert by_kube_scheduler in {"c1", "c2"}
