"""Quota orders: victims on many nodes, each judged and evicted by itself."""

from collections.abc import Callable

import msgspec
import pytest

from makeway.bus.messages import EvictionOrder, Fence, Preemptor, Victim
from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.mode import Mode
from makeway.evictor.judge import decide
from makeway.runtime.config import ConfigContent
from narrowing import there
from unit.evictor.building import (
    CLUSTER,
    EPOCH,
    NOW,
    QUEUES_YAML,
    a_pod,
    make_order,
    make_preemptor,
    make_victim,
)
from unit.evictor.fakes import FORBIDDEN, UNAVAILABLE
from unit.evictor.test_daemonset_victims import logs, owned
from unit.evictor.test_service import World, results, running


def quota_order(
    *victims: str | Victim, preemptor: Preemptor | None = None, queue: str = "root.default"
) -> EvictionOrder:
    order = make_order(
        *victims,
        kind="quota",
        queue=queue,
        preemptor=preemptor,
        node="",
        node_uid="",
        fence=Fence(kind="lease", namespace="makeway-system", name="makeway-planner", epoch=EPOCH),
    )
    return msgspec.structs.replace(order, awaited=())


async def test_all_victims_go_whatever_nodes_they_are_on() -> None:
    world = World(a_pod("a").on("node-x").build(), a_pod("b").on("node-y").build())

    outcome = await world.carry_out(quota_order("a", "b"))

    assert (outcome.result, outcome.kind, outcome.queue) == ("succeeded", "quota", "root.default")
    assert sorted(world.cluster.deletes()) == ["a", "b"]
    assert world.cluster.is_marked("a")
    notes = [event.note for event in world.recorded]
    assert notes == ["Preempted since queue root.default is above its maximum"] * 2


async def test_one_that_may_not_go_keeps_neither_the_others_nor_its_mark() -> None:
    world = World(*running("a", "b", "c"), a_pod("mirror").mirror().build())
    world.cluster.always_fail("delete", "b", FORBIDDEN)

    outcome = await world.ends(
        quota_order("a", "b", "mirror", "c"),
        "failed",
        "incomplete",
        says="2 of 4",
        victims={"a": "deleted", "b": "failed", "mirror": "spared", "c": "deleted"},
    )

    assert there(outcome.rollback).conditions_cleared == ("b-uid",)
    assert not world.cluster.is_marked("b")


async def test_pods_that_left_meanwhile_count_as_gone() -> None:
    world = World(a_pod("leaving").terminating().build(), a_pod("other").uid("other-second-uid").build())

    await world.ends(
        quota_order("leaving", "other", "absent"),
        "succeeded",
        deletes=[],
        victims={"leaving": "terminating", "other": "gone", "absent": "gone"},
    )


async def test_an_order_of_a_deposed_planner_is_refused_before_anybody_goes() -> None:
    world = World(*running("a"))
    order = msgspec.structs.replace(
        quota_order("a"),
        fence=Fence(kind="lease", namespace="makeway-system", name="makeway-planner", epoch=1),
    )

    await world.ends(order, "refused", "stale-epoch", deletes=[])


async def test_a_planner_that_is_deposed_meanwhile_evicts_no_more() -> None:
    world = World(*running(*"abcdefghijklmnopqrstuvwxyz"))

    def depose() -> None:
        world.cluster.epoch = None

    world.cluster.before("delete", "c", depose)
    outcome = await world.ends(quota_order(*"abcdefghijklmnopqrstuvwxyz"), "refused", "fence-missing")

    assert 0 < len(world.cluster.deletes()) < 26
    assert {"notAttempted", "deleted"} == set(results(outcome).values())


async def test_what_is_temporary_is_tried_again_beside_the_others() -> None:
    world = World(*running("a", "b"))
    world.cluster.fail("delete", "a", UNAVAILABLE, UNAVAILABLE)

    outcome = await world.ends(quota_order("a", "b"), "succeeded")

    assert {victim.name: victim.attempts for victim in outcome.victims} == {"a": 3, "b": 1}


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_outside_enforce_nobody_goes(mode: Mode) -> None:
    world = World(*running("a"), mode=mode)

    await world.ends(quota_order("a"), "refused", f"mode-{mode}")

    assert not world.cluster.marks()


async def test_the_policy_of_the_moment_protects_a_victim() -> None:
    world = World(*running("a"))
    world.policy = Policy(protection=Protection(namespaces=("default",)))

    outcome = await world.ends(quota_order("a"), victims={"a": "spared"})

    assert outcome.victims[0].reason == "protected-namespace"


def test_the_pod_of_a_daemonset_is_spared() -> None:
    verdict = decide.judge_for_quota(
        make_victim("a"), owned(a_pod("a").build()), Protection(), lambda _: None
    )

    assert getattr(verdict, "reason", "") == "daemonset-pod"


@pytest.mark.parametrize("proven", [True, False])
async def test_a_pod_that_says_it_is_a_daemonsets_is_spared_where_that_is_proven(proven: bool) -> None:
    pod = owned(a_pod("a").build())
    world = World(pod)
    if proven:
        world.cluster.daemonsets["default", "logs"] = logs(pod)

    await world.ends(quota_order("a"), victims={"a": "spared" if proven else "deleted"})


@pytest.mark.parametrize("order", [quota_order("a", queue=""), quota_order("a", preemptor=make_preemptor())])
def test_a_quota_order_needs_a_queue_and_has_no_preemptor(order: EvictionOrder) -> None:
    stop = decide.admit(order, cluster_uid=CLUSTER, now=NOW)

    assert getattr(stop, "reason", "") == "incomplete-order"


