"""A unit is deleted whole or not at all, by the groups and pods as the API server has them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from makeway.bus.messages import Begun, BegunUnit, EvictionOrder
from makeway.core.k8s.objects import Pod, SchedulingGroup
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import Policy, PolicyLimits, Protection
from makeway.evictor.act import unit_work
from makeway.evictor.act.unit_work import PROOF_LASTS
from makeway.evictor.act.work import CHECK_LASTS
from makeway.evictor.judge.groups import groups_in
from makeway.evictor.judge.members import Members
from makeway.evictor.limits.breaker import NEVER_VICTIMS
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.pod_group_api import PodGroupApi
from unit.evictor.building import NODE, NOW, a_pod, changed, make_order, make_outcome, make_victim
from unit.evictor.fakes import FORBIDDEN, UNAVAILABLE
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, results

UNIT = "PodGroup default/g"
BEGUN = Begun(
    order_id="ord-1",
    cluster_uid="cluster",
    at=NOW,
    units=(BegunUnit(unit=UNIT, first="a-uid", priority=0),),
    priority=1000,
    namespace="default",
)
KEY = GroupKey("default", "g")


def member(name: str, node: str | None = NODE, group: str = "g", priority: int = 0) -> Pod:
    pod = a_pod(name).on(node).priority(priority).build()
    return changed(pod, "spec", scheduling_group=SchedulingGroup(pod_group_name=group))


def marked(name: str, node: str = NODE, priority: int = 0) -> Pod:
    """A member as it is once all deletions of its unit have been tried."""
    pod = a_pod(name).on(node).priority(priority).marked().build()
    return changed(pod, "spec", scheduling_group=SchedulingGroup(pod_group_name="g"))


def record(*, whole: bool = True, priority: int = 0, parent: str = "") -> GroupRecord:
    return GroupRecord(key=KEY, uid="g-uid", whole=whole, priority=priority, parent=parent)


def unit_order(*names: str, unit: str = UNIT, **changes: Any) -> EvictionOrder:
    """An order for a unit whose first pod runs on the order's node, the others elsewhere."""
    return make_order(
        *(
            make_victim(name, node=NODE if number == 0 else f"node-{name}", unit=unit)
            for number, name in enumerate(names)
        ),
        **changes,
    )


def world_of(*pods: Pod, group: GroupRecord | None = None, begun: Begun | None = None) -> World:
    world = World(*pods)
    if begun is not None:
        world.records.begun_orders[begun.order_id] = begun
    world.cluster.group_api = PodGroupApi("v1beta1", "v1alpha3")
    world.cluster.groups[KEY] = group or record()
    return world


async def test_every_pod_and_group_is_read_before_the_first_delete() -> None:
    world = world_of(member("a"), member("b", "node-b"))

    await world.carry_out(unit_order("a", "b"))

    calls = world.cluster.calls
    first = next(place for place, (operation, _) in enumerate(calls) if operation in ("delete", "mark"))
    before = set(calls[:first])
    assert {("get_pod", "a"), ("get_pod", "b"), ("get_pod_group", "g"), ("list_pods", "default")} <= before


def follow(world: World) -> list[int]:
    """Have the namespace followed; return the versions that were asked for."""
    asked: list[int] = []

    def followed(namespace: str, since: int) -> Members:
        asked.append(since)
        return world.cluster.members_now(namespace)

    world.cluster.followed = followed
    return asked


async def test_pods_of_a_namespace_that_is_followed_are_not_listed() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    asked = follow(world)

    await world.ends(unit_order("a", "b"), "succeeded")

    assert ("list_pods", "default") not in world.cluster.calls
    marks = [int(world.cluster.pods[name].metadata.resource_version) for name in ("a", "b")]
    assert asked[0] == 0
    assert 0 < asked[-1] <= max(marks)


async def test_a_pod_that_came_while_the_unit_was_marked_keeps_it() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    follow(world)
    world.cluster.before("dry_run", "b", lambda: leave_out(world))

    await world.ends(
        unit_order("a", "b"), "refused", "unit-incomplete", says="the order leaves default/c out", deletes=[]
    )

    assert not world.cluster.is_marked("a")


