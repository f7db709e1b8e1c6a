"""A local server that lists and watches as an API server does, with objects as large as real ones.

Run as a process of its own, so that its CPU time is not the planner's. It knows nothing but lists in pages
and watches: nodes, pods, one namespace, and empty lists of all else.

    python -m bench.api_server --nodes 5000 --pods 150000 --port 8001
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

KUBE_SYSTEM = "6a3a2a38-6b4f-4d15-9a34-1c6c39b7f4b5"
_MANAGED = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
}


def _fields(depth: int) -> dict[str, Any]:
    """Nested sets of fields, as managedFields has them."""
    if depth == 0:
        return {f"f:field-{number}": {} for number in range(6)}
    return {f"f:group-{number}": _fields(depth - 1) for number in range(4)}


def pod(number: int, node: int, version: int) -> dict[str, Any]:
    """Give a pod of a Deployment with two containers, as the API server shows it: some 5 kB."""
    app = f"app-{number % 500}"
    name = f"{app}-7d4b9c8f6d-{number:06}"
    container = {
        "image": f"registry.example.com/{app}:1.2.3",
        "env": [{"name": f"SETTING_{index}", "value": f"value of setting {index}"} for index in range(8)],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "500m", "memory": "512Mi"},
        },
        "volumeMounts": [
            {"name": "token", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    uid = f"{number:08x}-0000-4000-8000-000000000000"
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app}-7d4b9c8f6d-",
            "namespace": f"team-{number % 50}",
            "uid": uid,
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": app, "pod-template-hash": "7d4b9c8f6d", "team": f"team-{number % 50}"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-7d4b9c8f6d",
                    "uid": f"{number % 500:08x}-1111-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [{**_MANAGED, "fieldsV1": _fields(2)}],
        },
        "spec": {
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": []}}],
            "containers": [{**container, "name": "main"}, {**container, "name": "proxy"}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "nodeName": f"node-{node:05}",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "priority": 100 * (number % 10),
            "priorityClassName": f"class-{number % 10}",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {
                    "type": condition,
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-01-01T00:00:10Z",
                }
                for condition in conditions
            ],
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
            "startTime": "2026-01-01T00:00:05Z",
            "containerStatuses": [
                {
                    "name": name,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}},
                    "ready": True,
                    "restartCount": 0,
                    "image": f"registry.example.com/{app}:1.2.3",
                    "imageID": "registry.example.com/app@sha256:" + 64 * "0",
                    "containerID": "containerd://" + 64 * "0",
                    "started": True,
                    "resources": container["resources"],
                    "allocatedResources": {"cpu": "100m", "memory": "256Mi"},
                }
                for name in ("main", "proxy")
            ],
            "qosClass": "Burstable",
        },
    }


def node(number: int) -> dict[str, Any]:
    """Give a node, as the API server shows it."""
    capacity = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "200Gi", "pods": "110"}
    name = f"node-{number:05}"
    return {
        "metadata": {
            "name": name,
            "uid": f"{number:08x}-2222-4000-8000-000000000000",
            "resourceVersion": "1",
            "labels": {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                "node.kubernetes.io/instance-type": "general-16",
            },
            "managedFields": [{**_MANAGED, "fieldsV1": _fields(2)}],
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": f"example:///{name}"},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": [{"names": [f"registry.example.com/image-{i}"], "sizeBytes": 10**8} for i in range(30)],
        },
    }


class Server:
    """Lists in pages, and a watch of pods that sends so many changes as soon as it is asked to."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._nodes = nodes
        self._pods = pods
        self._changes: asyncio.Queue[int] = asyncio.Queue()

    def application(self) -> web.Application:
        """Give the routes; POST /changes?count=N sends N changed pods to the watch."""
        application = web.Application()
        application.router.add_post("/changes", self._change)
        application.router.add_get("/{path:.*}", self._get)
        return application

    def _objects(self, kind: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        if kind == "pods":
            yield from (pod(number, number % self._nodes, 1) for number in range(start, min(end, self._pods)))
        elif kind == "nodes":
            yield from (node(number) for number in range(start, min(end, self._nodes)))
        elif kind == "namespaces" and start == 0:
            yield {"metadata": {"name": "kube-system", "uid": KUBE_SYSTEM, "resourceVersion": "1"}}

    async def _get(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if request.path == "/api/v1/namespaces/kube-system":
            return web.json_response(next(self._objects("namespaces", 0, 1)))
        if "watch" in request.query:
            return await self._watch(request, kind)
        start = int(request.query.get("continue", 0))
        end = start + int(request.query.get("limit", 500))
        total = {"pods": self._pods, "nodes": self._nodes}.get(kind, 0)
        metadata = {"resourceVersion": "1", **({"continue": str(end)} if end < total else {})}
        items = list(self._objects(kind, start, end))
        return web.json_response({"kind": "List", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        version = 1
        while True:
            count = await self._changes.get() if kind == "pods" else await asyncio.Future()
            # Written down first: what is measured is the reader.
            lines = []
            for number in range(count):
                version += 1
                place = number * 7919 % self._pods
                changed = pod(place, (place + version) % self._nodes, version)
                lines.append(json.dumps({"type": "MODIFIED", "object": changed}).encode() + b"\n")
            for line in lines:
                await response.write(line)

    async def _change(self, request: web.Request) -> web.Response:
        await self._changes.put(int(request.query["count"]))
        return web.Response()


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    web.run_app(Server(given.nodes, given.pods).application(), host="127.0.0.1", port=given.port, print=None)


if __name__ == "__main__":
    main()
