"""Pod groups on the real control plane: a group of mode all is evicted whole or not at all.

The API server serves PodGroups; kube-scheduler itself takes no notice of them.
"""

from datetime import datetime
from typing import Literal, TypeAlias

import pytest

from integration.arming import KILL, Crashes
from integration.asking import run
from integration.builders import PodBuilder, make_node
from integration.cluster import RunningCluster
from integration.configuring import NO_LIMITS, put_queues
from integration.crashing import RECOVERY_SECONDS
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.ganging import in_group, pod_group
from integration.pod_groups import form
from integration.preempting import (
    assert_only_ordered_pods_were_deleted,
    assert_stays_pending,
    ordered,
    outcome_of_order,
    run_victims,
    sized,
)
from integration.queueing import queue, queues_yaml, quota_orders, until_ended
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.bus.messages import Outcome
from makeway.core.k8s.disruption import DISRUPTION_TARGET
from makeway.core.k8s.objects import Pod
from makeway.dev.binaries import KUBERNETES
from makeway.dev.options import EVICTOR

Mode: TypeAlias = Literal["all", "single"]

OF_WORKLOAD = {"workloadRef": {"workloadName": "job", "templateName": "part"}}
"""A group with a parent has to name the template of a Workload, which need not exist."""

MEMBERS = ("a", "b", "c")


@pytest.fixture
def cluster(group_cluster: RunningCluster) -> RunningCluster:
    """Run them with PodGroups."""
    return group_cluster


async def group(
    space: Space, name: str, mode: Mode, priority_class: str = "low", *, parent: str = ""
) -> None:
    await pod_group(
        space,
        name,
        schedulingPolicy={"basic": {}},
        disruptionMode=form().whole if mode == "all" else form().single,
        priorityClassName=priority_class,
        **({"parentCompositePodGroupName": parent, **OF_WORKLOAD} if parent else {}),
    )


async def tree(space: Space, name: str, mode: Mode, parent: str = "") -> None:
    """Create a CompositePodGroup."""
    version = "scheduling.k8s.io/v1alpha3"
    await space.post(
        f"/apis/{version}/namespaces/{space.namespace}/compositepodgroups",
        {
            "apiVersion": version,
            "kind": "CompositePodGroup",
            "metadata": {"name": name},
            "spec": {
                **({"parentCompositePodGroupName": parent} if parent else {}),
                **OF_WORKLOAD,
                "schedulingPolicy": {"basic": {}},
                "disruptionMode": {mode: {}},
                "priorityClassName": "low",
            },
        },
    )


def member(name: str, cpu: int, node: str, group_name: str = "train") -> PodBuilder:
    return sized(name, "low", cpu).on(node).spec(**in_group(group_name))


async def train(space: Space) -> None:
    """Run pods a, b and c of group train on n1, n2 and n3, of which only a's room is enough for another."""
    await space.add_nodes(*(make_node(name).cpu("500m") for name in ("n1", "n2", "n3")))
    await group(space, "train", "all")
    await run_victims(
        space,
        member("a", 500, "n1"),
        member("b", 200, "n2").label(*UNDELETABLE),
        member("c", 200, "n3").label("app", "c"),
        *(sized(f"h-{node}", "high", 300).on(node) for node in ("n2", "n3")),
    )


async def test_a_lowered_quota_takes_a_group_of_mode_all_in_one_order_and_spares_pods_beside_it(
    cluster: RunningCluster, space: Space
) -> None:
    path = f"root.{space.namespace}"
    await space.add_nodes(*(make_node(name).cpu(10) for name in ("n1", "n2", "n3")))
    await group(space, "train", "all")
    await run_victims(
        space,
        *(member(name, 4000, node) for name, node in zip(MEMBERS, ("n1", "n2", "n3"), strict=True)),
        *(sized(f"single-{number}", "low", 1000).on("n1") for number in range(3)),
    )

    try:
        await put_queues(cluster, queues_yaml(queue(space.namespace, max=5, delay="1s")))
        await until_ended(cluster, path, "success", 3)
    finally:
        await put_queues(cluster, NO_LIMITS)

    (order,) = await quota_orders(space, path)
    assert {one.name for one in order.victims} == set(MEMBERS)
    assert {one.unit for one in order.victims} == {f"PodGroup {space.namespace}/train"}
    (outcome,) = await space.bus.outcomes(order.order_id)
    assert {one.name: one.result for one in outcome.victims} == dict.fromkeys(MEMBERS, "deleted")
    assert set(await space.pods()) >= {"single-0", "single-1", "single-2"}
    assert not {name for name, pod in (await space.pods()).items() if name in MEMBERS and not leaves(pod)}


def leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


