"""Records of pods: what alike pods share changes nothing of what is counted."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.objects import Pod
from makeway.planner.snapshot.records import PodRecords, pod_record

SINCE = {"lastTransitionTime": "2026-01-01T00:00:03Z"}
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def amounts(cpu: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}}


def reported(cpu: str) -> dict[str, Any]:
    return {"name": "main", "allocatedResources": {"cpu": cpu}, **amounts(cpu)}


METADATA: tuple[dict[str, Any], ...] = (
    {"labels": {"app": "web", "yunikorn.apache.org/queue": "root.a"}},
    {"annotations": {"note": "nothing that rules look at"}},
    {"annotations": {"makeway.dev/never-evict": "true", "yunikorn.apache.org/app-id": "first"}},
    {"creationTimestamp": "2026-01-01T00:00:01Z"},
    {"ownerReferences": [{"kind": "DaemonSet", "uid": "owner", "controller": True}]},
    {"deletionTimestamp": "2026-01-02T00:00:00Z"},
    {"deletionGracePeriodSeconds": 5},
)
SPEC: tuple[dict[str, Any], ...] = (
    {"nodeName": "a"},
    {"priority": 10},
    {"priorityClassName": "ten"},
    {"terminationGracePeriodSeconds": 1},
    {"containers": [{"name": "main", **amounts("3")}]},
    {"containers": [{"name": "main", "ports": [{"hostPort": 80}], **amounts("2")}]},
    {"initContainers": [{"name": "first", **amounts("4")}]},
    {"overhead": {"cpu": "1"}},
    amounts("8"),
    {"affinity": {"podAntiAffinity": {HARD: [{"topologyKey": "zone", "labelSelector": {}}]}}},
    {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]},
)
STATUS: tuple[dict[str, Any], ...] = (
    {"startTime": "2026-01-01T00:00:05Z"},
    {"conditions": [{"type": "PodScheduled", "status": "True", **SINCE}]},
    {"containerStatuses": [reported("3")]},
    {"containerStatuses": [reported("3")], "conditions": [INFEASIBLE]},
    {"containerStatuses": [reported("1")]},
    {"containerStatuses": [reported("1")], "conditions": [INFEASIBLE]},
    {"initContainerStatuses": [{**reported("6"), "name": "first"}]},
    {"resources": {"requests": {"memory": "2Gi"}}},
    {"resources": {"requests": {"memory": "2Gi"}}, "allocatedResources": {"memory": "3Gi"}},
)


CHANGES = [
    (place, change)
    for place, changes in (("metadata", METADATA), ("spec", SPEC), ("status", STATUS))
    for change in changes
]
SPEC_BEFORE = {
    "containers": [{"name": "main", **amounts("2")}],
    "initContainers": [{"name": "first", "restartPolicy": "Always", **amounts("1")}],
    "resources": {"requests": {"memory": "1Gi"}},
}
OWNED = {"ownerReferences": [{"kind": "ReplicaSet", "uid": "owner", "controller": True}]}


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods of one workload, each of which differs in a thing or two."""
    name, namespace = draw(st.sampled_from(["p", "q"])), draw(st.sampled_from(["one", "one", "one", "two"]))
    pod: dict[str, dict[str, Any]] = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **OWNED},
        "spec": {**SPEC_BEFORE},
        "status": {},
    }
    for place, change in draw(st.lists(st.sampled_from(CHANGES), max_size=2)):
        pod[place].update(change)
    return msgspec.convert(pod, Pod)


@given(st.lists(pods(), max_size=20))
def test_a_pod_counts_the_same_whichever_pods_were_counted_before(several: list[Pod]) -> None:
    records = PodRecords()

    assert [records.record(pod) for pod in several] == [pod_record(pod) for pod in several]


def test_pods_of_one_workload_share_what_they_ask_for() -> None:
    template = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"containers": [amounts("1")]}}
    records = PodRecords()
    first, second = (records.record(msgspec.convert(template, Pod)) for _ in range(2))

    assert first == second
    assert (first.requests, first.signature) == (second.requests, second.signature)
    assert first.requests is second.requests
    assert first.signature is second.signature


@pytest.mark.parametrize(
    ("kind", "name", "controller"),
    [
        ("ReplicaSet", "web", "ReplicaSet one/web"),
        ("ReplicaSet", "w" * 254, ""),
        ("ReplicaSet", "web\nBlocked by: no one", ""),
        ("K" * 64, "web", ""),
    ],
    ids=["named", "by a long name", "by two lines", "of a long kind"],
)
def test_a_pod_is_made_by_nothing_that_cannot_be_there(kind: str, name: str, controller: str) -> None:
    owner = {"kind": kind, "name": name, "uid": "owner", "controller": True}
    manifest = {"metadata": {"namespace": "one", "ownerReferences": [owner]}, "spec": {}}
    made = msgspec.convert(manifest, Pod)

    assert pod_record(made).controller == controller