async def test_a_watch_that_is_behind_refuses_nothing() -> None:
    """It has a pod that has gone since: the list says so."""
    world = world_of(member("a"), member("b", "node-b"), member("c", "node-c"))
    stale = world.cluster.members_now("default")
    world.cluster.remove("c")
    world.cluster.followed = lambda namespace, since: stale

    assert (await world.carry_out(unit_order("a", "b"))).result == "succeeded"


async def test_a_watch_that_has_not_seen_the_marks_proves_nothing() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    before = world.cluster.members_now("default")
    world.cluster.followed = lambda namespace, since: None if since else before
    world.cluster.before("dry_run", "b", lambda: leave_out(world))

    await world.ends(unit_order("a", "b"), "refused", "unit-incomplete", deletes=[])


async def test_a_watch_that_has_heard_nothing_since_marks_of_a_second_ago_proves_nothing() -> None:
    """A trial takes long: its budget allows nothing, or a webhook is slow."""
    world = world_of(member("a"), member("b", "node-b"))
    before = world.cluster.members_now("default")
    world.cluster.followed = lambda namespace, since: before

    def come_late() -> None:
        leave_out(world)
        world.clock.time += PROOF_LASTS + timedelta(milliseconds=1)

    world.cluster.before("dry_run", "b", come_late)

    await world.ends(unit_order("a", "b"), "refused", "unit-incomplete", deletes=[])


async def test_a_unit_of_one_pod_is_held_against_a_list() -> None:
    """Nothing is marked before its only deletion, so nothing proves what a watch has."""
    world = world_of(member("a"))
    before = world.cluster.members_now("default")
    world.cluster.followed = lambda namespace, since: before
    leave_out(world)

    await world.ends(unit_order("a"), "refused", "unit-incomplete", deletes=[])


def leave_out(world: World) -> None:
    world.cluster.put(member("c", "node-c"))


def protect(world: World) -> None:
    world.policy = Policy(protection=Protection(never_evict_namespaces=("*",)))
    world.cluster.put(
        changed(world.cluster.pods["b"], "metadata", annotations={"makeway.dev/never-evict": "true"})
    )


def move(world: World) -> None:
    world.cluster.put(member("b", "node-z"))


def raise_priority(world: World) -> None:
    world.cluster.groups[KEY] = record(priority=1000)


def remove_group(world: World) -> None:
    del world.cluster.groups[KEY]


def cycle(world: World) -> None:
    parent = GroupKey("default", "c", composite=True)
    world.cluster.groups[KEY] = record(parent="c")
    world.cluster.groups[parent] = GroupRecord(key=parent, uid="c", parent="c")


def become_single(world: World) -> None:
    world.cluster.groups[KEY] = record(whole=False)


def join_another(world: World) -> None:
    parent = GroupKey("default", "c", composite=True)
    world.cluster.groups[KEY] = record(parent="c")
    world.cluster.groups[parent] = GroupRecord(key=parent, uid="c", whole=True)


def lose_the_right(world: World) -> None:
    world.cluster.always_fail("get_pod_group", "g", PermanentError("forbidden", "podgroups is forbidden"))


def lose_the_api(world: World) -> None:
    world.cluster.group_api = PodGroupApi()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (leave_out, "the order leaves default/c out"),
        (protect, "never-evict"),
        (move, "the pod runs on node-z, the order is for node-b"),
        (raise_priority, "1000 >= 1000"),
        (remove_group, "PodGroup default/g does not exist"),
        (cycle, "form a cycle"),
        (become_single, "with which it need not go"),
        (join_another, "CompositePodGroup default/c is evicted whole or not at all"),
        (lose_the_right, "podgroups is forbidden"),
        (lose_the_api, "with which it need not go"),
    ],
)
async def test_an_order_for_a_changed_unit_deletes_none(change: Callable[[World], None], words: str) -> None:
    world = world_of(member("a"), member("b", "node-b"))
    change(world)

    outcome = await world.carry_out(unit_order("a", "b"))

    assert outcome.result in ("refused", "failed")
    assert words in outcome.message + " ".join(one.message for one in outcome.victims)
    assert (world.cluster.deletes(), world.cluster.marks()) == ([], [])


