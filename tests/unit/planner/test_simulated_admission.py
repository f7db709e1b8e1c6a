"""What the API server adds to a new pod by objects of a dump, what it refuses, and what no column judges."""

from __future__ import annotations

from typing import Any

import pytest

from makeway.planner.offline.manifests import ManifestError
from makeway.planner.offline.results import SimulatedPod
from unit.planner.offline_building import Object, names, node, pod, simulated, world


def runtime_class(name: str, **fields: Any) -> Object:
    return {"kind": "RuntimeClass", "metadata": {"name": name}, "handler": "h", **fields}


def limit_range(**item: Any) -> Object:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def quota(hard: dict[str, str], used: dict[str, str] | None, **spec: Any) -> Object:
    status = {} if used is None else {"status": {"hard": hard, "used": used}}
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"hard": hard, **spec},
        **status,
    }


def bare(name: str, **spec: Any) -> Object:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], **spec}}


def refused_with(answer: SimulatedPod) -> str:
    assert answer.diagnosis is not None
    assert (answer.result, answer.diagnosis.reason) == ("refused", "NotAdmitted")
    return answer.diagnosis.message


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


def test_a_quota_refuses_in_the_api_servers_words_and_counts_each_pod() -> None:
    cluster = world(
        node("a"), quota({"requests.cpu": "3", "pods": "10"}, {"requests.cpu": "500m", "pods": "1"})
    )

    first, second = simulated(cluster, pod("one", cpu="2"), pod("two", cpu="1"))

    assert first.result == "fits"
    assert refused_with(second) == (
        'pods "two" is forbidden: exceeded quota: team, requested: requests.cpu=1, '
        "used: requests.cpu=2500m, limited: requests.cpu=3"
    )


def test_a_quota_has_lost_the_pods_that_made_room() -> None:
    cluster = world(node("a", "2"), pod("low", "a", cpu="2", priority=0), quota({"cpu": "4"}, {"cpu": "2"}))

    first, second = simulated(cluster, pod("one", cpu="2", priority=9), pod("two", cpu="2", priority=10))

    assert names(first) == ["low"]
    assert names(second) == ["one"]


def test_a_pod_without_the_requests_that_a_quota_counts_is_refused() -> None:
    cluster = world(
        node("a"), quota({"cpu": "3", "limits.memory": "1Gi"}, {"cpu": "0", "limits.memory": "0"})
    )

    (answer,) = simulated(cluster, bare("new"))

    assert refused_with(answer) == (
        'pods "new" is forbidden: failed quota: team: must specify cpu for: c; limits.memory for: c'
    )


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        ({"scopes": ["BestEffort"]}, "fits"),
        ({"scopes": ["NotBestEffort"]}, "refused"),
        ({"scopes": ["Terminating"]}, "fits"),
        ({"scopes": ["NotTerminating"]}, "refused"),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]
                }
            },
            "refused",
        ),
    ],
)
def test_a_quota_counts_the_pods_that_its_scopes_select(spec: Object, result: str) -> None:
    cluster = world(node("a"), quota({"pods": "1"}, {"pods": "1"}, **spec))

    assert simulated(cluster, pod("new"))[0].result == result


def test_a_quota_without_a_status_or_with_another_scope_is_told() -> None:
    written = world(node("a"), quota({"pods": "0"}, None))
    scoped = world(node("a"), quota({"pods": "0"}, {"pods": "0"}, scopes=["CrossNamespacePodAffinity"]))

    (unused,), (unknown,) = simulated(written, pod("new")), simulated(scoped, pod("new"))

    assert unused.warnings == ("not judged: ResourceQuota default/team, which has no status",)
    assert unknown.warnings == ("not judged: ResourceQuota default/team, its scopes",)


def test_amounts_that_are_none_are_told_with_what_has_them() -> None:
    cluster = world(node("a"), quota({"cpu": "1x"}, {"cpu": "0"}))
    new = pod("new")
    new["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2x"}

    assert "ResourceQuota default/team is left out: '1x' is not a Kubernetes quantity" in cluster.warnings
    with pytest.raises(ManifestError, match="pod default/new: '2x' is not a Kubernetes quantity"):
        simulated(cluster, new)


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
