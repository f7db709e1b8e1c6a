"""A stand-in for the kubelets of all nodes, for the demo: `python -m makeway.dev.kubelets --kubeconfig FILE`.

A node is Ready, and says so again every minute. A bound pod runs at once. A deleted pod leaves at once, or as
its annotation `kwok.TERMINATION` says. Nothing is kept: started again it goes by what the API server has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from makeway.core.k8s.times import api_time
from makeway.dev.kwok import AFTER_GRACE, AS_KUBELET, NEVER, STARTED, TERMINATION
from makeway.dev.processes import Program
from makeway.dev.site import Site
from makeway.runtime.kube import STRATEGIC_MERGE_PATCH, Api, ApiError, ApiUnavailable

Object = dict[str, Any]

_HEARTBEAT_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 300.0
_ADDRESS: Final = "127.0.0.1"
_SAID: Final = "a stand-in for kubelets: nodes are Ready and pods Running, and nothing runs in them"


def program(site: Site) -> Program:
    """Play all nodes, as KWOK's user."""
    argv = (sys.executable, "-m", __name__, f"--kubeconfig={site.kubeconfig('kwok')}")
    return Program(name="kubelets", argv=argv, ready=lambda: "", restart=True)


def node_patch(node: Object, now: datetime) -> Object | None:
    """Return what a node's status lacks of being Ready now; None for nothing. Pure."""
    conditions = node.get("status", {}).get("conditions", ())
    before = next((one for one in conditions if one["type"] == "Ready" and one["status"] == "True"), None)
    if before is not None:
        heard = datetime.fromisoformat(before["lastHeartbeatTime"])
        if (now - heard).total_seconds() < _HEARTBEAT_SECONDS / 2:
            return None
    since = api_time(now) if before is None else before["lastTransitionTime"]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": since}
    addresses = [{"type": "InternalIP", "address": _ADDRESS}]
    return {"status": {"conditions": [ready | {"lastHeartbeatTime": api_time(now)}], "addresses": addresses}}


def pod_patch(pod: Object, now: datetime) -> Object | None:
    """Return what a bound pod's status lacks of running, or of having ended; None for nothing. Pure."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    annotations, at = metadata.get("annotations") or {}, api_time(now)
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    if "deletionTimestamp" in metadata:
        return {"status": {"phase": "Failed"}} if annotations.get(TERMINATION) == AS_KUBELET else None
    if status.get("phase") == "Running":
        return None
    gates = [one["conditionType"] for one in spec.get("readinessGates") or ()]
    kinds = ("Initialized", "ContainersReady", "Ready", *gates)
    return {
        "status": {
            "phase": "Running",
            "startTime": annotations.get(STARTED, at),
            "hostIP": _ADDRESS,
            "podIP": _ADDRESS,
            "conditions": [{"type": one, "status": "True", "lastTransitionTime": at} for one in kinds],
            "containerStatuses": [
                {
                    "name": one["name"],
                    "image": one["image"],
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": at}},
                }
                for one in spec["containers"]
            ],
        }
    }


def leaves_in(pod: Object, now: datetime) -> float | None:
    """Return in how many seconds a deleted pod is gone; None where it is not deleted, or hangs. Pure."""
    how = (pod["metadata"].get("annotations") or {}).get(TERMINATION, "")
    if "deletionTimestamp" not in pod["metadata"] or how == NEVER:
        return None
    if how == AFTER_GRACE:
        # The time of the request plus the grace period.
        until = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
        return max((until - now).total_seconds(), 0.0)
    return 0.0


async def _follow(api: Api, path: str, take: Callable[[Object], Awaitable[None]]) -> None:
    while True:
        with suppress(ApiError, ApiUnavailable):
            async for one in _objects(api, path):
                with suppress(ApiError):  # it has changed since, and comes again, or is gone
                    await take(one)
        await asyncio.sleep(_RETRY_SECONDS)


async def _objects(api: Api, path: str) -> AsyncIterator[Object]:
    """Give what there is and then what changes; end after a minute at most, to look at all of it again."""
    found = json.loads(await api.request("GET", path))
    for one in found["items"]:
        yield one
    version = found["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": f"{_HEARTBEAT_SECONDS / 2:.0f}"}
    async for lines in api.stream(path, query=query, idle_timeout_seconds=_IDLE_SECONDS):
        for event in map(json.loads, lines):
            if event["type"] in ("ADDED", "MODIFIED"):
                yield event["object"]


async def _play(kubeconfig: str) -> None:
    api = await Api.connect(kubeconfig=kubeconfig, user_agent="makeway-dev-kubelets")
    going: set[asyncio.Task[None]] = set()

    async def patch(path: str, body: Object | None) -> None:
        if body is not None:
            content = json.dumps(body).encode()
            await api.request("PATCH", f"{path}/status", body=content, content_type=STRATEGIC_MERGE_PATCH)

    async def node(one: Object) -> None:
        await patch(f"/api/v1/nodes/{one['metadata']['name']}", node_patch(one, datetime.now(UTC)))

    async def pod(one: Object) -> None:
        metadata, now = one["metadata"], datetime.now(UTC)
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        await patch(path, pod_patch(one, now))
        if one["spec"].get("nodeName") and (seconds := leaves_in(one, now)) is not None:
            task = asyncio.create_task(leave(path, metadata["uid"], seconds))
            going.add(task)
            task.add_done_callback(going.discard)

    async def leave(path: str, uid: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with suppress(ApiError, ApiUnavailable):  # at the next look again
            await api.request("DELETE", path, body=json.dumps(body).encode())

    print(_SAID, flush=True)
    await asyncio.gather(_follow(api, "/api/v1/nodes", node), _follow(api, "/api/v1/pods", pod))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    asyncio.run(_play(parser.parse_args().kubeconfig))
