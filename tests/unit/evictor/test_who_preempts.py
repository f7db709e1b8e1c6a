"""Rules of who may preempt whom in the re-check, as policy, labels and namespaces change under it."""

from collections.abc import Callable

import msgspec
import pytest

from makeway.core.k8s.objects import Metadata, Namespace, Pod
from makeway.core.policy.document import Policy
from makeway.core.policy.preemption import Labels, PartySelector, Preemption, PreemptionRule
from unit.evictor.building import a_pod, make_order
from unit.evictor.fakes import FORBIDDEN
from unit.evictor.test_groups import member, unit_order, world_of
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_rules import reasons
from unit.evictor.test_service import World, running

GOLD = Labels(match_labels={"tier": "gold"})
PROD = Labels(match_labels={"env": "prod"})


def policy(preemptors: PartySelector | None = None, victims: PartySelector | None = None) -> Policy:
    rule = PreemptionRule(
        name="keeps",
        preemptors=preemptors or PartySelector(),
        victims=victims or PartySelector(),
        action="deny",
    )
    return Policy(preemption=Preemption(rules=(rule,)))


def labelled(pod: Pod, **labels: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def namespace(**labels: str) -> Namespace:
    return Namespace(metadata=Metadata(name="default", uid="default", labels=labels))


def label_victim(world: World) -> None:
    world.cluster.put(labelled(world.cluster.pods["b"], tier="gold"))


def label_preemptor(world: World) -> None:
    world.cluster.put(labelled(world.cluster.pods["urgent"], tier="gold"))


def label_namespace(world: World) -> None:
    world.cluster.namespaces["default"] = namespace(env="prod")


def change_policy(world: World) -> None:
    world.policy = policy()


CHANGES = [
    (label_victim, policy(victims=PartySelector(label_selector=GOLD))),
    (label_preemptor, policy(preemptors=PartySelector(label_selector=GOLD))),
    (label_namespace, policy(victims=PartySelector(namespace_selector=PROD))),
    (label_namespace, policy(preemptors=PartySelector(namespace_selector=PROD))),
    (change_policy, Policy()),
]


@pytest.mark.parametrize(("change", "in_force"), CHANGES)
async def test_a_later_change_spares_the_victim(change: Callable[[World], None], in_force: Policy) -> None:
    world = World(*running("a", "b"))
    world.policy = in_force
    assert (await world.carry_out(make_order("a"))).result == "succeeded"
    change(world)

    outcome = await world.ends(
        msgspec.structs.replace(make_order("b"), order_id="ord-2"),
        "refused",
        "victim-spared",
        says="rule keeps of preemption.rules denies it",
        deletes=["a"],
    )

    assert reasons(outcome) == {"b": "preemption-rule"}


async def test_a_namespace_that_may_not_be_read_keeps_the_pods_that_rules_ask_it_of() -> None:
    world = World(*running("a"))
    world.policy = policy(victims=PartySelector(namespace_selector=PROD))
    world.cluster.always_fail("get_namespace", "default", FORBIDDEN)

    assert (await world.carry_out(make_order("a"))).result != "succeeded"
    assert world.cluster.deletes() == []


async def test_no_namespace_is_read_without_a_rule_that_asks_for_its_labels() -> None:
    world = World(*running("a"))
    world.policy = policy(victims=PartySelector(label_selector=GOLD))

    await world.carry_out(make_order("a"))

    assert ("get_namespace", "default") not in world.cluster.calls


async def test_queues_that_were_never_read_keep_pods_where_rules_ask_for_queues() -> None:
    world = World(a_pod("a").build(), queues_read=False)
    world.policy = policy(victims=PartySelector(queues=("root.team",)))

    assert (await world.carry_out(make_order("a"))).result != "succeeded"
    assert world.cluster.deletes() == []


async def test_a_rule_that_first_asks_for_queues_spares_what_was_looked_at_before_it() -> None:
    world = World(*running("a"))
    world.cluster.put(labelled(world.cluster.pods["urgent"], queue="root.team.a"))
    world.policy = policy(victims=PartySelector(label_selector=GOLD))
    by_queue = policy(preemptors=PartySelector(queues=("root.team",)))
    world.cluster.before("get_pod", "a", lambda: setattr(world, "policy", by_queue))

    await world.ends(make_order("a"), "refused", "victim-spared", deletes=[])


async def test_what_is_left_of_a_unit_goes_though_a_new_rule_would_keep_it() -> None:
    world = world_of(member("a"), member("b", "node-b"), member("c", "node-c"))
    world.cluster.before("delete", "b", lambda: setattr(world, "policy", policy()))
    world.cluster.slow["get_pod", "c"] = 40

    await world.ends(unit_order("a", "b", "c"), victims=dict.fromkeys("abc", "deleted"))


async def test_a_rule_without_preemptors_keeps_a_pod_from_a_quota_and_others_do_not() -> None:
    world = World(*running("a"))
    world.policy = policy(preemptors=PartySelector(label_selector=GOLD))
    assert (await world.carry_out(quota_order("a"))).result == "succeeded"
    world = World(*running("a"))
    world.policy = policy()

    assert reasons(await world.carry_out(quota_order("a"))) == {"a": "preemption-rule"}
