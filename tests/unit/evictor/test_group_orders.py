"""Orders for a pod group: nothing is deleted before everything would be; nominations are taken back."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from builders_bus import make_group
from makeway.bus import codec
from makeway.bus.messages import BegunUnit, EvictionOrder, NominationToClear, Outcome, Placement, Victim
from makeway.core.k8s.objects import Metadata, Node, Pod, SchedulingGroup
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.evictor.act.execution import Execution
from makeway.evictor.act.progress import VictimProgress
from makeway.evictor.act.report import summarise
from makeway.evictor.act.rollback import RollbackReport
from makeway.evictor.act.work import CHECK_LASTS
from makeway.evictor.intake import service
from makeway.evictor.intake.wasted import WastedVictims, in_vain
from makeway.evictor.judge import gang
from makeway.evictor.judge.members import Members
from makeway.evictor.judge.verdicts import Exempt, Proceed, Refused
from makeway.evictor.limits.breaker import NEVER_ORDERED, Breaker
from makeway.evictor.limits.slots import AT_ONCE
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError
from makeway.runtime.pod_group_api import PodGroupApi
from unit.evictor.building import NOW, PodBuilder, a_pod, changed, make_order, make_preemptor, make_victim
from unit.evictor.fakes import UNAVAILABLE
from unit.evictor.test_groups import BEGUN, KEY, UNIT
from unit.evictor.test_groups import marked as marked_of_group
from unit.evictor.test_groups import member as pod_of_group
from unit.evictor.test_groups import record as unit_record
from unit.evictor.test_service import World, results

TRAIN = GroupKey("default", "train")
DENIED = PermanentError("Forbidden", '403 Forbidden: pods "b" is forbidden: policy keep says no')


def trainer(number: int, node: str | None = None, **changes: Any) -> Pod:
    """A member of the group that preempts, nominated to its node."""
    name = f"train-{number}"
    pod = a_pod(name).on(None).priority(1000).phase("Pending").nominated(node or f"n{number}").build()
    return changed(pod, "spec", scheduling_group=SchedulingGroup(pod_group_name="train"), **changes)


def running(name: str, node: str) -> Pod:
    return a_pod(name).on(node).build()


def group_order(*victims: Victim, count: int = 2, **changes: Any) -> EvictionOrder:
    group = make_group("train-uid", namespace="default", must_place=changes.pop("must_place", count))
    waiting = tuple(
        Placement(
            namespace="default", name=f"train-{n}", uid=f"train-{n}-uid", node=f"n{n}", node_uid=f"n{n}-uid"
        )
        for n in range(1, count + 1)
    )
    fields: dict[str, Any] = {
        "kind": "group",
        "preemptor": None,
        "node": "",
        "node_uid": "",
        "group": group,
        "members": waiting,
    }
    return make_order(*victims, **fields | changes)


def on(name: str, node: str, **changes: Any) -> Victim:
    return make_victim(name, node=node, **changes)


VICTIMS = (on("a", "n1"), on("b", "n1"), on("c", "n2"))
WHOLE = group_order(*VICTIMS)


class GroupWorld(World):
    """Two members wait for n1 and n2, where a, b and c run."""

    def __init__(self, *pods: Pod, members: int = 2) -> None:
        super().__init__(
            running("a", "n1"),
            running("b", "n1"),
            running("c", "n2"),
            *(trainer(number) for number in range(1, members + 1)),
            *pods,
        )
        self.cluster.group_api = PodGroupApi("v1beta1", "v1alpha3")
        self.cluster.groups[TRAIN] = GroupRecord(key=TRAIN, uid="train-uid", priority=1000, min_count=2)
        self.cluster.groups[KEY] = unit_record()
        for number in range(1, members + 1):
            node = f"n{number}"
            self.cluster.nodes[node] = Node(metadata=Metadata(name=node, uid=f"{node}-uid"))

    async def order(self, order: EvictionOrder | None = None, deliveries: int = 1) -> Outcome:
        return await self.carry_out(order or WHOLE, deliveries)

    def nominated(self) -> list[str | None]:
        found = [name for name in self.cluster.pods if name.startswith("train-")]
        return [self.cluster.pods[name].status.nominated_node_name for name in sorted(found)]

    def places(self, operation: str) -> list[int]:
        return [place for place, call in enumerate(self.cluster.calls) if call[0] == operation]


async def test_all_victims_on_all_nodes_go_and_the_group_hears_of_it() -> None:
    world = GroupWorld()

    outcome = await world.ends(WHOLE, victims={"a": "deleted", "b": "deleted", "c": "deleted"})

    assert (outcome.result, outcome.kind, outcome.preemptor_uid) == ("succeeded", "group", "train-uid")
    assert world.nominated() == ["n1", "n2"]
    about = {(event.about.kind, event.about.name): event for event in world.recorded}
    assert about["PodGroup", "train"].reason == "RoomMade"
    assert about["PodGroup", "train"].note == "Evicted 3 pods from 2 nodes"
    assert about["PodGroup", "train"].about.api_version == "scheduling.k8s.io/v1beta1"
    assert about["Pod", "c"].note == "Preempted by podgroup train-uid on node n2"


async def test_everything_is_read_and_every_deletion_tried_before_the_first_delete() -> None:
    world = GroupWorld()

    await world.order()

    calls = world.cluster.calls
    first = world.places("delete")[0]
    tried = [name for operation, name in calls[:first] if operation == "dry_run"]
    assert sorted(tried) == ["a", "b", "c"]
    read_since = set(calls[world.places("dry_run")[-1] : first])
    assert {("get_pod", name) for name in ("a", "b", "c", "train-1", "train-2")} <= read_since
    assert {("get_pod_group", "train"), ("get_node", "n1"), ("get_node", "n2")} <= read_since


async def test_the_last_victim_of_each_node_goes_after_all_others() -> None:
    world = GroupWorld()

    await world.order()

    assert world.cluster.deletes()[0] == "a"
    assert sorted(world.cluster.deletes()[1:]) == ["b", "c"]


async def test_an_order_that_only_clears_nominations_deletes_nothing_and_succeeds() -> None:
    low = a_pod("low").on(None).nominated("n1").build()
    world = GroupWorld(low)
    listed = NominationToClear(namespace="default", name="low", uid="low-uid", node="n1")

    outcome = await world.order(group_order(nominations_to_clear=(listed,)))

    assert (outcome.result, outcome.victims) == ("succeeded", ())
    assert outcome.nominations_cleared == ("low-uid",)
    assert world.cluster.deletes() == world.cluster.marks() == []


def test_what_is_said_of_thousands_of_victims_fits_into_a_message() -> None:
    order = group_order(*(on("v" * 60, "n1", uid=f"{number:036}") for number in range(3000)))
    kept = [VictimProgress(victim, Exempt("never-evict", "x" * 1000)) for victim in order.victims]
    undone = RollbackReport(refused=[f"mark of default/{victim.uid}" for victim in order.victims])

    outcome = summarise(
        order,
        Refused("victim-spared", "x"),
        kept,
        undone=undone,
        nominations_cleared=(),
        evictor="evictor-1",
        deliveries=1,
        started_at=NOW,
        finished_at=NOW,
    )

    assert len(codec.wrap(outcome, "makeway/evictor/x")) < codec.MAX_BYTES
    assert outcome.message.endswith(" and 2990 more")


async def test_units_go_whole_before_single_pods() -> None:
    world = GroupWorld(pod_of_group("u", "n1"), pod_of_group("v", "far"))
    victims = (*VICTIMS, on("u", "n1", unit=UNIT), on("v", "far", unit=UNIT))

    await world.ends(group_order(*victims), "succeeded")

    assert sorted(world.cluster.deletes()[:2]) == ["u", "v"]


async def test_the_marks_of_single_pods_prove_as_well_what_a_watch_has_of_a_unit() -> None:
    """Where victims are many the unit's own marks are old by then."""
    world = GroupWorld(pod_of_group("u", "n1"), pod_of_group("v", "far"))
    world.cluster.put(changed(world.cluster.pods["c"], "metadata", resource_version="50"))
    asked: list[int] = []

    def followed(namespace: str, since: int) -> Members:
        asked.append(since)
        return world.cluster.members_now(namespace)

    world.cluster.followed = followed
    units = (on("u", "n1", unit=UNIT), on("v", "far", unit=UNIT))

    await world.ends(group_order(*units, *VICTIMS), "succeeded")

    assert asked[-1] > 50
    assert ("list_pods", "default") not in world.cluster.calls


