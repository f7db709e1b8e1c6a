"""Where the order carries what the planner judged a victim by, its mark is the first read of it."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from makeway.bus.messages import EvictionOrder, VictimFacts
from makeway.core.k8s.objects import Pod
from makeway.core.policy.document import Policy, PolicyLimits, Protection
from unit.evictor.building import NOW, a_pod, changed, make_order, make_preemptor, make_victim
from unit.evictor.fakes import FORBIDDEN, FakeDelivery
from unit.evictor.test_service import World, running

READS = {"get_pod", "get_node", "get_lease", "get_priority_class", "list_pods"}
WRITES = {"mark", "delete", "clear_mark", "clear_nomination"}


def written(*names: str, version: str = "1", **changes: Any) -> EvictionOrder:
    """An order that carries the victims' facts. `changes`: of the order."""
    facts = VictimFacts(resource_version=version)
    return make_order(*(make_victim(name, facts=facts) for name in names), **changes)


def requests(world: World) -> Counter[tuple[str, str]]:
    return Counter(call for call in world.cluster.calls if call[0] in READS | WRITES)


def labelled(name: str) -> Pod:
    return changed(a_pod(name).build(), "metadata", annotations={"makeway.dev/never-evict": "true"})


NEVER_EVICT_HERE = Policy(protection=Protection(never_evict_namespaces=("default",)))


async def test_an_order_takes_two_requests_a_victim_two_of_its_own_and_one_of_its_fence() -> None:
    world = World(*running("a", "b", "c", "d"))

    await world.ends(written("a", "b", "c", "d"), "succeeded")

    assert requests(world) == Counter(
        {
            **{("mark", name): 1 for name in "abcd"},
            **{("delete", name): 1 for name in "abcd"},
            ("get_pod", "urgent"): 1,
            ("get_node", "node-a"): 1,
            ("get_lease", "makeway-scheduler"): 1,
        }
    )


async def test_no_victim_is_deleted_before_preemptor_and_node_are_read() -> None:
    world = World(*running("a", "b"))

    await world.carry_out(written("a", "b"))

    first = world.cluster.calls.index(("delete", "a"))
    assert {("get_pod", "urgent"), ("get_node", "node-a")} <= set(world.cluster.calls[:first])


async def test_a_victim_that_has_changed_is_read_and_judged_before_it_is_marked() -> None:
    world = World(a_pod("a").build(), a_pod("b").build())
    world.cluster.changed("a")

    await world.ends(written("a", "b"), "succeeded")

    about_a = [call for call, name in world.cluster.calls if name == "a"]
    assert about_a == ["mark", "get_pod", "mark", "delete"]


async def test_a_victim_that_has_changed_into_one_that_stays_is_never_marked() -> None:
    world = World(labelled("a"))
    world.policy = NEVER_EVICT_HERE

    await world.ends(written("a", version="0"), "refused", "victim-spared", deletes=[])

    assert not world.cluster.is_marked("a")


async def test_a_victim_that_stays_by_the_facts_of_its_order_is_read_and_never_marked() -> None:
    world = World(labelled("a"))
    world.policy = NEVER_EVICT_HERE
    facts = VictimFacts(resource_version="1", never_evict=True)

    await world.ends(make_order(make_victim("a", facts=facts)), "refused", "victim-spared")

    assert world.cluster.marks() == []
    assert ("get_pod", "a") in world.cluster.calls


async def test_a_victim_that_stays_by_the_answer_to_its_mark_is_unmarked_at_once() -> None:
    world = World(labelled("a"), a_pod("b").build())
    world.policy = NEVER_EVICT_HERE

    outcome = await world.ends(written("a", "b"), "refused", "victim-spared", deletes=[])

    assert not world.cluster.is_marked("a")
    assert not world.cluster.is_marked("b")
    assert outcome.rollback is not None
    assert set(outcome.rollback.conditions_cleared) == {"a-uid", "b-uid"}


async def test_a_priority_that_the_order_makes_up_deletes_nothing() -> None:
    world = World(a_pod("a").priority(5000).build(), a_pod("b").build())
    order = written("a", "b", preemptor=make_preemptor(priority=10_000))

    await world.ends(order, "refused", "victim-spared", deletes=[])

    assert not world.cluster.is_marked("a")


async def test_nothing_is_deleted_for_a_preemptor_that_is_gone_and_the_marks_are_taken_off() -> None:
    world = World(*running("a", "b"))
    world.cluster.remove("urgent")

    await world.ends(written("a", "b"), "cancelled", "preemptor-gone", deletes=[])

    assert not world.cluster.is_marked("a")
    assert not world.cluster.is_marked("b")


async def test_an_order_that_has_waited_for_long_is_looked_at_before_a_victim_is_marked() -> None:
    world = World(*running("a"))
    world.cluster.remove("urgent")
    delivery = FakeDelivery(written("a"))
    delivery.published_at = NOW - timedelta(seconds=6)

    await world.evictor.handle(delivery)

    assert world.records.outcomes["ord-1"].reason == "preemptor-gone"
    assert world.cluster.marks() == []


async def test_preemptor_and_node_are_read_again_where_the_last_delete_is_a_second_later() -> None:
    world = World(*running("a", "b"))

    def late() -> None:
        world.clock.time += timedelta(seconds=2)
        world.cluster.remove("urgent")

    world.cluster.before("delete", "a", late)

    await world.ends(written("a", "b"), "cancelled", "preemptor-gone", deletes=["a"])

    assert not world.cluster.is_marked("b")


async def test_a_victim_that_is_written_after_its_mark_is_read_again_before_it_is_deleted() -> None:
    world = World(*running("a", "b"))
    world.policy = NEVER_EVICT_HERE

    def protect() -> None:
        pod = world.cluster.changed("b")
        world.cluster.put(changed(pod, "metadata", annotations={"makeway.dev/never-evict": "true"}))

    world.cluster.before("delete", "a", protect)

    await world.ends(written("a", "b"), "refused", "victim-spared")

    assert "b" in world.cluster.pods
    assert not world.cluster.is_marked("b")


@pytest.mark.parametrize(
    ("policy", "deliveries"),
    [(Policy(disruption_budgets="hard", hard_budget_namespaces=("default",)), 1), (Policy(), 2)],
    ids=["its budgets are hard", "it was delivered before"],
)
async def test_victims_are_read_before_they_are_marked_where(policy: Policy, deliveries: int) -> None:
    world = World(*running("a"))
    world.policy = policy

    await world.carry_out(written("a"), deliveries)

    assert [call for call, name in world.cluster.calls if name == "a"][:2] == ["get_pod", "mark"]


async def test_no_victim_waits_for_a_cap_with_a_mark_on_it() -> None:
    world = World(*running("a", "b"))
    world.policy = Policy(limits=PolicyLimits(victims_per_minute=1, victims_per_order=1))
    world.evictor.parts.caps.count({"default": 1}, NOW, verified=True)

    await world.ends(written("a", not_after=NOW + timedelta(seconds=20)), reason="victims-per-minute")

    assert world.cluster.marks() == []


async def test_a_victim_that_may_not_be_marked_is_read_and_refused_as_any_other() -> None:
    world = World(*running("a"))
    world.cluster.always_fail("mark", "a", FORBIDDEN)

    await world.ends(written("a"), "failed", "delete-refused", deletes=[])
