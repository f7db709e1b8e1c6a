"""What the API server adds to a new pod by objects of a dump, what it refuses, and what no column judges."""

from typing import Any

import pytest

from makeway.planner.offline.manifests import ManifestError
from unit.planner.offline_building import Object, names, node, pod, simulated, world


def runtime_class(name: str, **fields: Any) -> Object:
    return {"kind": "RuntimeClass", "metadata": {"name": name}, "handler": "h", **fields}


def limit_range(**item: Any) -> Object:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def bare(name: str, **spec: Any) -> Object:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], **spec}}


def test_a_runtime_class_adds_its_overhead_and_its_nodes() -> None:
    of_vms = runtime_class(
        "vm",
        overhead={"podFixed": {"cpu": "1"}},
        scheduling={"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
    )
    taint = {"key": "vm", "effect": "NoSchedule"}
    cluster = world(
        node("plain"),
        node("vms", "4", labels={"vm": "yes"}, taints=[taint]),
        pod("low", "vms", priority=0),
        of_vms,
    )

    (answer,) = simulated(cluster, pod("new", cpu="3", priority=9, runtimeClassName="vm"))

    assert (answer.result, answer.node, names(answer)) == ("preempts", "vms", ["low"])


def test_a_runtime_class_that_is_not_known_is_told() -> None:
    (answer,) = simulated(world(node("a")), pod("new", runtimeClassName="vm"))

    assert answer.result == "fits"
    assert answer.warnings == ("not judged: overhead and nodes of RuntimeClass vm, which is not known",)


@pytest.mark.parametrize(
    ("item", "result"),
    [
        ({"defaultRequest": {"cpu": "2"}}, "refused"),
        ({"default": {"cpu": "2"}}, "refused"),
        ({"min": {"cpu": "2"}}, "refused"),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, "fits"),
    ],
)
def test_a_limit_range_gives_containers_the_requests_that_they_do_not_name(item: Object, result: str) -> None:
    cluster = world(node("a", "1"), limit_range(**item))

    (answer,) = simulated(cluster, bare("new"))

    assert answer.result == result
    assert ("not judged: min and max of LimitRange default/defaults" in answer.warnings) == ("min" in item)


def test_quotas_of_a_dump_are_told_as_not_judged() -> None:
    hard = {"metadata": {"name": "team", "namespace": "default"}, "spec": {"hard": {"pods": "0"}}}

    cluster = world(node("a"), {"kind": "ResourceQuota", **hard})

    assert "not judged: ResourceQuotas; on a cluster the API server is asked" in cluster.warnings


def test_an_amount_that_is_none_is_told_with_its_pod() -> None:
    new = pod("new")
    new["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2x"}

    with pytest.raises(ManifestError, match="pod default/new: '2x' is not a Kubernetes quantity"):
        simulated(world(node("a")), new)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "not judged: devices (spec.resourceClaims)"),
        ({"volumes": [{"name": "d", "iscsi": {}}]}, "not judged: a disk that pods share (iscsi)"),
        (
            {"volumes": [{"name": "d", "csi": {}}]},
            "not judged: attach limits of nodes and capacity of storage, for its volumes",
        ),
        (
            {"schedulerName": "volcano"},
            "its scheduler, volcano, is taken for kube-scheduler with makeway in it",
        ),
    ],
)
def test_what_no_column_judges_is_told_and_never_silently_fits(spec: Object, told: str) -> None:
    (answer,) = simulated(world(node("a")), pod("new", **spec))

    assert answer.result == "fits"
    assert answer.warnings == (told,)


def test_devices_behind_an_extended_resource_are_told() -> None:
    offers = {
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "x.com/gpu"},
    }
    asks = pod("new")
    asks["spec"]["containers"][0]["resources"]["requests"]["x.com/gpu"] = "1"

    (answer,) = simulated(world(node("a"), offers), asks)

    assert "not judged: devices that a DeviceClass offers as x.com/gpu" in answer.warnings


def test_what_is_more_than_the_planner_looks_at_is_refused_as_for_a_pod_outside_the_scheduler() -> None:
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(200)]

    (answer,) = simulated(world(node("a")), pod("new", tolerations=many))

    assert answer.diagnosis is not None
    assert answer.diagnosis.reason == "OnlyFiltersKnow"
    assert "tolerations" in answer.diagnosis.message
