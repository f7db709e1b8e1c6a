"""Pods and nodes as manifests, for tests of constraints: what the API server would send, decoded."""

from typing import Any

import msgspec

from makeway.bus.plan import NodeSelection
from makeway.core.k8s.objects import Namespace, Node, Pod
from makeway.planner.plan.constraints.pods import constraints_of
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.changes import PutNamespace, PutNode, PutPod
from makeway.planner.snapshot.records import node_record, pod_record
from makeway.planner.snapshot.state import Snapshot

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def node(
    name: str,
    cpu: int = 4,
    *,
    zone: str = "",
    taints: list[dict[str, str]] | None = None,
    more: dict[str, str] | None = None,
    **spec: Any,
) -> Node:
    labels = {HOST: name, **({ZONE: zone} if zone else {}), **(more or {})}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"taints": taints or [], **spec},
            "status": {"allocatable": {"cpu": str(cpu), "pods": "110"}},
        },
        Node,
    )


def pod(
    name: str,
    on: str = "",
    *,
    priority: int = 0,
    cpu: str = "1",
    labels: dict[str, str] | None = None,
    namespace: str = "default",
    terminating: bool = False,
    ports: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> Pod:
    metadata: dict[str, Any] = {"name": name, "uid": name, "namespace": namespace, "labels": labels or {}}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": ports or []}
    return msgspec.convert(
        {
            "metadata": metadata,
            "spec": {
                "nodeName": on or None,
                "priority": priority,
                "schedulerName": "default-scheduler",
                "containers": [container],
                **spec,
            },
        },
        Pod,
    )


def term(key: str, match: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": match}, **more}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def anti_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(key: str, match: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": match},
        **more,
    }


def claim(name: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def namespace(name: str, labels: dict[str, str]) -> Namespace:
    return msgspec.convert({"metadata": {"name": name, "uid": name, "labels": labels}}, Namespace)


def cluster(*objects: Node | Pod | Namespace) -> Snapshot:
    snapshot = Snapshot()
    for item in objects:
        match item:
            case Node():
                snapshot.apply(PutNode(node_record(item)))
            case Namespace():
                snapshot.apply(PutNamespace(item))
            case Pod():
                snapshot.apply(PutPod(pod_record(item)))
    return snapshot


def question(
    preemptor: Pod, filters: tuple[str, ...] = (), arguments: dict[str, Any] | None = None, **more: Any
) -> Question:
    given = {name: msgspec.Raw(msgspec.json.encode(one)) for name, one in (arguments or {}).items()}
    record = pod_record(preemptor)
    return Question(
        preemptor=record,
        needs=record.requests,
        may_preempt=True,
        scheduler_name="default-scheduler",
        nodes=NodeSelection(all_but=True),
        max_candidates=16,
        constraints=constraints_of(preemptor, filters, given),
        **more,
    )
