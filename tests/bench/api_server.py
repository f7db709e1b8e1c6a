"""A local server that lists and watches as an API server does, with objects as large as real ones.

Run as a process of its own, so that its CPU time is not the planner's. It knows nothing but lists in pages
and watches: nodes, pods, one namespace, and empty lists of all else.

    python -m bench.api_server --nodes 5000 --pods 150000 --port 8001
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
from collections.abc import Iterator
from functools import lru_cache
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

_APPS = 500
"""Applications; their pods differ in name, UID, node and version only."""


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _app(number: int) -> str:
    return f"app-{number % _APPS}"


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _fields(depth: int) -> dict[str, Any]:
    """Nested sets of fields, as managedFields has them."""
    if depth == 0:
        return {f"f:field-{number}": {} for number in range(6)}
    return {f"f:group-{number}": _fields(depth - 1) for number in range(4)}


def pod(number: int, node: int, version: int) -> dict[str, Any]:
    """Give a pod of a Deployment with two containers, as the API server shows it: some 6 kB."""
    app = _app(number)
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
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app}-7d4b9c8f6d-",
            "namespace": f"team-{number % 50}",
            "uid": _uid(number),
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": app, "pod-template-hash": "7d4b9c8f6d", "team": f"team-{number % 50}"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-7d4b9c8f6d",
                    "uid": f"{number % _APPS:08x}-1111-4000-8000-000000000000",
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


@lru_cache(maxsize=_APPS)
def _template(app: int) -> str:
    """Give a pod of an application as text, with marks where pods of one application differ."""
    shown = pod(app, 0, 0)
    shown["metadata"].update(name="@name@", uid="@uid@", resourceVersion="@version@")
    shown["spec"]["nodeName"] = "@node@"
    return _json(shown)


def pod_text(number: int, node: int, version: int, *, apps: int = _APPS) -> str:
    """Give a pod of one of so many applications as compact JSON, as the API server writes it."""
    app = number % apps
    text = _template(app).replace("@name@", f"{_app(app)}-7d4b9c8f6d-{number:06}")
    text = text.replace("@uid@", _uid(number)).replace("@version@", str(version))
    return text.replace("@node@", f"node-{node:05}")


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
        self._changes: asyncio.Queue[tuple[int, float]] = asyncio.Queue()

    def application(self) -> web.Application:
        """Give the routes; POST /changes?count=N&rate=R sends N changed pods, R a second (0: at once)."""
        application = web.Application()
        application.router.add_post("/changes", self._change)
        application.router.add_get("/{path:.*}", self._get)
        return application

    def _objects(self, kind: str, start: int, end: int) -> Iterator[str]:
        if kind == "pods":
            places = range(start, min(end, self._pods))
            yield from (pod_text(number, number % self._nodes, 1) for number in places)
        elif kind == "nodes":
            yield from (_json(node(number)) for number in range(start, min(end, self._nodes)))
        elif kind == "namespaces" and start == 0:
            yield _json({"metadata": {"name": "kube-system", "uid": KUBE_SYSTEM, "resourceVersion": "1"}})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if request.path == "/api/v1/namespaces/kube-system":
            return _answer(next(self._objects("namespaces", 0, 1)))
        if "watch" in request.query:
            return await self._watch(request, kind)
        start = int(request.query.get("continue", 0))
        end = start + int(request.query.get("limit", 500))
        total = {"pods": self._pods, "nodes": self._nodes}.get(kind, 0)
        metadata = {"resourceVersion": "1", **({"continue": str(end)} if end < total else {})}
        items = ",".join(self._objects(kind, start, end))
        return _answer(f'{{"kind":"List","metadata":{_json(metadata)},"items":[{items}]}}')

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        version = 1
        while True:
            count, rate = await self._changes.get() if kind == "pods" else await asyncio.Future()
            # Written down first: what is measured is the reader.
            lines = []
            for _ in range(count):
                version += 1
                place = version * 7919 % self._pods
                changed = pod_text(place, (place + 1 + version // self._pods) % self._nodes, version)
                lines.append(f'{{"type":"MODIFIED","object":{changed}}}\n'.encode())
            began = asyncio.get_running_loop().time()
            for sent, line in enumerate(lines):
                if rate:
                    await asyncio.sleep(began + sent / rate - asyncio.get_running_loop().time())
                await response.write(line)

    async def _change(self, request: web.Request) -> web.Response:
        await self._changes.put((int(request.query["count"]), float(request.query["rate"])))
        return web.Response()


def _answer(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificate", help="serve TLS with this certificate")
    parser.add_argument("--key", help="its private key")
    given = parser.parse_args()
    tls = None
    if given.certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(given.certificate, given.key)
    application = Server(given.nodes, given.pods).application()
    web.run_app(application, host="127.0.0.1", port=given.port, ssl_context=tls, print=None)


if __name__ == "__main__":
    main()
