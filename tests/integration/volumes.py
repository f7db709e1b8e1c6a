"""A claim that is bound to a volume of some zones, which no column of the planner's rules nodes out by."""

import json
from collections.abc import Sequence

from integration.drawing import ZONE
from integration.space import Space
from integration.waiting import until_seen

VOLUMES = "/api/v1/persistentvolumes"

_STORAGE = "drawn"


def volume_of(space: Space) -> str:
    """Return the name of the space's volume, which whoever made it removes."""
    return f"{space.namespace}-data"


async def bound_claim(space: Space, zones: Sequence[str]) -> None:
    """Make claim `data`, and its volume that only nodes of these zones can use."""
    name = volume_of(space)
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": _STORAGE}
    claim = {
        "metadata": {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {**shared, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name},
    }
    claims = f"/api/v1/namespaces/{space.namespace}/persistentvolumeclaims"
    uid = json.loads(await space.post(claims, claim))["metadata"]["uid"]
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    volume = {
        "metadata": {"name": name},
        "spec": {
            **shared,
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "drawn.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": space.namespace, "name": "data", "uid": uid},
        },
    }
    await space.post(VOLUMES, volume)
    await until_seen(
        "the claim is bound to its volume",
        lambda: space.api.request("GET", f"{claims}/data"),
        lambda found: json.loads(found)["status"].get("phase") == "Bound",
    )
