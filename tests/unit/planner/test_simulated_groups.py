"""A PodGroup of a file: whether its pods have room together, and who would go for them."""

from typing import Any

import pytest

from makeway.core.policy.document import GroupPreemptors, Groups, Policy
from makeway.planner.offline.contents import contents_of, group_named
from makeway.planner.offline.manifests import ManifestError, NewPod
from makeway.planner.offline.results import SimulatedGroup
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World
from narrowing import there
from unit.planner.offline_building import NOW, Object, node, pod, priority_class, world


def group(name: str = "train", least: int = 2, **spec: Any) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}, "priority": 1000, **spec},
    }


def members(count: int, cpu: str = "4", name: str = "train") -> list[Object]:
    return [
        pod(f"{name}-{n}", cpu=cpu, priority=1000, schedulingGroup={"podGroupName": name})
        for n in range(count)
    ]


def simulated(cluster: World, manifest: Object, pods: list[Object]) -> SimulatedGroup:
    simulation = Simulation(cluster, NOW, namespace="default")
    return simulation.run_group(manifest, [NewPod(one, "pods.yaml") for one in pods], "pods.yaml")


def test_a_group_takes_the_pods_that_cost_least_together() -> None:
    small = [pod(f"small{n}", "a", priority=0) for n in range(4)]
    cluster = world(
        *(node(name) for name in "abc"),
        *small,
        pod("x", "b", cpu="4", priority=0),
        pod("y", "c", cpu="4", priority=0),
    )

    answer = simulated(cluster, group(), members(2))

    assert (answer.result, {one.name for one in answer.victims}) == ("preempts", {"x", "y"})
    assert {one.node for one in answer.members} == {"b", "c"}
    assert answer.price is not None
    assert answer.price.victims == 2
    assert {one.node for one in cluster.snapshot.pods.values() if one.name.startswith("train")} == {"b", "c"}


@pytest.mark.parametrize(
    ("version", "preemptors", "says"),
    [("v1beta1", "hold", "groups.preemptors"), ("v1alpha2", "upstream", "Kubernetes 1.36")],
)
def test_nothing_is_evicted_for_a_group_for_which_no_room_is_made(
    version: str, preemptors: GroupPreemptors, says: str
) -> None:
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=0))
    cluster.enforce(Policy(groups=Groups(preemptors=preemptors)), "rev")
    manifest = group(least=1) | {"apiVersion": f"scheduling.k8s.io/{version}"}

    answer = simulated(cluster, manifest, members(1))

    assert (answer.result, answer.victims) == ("refused", ())
    assert answer.diagnosis is not None
    assert says in answer.diagnosis.message
    assert "uid-x" in cluster.snapshot.pods


def test_a_group_that_has_room_takes_no_pod() -> None:
    answer = simulated(world(node("a"), node("b")), group(), members(2))

    assert (answer.result, answer.victims, answer.price) == ("fits", (), None)


def test_members_that_are_nominated_do_not_stand_in_one_anothers_way() -> None:
    pending = members(2)
    for one, name in zip(pending, "ab", strict=True):
        one["status"] = {"nominatedNodeName": name}
    cluster = world(node("a"), node("b"), *pending)

    answer = simulated(cluster, group(), members(2))

    assert (answer.result, {one.node for one in answer.members}) == ("fits", {"a", "b"})


def test_a_group_of_more_kinds_than_a_scheduler_asks_about_has_no_plan() -> None:
    cluster = world(node("a", cpu="64"), pod("x", "a", cpu="64", priority=0))
    pods = [one for n in range(17) for one in members(1, cpu=f"{n + 1}00m", name=f"kind-{n}")]
    for one in pods:
        one["spec"]["schedulingGroup"] = {"podGroupName": "train"}

    fewer = simulated(world(node("a", cpu="64"), pod("x", "a", cpu="64", priority=0)), group(), pods[1:])
    answer = simulated(cluster, group(), pods)

    assert (fewer.result, answer.result) == ("preempts", "refused")
    assert "16 kinds" in there(answer.diagnosis).message


def test_a_group_waits_for_a_pod_elsewhere_that_keeps_its_rack_closed_until_it_has_left() -> None:
    rack = {"example.com/rack": "r1"}
    leaving = pod("x", "b", labels={"job": "old"})
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T12:00:20Z", "deletionGracePeriodSeconds": 30}
    cluster = world(node("a", labels=rack), node("b", labels=rack, unschedulable=True), leaving)
    apart = {"topologyKey": "example.com/rack", "labelSelector": {"matchLabels": {"job": "old"}}}
    asked = members(1)
    asked[0]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    }

    answer = simulated(cluster, group(least=1), asked)

    assert (answer.result, [one.name for one in answer.awaited]) == ("waits", ["x"])


def test_a_group_without_room_stays_pending_and_no_pod_goes() -> None:
    cluster = world(node("a"), node("b"), pod("x", "a", cpu="4", priority=0))

    answer = simulated(cluster, group(least=3), members(3))

    assert answer.result == "refused"
    assert answer.diagnosis is not None
    assert answer.diagnosis.reason == "NotEnoughRoom"
    assert [one.node for one in answer.members] == [None, None, None]
    assert "uid-x" in cluster.snapshot.pods


def test_the_priority_of_a_group_comes_from_its_class() -> None:
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=5), priority_class("high", 1000))
    manifest = group(least=1, priority=None, priorityClassName="high")

    answer = simulated(cluster, manifest, members(1))

    assert (answer.priority, answer.result) == (1000, "preempts")