async def test_what_admission_refuses_of_one_victim_keeps_all_and_takes_every_nomination_back() -> None:
    world = GroupWorld()
    world.cluster.always_fail("dry_run", "b", DENIED)

    outcome = await world.ends(WHOLE, "failed", "delete-refused", says="policy keep says no", deletes=[])

    assert not any(world.cluster.is_marked(name) for name in "abc")
    assert world.nominated() == [None, None]
    assert outcome.rollback is not None
    assert outcome.rollback.nominations_reverted == ("train-1-uid", "train-2-uid")
    assert not outcome.rollback.nomination_reverted
    [event] = world.recorded
    assert (event.reason, event.type) == ("PreemptionFailed", "Warning")
    assert event.note == f"No room was made on 2 nodes: delete-refused: {DENIED}"


async def test_a_failure_in_mid_flight_stops_the_rest_and_is_told_with_what_has_gone() -> None:
    world = GroupWorld()
    world.cluster.always_fail("delete", "c", DENIED)
    world.cluster.slow["delete", "b"] = 20

    await world.ends(
        WHOLE, "failed", "delete-refused", victims={"a": "deleted", "b": "deleted", "c": "failed"}
    )

    assert not world.cluster.is_marked("c")
    assert world.nominated() == [None, None]
    notes = {event.note for event in world.recorded}
    assert f"No room was made on 2 nodes after 2 pods had been evicted: delete-refused: {DENIED}" in notes


