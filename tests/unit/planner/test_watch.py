"""What each kind of object does to the snapshot."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import background
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.objects import (
    DeviceClass,
    Metadata,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
)
from makeway.core.k8s.pod_groups import GroupKey
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.service.watch import (
    DEVICE_CLASSES,
    STORAGE_CLASSES,
    VOLUMES,
    BudgetFeed,
    DeviceClassFeed,
    Feed,
    NamespaceFeed,
    PodFeed,
    Watch,
    known_feed,
    pod_group_watch,
)
from makeway.planner.snapshot.changes import KnowVolumes, PutPod
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.volumes import ClaimRecord
from makeway.runtime.connections import OtherClusterError
from makeway.runtime.kube import ApiError
from makeway.runtime.listwatch import ListWatchTimings
from typed_calls import SilentWatch
from unit.planner.building import make_node, make_pod, make_snapshot, settle

T = TypeVar("T")


def make(kind: type[T], name: str, uid: str = "", **fields: Any) -> T:
    made = {"metadata": {"name": name, "namespace": "ns", "uid": uid or name}, **fields}
    return msgspec.json.decode(msgspec.json.encode(made), type=kind)


def metrics() -> PlannerMetrics:
    return PlannerMetrics(CollectorRegistry())


def pod(name: str, uid: str = "", node: str = "n1", cpu: str = "100m") -> Pod:
    return make(
        Pod,
        name,
        uid,
        spec={
            "nodeName": node,
            "priority": 7,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        status={"startTime": "2026-01-01T00:00:00Z"},
    )


def test_a_pod_is_counted_and_forgotten() -> None:
    snapshot = Snapshot()
    feed = PodFeed(snapshot, metrics())

    feed.put(pod("a"))
    record = snapshot.pods["a"]
    feed.drop(pod("a"))

    assert (record.node, record.priority, record.grace_period_seconds) == ("n1", 7, 5)
    assert record.requests == {"cpu": 100, "pods": 1}
    assert record.start_micros == microseconds(pod("a").status.start_time)
    assert snapshot.pods == {}


def test_a_complete_list_forgets_what_it_does_not_have() -> None:
    snapshot = Snapshot()
    feed = PodFeed(snapshot, metrics())
    feed.put(pod("a"))
    feed.put(pod("b"))

    feed.retain({"b"})

    assert set(snapshot.pods) == {"b"}


def test_many_pods_that_a_complete_list_does_not_have_are_forgotten_in_chunks() -> None:
    snapshot = Snapshot(chunk=2)
    feed = PodFeed(snapshot, metrics())
    for name in "abcde":
        feed.put(pod(name))

    feed.retain({"a", "b", "d"})
    assert snapshot.pending_updates.pending
    feed.put(pod("f"))
    settle(snapshot)

    assert set(snapshot.pods) == set("abdf")


def test_the_late_delete_of_a_recreated_pod_does_not_touch_its_successor() -> None:
    snapshot = Snapshot()
    feed = PodFeed(snapshot, metrics())
    feed.put(pod("web-0", "old"))
    feed.put(pod("web-0", "new"))

    feed.drop(pod("web-0", "old"))

    assert set(snapshot.pods) == {"new"}


def test_a_pod_with_an_unreadable_quantity_is_counted_as_an_error_and_passed_over() -> None:
    snapshot, counted = Snapshot(), metrics()

    PodFeed(snapshot, counted).put(pod("a", cpu="1K"))

    assert snapshot.pods == {}
    assert counted.registry.get_sample_value("makeway_planner_decode_errors_total", {"source": "pods"}) == 1


def test_nodes_come_change_and_go() -> None:
    snapshot = Snapshot()
    feed = Feed[Node](snapshot, metrics(), "nodes")

    feed.put(make(Node, "n1", status={"allocatable": {"cpu": "2"}}))
    feed.put(make(Node, "n2", status={"allocatable": {"cpu": "bad!"}}))
    assert snapshot.node_names() == ("n1",)

    feed.put(make(Node, "n1", "again", status={"allocatable": {"cpu": "3"}}))
    feed.drop(make(Node, "n1"))
    assert snapshot.node_names() == ("n1",)

    feed.retain(set())
    assert snapshot.node_names() == ()


def test_budgets_come_and_go() -> None:
    snapshot = Snapshot()
    feed = BudgetFeed(snapshot, metrics(), "poddisruptionbudgets")
    budget = make(PodDisruptionBudget, "b", spec={"selector": {"matchLabels": {"app": "a"}}})

    feed.put(budget)
    assert snapshot.budgets.keys() == [("ns", "b")]
    feed.drop(budget)
    assert snapshot.budgets.keys() == []
    feed.put(budget)
    feed.retain(set())
    assert snapshot.budgets.keys() == []


def test_a_budget_that_is_listed_again_as_it_was_still_owes_what_has_left() -> None:
    snapshot = Snapshot()
    feed = BudgetFeed(snapshot, metrics(), "poddisruptionbudgets")
    pods = PodFeed(snapshot, metrics())
    selector = {"matchLabels": {"app": "a"}}

    def listed(version: str, uid: str = "b") -> PodDisruptionBudget:
        metadata = {"name": "b", "namespace": "ns", "uid": uid, "resourceVersion": version}
        return msgspec.convert({"metadata": metadata, "spec": {"selector": selector}}, PodDisruptionBudget)

    labelled = msgspec.structs.replace(pod("p"), metadata=Metadata("p", "ns", "p", labels={"app": "a"}))
    feed.put(listed("7"))
    pods.put(labelled)
    pods.drop(labelled)

    feed.put(listed("7"))
    assert debits(snapshot, ["p"]) == {("ns", "b"): 1}

    feed.put(listed("8"))
    assert debits(snapshot, ["p"]) == {}


def test_priority_classes_and_namespaces_come_and_go() -> None:
    snapshot = Snapshot()
    classes = Feed[PriorityClass](snapshot, metrics(), "priorityclasses")
    namespaces = NamespaceFeed(snapshot, metrics(), "cluster-1")

    classes.put(make(PriorityClass, "high", value=1000))
    namespaces.put(make(Namespace, "shop"))
    assert (set(snapshot.priority_classes), set(snapshot.namespaces)) == ({"high"}, {"shop"})

    classes.retain(set())
    namespaces.drop(make(Namespace, "shop"))
    assert (snapshot.priority_classes, snapshot.namespaces) == ({}, {})


def test_another_cluster_behind_the_same_address_ends_the_process() -> None:
    feed = NamespaceFeed(Snapshot(), metrics(), "cluster-1")

    feed.put(make(Namespace, "kube-system", "cluster-1"))
    with pytest.raises(OtherClusterError):
        feed.put(make(Namespace, "kube-system", "cluster-2"))


def test_claims_for_a_single_pod_are_told_from_others() -> None:
    snapshot = Snapshot()
    claims = Feed[PersistentVolumeClaim](snapshot, metrics(), "persistentvolumeclaims")

    def claim(name: str, mode: str, uid: str = "") -> PersistentVolumeClaim:
        manifest = {
            "metadata": {"namespace": "shop", "name": name, "uid": uid or name},
            "spec": {"accessModes": [mode]},
        }
        return msgspec.convert(manifest, PersistentVolumeClaim)

    claims.put(claim("one", "ReadWriteOncePod"))
    claims.put(claim("two", "ReadWriteOncePod"))
    claims.put(claim("many", "ReadWriteMany"))
    assert snapshot.exclusive_claims == {("shop", "one"), ("shop", "two")}

    claims.drop(claim("one", "ReadWriteOncePod", uid="of an earlier one"))
    claims.retain({"one"})
    assert snapshot.exclusive_claims == {("shop", "one")}

    claims.drop(claim("one", "ReadWriteOncePod"))
    assert snapshot.exclusive_claims == set()


def test_of_every_claim_its_volume_is_kept_until_it_is_gone() -> None:
    snapshot = Snapshot()
    claims = Feed[PersistentVolumeClaim](snapshot, metrics(), "persistentvolumeclaims")

    claims.put(make(PersistentVolumeClaim, "data", spec={"volumeName": "pv", "storageClassName": "disk"}))
    assert snapshot.volumes.claims == {("ns", "data"): ClaimRecord("pv", "disk")}

    claims.retain(set())
    assert snapshot.volumes.claims == {}


def test_volumes_and_classes_are_kept_by_name_and_forgotten() -> None:
    snapshot = Snapshot()
    volumes, classes, devices = (
        known_feed(snapshot, metrics(), "persistentvolumes", KnowVolumes),
        Feed[StorageClass](snapshot, metrics(), "storageclasses"),
        DeviceClassFeed(snapshot),
    )
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]
    waits: dict[str, Any] = {"volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies}

    volumes.put(make(PersistentVolume, "pv"))
    volumes.drop(make(PersistentVolume, "pv", uid="of an earlier one"))
    classes.put(make(StorageClass, "disk", **waits))
    assert (set(snapshot.volumes.volumes), set(snapshot.volumes.classes)) == ({"pv"}, {"disk"})
    volumes.drop(make(PersistentVolume, "pv"))
    classes.retain(set())
    assert (snapshot.volumes.volumes, snapshot.volumes.classes) == ({}, {})

    devices.put(make(DeviceClass, "gpu", spec={"extendedResourceName": "x.io/gpu"}))
    assert snapshot.devices is None, "not all are known yet"
    devices.retain({"gpu"})
    assert "x.io/gpu" in (snapshot.devices or ())
    devices.drop(make(DeviceClass, "gpu"))
    assert snapshot.devices == frozenset()


class Silent(SilentWatch):
    """An API server that answers one page for every list, and says nothing in a watch."""

    def __init__(self, version: int, refused: tuple[str, ...] = ()) -> None:
        self._refused = refused
        self._page = msgspec.json.encode({"metadata": {"resourceVersion": str(version)}, "items": []})

    async def request(self, method: str, path: str, **_: object) -> bytes:
        if path in self._refused:
            raise ApiError(403, "Forbidden", f"{path} is forbidden")
        return self._page


async def test_it_is_behind_whoever_has_seen_more_of_anything_it_follows() -> None:
    watch = Watch(Silent(50), Snapshot(), metrics(), "cluster")
    assert watch.behind({"pods": 1})
    async with background(*watch.runs()):
        await asyncio.gather(*(part.synced.wait() for part in watch._parts))

    assert not watch.behind({"pods": 50, "nodes": 49, "of somebody else's": 99})
    assert watch.behind({"pods": 50, "nodes": 51})
    assert watch.behind({})


async def test_a_planner_that_may_not_read_volumes_and_device_classes_goes_on_without() -> None:
    snapshot = Snapshot()
    refused = tuple(resource.path for resource in (VOLUMES, STORAGE_CLASSES, DEVICE_CLASSES))
    watch = Watch(Silent(50, refused), snapshot, metrics(), "cluster")
    async with background(*watch.runs()) as running:
        await asyncio.gather(*(part.synced.wait() for part in watch._parts))
        await asyncio.sleep(0.1)

        assert watch.synced
        assert watch.unhealthy() == ""
        assert snapshot.devices is None, "so that no node is ruled out for a device"
        assert not any(task.done() for task in running)


# ------------- pod groups: the version that is served, or none


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

    async def stream(self, path: str, **_: object) -> AsyncIterator[list[bytes]]:
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
    ("versions", "group", "composites"),
    [
        ({"v1beta1": ["podgroups", "compositepodgroups"]}, BETA, "v1beta1"),
        ({"v1beta1": ["podgroups", "workloads"], "v1alpha3": ["compositepodgroups"]}, BETA, "v1alpha3"),
        ({"v1beta1": ["podgroups"]}, BETA, ""),
        ({"v1alpha2": ["podgroups"]}, ALPHA, ""),
    ],
)
async def test_groups_are_followed_in_the_version_that_is_served(
    versions: Mapping[str, Sequence[str]], group: object, composites: str
) -> None:
    api = Served(versions, group)

    snapshot = await followed(api)

    pod = snapshot.pods["a"]
    unit = snapshot.groups.unit_of_pod(pod)
    assert unit is not None
    assert (unit.key, pod.priority) == (GroupKey("default", "g"), 3)
    assert snapshot.groups.composites == bool(composites)
    listed = {path.split("/")[3] for path in api.asked if path.endswith("/compositepodgroups")}
    assert listed == ({composites} if composites else set())


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
