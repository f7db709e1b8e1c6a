"""What tests of gangs do: make pod groups and their members, and the rooms that they need."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from integration.builders import make_node
from integration.pod_groups import form
from integration.preempting import run_victims, sized
from integration.space import Space


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


async def gang(
    space: Space, name: str = "gang", *, members: int = 3, cpu: int = 1000, queue: str = ""
) -> Gang:
    """Create a gang of so many members, all of which it needs."""
    uid = await pod_group(
        space,
        name,
        schedulingPolicy={"gang": {"minCount": members}},
        disruptionMode=form().single,
        priorityClassName="high",
    )
    names = [f"{name}-{number}" for number in range(members)]
    pods = [sized(one, "high", cpu).spec(**in_group(name)) for one in names]
    await space.create(*(pod.label("queue", queue) if queue else pod for pod in pods))
    return Gang(uid, names)


async def small_and_large(space: Space) -> None:
    """Three nodes with one large pod each, and three with four small ones."""
    names = [f"n{number}" for number in range(6)]
    await space.add_nodes(*(make_node(name).cpu("1") for name in names))
    large = [sized(f"large-{name}", "low", 1000).on(name) for name in names[:3]]
    small = [sized(f"small-{name}-{one}", "low", 250).on(name) for name in names[3:] for one in range(4)]
    await run_victims(space, *large, *small)