def test_a_group_of_lower_priority_than_its_pods_takes_none_above_its_own() -> None:
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=5))

    answer = simulated(cluster, group(least=1, priority=1), members(1))

    assert answer.result == "refused"
    assert any("another priority" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    ("of_group", "of_pods", "result"),
    [
        ("Never", "PreemptLowerPriority", "refused"),
        ("PreemptLowerPriority", "Never", "preempts"),
        (None, "Never", "refused"),
    ],
)
def test_the_preemption_policy_of_a_group_counts_before_that_of_its_pods(
    of_group: str | None, of_pods: str, result: str
) -> None:
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=5))
    asking = members(1)
    asking[0]["spec"]["preemptionPolicy"] = of_pods

    answer = simulated(cluster, group(least=1, preemptionPolicy=of_group), asking)

    assert answer.result == result
    if answer.diagnosis is not None:
        assert answer.diagnosis.reason == "PreemptionPolicyNever"


@pytest.mark.parametrize(
    ("of_others", "of_class", "of_pods", "result"),
    [
        (None, "Never", "PreemptLowerPriority", "refused"),
        ("", "Never", "PreemptLowerPriority", "preempts"),
        ("Never", "Never", "PreemptLowerPriority", "refused"),
        (None, "PreemptLowerPriority", "Never", "refused"),
        ("", "PreemptLowerPriority", "Never", "refused"),
        ("Never", "PreemptLowerPriority", "Never", "preempts"),
    ],
)
def test_the_preemption_policy_of_a_group_comes_from_its_class_where_the_cluster_keeps_those_of_groups(
    of_others: str | None, of_class: str, of_pods: str, result: str
) -> None:
    """`of_others`: what the group has that is there; None where there is none to tell whether it is kept."""
    others = [] if of_others is None else [group("other", preemptionPolicy=of_others or None)]
    high = priority_class("high", 1000, preemptionPolicy=of_class)
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=5), high, *others)
    asking = members(1)
    asking[0]["spec"]["preemptionPolicy"] = of_pods

    answer = simulated(cluster, group(least=1, priority=None, priorityClassName="high"), asking)

    assert answer.result == result
    if answer.diagnosis is not None:
        assert answer.diagnosis.reason == "PreemptionPolicyNever"


def test_the_preemption_policy_of_a_group_does_not_count_where_the_cluster_keeps_none() -> None:
    cluster = world(node("a"), pod("x", "a", cpu="4", priority=5), group("other"))

    assert simulated(cluster, group(least=1, preemptionPolicy="Never"), members(1)).result == "preempts"


def test_a_group_whose_preemption_policy_is_not_that_of_its_class_is_refused_with_a_reason() -> None:
    cluster = world(node("a"), priority_class("high", 1000, preemptionPolicy="PreemptLowerPriority"))
    manifest = group(least=1, priority=None, priorityClassName="high", preemptionPolicy="Never")

    with pytest.raises(ManifestError, match="preemptionPolicy is Never, and its PriorityClass says"):
        simulated(cluster, manifest, members(1))


def test_members_stay_within_a_domain() -> None:
    cluster = world(*(node(name, labels={"rack": name[0]}) for name in ("x1", "y1", "y2")))
    manifest = group(schedulingConstraints={"topology": [{"key": "rack"}]})

    answer = simulated(cluster, manifest, members(2))

    assert answer.domains == {"rack": "y"}


@pytest.mark.parametrize(
    ("manifest", "pods", "problem"),
    [
        (group(), [], "no pod names PodGroup"),
        (group(priority=None, priorityClassName="none"), members(1), "no PriorityClass none"),
        (group(parentCompositePodGroupName="whole"), members(1), "part of a CompositePodGroup"),
        (group(schedulingConstraints={"topology": [{}]}), members(1), "PodGroup train"),
        ({"kind": "PodGroup"}, members(1), "no metadata.name"),
    ],
)
def test_a_group_that_cannot_be_read_is_refused_with_a_reason(
    manifest: Object, pods: list[Object], problem: str
) -> None:
    with pytest.raises(ManifestError, match=problem):
        simulated(world(node("a")), manifest, pods)


def test_groups_are_found_among_documents_and_lists() -> None:
    found = [group(), {"kind": "List", "items": [group("other"), *members(1)]}]

    contents = contents_of(found, "pods.yaml")
    assert [one["metadata"]["name"] for one in contents.groups] == ["train", "other"]
    assert [group_named(one) for one in contents.pods] == ["train"]


def test_a_class_that_a_dump_lacks_has_its_pods_own_priority_not_that_of_their_group() -> None:
    there = world(
        node("a"),
        {**group(priority=7), "metadata": {"name": "train", "namespace": "default", "uid": "train"}},
        pod("x", "a", priority=3, priorityClassName="told", schedulingGroup={"podGroupName": "train"}),
    )

    there.classes_of_pods()

    assert there.snapshot.priority_classes["told"].value == 3
    (entered,) = there.snapshot.pods.values()
    assert entered.priority == 7


def test_a_resource_that_no_node_offers_is_a_refusal() -> None:
    manifest = members(1)
    container = manifest[0]["spec"]["containers"][0]
    container["resources"] = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}

    answer = simulated(world(node("a")), group(least=1), manifest)

    assert answer.result == "refused"
    assert answer.diagnosis is not None
    assert answer.diagnosis.message == "no node offers nvidia.com/gpu"