# ------------------------------------------------------------------------ what queues.yaml says itself


async def refused_by_the_queues(world: World, order: EvictionOrder) -> tuple[str, str]:
    """The reason and the message of an order that nothing was deleted or marked for."""
    outcome = await world.ends(order, "refused", deletes=[])

    assert not world.cluster.marks()
    sample = "makeway_evictor_orders_total"
    labels = {"result": "refused", "reason": outcome.reason}
    assert world.registry.get_sample_value(sample, labels) == 1
    return outcome.reason, outcome.message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda world: world.queues.withdraw("ConfigMap a/b"), "there is no configuration of queues"),
        (lambda world: setattr(world, "queues_trouble", "a/b: 403 Forbidden"), "a/b: 403 Forbidden"),
    ],
    ids=["there is none", "it may not be read"],
)
async def test_without_queues_that_were_ever_read_no_pod_goes_for_a_quota(
    change: Callable[[World], object], says: str
) -> None:
    world = World(*running("a"), queues_read=False)
    change(world)

    assert await refused_by_the_queues(world, quota_order("a")) == ("queues-not-read", says)


SWITCHED_OFF = QUEUES_YAML.replace("enabled: true", "enabled: false")


@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        (
            lambda world: world.queues.offer(ConfigContent("q", "partitions: 7")),
            "queues-not-read",
            "are refused: ",
        ),
        (lambda world: world.queues.offer(ConfigContent("q", None)), "queues-not-read", "are refused: "),
        (lambda world: world.queues.withdraw("ConfigMap a/b"), "queues-not-read", "are gone: "),
        (
            lambda world: world.queues.offer(ConfigContent("q", SWITCHED_OFF)),
            "quota-not-enforced",
            "quotapreemption",
        ),
    ],
    ids=["malformed", "no text", "deleted", "switched off"],
)
async def test_no_pod_goes_by_queues_that_say_nothing_of_quotas_any_more(
    change: Callable[[World], object], reason: str, says: str
) -> None:
    world = World(*running("a"))
    change(world)

    found, message = await refused_by_the_queues(world, quota_order("a"))

    assert found == reason
    assert says in message


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("root.nowhere", "there is no queue root.nowhere"),
        ("root.nolimit", "root.nolimit has no max"),
        ("root.nodelay", "root.nodelay has no quota.preemption.delay"),
        ("root", "root has no max"),
    ],
)
async def test_no_pod_goes_for_a_queue_whose_quota_is_not_enforced(queue: str, why: str) -> None:
    world = World(a_pod("a").in_queue(queue).build())

    reason, message = await refused_by_the_queues(world, quota_order("a", queue=queue))

    assert (reason, message) == ("quota-not-enforced", f"no pod is evicted for the quota of {queue}: {why}")


async def test_a_pod_of_another_queue_is_spared() -> None:
    world = World(a_pod("below").in_queue("root.team.a").build(), *running("elsewhere"))

    outcome = await world.ends(
        quota_order("below", "elsewhere", queue="root.team"),
        "failed",
        "incomplete",
        says="the pod is in root.default, the order is for root.team",
        victims={"below": "deleted", "elsewhere": "spared"},
    )

    assert {victim.reason for victim in outcome.victims} == {"", "not-in-queue"}


async def test_a_pod_that_names_a_queue_it_may_not_use_counts_where_the_planner_counts_it() -> None:
    held, counted = World(a_pod("a").in_queue("nonsense").build()), World(a_pod("a").in_queue("x").build())
    text = QUEUES_YAML.replace("preemption:", "unplaced: default\n    preemption:")
    counted.queues.offer(ConfigContent("queues.yaml", text))

    refused, outcome = [await world.carry_out(quota_order("a")) for world in (held, counted)]

    assert "the pod is in root.@unplaced" in refused.message
    assert results(outcome) == {"a": "deleted"}


async def test_a_pod_that_asks_for_nothing_limited_is_spared() -> None:
    world = World(a_pod("a").in_queue("root.gpu").build())

    outcome = await world.ends(quota_order("a", queue="root.gpu"), "refused", "victim-spared")

    assert outcome.victims[0].reason == "not-limited"


@pytest.mark.parametrize("namespace", ["kube-system", "makeway-system"])
async def test_a_pod_of_a_namespace_that_queues_never_hold_is_spared(namespace: str) -> None:
    world = World(a_pod("a").namespace(namespace).build())

    outcome = await world.ends(
        quota_order(make_victim("a", namespace=namespace)), "refused", "victim-spared", deletes=[]
    )

    assert outcome.victims[0].reason == "exempt-namespace"


async def test_queues_that_change_meanwhile_stop_what_has_not_begun() -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    world = World(*running(*names))
    lifted = QUEUES_YAML.replace("{max: {pods: 1}, quota.preemption.delay: 60}", "{}", 1)
    world.cluster.before("delete", "c", lambda: world.queues.offer(ConfigContent("queues.yaml", lifted)))

    await world.ends(quota_order(*names), "refused", "quota-not-enforced")

    assert 0 < len(world.cluster.deletes()) < 26


async def test_queues_that_cannot_be_read_for_a_moment_only_delay_an_order() -> None:
    world = World(*running("a"))
    world.queues_trouble = "cut"
    world.cluster.before("read_brake", "", lambda: None)
    world.cluster.before("read_brake", "", lambda: setattr(world, "queues_trouble", ""))

    await world.ends(quota_order("a"), "succeeded")


async def test_orders_of_pods_do_not_depend_on_queues() -> None:
    world = World(*running("a"))
    world.queues.withdraw("ConfigMap makeway-system/makeway-queues")

    await world.ends(make_order("a"), "succeeded")
