"""Files as people have them: rendered charts, scaled workloads, JSON documents in a row, dumps with gaps."""

from typing import Any

import msgspec
import pytest

from makeway.planner.offline.applying import NewPods, applied
from makeway.planner.offline.contents import contents_of
from makeway.planner.offline.dump import world_of
from makeway.planner.offline.manifests import ManifestError, documents
from makeway.planner.offline.results import SimulatedPod
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World
from unit.planner.offline_building import (
    NOW,
    Object,
    dump,
    names,
    node,
    pod,
    priority_class,
    simulated,
    world,
)


def claim(name: str, *, volume: str = "", of: str | None = None) -> Object:
    spec = {"volumeName": volume, "accessModes": ["ReadWriteOnce"], "storageClassName": of}
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def storage_class(name: str, *, waits: bool, default: bool = False) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "volumeBindingMode": mode,
    }


def stateful_set(replicas: int, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c"}], "priority": 9}}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"replicas": replicas, "template": template, **spec},
    }


def create(cluster: World, *objects: Object) -> tuple[NewPods, list[SimulatedPod]]:
    new = applied(cluster, [(objects, "chart.yaml")], "default")
    simulation = Simulation(cluster, NOW, namespace="default")
    return new, list(map(simulation.run, new.pods))


def test_a_charts_classes_budgets_and_claims_count_and_its_other_kinds_are_counted_in_one_note() -> None:
    cluster = world(node("a", "1"), pod("low", "a", priority=0, labels={"app": "low"}))
    keeps = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}, "minAvailable": 1},
    }

    new, (answer,) = create(
        cluster,
        {"kind": "ServiceAccount", "metadata": {"name": "web"}},
        priority_class("shop", 1000),
        keeps,
        pod("web", priorityClassName="shop"),
        {"kind": "Service", "metadata": {"name": "web"}},
        {"kind": "Service", "metadata": {"name": "admin"}},
    )

    assert new.notes == ["skipped, as no plan reads them: 2 Service, 1 ServiceAccount"]
    assert (answer.result, names(answer), answer.pdb_violations) == ("preempts", ["low"], 1)
    assert answer.preemptor.priority == 1000


def test_pods_that_run_already_are_left_as_they_are_and_named() -> None:
    cluster = world(node("a", "4"), pod("db-0", "a", cpu="3", priority=9))

    new, answers = create(cluster, stateful_set(3))

    assert [one.name for one in answers] == ["db-1", "db-2"]
    assert new.notes == ["there already, and left as they are: Pod default/db-0"]


def test_many_pods_that_run_already_are_named_only_in_part() -> None:
    there = [pod(f"db-{number}", "a", cpu="100m", priority=9) for number in range(7)]

    new, answers = create(world(node("a"), *there), stateful_set(7))

    assert answers == []
    assert new.notes[0].endswith("Pod default/db-4 and 2 others")


def test_a_stateful_sets_claims_bind_its_pods_and_new_ones_are_made() -> None:
    in_zone = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]
    }
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {"nodeAffinity": {"required": in_zone}},
    }
    cluster = world(
        node("a", labels={"zone": "y"}),
        node("b", labels={"zone": "x"}, unschedulable=True),
        storage_class("fast", waits=True, default=True),
        claim("data-db-0", volume="disk"),
        volume,
    )
    templates = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]

    new, (bound, fresh) = create(cluster, stateful_set(2, volumeClaimTemplates=templates))

    assert bound.result == "refused"
    assert bound.nodes_excluded == {"Node is cordoned": 1, "Volume is not there": 1}
    assert (fresh.result, fresh.node) == ("fits", "a")
    assert "not judged: attach limits of nodes and capacity of storage, for its volumes" in fresh.warnings
    assert new.notes == ["there already, and left as they are: PersistentVolumeClaim default/data-db-0"]


def test_a_stateful_set_counts_from_its_first_ordinal() -> None:
    contents = contents_of([stateful_set(2, ordinals={"start": 5})], "x")

    assert [one["metadata"]["name"] for one in contents.pods] == ["db-5", "db-6"]


def test_a_new_claim_of_a_class_that_makes_volumes_at_once_is_taken_to_get_one() -> None:
    cluster = world(node("a"), storage_class("slow", waits=False, default=True))
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]

    new, (answer,) = create(cluster, claim("data"), pod("web", volumes=mounted))

    assert answer.result == "fits"
    assert new.notes == ["PersistentVolumeClaim default/data is taken to get a volume that any node can use"]


def test_a_claim_that_is_not_there_is_refused_and_one_of_a_dump_without_claims_is_told() -> None:
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    known = world(node("a"), claim("other", volume="disk"))

    (missing,) = simulated(known, pod("web", volumes=mounted))
    (unknown,) = simulated(world(node("a")), pod("web", volumes=mounted))

    assert missing.diagnosis is not None
    assert (missing.result, missing.diagnosis.reason) == ("refused", "OnlyFiltersKnow")
    assert unknown.result == "fits"
    assert "not judged: PersistentVolumeClaims data: none are in the dump" in unknown.warnings


def test_json_documents_may_follow_one_another_also_with_logs_between_them() -> None:
    pods = {
        "kind": "PodList",
        "items": [{"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "a"}}],
    }
    nodes = {"kind": "NodeList", "items": [{k: v for k, v in node("a").items() if k != "kind"}]}
    of_pod = b"logs for container c of pod d/p ===="
    logs = b"\n==== START " + of_pod + b"\n{ \n==== END " + of_pod + b"\n"

    read, _ = world_of(msgspec.json.encode(nodes) + logs + msgspec.json.encode(pods), "dump")

    assert read.snapshot.node_count == 1
    assert [one.name for one in read.snapshot.pods.values()] == ["p"]
    assert documents('{"kind": "A"}\n\n{"kind": "B"}', "x") == [{"kind": "A"}, {"kind": "B"}]
    assert documents("{kind: A}", "x") == [{"kind": "A"}]


def test_json_that_breaks_off_is_refused() -> None:
    with pytest.raises(ManifestError, match="not YAML"):
        world_of(dump(node("a"))[:-3], "dump.json")


def test_kinds_that_a_dump_lacks_are_told_once() -> None:
    read = world(node("a"), priority_class("high", 1), pod("p", "a"))

    (told,) = read.warnings
    assert told == (
        "none in the dump, so taken not to exist: poddisruptionbudgets, namespaces, limitranges, "
        "runtimeclasses, persistentvolumeclaims, persistentvolumes, storageclasses, "
        "deviceclasses, daemonsets"
    )


def test_without_classes_in_a_dump_a_class_counts_as_its_pods_have_it() -> None:
    cluster = world(node("a", "1"), pod("low", "a", priority=10, priorityClassName="low"))

    over, alike = simulated(cluster, pod("over", priority=11), pod("alike", priorityClassName="low"))

    assert (over.result, names(over)) == ("preempts", ["low"])
    assert alike.preemptor.priority == 10


def test_a_budget_without_a_status_allows_nothing_and_that_is_said() -> None:
    written = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "minAvailable": 1},
    }

    cluster = world(node("a"), pod("w", "a", priority=0, labels={"app": "w"}), written)

    found = cluster.snapshot.budgets.get(("default", "w"))
    assert found is not None
    assert found.allowed == 0
    assert "PodDisruptionBudget default/w has no status, so it allows no disruption here" in cluster.warnings
