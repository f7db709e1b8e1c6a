"""Builders for tests of offline plans: a dump as kubectl prints it, in one line an object."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from makeway.planner.offline.dump import world_of
from makeway.planner.offline.manifests import NewPod
from makeway.planner.offline.results import SimulatedPod
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
Object = dict[str, Any]


def node(name: str, cpu: str = "4", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    meta = {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


def pod(
    name: str,
    on: str = "",
    *,
    cpu: str = "1",
    priority: int | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "default",
    annotations: dict[str, str] | None = None,
    status: Object | None = None,
    ports: list[Object] | None = None,
    **spec: Any,
) -> Object:
    """A pod on a node, with a UID; or one to be created, without."""
    meta: Object = {"name": name, "namespace": namespace, "labels": labels or {}}
    if on or status:
        meta |= {"uid": f"uid-{name}", "annotations": annotations or {}}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": ports or []}
    where = {"nodeName": on} if on else {}
    number = {} if priority is None else {"priority": priority}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **where, **number, **spec},
        "status": status or {},
    }


def priority_class(name: str, value: int, **more: Any) -> Object:
    return {"kind": "PriorityClass", "metadata": {"name": name, "uid": name}, "value": value, **more}


def budget(name: str, match: dict[str, str], allowed: int) -> Object:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"selector": {"matchLabels": match}},
        "status": {"disruptionsAllowed": allowed},
    }


def dump(*objects: Object) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})


def world(*objects: Object) -> World:
    return world_of(dump(*objects), "dump.json")[0]


def simulated(cluster: World, *pods: Object, **options: Any) -> list[SimulatedPod]:
    simulation = Simulation(cluster, NOW, namespace="default", **options)
    return [simulation.run(NewPod(one, "pods.yaml")) for one in pods]


def names(answer: SimulatedPod) -> list[str]:
    return [victim.name for victim in answer.victims]