async def test_no_victim_is_begun_after_one_that_failed() -> None:
    world = GroupWorld()
    world.cluster.always_fail("delete", "a", DENIED)

    await world.ends(WHOLE, victims={"a": "failed", "b": "notAttempted", "c": "notAttempted"})

    assert not any(world.cluster.is_marked(name) for name in "abc")


def set_member(number: int, change: Callable[[Pod], Pod | None]) -> Callable[[GroupWorld], None]:
    def apply(world: GroupWorld) -> None:
        name = f"train-{number}"
        pod = change(world.cluster.pods[name])
        if pod is None:
            world.cluster.remove(name)
        else:
            world.cluster.put(pod)

    return apply


def set_group(**fields: Any) -> Callable[[GroupWorld], None]:
    def apply(world: GroupWorld) -> None:
        world.cluster.groups[TRAIN] = replace(world.cluster.groups[TRAIN], **fields)

    return apply


def set_node(**fields: Any) -> Callable[[GroupWorld], None]:
    def apply(world: GroupWorld) -> None:
        world.cluster.nodes["n2"] = Node(metadata=Metadata(name="n2", **{"uid": "n2-uid", **fields}))

    return apply


GONE = (
    (lambda world: world.cluster.groups.pop(TRAIN), "group-gone"),
    (set_group(uid="another"), "group-gone"),
    (set_group(leaving=True), "group-gone"),
    (set_group(parent="absent"), "group-gone"),
    (set_group(min_count=3), "group-changed"),
    (set_member(2, lambda pod: None), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "metadata", uid="again")), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "metadata", deletion_timestamp=NOW)), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "spec", node_name="elsewhere")), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "spec", scheduling_group=None)), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "status", phase="Failed")), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "status", nominated_node_name="n3")), "members-missing"),
    (set_member(2, lambda pod: changed(pod, "status", nominated_node_name=None)), "members-missing"),
    (lambda world: world.cluster.nodes.pop("n2"), "members-missing"),
    (set_node(uid="another"), "members-missing"),
    (set_node(deletion_timestamp=NOW), "members-missing"),
    (set_group(preemption_policy="Never"), "preemption-policy-never"),
    (set_member(1, lambda pod: changed(pod, "spec", preemption_policy="Never")), "preemption-policy-never"),
)