async def test_the_deletion_of_every_pod_is_tried_before_the_first_delete() -> None:
    world = world_of(member("a"), member("b", "node-b"), member("c", "node-c"))

    outcome = await world.carry_out(unit_order("a", "b", "c"))

    acts = [call for call in world.cluster.calls if call[0] in ("dry_run", "delete")]
    assert sorted(acts[:3]) == [("dry_run", "a"), ("dry_run", "b"), ("dry_run", "c")]
    assert sorted(acts[3:]) == [("delete", "a"), ("delete", "b"), ("delete", "c")]
    assert {one.attempts for one in outcome.victims} == {1}


@pytest.mark.parametrize(
    ("error", "hard", "reason"),
    [
        (PermanentError("Forbidden", "an admission policy says no"), False, "delete-refused"),
        (TemporaryError("budget", "the budget needs 2 healthy pods"), True, "disruption-budget"),
    ],
)
async def test_what_is_refused_of_one_pod_keeps_all_of_it(error: Exception, hard: bool, reason: str) -> None:
    world = world_of(member("a"), member("b", "node-b"))
    if hard:
        world.policy = Policy(disruption_budgets="hard")
    world.cluster.always_fail("dry_run", "b", error)

    await world.ends(unit_order("a", "b"), "failed", reason, says=str(error))

    assert (world.cluster.deletes(), world.cluster.evictions()) == ([], [])
    assert not world.cluster.is_marked("a")
    assert not world.cluster.is_marked("b")


async def test_no_deletion_is_tried_where_no_pods_go_together() -> None:
    world = world_of(member("a"), a_pod("b").build(), group=record(whole=False))

    await world.carry_out(make_order("a", "b"))

    assert "dry_run" not in {operation for operation, _ in world.cluster.calls}


async def test_an_order_that_names_a_pod_of_a_unit_alone_deletes_nothing() -> None:
    world = world_of(member("a"), member("b", "node-b"))

    await world.ends(make_order("a"), "refused", says="the order names it alone", deletes=[])


async def test_a_quota_never_breaks_a_unit() -> None:
    world = world_of(member("a"), member("b", "node-b"))

    outcome = await world.carry_out(quota_order("a"))

    assert "PodGroup default/g is evicted whole or not at all" in outcome.message
    assert world.cluster.deletes() == []


async def test_pods_of_a_unit_that_are_pending_or_leaving_need_not_stand_in_the_order() -> None:
    leaving = changed(
        member("c", "node-c"),
        "metadata",
        deletion_timestamp=a_pod("x").terminating().build().metadata.deletion_timestamp,
    )
    world = world_of(member("a"), member("b", None), leaving)

    await world.ends(unit_order("a"), "succeeded")


async def test_once_a_pod_of_it_has_gone_the_rest_of_a_unit_goes_whatever_its_group_says() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    world.cluster.before("delete", "a", lambda: remove_group(world))

    await world.ends(unit_order("a", "b"), victims={"a": "deleted", "b": "deleted"})


def replace_deleted(world: World) -> None:
    world.cluster.put(member("a2", "node-z"))


def nothing(world: World) -> None:
    pass


@pytest.mark.parametrize(
    "change",
    [nothing, remove_group, become_single, raise_priority, join_another, lose_the_api, replace_deleted],
)
async def test_what_is_left_of_a_unit_goes_though_its_evictor_died_and_the_group_is_another(
    change: Callable[[World], None],
) -> None:
    world = world_of(marked("b", "node-b"), marked("c", "node-c"), begun=BEGUN)
    change(world)

    await world.ends(
        unit_order("a", "b", "c"),
        "succeeded",
        victims={"a": "gone", "b": "deleted", "c": "deleted"},
        deliveries=2,
    )


async def test_a_pod_that_another_replaced_while_no_evictor_was_there_begins_no_unit() -> None:
    """All are marked, one is gone: that the order deleted it is known only where that was written down."""
    world = world_of(marked("b", "node-b"), marked("c", "node-c"), member("a2", "node-z"))

    await world.ends(unit_order("a", "b", "c"), "refused", "unit-incomplete", deletes=[], deliveries=2)


