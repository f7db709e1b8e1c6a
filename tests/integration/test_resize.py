"""A resize in place without room: kube-scheduler 1.37 asks PostFilter for a pod that has a node."""

import json
from typing import Any

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import sized
from integration.space import open_space
from integration.waiting import until_seen


def deferred(container: str) -> dict[str, Any]:
    """Return the status of a pod whose kubelet knows resizes, and has put one off."""
    amounts = {"cpu": "200m"}
    return {
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
            "containerStatuses": [
                {
                    "name": container,
                    "image": "pause",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {}},
                    "resources": {"requests": amounts},
                    "allocatedResources": amounts,
                }
            ],
        }
    }


async def test_room_for_a_resize_is_made_by_default_preemption_and_by_no_order(
    gang_planning_cluster: RunningCluster,
) -> None:
    async with open_space(gang_planning_cluster) as space:
        await space.add_nodes(make_node("n1").cpu("500m"))
        grows, _ = await space.run(sized("grows", "high", 200).on("n1"), sized("victim", "low", 300).on("n1"))
        path = f"/api/v1/namespaces/{space.namespace}/pods/grows"
        container = grows.spec.containers[0].name
        larger = {"spec": {"containers": [{"name": container, "resources": {"requests": {"cpu": "400m"}}}]}}
        for subresource, patch in (("status", deferred(container)), ("resize", larger)):
            await space.api.request(
                "PATCH",
                f"{path}/{subresource}",
                body=json.dumps(patch).encode(),
                content_type="application/strategic-merge-patch+json",
            )

        await until_seen(
            "the victim goes",
            lambda: space.pod("victim"),
            lambda victim: victim is None or victim.metadata.deletion_timestamp is not None,
        )
        orders = await space.bus.orders(grows.metadata.uid)

    assert orders == []
