"""Which nodes a pod's claims leave it, by affinity, zones and topologies of their volumes; and devices."""

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from makeway.core.k8s.objects import DeviceClass, PersistentVolume, PersistentVolumeClaim, StorageClass
from makeway.core.k8s.resources import served_by
from makeway.core.policy.document import DaemonSets, Policy
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.offline.world import World
from makeway.planner.service.watch import known_feed
from makeway.planner.snapshot.changes import KnowVolumes, PutClaim, PutDevices, PutStorageClass, PutVolume
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.volumes import ClaimRecord, claim_record, class_nodes, volume_record
from unit.planner.building import ask, choices, make_node, make_pod, make_snapshot, planned, refused
from unit.planner.manifests import ZONE, claim, cluster, node, pod, question

BETA = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"


def volume(
    *terms: dict[str, list[str]], labels: dict[str, str] | None = None, **more: Any
) -> PersistentVolume:
    """A volume `pv` whose affinity is one of the terms: values by label."""
    selector = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": k, "operator": "In", "values": v} for k, v in one.items()]}
            for one in terms
        ]
    }
    made = {
        "metadata": {"name": "pv", "uid": "pv", "labels": labels or {}},
        "spec": {
            **({"nodeAffinity": {"required": selector}} if terms else {}),
            "storageClassName": "disk",
            **more,
        },
        "status": {"phase": "Bound"},
    }
    return msgspec.convert(made, PersistentVolume)


def bound(item: PersistentVolume | None) -> Snapshot:
    """Full nodes a and b of zone 1, c of zone 2 and d without a zone; the pod's claim is bound to `pv`."""
    nodes = [node("a", zone="1"), node("b", zone="1"), node("c", zone="2"), node("d")]
    snapshot = cluster(*nodes, *(pod(f"low-{name}", name, cpu="4") for name in "abcd"))
    snapshot.apply(PutClaim.of(("default", "data"), ClaimRecord("pv", "disk")))
    if item is not None:
        snapshot.apply(PutVolume("pv", volume_record(item)))
    return snapshot


def used(snapshot: Snapshot, *filters: str) -> list[str]:
    asked = question(pod("P", priority=100, cpu="4", volumes=[claim("data")]), filters)
    return [one.node for one in planned(snapshot, asked).candidates]


@pytest.mark.parametrize(
    ("item", "nodes"),
    [
        (volume(), "abcd"),
        (volume({ZONE: ["2"]}), "c"),
        (volume({ZONE: ["2"]}, {ZONE: ["1"], "kubernetes.io/hostname": ["a"]}), "ac"),
        (volume(labels={ZONE: "2"}), "cd"),
        (volume(labels={ZONE: "2__1"}), "abcd"),
        (volume(labels={ZONE: " 2 __ 3"}), "cd"),
        (volume(labels={ZONE: "2__"}), "abcd"),
        (volume(labels={BETA: "1"}), "abd"),
        (volume(labels={REGION: "eu"}), "d"),
        (volume({ZONE: ["1"]}, labels={ZONE: "2"}), ""),
        (volume({"topology.gke.io/zone": ["1"]}, gcePersistentDisk={"pdName": "x"}), "abcd"),
        (volume({ZONE: ["1"]}, csi={"driver": "x"}), "ab"),
        (None, "abcd"),
    ],
)
def test_a_pod_is_planned_for_where_its_volume_can_be_used(item: PersistentVolume | None, nodes: str) -> None:
    snapshot = bound(item)
    if nodes:
        assert used(snapshot) == list(nodes)
    else:
        asked = question(pod("P", priority=100, cpu="4", volumes=[claim("data")]))
        assert refused(snapshot, asked).node_reasons == {"Volume is not there": 4}


def test_what_the_profiles_filters_do_not_look_at_rules_no_node_out() -> None:
    snapshot = bound(volume({ZONE: ["1"]}, labels={ZONE: "2"}))

    assert used(snapshot, "NodeResourcesFit", "VolumeBinding") == ["a", "b"]
    assert used(snapshot, "NodeResourcesFit", "VolumeZone") == ["c", "d"]
    assert used(snapshot, "NodeResourcesFit") == ["a", "b", "c", "d"]


def storage_class(mode: str, *zones: str) -> StorageClass:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]} for zone in zones]
    made = {"metadata": {"name": "disk"}, "volumeBindingMode": mode, "allowedTopologies": terms}
    return msgspec.convert(made, StorageClass)


def test_a_claim_that_waits_for_its_first_consumer_leaves_the_topologies_of_its_class() -> None:
    snapshot = bound(None)
    snapshot.apply(PutClaim.of(("default", "data"), ClaimRecord("", "disk")))
    assert used(snapshot) == ["a", "b", "c", "d"]

    snapshot.apply(PutStorageClass("disk", class_nodes(storage_class("WaitForFirstConsumer", "2"))))
    assert used(snapshot) == ["c"]
    snapshot.apply(PutStorageClass("disk", class_nodes(storage_class("WaitForFirstConsumer", "2", "1"))))
    assert used(snapshot) == ["a", "b", "c"]
    snapshot.apply(PutStorageClass("disk", class_nodes(storage_class("Immediate", "2"))))
    assert used(snapshot) == ["a", "b", "c", "d"]


