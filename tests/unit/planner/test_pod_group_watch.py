"""Following pod groups: the version that is served, or none."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import background
from makeway.core.k8s.pod_groups import GroupKey
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.service.watch import pod_group_watch
from makeway.planner.snapshot.changes import PutPod
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.kube import ApiError
from makeway.runtime.listwatch import ListWatchTimings
from unit.planner.building import make_node, make_pod, make_snapshot

BETA = {
    "metadata": {"name": "g", "namespace": "default", "uid": "u1", "resourceVersion": "5"},
    "spec": {"disruptionMode": {"all": {}}, "priority": 3},
}
ALPHA = {**BETA, "spec": {"disruptionMode": "PodGroup", "priority": 3}}


class Served:
    """An API server that serves some versions, each with its resources, and lists these groups."""

    def __init__(self, versions: Mapping[str, Sequence[str]], group: object, status: int = 0) -> None:
        self.versions = versions
        self.group = group
        self.status = status
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **_: object) -> bytes:
        self.asked.append(path)
        version = path.split("/")[3]
        if version not in self.versions:
            raise ApiError(404, "NotFound", "")
        if path.endswith(version):
            names = [{"name": name} for name in self.versions[version]]
            return msgspec.json.encode({"resources": names})
        if self.status:
            raise ApiError(self.status, "Forbidden", "")
        items = [self.group] if path.endswith("/podgroups") else []
        return msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": items})

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle_timeout_seconds: float
    ) -> AsyncIterator[Sequence[bytes]]:
        self.asked.append(path)
        await asyncio.sleep(3600)
        yield []


async def followed(api: Served) -> Snapshot:
    snapshot = make_snapshot([make_node("n1")])
    snapshot.apply(PutPod(msgspec.structs.replace(make_pod("a", "n1"), group="g")))
    watch = pod_group_watch(api, snapshot, PlannerMetrics(CollectorRegistry()), ListWatchTimings(pause=0.01))
    async with background(watch.run()):
        await asyncio.sleep(0.1)
    return snapshot


@pytest.mark.parametrize(
    ("versions", "group"),
    [
        ({"v1beta1": ["podgroups", "workloads"], "v1alpha3": ["compositepodgroups"]}, BETA),
        ({"v1beta1": ["podgroups"]}, BETA),
        ({"v1alpha2": ["podgroups"]}, ALPHA),
    ],
)
async def test_groups_are_followed_in_the_version_that_is_served(
    versions: Mapping[str, Sequence[str]], group: object
) -> None:
    snapshot = await followed(Served(versions, group))

    pod = snapshot.pods["a"]
    unit = snapshot.groups.unit_of_pod(pod)
    assert unit is not None
    assert (unit.key, pod.priority) == (GroupKey("default", "g"), 3)
    assert snapshot.groups.composites == ("v1alpha3" in versions)


@pytest.mark.parametrize("versions", [{}, {"v1alpha1": ["podgroups"]}, {"v1beta1": ["priorityclasses"]}])
async def test_without_groups_nothing_is_listed_and_every_pod_goes_by_itself(
    versions: Mapping[str, Sequence[str]],
) -> None:
    api = Served(versions, BETA)

    snapshot = await followed(api)

    assert not snapshot.groups.followed
    assert snapshot.groups.of(snapshot.pods["a"]) is None
    assert not [path for path in api.asked if path.endswith("podgroups")]


async def test_pods_of_groups_that_may_not_be_read_stay() -> None:
    snapshot = await followed(Served({"v1beta1": ["podgroups"]}, BETA, status=403))

    assert "pod groups have not been read yet" in snapshot.units.of(snapshot.pods["a"]).kept
