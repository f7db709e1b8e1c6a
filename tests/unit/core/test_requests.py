"""What a pod counts for, as kube-scheduler's NodeInfo and NodeResourcesFit count it.

Sums, sidecars, init containers, overhead and rounding are cases of test_queue_golden, as Go has them too.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from makeway.core.k8s import requests
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.requests import KnownRequests, pod_requests
from makeway.core.k8s.resources import allocatable, is_counted, is_extended


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status or {}}, Pod)


def container(name: str = "c", restart: str | None = None, **requests: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests}}
    return {**made, "restartPolicy": restart} if restart else made


def placed(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Mapping[str, int]:
    return pod_requests(pod(spec, status), placed=True)


def test_pod_level_requests_stand_in_for_the_containers_where_a_pod_may_have_them() -> None:
    spec = {
        "containers": [container("a", **{"cpu": "1", "memory": "1Gi", "x.io/gpu": "2"})],
        "resources": {"requests": {"cpu": "3", "hugepages-2Mi": "4Mi", "x.io/gpu": "9"}},
        "overhead": {"cpu": "1"},
    }

    assert placed(spec) == {
        "cpu": 4000,
        "memory": 2**30,
        "hugepages-2Mi": 4 * 2**20,
        "x.io/gpu": 2,
        "pods": 1,
    }


RESIZING = {
    "containerStatuses": [
        {"name": "a", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}}
    ]
}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
OF_THE_POD = {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "2", "memory": "1Gi"}}
NOT_YET_RUN = {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "9"}}]}


@pytest.mark.parametrize(
    ("asked", "status", "counted"),
    [
        ("1", RESIZING, {"cpu": 3000}),
        ("5", RESIZING, {"cpu": 5000}),
        ("5", {**RESIZING, **INFEASIBLE}, {"cpu": 3000}),
        ("5", INFEASIBLE, {}),
        ("1", NOT_YET_RUN, {"cpu": 9000}),
        ("1", {**RESIZING, **OF_THE_POD}, {"cpu": 4000, "memory": 2**30}),
    ],
    ids=[
        "what is allocated",
        "what is asked",
        "not what is asked infeasibly",
        "infeasible, and nothing allocated",
        "what is allocated and not run yet",
        "what the status tells of the whole pod, in place of its containers",
    ],
)
def test_while_a_pod_is_resized_the_most_counts(
    asked: str, status: dict[str, Any], counted: dict[str, int]
) -> None:
    assert placed({"containers": [container("a", cpu=asked)]}, status) == {**counted, "pods": 1}


def test_a_pod_that_looks_for_a_node_counts_as_asked() -> None:
    waiting = pod({"containers": [container("a", cpu="1")]}, RESIZING)

    assert pod_requests(waiting, placed=False)["cpu"] == 1000


def test_a_resized_sidecar_counts_for_init_containers_too() -> None:
    statuses = [
        {"name": "side", "resources": {"requests": {"cpu": "4"}}},
        {"name": "init", "resources": {"requests": {"cpu": "90"}}},
    ]
    spec = {
        "containers": [container("a", cpu="1")],
        "initContainers": [container("side", "Always", cpu="2"), container("init", cpu="1")],
    }

    assert placed(spec, {"initContainerStatuses": statuses})["cpu"] == 94000


def test_of_a_resize_the_most_of_the_whole_pod_counts_and_not_of_each_container() -> None:
    statuses = [
        {"name": "a", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "3"}}},
        {"name": "b", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "1"}}},
    ]
    spec = {"containers": [container("a", cpu="1"), container("b", cpu="1")]}

    assert placed(spec, {"containerStatuses": statuses})["cpu"] == 4000


def test_a_pod_level_resize_counts_the_most_too() -> None:
    spec = {"containers": [container("a", cpu="1")], "resources": {"requests": {"cpu": "2"}}}
    status = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}

    assert placed(spec, status)["cpu"] == 4000


def test_names_of_no_known_form_and_devices_of_a_class_are_not_counted() -> None:
    spec = {
        "containers": [
            container(
                "a", **{"storage": "1Gi", "deviceclass.resource.kubernetes.io/gpu": "1", "x.io/fpga": "1"}
            )
        ]
    }

    assert placed(spec) == {"x.io/fpga": 1, "pods": 1}


@pytest.mark.parametrize(
    ("name", "counted", "extended"),
    [
        ("cpu", True, False),
        ("ephemeral-storage", True, False),
        ("hugepages-1Gi", True, False),
        ("attachable-volumes-aws-ebs", True, False),
        ("example.com/foo", True, True),
        ("requests.example.com/foo", False, False),
        ("kubernetes.io/thing", True, False),
        ("sub.kubernetes.io/thing", True, False),
        ("foo", False, False),
        ("exa mple.com/foo", False, False),
        ("example.com/" + "f" * 64, False, False),
    ],
)
def test_which_names_count(name: str, counted: bool, extended: bool) -> None:
    assert (is_counted(name), is_extended(name)) == (counted, extended)


def test_a_nodes_allocatable_has_a_number_of_pods_and_no_unknown_names() -> None:
    found = allocatable({"cpu": "3920m", "memory": "1Gi", "pods": "110", "x.io/gpu": "4", "odd": "1"})

    assert found == {"cpu": 3920, "memory": 2**30, "pods": 110, "x.io/gpu": 4}


def test_what_is_remembered_of_requests_is_bounded_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_REMEMBERED_BYTES", 2000)
    known = KnownRequests()

    for number in range(100):
        name = f"example.com/r{number}"
        assert known.of(pod({"containers": [container(**{name: "1"})]}), placed=True)[name] == 1

    assert 0 < sum(map(len, known._known)) <= 2000
