"""Victims on nodes that no member comes to: each shares the domain that it keeps closed with a member."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from makeway.bus.messages import ClosedDomain, EvictionOrder, Victim
from makeway.core.k8s.objects import (
    Affinity,
    LabelSelector,
    Metadata,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
)
from makeway.core.policy.document import CrossNode, Policy
from makeway.evictor.limits.breaker import NEVER_ORDERED
from unit.evictor.building import changed, make_order, make_victim
from unit.evictor.test_group_orders import VICTIMS, GroupWorld, group_order, on, trainer
from unit.evictor.test_group_orders import running as running_pod
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, results

RACK = "example.com/rack"
CLOSED = ClosedDomain(rule="podAntiAffinity", key=RACK, value="r1")
BLOCKER = on("d", "n3", closes=CLOSED)
ORDER = group_order(*VICTIMS, BLOCKER)
OLD = {"job": "old"}


def running(name: str, node: str) -> Pod:
    """A pod that the group's anti-affinity keeps away from."""
    return changed(running_pod(name, node), "metadata", labels=OLD)


def keeps_away(pod: Pod, labels: dict[str, str] | None = None, **more: Any) -> Pod:
    """The pod with anti-affinity by rack to pods with some labels, else to those of the old job."""
    term = PodAffinityTerm(topology_key=RACK, label_selector=LabelSelector(match_labels=labels or OLD))
    anti = PodAffinity(required=(replace(term, **more),))
    return changed(pod, "spec", affinity=Affinity(pod_anti_affinity=anti))


def rack(world: GroupWorld, name: str, value: str | None) -> None:
    labels = {} if value is None else {RACK: value}
    world.cluster.nodes[name] = Node(metadata=Metadata(name=name, uid=f"{name}-uid", labels=labels))


def closed_world(*more: Any) -> GroupWorld:
    """Node n1, which a member waits for, and n3, where d runs, are in one rack; n2 is in another."""
    world = GroupWorld(running("d", "n3"), *more)
    for number in (1, 2):
        world.cluster.put(keeps_away(trainer(number)))
    for name, value in (("n1", "r1"), ("n2", "r2"), ("n3", "r1")):
        rack(world, name, value)
    return world


def no_node(world: GroupWorld) -> None:
    del world.cluster.nodes["n3"]