@pytest.mark.parametrize(("change", "reason"), GONE)
@pytest.mark.parametrize("late", [False, True], ids=["before", "while the deletions are tried"])
async def test_an_order_whose_group_is_another_by_now_deletes_nothing(
    change: Callable[[GroupWorld], None], reason: str, late: bool
) -> None:
    world = GroupWorld()
    if late:
        world.cluster.before("dry_run", "c", lambda: change(world))
    else:
        change(world)

    outcome = await world.order()

    assert outcome.reason == reason, outcome.message
    assert outcome.result in ("cancelled", "refused")
    assert world.cluster.deletes() == []
    assert not any(world.cluster.is_marked(name) for name in "abc")
    # That of a member that is bound, leaving, another pod or nominated elsewhere is not the order's to end.
    assert world.cluster.pods["train-1"].status.nominated_node_name is None
    assert (reason == "members-missing") or world.nominated() == [None, None]


async def test_a_group_whose_own_policy_preempts_does_so_whatever_its_pods_say() -> None:
    world = GroupWorld()
    set_group(preemption_policy="PreemptLowerPriority")(world)
    set_member(1, lambda pod: changed(pod, "spec", preemption_policy="Never"))(world)

    assert (await world.order()).result == "succeeded"


async def test_members_above_those_that_must_be_placed_may_be_missing_where_no_victim_goes_for_them() -> None:
    world = GroupWorld(members=3)
    world.cluster.remove("train-3")

    await world.ends(group_order(*VICTIMS, count=3, must_place=2), "succeeded")


async def test_no_victim_goes_for_a_member_that_does_not_wait_any_more() -> None:
    world = GroupWorld(running("d", "n3"), members=3)
    world.cluster.remove("train-3")

    outcome = await world.ends(
        group_order(*VICTIMS, on("d", "n3"), count=3, must_place=2),
        "cancelled",
        "members-missing",
        deletes=[],
    )

    assert outcome.message == "no member waits for node n3 any more"


async def test_a_victim_that_was_made_anew_under_its_name_stays() -> None:
    world = GroupWorld()
    world.cluster.put(a_pod("b").uid("b-second-uid").on("n1").build())

    await world.ends(WHOLE, victims={"a": "deleted", "b": "gone", "c": "deleted"})

    assert "b" not in world.cluster.deletes()


async def test_a_victim_that_moved_refuses_the_order() -> None:
    world = GroupWorld()
    world.cluster.put(running("b", "n2"))

    await world.ends(WHOLE, "refused", "victim-spared", says="the pod runs on n2, the order is for n1")

    assert world.cluster.deletes() == world.cluster.marks() == []


async def test_a_pod_of_the_group_itself_is_no_victim() -> None:
    mate = changed(running("d", "n1"), "spec", scheduling_group=SchedulingGroup(pod_group_name="train"))
    world = GroupWorld(mate)

    outcome = await world.ends(group_order(*VICTIMS, on("d", "n1")), reason="victim-spared", deletes=[])

    assert {one.reason for one in outcome.victims if one.name == "d"} == {"pod-group"}


async def test_the_groups_priority_counts_and_not_what_the_order_says() -> None:
    world = GroupWorld()
    set_group(priority=0)(world)

    await world.ends(WHOLE, reason="victim-spared", deletes=[])


def without(**fields: Any) -> EvictionOrder:
    return group_order(*VICTIMS, **fields)


OTHER = Placement(namespace="other", name="x", uid="x", node="n1")
MEMBERS = group_order().members


@pytest.mark.parametrize(
    "order",
    [
        without(group=None),
        without(members=()),
        without(preemptor=make_preemptor()),
        without(node="n1"),
        without(must_place=0),
        without(must_place=3),
        without(members=(*MEMBERS, OTHER)),
        without(members=(*MEMBERS, MEMBERS[0])),
        group_order(*VICTIMS, on("train-1", "n1")),
    ],
    ids=gang.incomplete,
)
async def test_an_order_that_is_none_for_a_group_reads_nothing(order: EvictionOrder) -> None:
    world = GroupWorld()
    # An order for no group has no subject of its own.
    if order.group is None:
        assert gang.incomplete(order)
        return

    outcome = await world.ends(order, "refused", "incomplete-order")

    assert outcome.reason in NEVER_ORDERED
    assert world.cluster.calls == []


@pytest.mark.parametrize("part", ["name", "node"])
async def test_a_members_name_or_node_that_is_no_name_reads_nothing(part: str) -> None:
    members = tuple(replace(one, **{part: "a/b"}) for one in MEMBERS)
    world = GroupWorld()

    await world.ends(without(members=members), "refused", "invalid-name")

    assert world.cluster.calls == []


