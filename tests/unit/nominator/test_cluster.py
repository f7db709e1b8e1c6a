"""What the nominator reads of the API server."""

from http import HTTPStatus
from typing import Any, cast

import msgspec
import pytest

from builders_bus import make_victim
from makeway.nominator.cluster import NominatorApi
from makeway.runtime.kube import Api, ApiError

CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


class Stored:
    """An API server with one pod and one node, where they are given."""

    def __init__(self, pod: dict[str, Any] | None, node: dict[str, Any] | None) -> None:
        self._there = {"/api/v1/namespaces/shop/pods/p": pod, "/api/v1/nodes/n1": node}

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        if (found := self._there[path]) is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "")
        return msgspec.json.encode(found)


def a_pod(*tolerations: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": "p", "uid": "p"},
        "spec": {"tolerations": list(tolerations)},
    }


def a_node(deleted: str = "", **spec: Any) -> dict[str, Any]:
    leaving = {"deletionTimestamp": deleted} if deleted else {}
    return {"metadata": {"name": "n1", "uid": "n1", **leaving}, "spec": spec}


@pytest.mark.parametrize(
    ("pod", "node", "kept_out"),
    [
        pytest.param(a_pod(), a_node(), False, id="as it was"),
        pytest.param(a_pod(), None, True, id="gone"),
        pytest.param(a_pod(), a_node("2026-11-27T08:00:00Z"), True, id="being deleted"),
        pytest.param(a_pod(), a_node(unschedulable=True), True, id="cordoned"),
        pytest.param(a_pod(CORDON), a_node(unschedulable=True), False, id="cordoned, which it tolerates"),
        pytest.param(a_pod(), a_node(taints=[{"key": "x", "effect": "NoSchedule"}]), True, id="tainted"),
        pytest.param(
            a_pod(), a_node(taints=[{"key": "x", "effect": "PreferNoSchedule"}]), False, id="softly"
        ),
        pytest.param(None, a_node(unschedulable=True), False, id="the pod is gone"),
        pytest.param(
            a_pod() | {"spec": {"nodeName": "n1"}}, a_node(unschedulable=True), False, id="the pod is there"
        ),
    ],
)
async def test_a_node_that_is_gone_cordoned_or_tainted_keeps_a_pod_out_that_does_not_tolerate_it(
    pod: dict[str, Any] | None, node: dict[str, Any] | None, kept_out: bool
) -> None:
    api = NominatorApi(cast("Api", Stored(pod, node)))

    assert await api.keeps_out("shop", "p", "n1") is kept_out


@pytest.mark.parametrize(
    ("pod", "left"),
    [
        pytest.param(a_pod(), False, id="there"),
        pytest.param(None, True, id="gone"),
        pytest.param(a_pod() | {"metadata": {"uid": "another"}}, True, id="another under its name"),
        pytest.param(a_pod() | {"status": {"phase": "Failed"}}, True, id="ended"),
    ],
)
async def test_a_victim_has_left_that_is_gone_or_takes_no_room(
    pod: dict[str, Any] | None, left: bool
) -> None:
    api = NominatorApi(cast("Api", Stored(pod, None)))

    assert await api.has_left(make_victim("p", namespace="shop", uid="p")) is left