def test_a_volume_that_no_claim_has_yet_may_serve_the_claim_anywhere() -> None:
    snapshot = bound(None)
    snapshot.apply(PutClaim.of(("default", "data"), ClaimRecord("", "disk")))
    snapshot.apply(PutStorageClass("disk", class_nodes(storage_class("WaitForFirstConsumer", "2"))))
    vacant = msgspec.structs.replace(volume_record(volume()), vacant=True)

    snapshot.apply(PutVolume("spare", vacant))
    assert used(snapshot) == ["a", "b", "c", "d"]
    snapshot.apply(PutVolume("spare", msgspec.structs.replace(vacant, vacant=False)))
    assert used(snapshot) == ["c"]
    snapshot.apply(PutVolume("spare", vacant))
    snapshot.apply(PutVolume("spare", None))
    assert used(snapshot) == ["c"]


def test_a_class_rules_no_node_out_before_all_volumes_have_been_listed() -> None:
    snapshot = bound(None)
    snapshot.apply(PutClaim.of(("default", "data"), ClaimRecord("", "disk")))
    snapshot.apply(PutStorageClass("disk", class_nodes(storage_class("WaitForFirstConsumer", "2"))))

    volumes = known_feed(snapshot, PlannerMetrics(CollectorRegistry()), "persistentvolumes", KnowVolumes)
    assert used(snapshot) == ["a", "b", "c", "d"]
    volumes.retain(set())
    assert used(snapshot) == ["c"]


def test_of_a_claim_its_volume_its_class_and_its_access_are_kept() -> None:
    made: dict[str, Any] = {
        "metadata": {"name": "data", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "pv", "storageClassName": "new"},
    }

    assert claim_record(msgspec.convert(made, PersistentVolumeClaim)) == ClaimRecord("pv", "old", True)
    del made["metadata"]["annotations"]
    assert claim_record(msgspec.convert(made, PersistentVolumeClaim)) == ClaimRecord("pv", "new", True)


def test_a_dump_with_volumes_is_read_like_the_cluster() -> None:
    world = World()
    claimed = {"metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "pv"}}
    for item in (
        node("a", zone="1"),
        node("b", zone="2"),
        pod("x", "a", cpu="4"),
        pod("y", "b", cpu="4"),
        msgspec.convert(claimed, PersistentVolumeClaim),
        volume({ZONE: ["2"]}),
        storage_class("WaitForFirstConsumer", "1"),
    ):
        world.put(item)

    assert used(world.snapshot) == ["b"]


# -------------------------------------------------------------------- devices of a plugin, and by DRA

GPU = "example.com/gpu"


def mixed(devices: frozenset[str] | None) -> Snapshot:
    """n1 has the device by a plugin, and is small; n2 has it otherwise, and is full of low priority."""
    snapshot = make_snapshot(
        [make_node("n1", 100, **{GPU: 1}), make_node("n2", 500)], [make_pod("victim", "n2", 0, 400)]
    )
    snapshot.apply(PutDevices(devices))
    return snapshot


URGENT = make_pod("P", priority=100, requests={"cpu": 400, GPU: 1})


@pytest.mark.parametrize("devices", [frozenset({GPU}), None])
def test_a_node_without_a_device_plugin_may_have_the_device_otherwise(devices: frozenset[str] | None) -> None:
    assert choices(planned(mixed(devices), ask(URGENT))) == [("n2", {"victim"})]


def test_where_no_device_class_serves_the_resource_a_node_without_it_is_too_small() -> None:
    refusal = refused(mixed(frozenset({"example.com/other"})), ask(URGENT))

    assert refusal.node_reasons == {f"Node too small: {GPU}": 1, "No pods of lower priority": 1}


def test_on_a_node_with_the_device_plugin_its_devices_count() -> None:
    user = make_pod("user", "n1", 0, requests={"cpu": 100, GPU: 1})
    snapshot = make_snapshot([make_node("n1", 500, **{GPU: 1})], [user, make_pod("other", "n1", 0, 100)])
    snapshot.apply(PutDevices(frozenset({GPU})))

    assert choices(planned(snapshot, ask(URGENT))) == [("n1", {"user"})]


def test_what_device_classes_serve_changes_the_next_plan_of_a_class() -> None:
    snapshot = mixed(frozenset())
    refused(snapshot, ask(URGENT))

    snapshot.apply(PutDevices(frozenset({GPU})))
    assert choices(planned(snapshot, ask(URGENT))) == [("n2", {"victim"})]
    snapshot.apply(PutDevices(frozenset()))
    refused(snapshot, ask(URGENT))


def test_a_daemonset_pod_does_not_make_room_for_a_device_that_its_node_may_have_otherwise() -> None:
    policy = Policy(daemon_sets=DaemonSets(enabled=True))
    snapshot = make_snapshot(
        [make_node("n1", 500, **{GPU: 1}), make_node("n2", 500)], [make_pod("v", "n2", 0, 400)], policy=policy
    )
    asked = ask(URGENT, daemonset_node="n2")

    refused(snapshot, asked)
    snapshot.apply(PutDevices(frozenset({GPU})))
    (proposal,) = planned(snapshot, asked).candidates
    assert [one.pod.uid for one in proposal.victims] == ["v"]


def test_a_device_class_serves_its_extended_resource_and_the_one_named_after_it() -> None:
    made = {"metadata": {"name": "gpu.example.com"}, "spec": {"extendedResourceName": GPU}}

    assert served_by(msgspec.convert(made, DeviceClass)) == {
        GPU,
        "deviceclass.resource.kubernetes.io/gpu.example.com",
    }
