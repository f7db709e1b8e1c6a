"""The stand-in for kubelets: what it makes of a node and of a pod."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from makeway.core.k8s.times import api_time
from makeway.dev.kubelets import leaves_in, node_patch, pod_patch
from makeway.dev.kwok import AFTER_GRACE, AS_KUBELET, NEVER, TERMINATION
from narrowing import there

pytestmark = pytest.mark.tools

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def pod(*, node: str = "n1", how: str = "", phase: str = "Pending", leaving: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "annotations": {TERMINATION: how} if how else None}
    if leaving:
        metadata["deletionTimestamp"] = api_time(NOW + timedelta(seconds=5))
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def test_a_node_becomes_ready_once_and_says_so_again_before_it_counts_as_lost() -> None:
    patch = there(node_patch({"metadata": {"name": "n"}}, NOW))

    node = {"status": patch["status"]}
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")
    assert node_patch(node, NOW + timedelta(seconds=29)) is None
    later = there(node_patch(node, NOW + timedelta(seconds=31)))
    assert later["status"]["conditions"][0]["lastTransitionTime"] == condition["lastTransitionTime"]


def test_a_deleted_pod_leaves_at_once_or_as_it_says() -> None:
    assert leaves_in(pod(), NOW) is None
    assert leaves_in(pod(leaving=True), NOW) == 0
    assert leaves_in(pod(leaving=True, how=AFTER_GRACE), NOW) == 5
    assert leaves_in(pod(leaving=True, how=NEVER), NOW) is None
    assert leaves_in(pod(leaving=True, how=AS_KUBELET), NOW) == 0
    assert pod_patch(pod(leaving=True, how=AS_KUBELET, phase="Running"), NOW) == {
        "status": {"phase": "Failed"}
    }
    assert pod_patch(pod(leaving=True, phase="Running"), NOW) is None