async def test_reads_that_take_too_long_are_made_again() -> None:
    world = GroupWorld()
    world.cluster.before("dry_run", "c", lambda: world.cluster.before("get_pod", "b", slowly(world)))

    await world.ends(WHOLE, "succeeded")

    first = world.places("delete")[0]
    since = world.cluster.calls[world.places("dry_run")[-1] : first]
    assert since.count(("get_pod", "a")) == 2


@pytest.mark.parametrize(("pods", "seconds"), [(0, 1), (1, 1), (500, 1), (501, 2), (3_000, 6)])
def test_a_read_of_many_pods_lasts_longer(pods: int, seconds: int) -> None:
    assert gang.reads_last(pods) == timedelta(seconds=seconds)


async def test_an_order_of_many_victims_may_take_longer_to_read_them() -> None:
    victims = [on(f"v{number}", f"n{1 + number % 2}") for number in range(501)]
    world = GroupWorld(*(running(victim.name, victim.node) for victim in victims))
    world.policy = Policy(limits=PolicyLimits(victims_per_order=1_000, victims_per_minute=1_000))
    for _ in range(20):
        world.cluster.before("list_pods", "default/n1", slowly(world))

    outcome = await world.order(group_order(*victims))

    assert (outcome.result, len(world.cluster.deletes())) == ("succeeded", 501)


async def test_an_order_for_a_group_that_is_borne_out_is_held_by_no_default_cap() -> None:
    world = GroupWorld()
    world.evictor.parts.caps.count({"default": 1_000}, world.clock.now())

    assert (await world.order()).result == "succeeded"


async def test_an_order_whose_victims_cannot_be_read_within_a_second_is_given_up() -> None:
    world = GroupWorld()
    for _ in range(20):
        world.cluster.before("get_pod", "b", slowly(world))

    outcome = await world.ends(WHOLE, "failed", "reads-too-slow", deletes=[])

    assert outcome.message == "it took 1.5 s to read 3 victims, at most 1 s"
    assert world.nominated() == [None, None]


async def test_a_process_that_was_stopped_after_the_barrier_reads_all_victims_again() -> None:
    world = GroupWorld()
    # The brake is read right before each effect; the eighth is that of the first deletion.
    stopped: list[int] = []

    def stop() -> None:
        if not stopped and world.places("delete") == [] and len(world.places("dry_run")) == 3:
            since = world.cluster.calls[world.places("dry_run")[-1] :]
            if since.count(("read_brake", "")) == 3:
                stopped.append(len(world.cluster.calls))
                slowly(world)()

    for _ in range(40):
        world.cluster.before("read_brake", "", stop)

    await world.ends(WHOLE, "succeeded")

    assert stopped
    between = world.cluster.calls[stopped[0] : world.places("delete")[0]]
    assert {("get_pod", name) for name in "abc"} <= set(between)


def slowly(world: GroupWorld) -> Callable[[], None]:
    def advance() -> None:
        world.clock.time += timedelta(seconds=1.5)

    return advance


async def test_what_an_earlier_delivery_deleted_is_not_deleted_again() -> None:
    world = GroupWorld()
    world.cluster.leave("a")
    world.cluster.remove("c")

    await world.ends(
        WHOLE,
        "succeeded",
        deletes=["b"],
        victims={"a": "terminating", "b": "deleted", "c": "gone"},
        deliveries=2,
    )


async def test_what_an_earlier_delivery_left_of_a_unit_goes_though_a_pod_has_joined_it() -> None:
    world = GroupWorld(marked_of_group("q", "n2"), pod_of_group("r", "n9"))
    world.records.begun_orders["ord-1"] = replace(
        BEGUN, units=(BegunUnit(unit=UNIT, first="p-uid", priority=0),)
    )

    await world.ends(
        group_order(on("p", "n1", unit=UNIT), on("q", "n2", unit=UNIT)),
        "succeeded",
        victims={"p": "gone", "q": "deleted"},
        deliveries=2,
    )