CHANGES: dict[str, Callable[[GroupWorld], None]] = {
    "its node is in another rack": lambda world: rack(world, "n3", "r2"),
    "its node is in a rack of no member": lambda world: rack(world, "n3", "r3"),
    "its node is in no rack": lambda world: rack(world, "n3", None),
    "its node is gone": no_node,
    "the member's node is in another rack": lambda world: rack(world, "n1", "r2"),
    "the member's node is in no rack": lambda world: rack(world, "n1", None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_nothing_goes_where_a_victim_shares_no_domain(change: Callable[[GroupWorld], None]) -> None:
    world = closed_world()
    change(world)

    await world.ends(ORDER, "cancelled", "members-missing")

    assert world.cluster.deletes() == world.cluster.marks() == []


async def test_a_member_that_does_not_wait_any_more_opens_no_domain() -> None:
    world = closed_world()
    world.cluster.put(changed(world.cluster.pods["train-1"], "spec", node_name="n1"))

    outcome = await world.ends(
        group_order(on("c", "n2"), BLOCKER, must_place=1), "cancelled", "members-missing", deletes=[]
    )

    assert outcome.message == (
        "node n3 is not in example.com/rack=r1 any more, or no member waits for a node there"
    )


async def test_a_label_that_moves_before_the_first_delete_keeps_all() -> None:
    world = closed_world()
    world.cluster.before("dry_run", "c", lambda: rack(world, "n3", "r2"))
    world.cluster.slow["dry_run", "d"] = 5

    await world.ends(ORDER, "cancelled", "members-missing", deletes=[])


def without_label(world: GroupWorld) -> None:
    world.cluster.put(changed(world.cluster.pods["d"], "metadata", labels={"job": "web"}))


def of_another_namespace(world: GroupWorld) -> None:
    for number in (1, 2):
        world.cluster.put(keeps_away(trainer(number), namespaces=("elsewhere",)))


def another_selector(world: GroupWorld) -> None:
    world.cluster.put(keeps_away(trainer(1), {"job": "web"}))


STILL: dict[str, Callable[[GroupWorld], None]] = {
    "its label is gone": without_label,
    "the members keep away from pods of another namespace": of_another_namespace,
    "the member of its rack keeps away from other pods": another_selector,
    "the member of its rack keeps away from none": lambda world: world.cluster.put(trainer(1)),
}


@pytest.mark.parametrize("change", STILL.values(), ids=STILL)
async def test_a_pod_that_keeps_no_domain_closed_any_more_is_spared_and_the_outcome_says_why(
    change: Callable[[GroupWorld], None],
) -> None:
    world = closed_world()
    change(world)

    outcome = await world.ends(ORDER, "refused", "victim-spared")

    (spared,) = [one for one in outcome.victims if one.reason]
    assert (spared.name, spared.reason) == ("d", "closes-nothing")
    assert outcome.message.endswith("it does not keep example.com/rack=r1 closed to the group any more"), (
        outcome.message
    )
    assert world.cluster.deletes() == []


async def test_a_pod_that_is_relabelled_while_others_of_its_order_go_stays() -> None:
    world = closed_world()
    world.cluster.before("delete", "a", lambda: without_label(world))

    outcome = await world.ends(ORDER, reason="victim-spared")

    assert (results(outcome)["a"], results(outcome)["d"]) == ("deleted", "spared")
    assert "d" not in world.cluster.deletes()


@pytest.mark.parametrize(("label", "result"), [("train", "succeeded"), ("web", "refused")])
async def test_a_pod_with_anti_affinity_goes_while_that_keeps_a_member_away(label: str, result: str) -> None:
    world = closed_world()
    world.cluster.put(keeps_away(running("d", "n3"), {"job": "train"}))
    world.cluster.put(changed(trainer(1), "metadata", labels={"job": label}))
    closes = replace(CLOSED, rule="existingPodAntiAffinity")

    await world.ends(group_order(*VICTIMS, replace(BLOCKER, closes=closes)), result)


async def test_namespaces_that_a_term_selects_by_labels_count_as_they_did_for_the_plan() -> None:
    world = closed_world()
    chosen = LabelSelector(match_labels={"team": "a"})
    world.cluster.put(keeps_away(trainer(1), namespace_selector=chosen))

    await world.ends(ORDER, "succeeded")


async def test_a_member_that_the_group_can_do_without_leaves_and_the_pod_in_its_place_still_goes() -> None:
    world = closed_world()
    world.cluster.put(keeps_away(trainer(3)))
    del world.cluster.pods["train-3"]

    await world.ends(
        group_order(*VICTIMS, BLOCKER, count=3, must_place=2),
        "succeeded",
        victims=dict.fromkeys("abcd", "deleted"),
    )


async def test_victims_for_closed_domains_on_nodes_of_members_are_not_bounded() -> None:
    world = closed_world(running("e", "n1"))
    world.policy = Policy(cross_node=CrossNode(most_victims=1))

    await world.ends(group_order(*VICTIMS, BLOCKER, on("e", "n1", closes=CLOSED)), "succeeded")


async def test_a_victim_for_a_closed_domain_is_judged_by_priority_as_any_other() -> None:
    world = closed_world()
    world.cluster.put(changed(running("d", "n3"), "spec", priority=1000))

    await world.ends(ORDER, "refused", "victim-spared", deletes=[])


def blockers(count: int) -> list[Victim]:
    return [on(f"x{number}", "n3", closes=CLOSED) for number in range(count)]


@pytest.mark.parametrize(
    ("most", "count", "result"), [(32, 32, "succeeded"), (32, 33, "refused"), (0, 1, "refused")]
)
async def test_an_order_has_no_more_of_them_than_are_allowed(most: int, count: int, result: str) -> None:
    world = closed_world(*(running(victim.name, "n3") for victim in blockers(count)))
    world.policy = Policy(cross_node=CrossNode(most_victims=most))

    outcome = await world.ends(group_order(*VICTIMS, *blockers(count)), result)

    if result == "refused":
        assert outcome.reason == "too-many-victims"
        assert outcome.message == (
            f"{count} victims on nodes that no member comes to, the policy allows {most} in an order"
        )
        assert world.cluster.deletes() == []


@pytest.mark.parametrize(
    "order",
    [
        group_order(*VICTIMS, on("d", "n3", closes=CLOSED, unit="PodGroup default/batch")),
        make_order(make_victim("a", closes=CLOSED)),
        quota_order(make_victim("a", closes=CLOSED)),
    ],
    ids=["of a unit", "for a pod", "for a quota"],
)
async def test_an_order_no_scheduler_writes_with_such_a_victim_reads_nothing(order: EvictionOrder) -> None:
    world = World() if order.kind != "group" else closed_world()

    outcome = await world.ends(order, "refused", "incomplete-order")

    assert outcome.reason in NEVER_ORDERED
    assert world.cluster.calls == []


racks = st.sampled_from(["r1", "r2", "", None])


@given(
    of_nodes=st.fixed_dictionaries(dict.fromkeys(("n1", "n2", "n3", "n4"), racks)),
    closed=st.lists(st.tuples(st.sampled_from(["n3", "n4"]), racks), max_size=3),
    key=st.sampled_from([RACK, "kubernetes.io/hostname"]),
)
async def test_whatever_an_order_says_a_victim_away_from_members_goes_only_in_the_domain_of_one(
    of_nodes: dict[str, str | None], closed: list[tuple[str, str | None]], key: str
) -> None:
    named = [
        replace(
            on(f"x{number}", node), closes=None if value is None else replace(CLOSED, key=key, value=value)
        )
        for number, (node, value) in enumerate(closed)
    ]
    world = closed_world(*(running(victim.name, victim.node) for victim in named))
    for name, value in of_nodes.items():
        rack(world, name, value)

    outcome = await world.order(group_order(*VICTIMS, *named))

    members = {of_nodes["n1"], of_nodes["n2"]} - {None}
    fine = [
        victim.closes is not None
        and key == RACK
        and victim.closes.value == of_nodes[victim.node]
        and victim.closes.value in members
        for victim in named
    ]
    assert (outcome.result == "succeeded") is all(fine)
    assert bool(world.cluster.deletes()) is all(fine)