async def test_that_units_are_begun_is_written_down_before_the_first_delete() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    known: list[bool] = []
    world.cluster.before("dry_run", "b", lambda: known.append("ord-1" in world.records.begun_orders))
    world.cluster.before("delete", "a", lambda: known.append("ord-1" in world.records.begun_orders))

    await world.carry_out(unit_order("a", "b"))

    assert known == [False, True]
    assert world.records.begun_orders["ord-1"].priority == 1000


async def test_of_single_pods_nothing_is_written_down() -> None:
    world = World(a_pod("a").on(NODE).build())

    await world.ends(make_order(make_victim("a")), "succeeded")

    assert world.records.begun_orders == {}


@pytest.mark.parametrize("error", [UNAVAILABLE, PermanentError("refused", "no stream")])
async def test_a_bus_that_cannot_note_it_keeps_no_order(error: Exception) -> None:
    world = world_of(member("a"), member("b", "node-b"))
    world.records.begin_failures.append(error)

    assert (await world.carry_out(unit_order("a", "b"))).result == "succeeded"


def delete_preemptor(world: World) -> None:
    world.cluster.remove("urgent")


def nominate_elsewhere(world: World) -> None:
    world.cluster.put(changed(world.cluster.pods["urgent"], "status", nominated_node_name="node-x"))


def take_over(world: World) -> None:
    world.cluster.epoch = 99


def lower_limit(world: World) -> None:
    world.policy = Policy(limits=PolicyLimits(victims_per_order=1))


NOT_WANTED = [
    (delete_preemptor, "preemptor-gone"),
    (nominate_elsewhere, "nomination-moved"),
    (take_over, "stale-epoch"),
]


@pytest.mark.parametrize(("change", "reason"), NOT_WANTED)
async def test_what_is_left_of_a_unit_goes_though_its_room_is_not_wanted_any_more(
    change: Callable[[World], None], reason: str
) -> None:
    """The first delete takes as long as a look at the preemptor lasts."""
    world = world_of(*(member(name, f"node-{name}") for name in "bcd"), member("a"))

    def change_slowly() -> None:
        change(world)
        world.clock.time += CHECK_LASTS + timedelta(seconds=1)

    world.cluster.before("delete", "b", change_slowly)
    world.cluster.slow["get_pod", "c"] = world.cluster.slow["get_pod", "d"] = 40

    outcome = await world.ends(unit_order("a", "b", "c", "d"), reason=reason)

    assert set(results(outcome).values()) == {"deleted"}


@pytest.mark.parametrize(("change", "reason"), [*NOT_WANTED, (lower_limit, "too-many-victims")])
@pytest.mark.parametrize("begun", [True, False])
async def test_an_evictor_that_takes_over_finishes_units_that_have_begun_alone(
    change: Callable[[World], None], reason: str, begun: bool
) -> None:
    world = world_of(marked("b", "node-b"), marked("c", "node-c"), begun=BEGUN if begun else None)
    change(world)

    outcome = await world.ends(
        unit_order("a", "b", "c"), reason=reason, deletes=["b", "c"] if begun else [], deliveries=2
    )

    assert not begun or set(results(outcome).values()) == {"gone", "deleted"}


async def test_a_unit_of_which_no_pod_has_gone_is_left_alone_by_whoever_takes_over() -> None:
    world = world_of(marked("a"), marked("b", "node-b"), begun=BEGUN)
    delete_preemptor(world)

    await world.ends(unit_order("a", "b"), reason="preemptor-gone", deletes=[], deliveries=2)

    assert not world.cluster.is_marked("a")


@pytest.mark.parametrize(("priority", "result"), [(1, "deleted"), (0, "spared")])
async def test_the_preemptors_old_priority_counts_for_a_units_rest(priority: int, result: str) -> None:
    world = world_of(marked("b", "node-b"), marked("c", "node-c"), begun=replace(BEGUN, priority=priority))
    delete_preemptor(world)

    await world.ends(unit_order("a", "b", "c"), victims={"a": "gone", "b": result, "c": result}, deliveries=2)