@pytest.mark.parametrize(("change", "reason"), GONE)
async def test_what_an_earlier_delivery_left_of_a_unit_goes_though_the_group_does_not_want_it_any_more(
    change: Callable[[GroupWorld], None], reason: str
) -> None:
    world = GroupWorld(marked_of_group("q", "n2"), marked_of_group("r", "n9"))
    world.records.begun_orders["ord-1"] = replace(
        BEGUN, units=(BegunUnit(unit=UNIT, first="p-uid", priority=0),)
    )
    change(world)

    order = group_order(
        on("p", "n1", unit=UNIT), on("q", "n2", unit=UNIT), on("r", "n9", unit=UNIT), on("a", "n1")
    )
    await world.ends(
        order,
        reason=reason,
        victims={"p": "gone", "q": "deleted", "r": "deleted", "a": "notAttempted"},
        deliveries=2,
    )


async def test_what_is_left_of_a_unit_goes_where_a_member_is_missing_after_its_first_delete() -> None:
    names = [f"u{number}" for number in range(AT_ONCE + 4)]
    world = GroupWorld(*(pod_of_group(name, "n1") for name in names))

    def lose_a_member() -> None:
        world.cluster.remove("train-2")
        world.clock.time += CHECK_LASTS + timedelta(seconds=1)

    world.cluster.before("delete", "u0", lose_a_member)

    await world.ends(
        group_order(*(on(name, "n1", unit=UNIT) for name in names), on("c", "n2")),
        reason="members-missing",
        victims=dict.fromkeys(names, "deleted") | {"c": "notAttempted"},
    )

    assert not world.cluster.is_marked("c")


async def test_nominations_of_a_later_order_of_the_group_are_left_alone() -> None:
    world = GroupWorld()
    world.cluster.always_fail("dry_run", "b", DENIED)
    world.records.orders["train-uid"] = group_order(order_id="ord-2")

    outcome = await world.order()

    assert outcome.rollback is not None
    assert outcome.rollback.nominations_reverted == ()
    assert world.nominated() == ["n1", "n2"]


async def test_listed_nominations_are_cleared_on_the_nodes_that_they_name() -> None:
    low: Callable[[str, str], Pod] = lambda name, node: PodBuilder(name).on(None).nominated(node).build()  # noqa: E731
    world = GroupWorld(low("x", "n1"), low("y", "n9"))
    listed = tuple(
        NominationToClear(namespace="default", name=name, uid=f"{name}-uid", node="n1") for name in "xy"
    )

    outcome = await world.order(group_order(*VICTIMS, nominations_to_clear=listed))

    assert outcome.nominations_cleared == ("x-uid",)
    assert world.cluster.pods["y"].status.nominated_node_name == "n9"


async def test_the_mode_of_the_groups_namespace_holds() -> None:
    world = GroupWorld()
    world.policy = Policy(namespace_modes={"default": "observe"})

    await world.ends(WHOLE, "refused", "mode-observe")


async def test_what_the_breaker_has_against_the_group_holds() -> None:
    world = GroupWorld()
    world.breaker = lambda order: Refused("breaker-open-namespace", "open") if order.room_for else None

    assert (await world.order()).reason == "breaker-open-namespace"


async def test_pods_with_hard_budgets_go_one_by_one_before_the_others() -> None:
    world = GroupWorld()
    world.policy = Policy(disruption_budgets="hard", hard_budget_namespaces=("default",))

    await world.ends(WHOLE, "succeeded", deletes=[])

    assert sorted(world.cluster.evictions()) == ["a", "b", "c"]


async def test_a_member_that_cannot_be_read_for_a_moment_is_read_again() -> None:
    world = GroupWorld()
    world.cluster.fail("get_pod", "train-2", UNAVAILABLE)

    assert (await world.order()).result == "succeeded"


def crowd(*nodes: str) -> list[Victim]:
    return [on(f"v{number}-{node}", node) for node in nodes for number in range(5)]


def read_before_the_first_mark(world: GroupWorld) -> list[tuple[str, str]]:
    """What was read of pods, but for the members."""
    reads = [call for call in world.cluster.calls[: min(world.places("mark"))] if "pod" in call[0]]
    return sorted({call for call in reads if not call[1].startswith("train")})


async def test_many_victims_of_one_node_are_read_by_a_list_of_its_pods() -> None:
    victims = crowd("n1", "n2")
    world = GroupWorld(*(running(victim.name, victim.node) for victim in victims))

    outcome = await world.order(group_order(*victims, on("c", "n2")))

    assert (outcome.result, len(outcome.victims)) == ("succeeded", 11)
    assert read_before_the_first_mark(world) == [("list_pods", "default/n1"), ("list_pods", "default/n2")]


