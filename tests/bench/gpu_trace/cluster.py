"""The trace's cluster and a gang as objects of the API: both sides read the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from bench.gpu_trace.trace import MOST_PODS, TraceNode, TracePod
from makeway.bus.messages import API_VERSION
from makeway.bus.plan import GroupPreemptor, MemberClass, NodeSelection, PlanRequest, Profile
from makeway.core.k8s.objects import Node, Pod
from makeway.core.k8s.pod_groups import PodGroup
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.offline.world import World
from makeway.planner.plan.gang.question import GangQuestion, gang_question_of

GPU: Final = "nvidia.com/gpu"
BEGAN: Final = datetime(2023, 1, 1, tzinfo=UTC)
"""When the trace began; it counts seconds from an unknown day on."""

NOW: Final = BEGAN + timedelta(days=365)

_NAMESPACE: Final = "default"
_FILTERS: Final = ("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodeResourcesFit")
_POLICY: Final = Policy(limits=PolicyLimits(victims_per_order=100_000))


@dataclass(frozen=True, slots=True)
class Gang:
    """So many members, of which all have to be placed, and what each asks for."""

    name: str
    count: int
    member: TracePod


def node_object(node: TraceNode) -> dict[str, Any]:
    """Return a v1.Node."""
    amounts = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        GPU: str(node.gpus),
        "pods": str(MOST_PODS),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name, "labels": {"kubernetes.io/hostname": node.name}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_object(pod: TracePod, name: str, node: str = "", group: str = "") -> dict[str, Any]:
    """Return a v1.Pod that runs since it was created, or waits as a member of a group."""
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.gpus:
        requests[GPU] = str(pod.gpus)
    created = (BEGAN + timedelta(seconds=pod.created)).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec: dict[str, Any] = {
        "schedulerName": "default-scheduler",
        "priority": pod.priority,
        "containers": [
            {"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}
        ],
    }
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE, "uid": name, "creationTimestamp": created},
        "spec": spec,
        "status": {"phase": "Running", "startTime": created} if node else {"phase": "Pending"},
    }


def group_object(gang: Gang) -> dict[str, Any]:
    """Return a PodGroup that runs with all its members or not at all."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": gang.name, "namespace": _NAMESPACE, "uid": gang.name},
        "spec": {"priority": gang.member.priority, "schedulingPolicy": {"gang": {"minCount": gang.count}}},
    }


def member_objects(gang: Gang) -> list[dict[str, Any]]:
    """Return the pods that wait."""
    return [pod_object(gang.member, f"{gang.name}-{number}", group=gang.name) for number in range(gang.count)]


def case_of(nodes: Sequence[TraceNode], pods: Iterable[tuple[TracePod, str]], gang: Gang) -> bytes:
    """Return a line for `tests/upstream/answers -gangs`."""
    return msgspec.json.encode(
        {
            "nodes": [node_object(node) for node in nodes],
            "pods": [pod_object(pod, pod.name, node) for pod, node in pods],
            "group": group_object(gang),
            "members": member_objects(gang),
        }
    )


def world_of(nodes: Sequence[TraceNode], pods: Iterable[tuple[TracePod, str]]) -> World:
    """Return the cluster as the planner reads it."""
    world = World()
    world.enforce(_POLICY, "bench")
    for node in nodes:
        world.put(msgspec.convert(node_object(node), Node))
    for pod, name in pods:
        world.put(msgspec.convert(pod_object(pod, pod.name, name), Pod))
    return world


def question_of(world: World, gang: Gang) -> GangQuestion:
    """Return the planner's question about a gang, whose group and members are put into the world."""
    world.put(msgspec.convert(group_object(gang), PodGroup))
    members = member_objects(gang)
    for member in members:
        world.put(msgspec.convert(member, Pod))
    request = PlanRequest(
        api_version=API_VERSION,
        request_id="bench",
        cluster_uid="bench",
        mode="enforce",
        timeout_milliseconds=2_000,
        profile=Profile(name="default-scheduler", filters=_FILTERS),
        group=GroupPreemptor(
            namespace=_NAMESPACE, name=gang.name, uid=gang.name, priority=gang.member.priority
        ),
        classes=(
            MemberClass(
                pod=msgspec.Raw(msgspec.json.encode(members[0])),
                count=gang.count,
                nodes=NodeSelection(all_but=True),
            ),
        ),
        must_place=gang.count,
    )
    return gang_question_of(request, {})