async def test_the_brake_stops_what_is_left_of_a_unit() -> None:
    world = world_of(marked("b", "node-b"), marked("c", "node-c"), begun=BEGUN)
    world.cluster.brake = world.cluster.seen_brake = Brake(everywhere=True)

    await world.ends(unit_order("a", "b", "c"), reason="mode-off", deletes=[], deliveries=2)


async def test_an_order_that_another_evictor_has_ended_finishes_no_unit() -> None:
    world = world_of(*(member(name, f"node-{name}") for name in "bcd"), member("a"))

    def end_elsewhere() -> None:
        world.clock.time += CHECK_LASTS + timedelta(seconds=1)
        world.records.outcomes["ord-1"] = make_outcome("ord-1", "cancelled")

    world.cluster.before("delete", "b", end_elsewhere)
    world.cluster.slow["get_pod", "c"] = world.cluster.slow["get_pod", "d"] = 40

    await world.carry_out(unit_order("a", "b", "c", "d"))

    assert not {"c", "d"} & set(world.cluster.deletes())


CONFLICT = TemporaryError("conflict", "the object has been modified")


async def test_a_deletion_that_was_refused_begins_no_unit() -> None:
    """Its group is made anew at a higher priority while the first deletion is tried again."""
    world = world_of(member("a"), member("b", "node-b"))
    world.cluster.fail("delete", "a", CONFLICT)
    world.cluster.before("delete", "a", lambda: raise_priority(world))

    await world.ends(
        unit_order("a", "b"), reason="victim-spared", victims={"a": "spared", "b": "notAttempted"}
    )


async def test_a_pod_that_its_owner_deletes_begins_no_unit() -> None:
    world = world_of(member("a"), member("b", "node-b"), member("c", "node-c"))

    def delete_both() -> None:
        world.cluster.remove("a")
        delete_preemptor(world)
        world.clock.time += CHECK_LASTS + timedelta(seconds=1)

    world.cluster.before("delete", "a", delete_both)

    await world.ends(unit_order("a", "b", "c"), reason="preemptor-gone", deletes=["a"])

    assert not world.cluster.is_marked("b")


@pytest.mark.parametrize("gone", [True, False])
async def test_a_deletion_whose_answer_was_lost_begins_a_unit_where_the_pod_has_gone(gone: bool) -> None:
    world = world_of(member("a"), member("b", "node-b"))

    def lose_the_answer() -> None:
        if gone:
            world.cluster.leave("a")
        delete_preemptor(world)
        world.clock.time += CHECK_LASTS + timedelta(seconds=1)

    world.cluster.before("delete", "a", lose_the_answer)
    world.cluster.fail("delete", "a", UNAVAILABLE)

    await world.ends(unit_order("a", "b"), reason="preemptor-gone", deletes=["a", "b"] if gone else ["a"])


async def test_a_unit_is_looked_through_again_where_its_first_deletion_takes_another_try() -> None:
    world = world_of(member("a"), member("b", "node-b"))

    def join_meanwhile() -> None:
        leave_out(world)
        world.clock.time += PROOF_LASTS + timedelta(seconds=1)

    world.cluster.before("delete", "a", join_meanwhile)
    world.cluster.fail("delete", "a", CONFLICT)

    await world.ends(unit_order("a", "b"), "refused", "unit-incomplete", deletes=["a"])

    assert not world.cluster.is_marked("a")


async def test_a_process_that_was_stopped_before_the_first_deletion_looks_through_the_unit_again() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    slept: list[bool] = []

    def sleep() -> None:
        if "ord-1" in world.records.begun_orders and not slept:
            slept.append(True)
            leave_out(world)
            world.clock.time += PROOF_LASTS + timedelta(milliseconds=1)

    for _ in range(20):
        world.cluster.before("read_brake", "", sleep)

    await world.ends(unit_order("a", "b"), reason="unit-incomplete", deletes=[])

    assert slept