async def test_a_victim_that_the_list_of_its_node_lacks_is_read_by_itself() -> None:
    """The list is no longer than four times the victims, whatever else is on the node."""
    victims = crowd("n1")
    others = [running(f"o{number}", "n1") for number in range(4 * len(victims) - 1)]
    world = GroupWorld(*others, *(running(victim.name, "n1") for victim in victims))

    await world.ends(group_order(*victims, on("c", "n2")), "succeeded")

    assert ("list_pods", "default/n1") in read_before_the_first_mark(world)
    assert ("get_pod", "v4-n1") in read_before_the_first_mark(world)


async def test_a_listed_victim_made_anew_on_its_node_is_not_deleted() -> None:
    victims = crowd("n1")
    world = GroupWorld(*(running(victim.name, "n1") for victim in victims))
    world.cluster.put(a_pod("v0-n1").on("n1").uid("another-uid").build())

    outcome = await world.order(group_order(*victims, on("c", "n2")))

    assert results(outcome)["v0-n1"] == "gone"
    assert "v0-n1" not in world.cluster.deletes()


async def test_where_a_list_fails_each_victim_is_read_by_itself_and_no_list_asked_for_again() -> None:
    victims = crowd("n1")
    world = GroupWorld(*(running(victim.name, "n1") for victim in victims))
    world.cluster.fail("list_pods", "default/n1", UNAVAILABLE)

    assert (await world.order(group_order(*victims, on("c", "n2")))).result == "succeeded"
    assert world.cluster.calls.count(("list_pods", "default/n1")) == 1
    assert ("get_pod", "v0-n1") in read_before_the_first_mark(world)


async def test_re_checks_of_many_victims_share_one_look_at_the_members() -> None:
    victims = [on(f"v{number}", "n1") for number in range(60)]
    world = GroupWorld(*(running(victim.name, "n1") for victim in victims))

    await world.ends(group_order(*VICTIMS, *victims), "succeeded")

    assert world.cluster.calls.count(("get_pod", "train-1")) <= 4


def bound(number: int, node: str) -> Pod:
    return changed(trainer(number), "spec", node_name=node)


@pytest.mark.parametrize(
    ("pods", "wasted"),
    [
        ([bound(1, "n1"), bound(2, "n2")], False),
        ([bound(1, "n2"), bound(2, "n1")], False),
        ([bound(1, "n1"), trainer(2)], True),
        ([bound(1, "n1"), bound(2, "elsewhere")], True),
        ([bound(1, "n1"), None], None),
        ([bound(1, "n1"), changed(trainer(2), "metadata", deletion_timestamp=NOW)], None),
    ],
)
async def test_victims_of_a_group_are_in_vain_where_too_few_members_get_a_place(
    pods: list[Pod | None], wasted: bool | None
) -> None:
    assert in_vain(group_order(*VICTIMS), pods) is wasted


async def test_the_members_of_an_order_that_succeeded_are_looked_at_for_the_breaker() -> None:
    world = GroupWorld()
    outcome = await world.order()
    breaker = Breaker(world.clock, EvictorMetrics(CollectorRegistry()))
    looking = WastedVictims(world.cluster, world.clock, breaker)
    for _ in range(7):
        looking.follow(group_order(*VICTIMS), outcome)

    world.clock.time += timedelta(minutes=2)
    await looking.look()

    assert [trip.key for trip in breaker.open()] == ["wasted-victims.default"]


@pytest.mark.parametrize("turns", range(12))
async def test_two_looks_at_a_group_that_overlap_find_it(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """One that begins while another reads the members takes nothing from it that this has read."""
    found: list[object] = []

    class Looking(Execution):
        async def _carry_out(self) -> None:
            first = asyncio.create_task(self._looks._still_wanted())
            for _ in range(turns):
                await asyncio.sleep(0)
            found.extend(await asyncio.gather(first, self._looks._still_wanted()))

    monkeypatch.setattr(service, "Execution", Looking)
    world = GroupWorld()
    world.cluster.slow["get_pod_group", "train"] = 8

    await world.order()

    assert [type(one) for one in found] == [Proceed, Proceed]