async def test_a_group_of_mode_all_is_evicted_with_its_pods_on_other_nodes(space: Space) -> None:
    await train(space)
    await group(space, "other", "all")
    await run_victims(space, member("o", 50, "n2", "other"), sized("plain", "low", 50).on("n3"))

    preemptor = await ordered(space, sized("urgent", "high", 500))

    assert await space.until_bound("urgent") == "n1"
    order, outcome = await outcome_of_order(space, preemptor)
    assert {(one.name, space.short(one.node)) for one in order.victims} == {
        ("a", "n1"),
        ("b", "n2"),
        ("c", "n3"),
    }
    assert {one.unit for one in order.victims} == {f"PodGroup {space.namespace}/train"}
    assert {one.name: one.result for one in outcome.victims} == dict.fromkeys(MEMBERS, "deleted")
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
    assert {"o", "plain"} <= {name for name, pod in (await space.pods()).items() if stays(pod)}
    _, text, error = await run(space.cluster, "why", order.order_id)
    assert f"evicts group {space.namespace}/train: 3 pods on 3 nodes" in text, error


# ------------------------------------------------- what has changed between the plan and the first delete


async def test_an_admission_policys_no_to_one_pod_keeps_the_whole_unit(space: Space) -> None:
    await train(space)

    async with deletes_refused(space, "b"):
        preemptor = await ordered(space, sized("urgent", "high", 500))
        _, outcome = await outcome_of_order(space, preemptor)

        assert (outcome.result, outcome.reason) == ("failed", "delete-refused")
        assert "this pod may not be deleted" in told(outcome)
        await assert_stays_pending(space, "urgent")
    assert by_evictors(space) == {}
    await until("no pod is marked", lambda: unmarked(space))


@pytest.mark.parametrize(
    ("point", "hit"),
    [pytest.param("evictor.after-mark", 2, marks=pytest.mark.wide), ("evictor.after-delete", 1)],
)
async def test_a_unit_goes_whole_though_its_evictor_dies_in_the_middle(
    cluster: RunningCluster, space: Space, point: str, hit: int
) -> None:
    await train(space)

    async with Crashes(cluster, EVICTOR).at(point, KILL, hit=hit) as crashed:
        preemptor = await ordered(space, sized("urgent", "high", 500))
        await crashed()

    assert await space.until_bound("urgent", seconds=RECOVERY_SECONDS) == "n1"
    assert len(await space.bus.orders(preemptor.metadata.uid)) == 1
    await assert_only_ordered_pods_were_deleted(space, [preemptor])
    assert set(by_evictors(space)) == set(MEMBERS)


# ----------------------------------------------------------------------------------------- bad input


async def test_a_unit_goes_whole_though_its_pods_are_above_their_group(space: Space) -> None:
    space.judged = False  # the checker does not know priorities of groups
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await group(space, "train", "all", "low")
    await run_victims(
        space,
        sized("a", "high", 500).on("n1").spec(**in_group("train")),
        sized("b", "high", 200).on("n2").spec(**in_group("train")),
        sized("h", "high", 300).on("n2"),
    )

    preemptor = await ordered(space, sized("urgent", "mid", 500))

    assert await space.until_bound("urgent") == "n1"
    _, outcome = await outcome_of_order(space, preemptor)
    assert {one.name: one.result for one in outcome.victims} == {"a": "deleted", "b": "deleted"}


@pytest.mark.skipif(KUBERNETES.name != "1.37", reason="CompositePodGroups are of Kubernetes 1.37")
async def test_the_highest_group_of_mode_all_goes_whole(space: Space) -> None:
    await space.add_nodes(*(make_node(name).cpu("500m") for name in ("n1", "n2", "n3")))
    await tree(space, "root", "single")
    await tree(space, "job", "all", "root")
    await group(space, "workers", "single", parent="job")
    await group(space, "drivers", "single", parent="job")
    await group(space, "others", "single", parent="root")
    await run_victims(
        space,
        member("a", 500, "n1", "workers"),
        member("b", 200, "n2", "drivers"),
        member("c", 200, "n3", "others"),
        *(sized(f"h-{node}", "high", 300).on(node) for node in ("n2", "n3")),
    )

    preemptor = await ordered(space, sized("urgent", "high", 500))

    assert await space.until_bound("urgent") == "n1"
    order, _ = await outcome_of_order(space, preemptor)
    assert {one.name for one in order.victims} == {"a", "b"}
    assert {one.unit for one in order.victims} == {f"CompositePodGroup {space.namespace}/job"}
    assert stays((await space.pods()).get("c"))


def stays(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is None


def told(outcome: Outcome) -> str:
    return outcome.message + " ".join(one.message for one in outcome.victims)


def by_evictors(space: Space) -> dict[str, datetime]:
    """Return when an evictor deleted or evicted which pod of the space."""
    return {
        event.name: event.at
        for event in space.audit.events(namespace=space.namespace)
        if event.removes_pod and event.accepted and "evictor" in event.user
    }


async def unmarked(space: Space) -> bool:
    pods = await space.pods()
    for name in MEMBERS:
        if any(one.type == DISRUPTION_TARGET for one in pods[name].status.conditions or ()):
            raise NotYet(f"{name} is marked")
    return True