async def test_the_pod_that_is_noted_goes_before_all_others_of_its_unit() -> None:
    world = world_of(*(member(name, f"node-{name}") for name in "bcd"), member("a"))
    world.cluster.slow["delete", "a"] = 30
    gone: list[bool] = []
    for name in "bcd":
        world.cluster.before(
            "delete", name, lambda: gone.append(bool(world.cluster.pods["a"].metadata.deletion_timestamp))
        )

    await world.carry_out(unit_order("a", "b", "c", "d"))

    assert gone == [True, True, True]
    [noted] = world.records.begun_orders["ord-1"].units
    assert (noted.unit, noted.first, noted.priority) == (UNIT, "a-uid", 0)


async def test_no_unit_begins_before_the_note_of_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    other = GroupKey("default", "h")
    world = world_of(member("a"), member("b", "node-b"), *(member(n, "node-c", group="h") for n in "cd"))
    world.cluster.groups[other] = replace(record(), key=other)
    begin, noted = world.records.begin, list[bool]()

    async def begin_slowly(begun: Begun) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        await begin(begun)

    monkeypatch.setattr(world.records, "begin", begin_slowly)
    for name in "abcd":
        world.cluster.before("delete", name, lambda: noted.append("ord-1" in world.records.begun_orders))
    order = unit_order("a", "b")
    more = (make_victim(name, node="node-c", unit=str(other)) for name in "cd")

    await world.ends(replace(order, victims=(*order.victims, *more)), "succeeded")

    assert noted == [True] * 4


async def test_units_under_hard_budgets_are_noted_too() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    world.policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("default",))

    await world.ends(unit_order("a", "b"), "succeeded")

    assert world.cluster.evictions() == ["a", "b"]
    assert [unit.first for unit in world.records.begun_orders["ord-1"].units] == ["a-uid"]


@pytest.mark.parametrize("tries", [0, 1])
async def test_a_list_that_takes_longer_than_a_look_may_be_old_keeps_no_order(tries: int) -> None:
    world = world_of(member("a"), member("b", "node-b"))
    world.cluster.fail("delete", "a", *[CONFLICT] * tries)

    def take_long() -> None:
        world.clock.time += 2 * PROOF_LASTS

    for _ in range(10):
        world.cluster.before("list_pods", "default", take_long)

    await world.ends(unit_order("a", "b"), "succeeded")


@pytest.mark.parametrize("taken_over", [False, True])
async def test_groups_that_cannot_be_read_now_keep_nothing_of_a_begun_unit(taken_over: bool) -> None:
    world = world_of(*(() if taken_over else (member("a"),)), marked("b", "node-b"), marked("c", "node-c"))
    denied = PermanentError("Forbidden", "403 Forbidden: no right to read groups")
    if taken_over:
        world.records.begun_orders["ord-1"] = BEGUN
        world.cluster.always_fail("get_pod_group", "g", denied)
    else:
        world.cluster.before("delete", "a", lambda: world.cluster.always_fail("get_pod_group", "g", denied))
        world.cluster.fail("delete", "b", CONFLICT)

    outcome = await world.carry_out(unit_order("a", "b", "c"), deliveries=1 + taken_over)

    assert {results(outcome)[name] for name in "bc"} == {"deleted"}


async def test_a_brake_that_is_set_before_the_rest_of_a_unit_goes_is_told() -> None:
    world = world_of(member("a"), member("b", "node-b"), member("c", "node-c"))

    def set_the_brake() -> None:
        world.cluster.brake = Brake(everywhere=True)

    world.cluster.before("delete", "a", set_the_brake)

    await world.ends(
        unit_order("a", "b", "c"),
        reason="mode-off",
        says=f"; pods of {UNIT} stay, of which others were deleted (2): the mode for",
    )


def quota_of(*names: str, single: str = "") -> EvictionOrder:
    """A quota order for a unit, with its pods on nodes of their own, and for one other pod."""
    victims = [make_victim(name, node=f"node-{name}", unit=UNIT) for name in names]
    return quota_order(*victims, *([make_victim(single)] if single else ()))


def spread(*names: str) -> list[Pod]:
    return [member(name, f"node-{name}") for name in names]


