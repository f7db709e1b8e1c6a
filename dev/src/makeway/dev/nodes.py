"""Nodes for KWOK to play."""

from typing import Any

from makeway.dev.api import AdminApi


def manifest(name: str, cpu: str = "4", memory: str = "16Gi", pods: int = 110) -> dict[str, Any]:
    """Describe a node of this size; KWOK makes it Ready."""
    size = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "type": "kwok"}},
        "status": {"allocatable": size, "capacity": size},
    }


def create(api: AdminApi, count: int) -> None:
    """Create `node-1` to `node-<count>`.

    Raises:
        DevError: the API server refused.
    """
    for number in range(1, count + 1):
        api.request("POST", "/api/v1/nodes", manifest(f"node-{number}"))