async def test_a_unit_goes_whole_for_a_quota() -> None:
    world = world_of(*spread("a", "b", "c"))

    outcome = await world.carry_out(quota_of("a", "b", "c"))

    assert (outcome.result, outcome.kind) == ("succeeded", "quota")
    assert sorted(world.cluster.deletes()) == ["a", "b", "c"]
    assert world.records.begun_orders


def in_queue(pod: Pod, path: str) -> Pod:
    return changed(pod, "metadata", labels={"queue": path})


async def test_a_unit_goes_for_the_quota_of_any_queue_that_has_a_pod_of_it() -> None:
    pods = [in_queue(member("a"), "root.nolimit"), member("b", "node-b"), member("c", "node-c")]

    await world_of(*pods).ends(
        quota_of("a", "b", "c"), victims={"a": "deleted", "b": "deleted", "c": "deleted"}
    )


async def test_a_unit_of_which_no_pod_is_in_the_queue_stays() -> None:
    world = world_of(*(in_queue(member(name, f"node-{name}"), "root.nolimit") for name in "abc"))

    await world.ends(
        quota_of("a", "b", "c"),
        "refused",
        says="the pod is in root.nolimit, the order is for root.default",
        deletes=[],
    )


async def test_of_a_unit_no_pod_goes_for_a_quota_where_one_may_not() -> None:
    for keep in (leave_out, cycle):
        world = world_of(*spread("a", "b"))
        keep(world)
        assert (await world.carry_out(quota_of("a", "b"))).result == "refused"
        assert world.cluster.deletes() == []
    refusing = world_of(*spread("a", "b"))
    refusing.cluster.always_fail("dry_run", "b", FORBIDDEN)
    await refusing.ends(quota_of("a", "b"), "failed", "delete-refused", deletes=[])
    assert not refusing.cluster.is_marked("a")


async def test_a_quota_goes_by_the_priority_of_the_group() -> None:
    critical = record(priority=2_000_000_000)
    world = world_of(*spread("a", "b"), group=critical)

    await world.ends(
        quota_of("a", "b"), "refused", "victim-spared", says="priority 2000000000 is Kubernetes' own"
    )


async def test_a_quota_order_for_a_unit_and_a_single_pod_is_none() -> None:
    world = world_of(member("a", "node-a"), a_pod("b").build())

    await world.ends(quota_of("a", single="b"), "refused", "incomplete-order")


async def test_where_the_noted_pod_stays_what_else_is_gone_went_by_others() -> None:
    world = world_of(marked("a"), marked("c", "node-c"), member("b2", "node-z"), begun=BEGUN)

    await world.ends(unit_order("a", "b", "c"), reason="unit-incomplete", deletes=[], deliveries=2)


async def test_an_order_of_some_time_ago_may_have_begun_though_it_is_delivered_for_the_first_time() -> None:
    """The consumer was made anew, so its deliveries are counted from the beginning."""
    world = world_of(marked("b", "node-b"), begun=BEGUN)
    world.clock.time += timedelta(seconds=2)
    delete_preemptor(world)

    await world.ends(unit_order("a", "b"), victims={"a": "gone", "b": "deleted"})


async def test_the_priority_that_the_group_had_counts_for_what_is_left_of_a_unit() -> None:
    """Its pods are more important than it was, and it is gone."""
    world = world_of(marked("b", "node-b", 5000), begun=BEGUN)
    remove_group(world)

    await world.ends(unit_order("a", "b"), victims={"a": "gone", "b": "deleted"}, deliveries=2)


async def test_the_end_of_an_order_tells_what_became_of_the_rest_of_a_unit() -> None:
    went, stays = (world_of(marked("b", "node-b"), marked("c", "node-c"), begun=BEGUN) for _ in range(2))
    for world in (went, stays):
        delete_preemptor(world)

    def set_the_brake() -> None:
        stays.cluster.brake = Brake(everywhere=True)

    stays.cluster.before("delete", "b", set_the_brake)
    stays.cluster.slow["get_pod", "c"] = 40

    told = [
        (await world.carry_out(unit_order("a", "b", "c"), deliveries=2)).message for world in (went, stays)
    ]

    assert told[0].endswith(f"; the rest of {UNIT}, of which pods had been deleted, went as well")
    assert f"; pods of {UNIT} stay, of which others were deleted (1): the mode for namespace" in told[1]


async def test_an_order_whose_begin_cannot_be_read_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(marked("a"), marked("b", "node-b"))
    monkeypatch.setattr(unit_work, "READ_NOTE_SECONDS", 0.01)

    async def no_answer(order_id: str) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(world.records, "begun", no_answer)

    await world.ends(unit_order("a", "b"), "succeeded", deliveries=2)


@pytest.mark.parametrize("own", [0, 5000])
@pytest.mark.parametrize("noted", [True, False])
async def test_an_order_that_came_again_spares_a_unit_with_no_pod_deleted(own: int, noted: bool) -> None:
    world = world_of(
        marked("a", priority=own),
        marked("b", "node-b", own),
        member("c", "node-c"),
        begun=BEGUN if noted else None,
    )

    await world.ends(unit_order("a", "b"), reason="unit-incomplete", deletes=[], deliveries=2)


async def test_a_pod_that_went_by_itself_before_its_unit_was_marked_begins_nothing() -> None:
    world = world_of(member("b", "node-b"), member("c", "node-c"))
    remove_group(world)

    await world.ends(unit_order("a", "b", "c"), reason="victim-spared", deletes=[], deliveries=2)


async def test_groups_that_cannot_be_read_for_a_moment_are_read_again() -> None:
    world = world_of(member("a"), member("b", "node-b"))
    world.cluster.fail("get_pod_group", "g", UNAVAILABLE)

    await world.ends(unit_order("a", "b"), "succeeded")


async def test_of_pods_without_a_group_no_group_is_asked_for() -> None:
    world = World(a_pod("a").build())

    await world.carry_out(make_order("a"))

    assert not {"discovery", "list_pods", "get_pod_group"} & {
        operation for operation, _ in world.cluster.calls
    }


async def test_of_other_groups_of_the_namespace_nothing_is_read() -> None:
    world = world_of(
        member("a"), member("b", "node-b"), *(member(f"o{n}", "node-o", f"o{n}") for n in range(9))
    )

    await world.ends(unit_order("a", "b"), "succeeded")

    assert {name for operation, name in world.cluster.calls if operation == "get_pod_group"} == {"g"}


@pytest.mark.parametrize(
    ("named", "result", "deleted"), [(("a",), "refused", []), (("a", "b"), "succeeded", ["a", "b"])]
)
async def test_a_composite_group_is_deleted_with_the_pods_of_all_its_groups(
    named: tuple[str, ...], result: str, deleted: list[str]
) -> None:
    world = world_of(member("a"), member("b", "node-b", "k"), group=record(whole=False, parent="c"))
    parent = GroupKey("default", "c", composite=True)
    world.cluster.groups[parent] = GroupRecord(key=parent, uid="c", whole=True)
    other = GroupKey("default", "k")
    world.cluster.groups[other] = GroupRecord(key=other, uid="k", parent="c")

    outcome = await world.carry_out(unit_order(*named, unit=str(parent)))

    assert (outcome.result, sorted(world.cluster.deletes())) == (result, deleted)


@pytest.mark.parametrize("own", [0, 5000])
async def test_a_group_made_anew_at_a_higher_priority_is_no_evidence_for_the_breaker(own: int) -> None:
    group = record(whole=False, priority=1000)
    world = world_of(member("a", priority=own), group=group)

    outcome = await world.ends(make_order(make_victim("a")), "refused")

    assert [one.reason for one in outcome.victims] == ["pod-group"]
    assert not NEVER_VICTIMS & {one.reason for one in outcome.victims}


def test_units_of_another_namespace_have_no_group_of_this_one_read() -> None:
    here = replace(make_victim("a"), unit=UNIT)
    there = replace(make_victim("b"), namespace="other", unit="PodGroup other/g")
    order = replace(make_order("a"), victims=(here, there))

    found = groups_in({KEY: (), GroupKey("default", "h"): ()}, order)

    assert found == {KEY}
