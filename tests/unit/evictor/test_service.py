"""One order from its delivery to its outcome, on a cluster and a bus in memory and in virtual time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.bus.messages import Awaited, EvictionOrder, Fence, NominationToClear, Outcome, Void
from makeway.bus.orders import voided
from makeway.core.k8s.objects import Pod
from makeway.core.policy.document import Policy
from makeway.core.policy.mode import Mode
from makeway.core.queues.queue_exempt import queue_exempt_namespaces
from makeway.evictor.act.calls import ADMISSION_SECONDS, CALL_TIMEOUT_SECONDS
from makeway.evictor.act.events import Events
from makeway.evictor.act.holds import Holds
from makeway.evictor.act.work import EvictorParts
from makeway.evictor.intake.deliveries import take_forever
from makeway.evictor.intake.service import (
    QUARANTINE_AFTER_DEFECTS,
    QUARANTINE_AFTER_DELIVERIES,
    Evictor,
    EvictorSettings,
)
from makeway.evictor.judge.fences import Fences
from makeway.evictor.judge.verdicts import Refused
from makeway.evictor.limits.caps import Caps
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.queue_guard import QueueGuard
from makeway.evictor.limits.slots import Slots
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.config import Config, ConfigContent
from makeway.runtime.config_kinds import QUEUES
from makeway.runtime.config_metrics import ConfigMetrics
from narrowing import there
from recorded_events import RecordedEvents
from unit.evictor.building import (
    CLUSTER,
    EPOCH,
    NODE,
    NOW,
    QUEUES_YAML,
    a_pod,
    awaiting,
    make_order,
    make_outcome,
    make_victim,
    preemptor_pod,
)
from unit.evictor.fakes import (
    FORBIDDEN,
    SERVER_ERROR,
    UNAVAILABLE,
    FakeCluster,
    FakeDelivery,
    FakeRecords,
    VirtualClock,
)


class World:
    """An evictor with everything round it."""

    def __init__(
        self,
        *pods: Pod,
        mode: Mode = "enforce",
        queues_read: bool = True,
        fences: Fences | None = None,
        holds: Holds | None = None,
    ) -> None:
        self.cluster = FakeCluster(*pods)
        self.records = FakeRecords()
        self.clock = VirtualClock()
        self.registry = CollectorRegistry()
        metrics = EvictorMetrics(self.registry)
        self.policy = Policy()
        self.queues = Config(QUEUES, ConfigMetrics(self.registry))
        if queues_read:
            self.queues.offer(ConfigContent("queues.yaml", QUEUES_YAML))
        self.queues_trouble = ""
        self.breaker: Callable[[EvictionOrder], Refused | None] = lambda order: None
        self.mode_guard = ModeGuard(mode, lambda: self.policy, lambda: self.cluster.seen_brake, self._against)
        self.recorded = RecordedEvents()
        self.events = Events(self.recorded)
        self.slots = Slots(32, metrics)
        self.evictor = Evictor(
            EvictorSettings(cluster_uid=CLUSTER, identity="evictor-1", fences=fences or Fences.of()),
            EvictorParts(
                cluster=self.cluster,
                records=self.records,
                metrics=metrics,
                events=self.events,
                mode_guard=self.mode_guard,
                queue_guard=QueueGuard(
                    self.queues,
                    lambda: self.queues_trouble,
                    lambda: queue_exempt_namespaces(self.policy, "makeway-system"),
                ),
                caps=Caps(self.mode_guard.rates, "evictor-1", metrics),
                holds=holds or Holds(),
            ),
            clock=self.clock,
            slots=self.slots,
        )

    async def carry_out(self, order: EvictionOrder, deliveries: int = 1) -> Outcome:
        delivery = FakeDelivery(order, deliveries)
        if order.preemptor_uid:
            self.records.orders.setdefault(order.preemptor_uid, order)
        await self.evictor.handle(delivery)
        assert delivery.said == ["ack"]
        return self.records.outcomes[order.order_id]

    async def ends(
        self,
        order: EvictionOrder,
        result: str = "",
        reason: str | None = None,
        *,
        says: str = "",
        deletes: Sequence[str] | None = None,
        victims: Mapping[str, str] | None = None,
        deliveries: int = 1,
    ) -> Outcome:
        """Carry an order out, which has to end so; `victims`: what became of each, by name."""
        outcome = await self.carry_out(order, deliveries)
        assert outcome.result == (result or outcome.result), outcome
        assert outcome.reason == (outcome.reason if reason is None else reason), outcome
        assert says in outcome.message
        assert deletes is None or self.cluster.deletes() == list(deletes)
        assert victims is None or results(outcome) == victims
        return outcome

    def _against(self, order: EvictionOrder) -> Refused | None:
        return self.breaker(order)

    def nominated_node(self) -> str | None:
        return self.cluster.pods["urgent"].status.nominated_node_name

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def running(*names: str) -> tuple[Pod, ...]:
    return tuple(a_pod(n).build() for n in names)


def results(outcome: Outcome) -> dict[str, str]:
    return {v.name: v.result for v in outcome.victims}


def recreated(world: World, name: str) -> None:
    world.cluster.put(a_pod(name).uid(f"{name}-second-uid").build())


# --------------------------------------------------------------------------------------------------- success


async def test_victims_are_marked_then_deleted_and_the_outcome_says_so() -> None:
    world = World(*running("a", "b", "c"))

    outcome = await world.ends(
        make_order("a", "b", "c"), "succeeded", victims={"a": "deleted", "b": "deleted", "c": "deleted"}
    )

    assert all(v.deleted_at and v.grace_period_seconds == 30 for v in outcome.victims)
    assert world.cluster.is_marked("a")
    assert outcome.rollback is None
    assert world.nominated_node() == NODE
    assert (outcome.evictor, outcome.epoch, outcome.preemptor_uid) == ("evictor-1", EPOCH, "urgent-uid")


async def test_the_last_victim_is_touched_only_after_the_others_have_been_deleted() -> None:
    world = World(*running("a", "b", "c"))

    await world.carry_out(make_order("a", "b", "c"))

    calls = world.cluster.calls
    first_touch_of_c = calls.index(("mark", "c"))
    assert first_touch_of_c > max(calls.index(("delete", "a")), calls.index(("delete", "b")))


async def test_preemptor_node_and_fence_are_read_again_before_the_last_delete() -> None:
    world = World(*running("a", "b"))

    await world.carry_out(make_order("a", "b"))

    after = world.cluster.calls[world.cluster.calls.index(("delete", "a")) :]
    before_delete = after[: after.index(("delete", "b"))]
    for read in [("get_pod", "urgent"), ("get_node", NODE), ("get_lease", "makeway-scheduler")]:
        assert read in before_delete


async def test_a_last_victim_that_was_marked_for_nothing_is_unmarked() -> None:
    world = World(*running("a", "b"))
    world.cluster.before("delete", "a", lambda: world.cluster.remove("urgent"))
    world.cluster.slow["mark", "b"] = 5

    await world.ends(
        make_order("a", "b"), "cancelled", "preemptor-gone", victims={"a": "deleted", "b": "notAttempted"}
    )

    assert world.cluster.marks() == ["a", "b"]
    assert not world.cluster.is_marked("b")


async def test_no_mark_is_set_after_the_rollback_has_looked_for_it() -> None:
    world = World(*running("a", "b"))
    world.cluster.before("delete", "a", lambda: world.cluster.always_fail("get_node", NODE, FORBIDDEN))
    world.cluster.slow["mark", "b"] = 50

    await world.ends(make_order("a", "b"), "failed", "delete-refused")

    assert world.cluster.marks() == ["a", "b"]
    assert not world.cluster.is_marked("b")


async def test_victims_gone_or_leaving_cost_no_call_and_count_as_room() -> None:
    world = World(a_pod("leaving").terminating().build(), a_pod("done").phase("Succeeded").build())
    recreated(world, "renewed")

    await world.ends(
        make_order("absent", "leaving", "done", "renewed"),
        "succeeded",
        deletes=[],
        victims={"absent": "gone", "leaving": "terminating", "done": "gone", "renewed": "gone"},
    )

    assert not world.cluster.marks()


async def test_an_order_of_awaited_pods_only_succeeds_without_a_delete() -> None:
    world = World()
    world.records.outcomes["ord-0"] = make_outcome("ord-0", "succeeded")

    await world.ends(make_order(awaited=awaiting("ord-0")), "succeeded")


async def test_exactly_the_listed_nominations_are_cleared() -> None:
    waiting = [a_pod(n).on(None).nominated(NODE).phase("Pending").build() for n in ("x", "y")]
    higher = a_pod("z").on(None).nominated(NODE).priority(2000).build()
    world = World(*running("a"), *waiting, higher)
    refs = tuple(NominationToClear(namespace="default", name=n, uid=f"{n}-uid") for n in ("x", "z", "absent"))

    outcome = await world.carry_out(make_order("a", nominations_to_clear=refs))

    assert outcome.nominations_cleared == ("x-uid",)
    assert world.cluster.pods["x"].status.nominated_node_name is None
    assert world.cluster.pods["y"].status.nominated_node_name == NODE
    assert world.cluster.pods["z"].status.nominated_node_name == NODE


async def test_a_nomination_that_cannot_be_cleared_does_not_fail_the_order() -> None:
    world = World(*running("a"), a_pod("x").on(None).nominated(NODE).build())
    world.cluster.always_fail("clear_nomination", "x", UNAVAILABLE)
    refs = (NominationToClear(namespace="default", name="x", uid="x-uid"),)

    outcome = await world.carry_out(make_order("a", nominations_to_clear=refs))

    assert (outcome.result, outcome.nominations_cleared) == ("succeeded", ())
    assert world.clock.now() - NOW < timedelta(seconds=4)


async def test_events_tell_the_victim_a_uid_and_the_preemptor_the_counts() -> None:
    world = World(*running("a"), a_pod("b").terminating().build())

    await world.carry_out(make_order("a", "b"))

    notes = {event.reason: event.note for event in world.recorded}
    assert notes == {
        "Preempted": f"Preempted by pod urgent-uid on node {NODE}",
        "RoomMade": f"Evicted 1 pod from node {NODE}; 1 pod had left or was leaving already",
    }


async def test_the_preemptor_hears_that_room_is_being_made_where_it_takes_several_tries() -> None:
    world = World(*running("a"))
    world.cluster.fail("delete", "a", UNAVAILABLE, UNAVAILABLE)

    await world.carry_out(make_order("a"))

    events = [(event.reason, event.note) for event in world.recorded]
    assert events == [
        ("MakingRoom", f"Evicting 1 pod from node {NODE} to make room for this pod"),
        ("Preempted", f"Preempted by pod urgent-uid on node {NODE}"),
        ("RoomMade", f"Evicted 1 pod from node {NODE}"),
    ]


async def test_a_preemptor_hears_what_the_api_server_said_without_a_foreign_name() -> None:
    for namespace, words in (
        ("default", f": {FORBIDDEN}"),
        ("other", ": the API server answered 403 Forbidden for a pod of another namespace"),
    ):
        world = World(*running("a"))
        world.cluster.fail("delete", "a", FORBIDDEN)
        order = make_order("a")
        assert order.preemptor is not None
        ended = await world.carry_out(order)
        world.recorded.clear()

        world.events.ended(replace(order, preemptor=replace(order.preemptor, namespace=namespace)), ended)

        (event,) = world.recorded
        assert event.reason == "PreemptionFailed"
        assert event.note == f"No room was made on node {NODE}: delete-refused{words}"


# --------------------------------------------------------------------------------------------------- retries


async def test_a_429_is_tried_again_not_before_its_retry_after() -> None:
    world = World(*running("a"))
    world.cluster.fail("delete", "a", TemporaryError("throttled", "429", retry_after_seconds=7))

    outcome = await world.ends(make_order("a"), "succeeded")

    assert outcome.victims[0].attempts == 2
    assert world.clock.slept
    assert 7 <= world.clock.slept[0] <= 7.7
    assert world.metric("makeway_evictor_retries_total", operation="evict", reason="throttled") == 1


@pytest.mark.parametrize("operation", ["get_pod", "mark", "delete"])
async def test_a_5xx_then_success_is_a_success(operation: str) -> None:
    world = World(*running("a"))
    world.cluster.fail(operation, "a", SERVER_ERROR, SERVER_ERROR)

    await world.ends(make_order("a"), "succeeded")


async def test_a_retry_reads_everything_again_before_it_acts() -> None:
    world = World(*running("a"))
    world.cluster.fail("delete", "a", SERVER_ERROR)

    await world.carry_out(make_order("a"))

    calls = world.cluster.calls
    between = calls[calls.index(("delete", "a")) + 1 : len(calls) - calls[::-1].index(("delete", "a")) - 1]
    assert {("get_pod", "a"), ("get_pod", "urgent"), ("get_node", NODE)} <= set(between)
    assert ("mark", "a") not in between


async def test_a_delete_whose_answer_was_lost_is_recognised_by_reading() -> None:
    world = World(*running("a", "b"))
    world.cluster.before("delete", "a", lambda: world.cluster.leave("a"))
    world.cluster.fail("delete", "a", UNAVAILABLE)
    world.cluster.before("delete", "b", lambda: world.cluster.remove("b"))
    world.cluster.fail("delete", "b", UNAVAILABLE)

    outcome = await world.ends(make_order("a", "b"), "succeeded", victims={"a": "terminating", "b": "gone"})

    assert outcome.victims[0].reason == "answer-lost"
    assert sorted(world.cluster.deletes()) == ["a", "b"]


async def test_what_stays_temporary_fails_at_not_after_and_no_effect_begins_later() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("delete", "a", SERVER_ERROR)
    order = make_order("a", "b")

    await world.ends(order, "failed", "deadline", victims={"a": "failed", "b": "notAttempted"})

    assert not world.cluster.is_marked("a")
    assert world.clock.now() <= order.not_after


@pytest.mark.parametrize(
    ("operation", "name", "error", "result"),
    [
        ("get_node", NODE, UNAVAILABLE, ("expired", None)),
        ("get_lease", "makeway-scheduler", FORBIDDEN, ("failed", "read-refused")),
    ],
    ids=["away until notAfter", "refused"],
)
async def test_reads_that_never_succeed_end_the_order(
    operation: str, name: str, error: Exception, result: tuple[str, str | None]
) -> None:
    world = World(*running("a"))
    world.cluster.always_fail(operation, name, error)

    await world.ends(make_order("a"), *result, deletes=[])

    assert world.nominated_node() is None


# --------------------------------------------------------------------------------------------------- failure


async def test_a_refused_delete_rolls_back_and_the_last_victim_stays_untouched() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)

    outcome = await world.ends(
        make_order("a", "b"), "failed", "delete-refused", victims={"a": "failed", "b": "notAttempted"}
    )

    assert outcome.victims[0].reason == "Forbidden"
    assert outcome.rollback is not None
    assert outcome.rollback.nomination_reverted
    assert outcome.rollback.conditions_cleared == ("a-uid",)
    assert world.nominated_node() is None
    assert not world.cluster.is_marked("a")
    assert world.cluster.marks() == ["a"]
    assert world.clock.now() == NOW


async def test_after_a_write_without_an_answer_the_next_may_take_as_long_as_admission_webhooks() -> None:
    world, order = World(*running("a")), make_order("a")
    patience, clock = world.cluster.patience, world.clock

    def hang() -> None:
        clock.time += timedelta(seconds=patience[-1][1])

    for _ in range(6):
        world.cluster.before("delete", "a", hang)
    world.cluster.always_fail("delete", "a", UNAVAILABLE)

    await world.ends(order, "failed", "deadline")

    first, second, *others = [seconds for operation, seconds in patience if operation == "delete"]
    assert (first, second) == (CALL_TIMEOUT_SECONDS, ADMISSION_SECONDS)
    assert all(CALL_TIMEOUT_SECONDS <= one < ADMISSION_SECONDS for one in others)
    assert clock.now() <= order.not_after + timedelta(seconds=CALL_TIMEOUT_SECONDS)


async def test_a_refusal_stops_what_waits_for_a_retry() -> None:
    world = World(*running("a", "b", "c"))
    world.cluster.fail("delete", "a", TemporaryError("throttled", "429", retry_after_seconds=30))
    world.cluster.always_fail("delete", "b", FORBIDDEN)

    outcome = await world.ends(
        make_order("a", "b", "c"), "failed", victims={"a": "notAttempted", "b": "failed", "c": "notAttempted"}
    )

    assert world.cluster.deletes().count("a") == 1
    assert there(outcome.rollback).conditions_cleared == ("a-uid", "b-uid")


async def test_a_refusal_stops_a_victim_between_its_mark_and_its_delete() -> None:
    world = World(*running("a", "b", "c"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)
    world.cluster.slow["mark", "b"] = 10

    await world.ends(
        make_order("a", "b", "c"),
        deletes=["a"],
        victims={"a": "failed", "b": "notAttempted", "c": "notAttempted"},
    )

    assert not world.cluster.is_marked("b")


async def test_no_delete_begins_after_not_after_though_the_mark_began_before() -> None:
    world = World(*running("a"))
    order = make_order("a")
    world.cluster.before("mark", "a", lambda: setattr(world.clock, "time", order.not_after))

    await world.ends(order, "expired", deletes=[])

    assert not world.cluster.is_marked("a")


async def test_a_victim_that_somebody_deletes_right_before_its_mark_is_not_touched() -> None:
    world = World(*running("a"))
    world.cluster.before("mark", "a", lambda: world.cluster.leave("a"))

    await world.ends(make_order("a"), "succeeded", deletes=[], victims={"a": "terminating"})

    assert not world.cluster.is_marked("a")


async def test_the_outcome_is_written_only_after_the_rollback() -> None:
    world = World(*running("a"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)
    world.cluster.fail("clear_nomination", "urgent", *[UNAVAILABLE] * 10)
    world.cluster.before("clear_mark", "a", lambda: published.append(bool(world.records.outcomes)))
    published: list[bool] = []

    outcome = await world.carry_out(make_order("a"))

    assert published == [False]
    assert there(outcome.rollback).nomination_reverted
    assert world.metric("makeway_evictor_retries_total", operation="rollback", reason="unavailable") == 10


async def test_a_rollback_that_is_refused_for_good_gives_up_in_the_end_and_says_so() -> None:
    world = World(*running("a"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)
    world.cluster.always_fail("clear_mark", "a", FORBIDDEN)

    outcome = await world.ends(make_order("a"), "failed")

    assert outcome.message.endswith("not rolled back: mark of default/a")
    assert there(outcome.rollback).nomination_reverted
    executions = {"operation": "rollback", "result": "refused"}
    assert world.metric("makeway_preemption_executions_total", **executions) == 1


async def test_a_mark_of_somebody_else_is_left_alone() -> None:
    world = World(a_pod("a").marked(reason="EvictionByEvictionAPI").build())
    world.cluster.always_fail("delete", "a", FORBIDDEN)

    outcome = await world.carry_out(make_order("a"))

    assert world.cluster.is_marked("a")
    assert there(outcome.rollback).conditions_cleared == ()


async def test_a_pod_that_changed_since_it_was_read_is_read_again_before_it_is_rolled_back() -> None:
    world = World(*running("a"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)
    moved = preemptor_pod().nominated("node-b").build()
    world.cluster.before("clear_nomination", "urgent", lambda: world.cluster.put(moved))
    world.cluster.fail("clear_nomination", "urgent", TemporaryError("conflict", "409"))

    outcome = await world.carry_out(make_order("a"))

    assert not there(outcome.rollback).nomination_reverted
    assert world.nominated_node() == "node-b"


async def test_what_a_later_order_relies_on_is_not_rolled_back() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)
    world.records.orders["urgent-uid"] = make_order("a", order_id="ord-2")

    outcome = await world.carry_out(make_order("a", "b"))

    assert not there(outcome.rollback).nomination_reverted
    assert world.nominated_node() == NODE
    assert world.cluster.is_marked("a")


async def test_nothing_is_rolled_back_where_a_later_order_comes_while_it_is_tried() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("delete", "a", FORBIDDEN)
    world.cluster.fail("clear_nomination", "urgent", UNAVAILABLE)
    later = make_order("a", order_id="ord-2")
    world.cluster.before(
        "clear_nomination", "urgent", lambda: world.records.orders.update({"urgent-uid": later})
    )

    outcome = await world.carry_out(make_order("a", "b"))

    assert not there(outcome.rollback).nomination_reverted
    assert world.nominated_node() == NODE


async def test_nothing_is_rolled_back_of_an_order_that_another_evictor_has_ended() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("delete", "b", FORBIDDEN)
    order = make_order("a", "b")
    other = make_outcome(order.order_id, "succeeded", "evictor-2")
    world.records.on_look[order.order_id].extend(
        [lambda: None, lambda: world.records.outcomes.update({order.order_id: other})]
    )

    outcome = await world.carry_out(order)

    assert outcome == other
    assert world.nominated_node() == NODE
    assert world.cluster.is_marked("b")


# -------------------------------------------------------------------------- acting on what was read just now


async def test_an_evictor_that_was_stopped_deletes_nothing_for_an_order_already_ended() -> None:
    # The preemptor may have been nominated to the same node once more, for a later order.
    world = World(*running("a"))

    def stopped() -> None:
        world.clock.time += timedelta(seconds=15)
        world.records.outcomes["ord-1"] = make_outcome("ord-1", "failed")

    world.cluster.before("mark", "a", stopped)

    outcome = await world.carry_out(make_order("a"))

    assert world.cluster.deletes() == []
    assert (outcome.result, outcome.evictor) == ("failed", "another")


async def test_an_evictor_that_was_stopped_looks_again_before_it_deletes() -> None:
    world = World(*running("a"))

    def stopped() -> None:
        world.clock.time += timedelta(seconds=12)
        world.cluster.remove("urgent")

    world.cluster.before("mark", "a", stopped)

    await world.ends(make_order("a"), "cancelled", "preemptor-gone", deletes=[])

    assert not world.cluster.is_marked("a")


@pytest.mark.parametrize(
    ("slow", "later"),
    [
        # The mark of b is answered while a is looked at again.
        ({("get_node", NODE): 40}, {}),
        # What is left of the second look at a, whose answer no longer matters.
        ({}, {("get_pod", "a"): 60}),
    ],
    ids=["none acts on another's look before it is answered", "a look that says no stops all at once"],
)
async def test_a_look_that_says_no_holds_for_all_victims(
    slow: dict[tuple[str, str], int], later: dict[tuple[str, str], int]
) -> None:
    world = World(*running("a", "b", "c"))

    def stopped() -> None:
        world.clock.time += timedelta(seconds=12)
        world.cluster.remove("urgent")
        world.cluster.slow |= later

    world.cluster.before("mark", "a", stopped)
    world.cluster.slow |= {("mark", "b"): 12, **slow}

    await world.ends(make_order("a", "b", "c"), "cancelled", "preemptor-gone", deletes=[])


async def test_a_stop_that_changed_nothing_costs_another_look() -> None:
    world = World(*running("a"))
    world.cluster.before(
        "mark", "a", lambda: setattr(world.clock, "time", world.clock.time + timedelta(seconds=12))
    )

    await world.ends(make_order("a"), "succeeded")

    assert world.metric("makeway_evictor_retries_total", operation="evict", reason="stale") == 1


async def test_a_pod_that_changed_since_it_was_judged_is_judged_again() -> None:
    world = World(*running("a"))
    world.cluster.before("delete", "a", lambda: world.cluster.put(world.cluster.changed("a")))

    await world.ends(make_order("a"), "succeeded", deletes=["a", "a"])


async def test_a_pod_whose_mark_was_taken_away_is_marked_again_before_it_goes() -> None:
    world = World(*running("a"))
    world.cluster.before("delete", "a", lambda: world.cluster.put(world.cluster.changed("a", mark=False)))

    await world.ends(make_order("a"), "succeeded")

    assert world.cluster.is_marked("a")


# ------------------------------------------------------------------------- what is not needed or not allowed


async def test_an_expired_order_deletes_nothing_and_reverts_its_nomination() -> None:
    world = World(*running("a"))
    order = make_order("a", not_after=NOW)

    await world.ends(order, "expired", deletes=[], victims={"a": "notAttempted"})

    assert world.nominated_node() is None


async def test_an_order_that_the_stream_took_too_late_is_refused_and_rolled_back() -> None:
    world = World(*running("a"))

    await world.ends(make_order("a", store_by=NOW - timedelta(seconds=1)), "refused", "stored-late")

    assert world.nominated_node() is None
    assert not world.cluster.marks()


async def test_an_epoch_may_be_a_counter_on_the_bus() -> None:
    world = World(*running("a"), fences=Fences.of(["kv/default-scheduler"]))
    world.records.epochs["default-scheduler"] = 8
    fence = Fence(kind="kv", name="default-scheduler", epoch=7)

    await world.ends(make_order("a", fence=fence), "refused", "stale-epoch")


async def test_an_order_for_another_cluster_touches_nothing_here() -> None:
    world = World(*running("a"))

    await world.ends(make_order("a", cluster_uid="cluster-2"), "refused", "other-cluster")

    assert world.cluster.calls == []


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_outside_enforce_orders_are_refused_and_their_nomination_reverted(mode: Mode) -> None:
    world = World(*running("a"), mode=mode)

    await world.ends(make_order("a"), "refused", f"mode-{mode}")

    assert not world.cluster.marks()
    assert world.nominated_node() is None


async def test_one_victim_that_must_stay_refuses_the_order_before_anything_is_done() -> None:
    world = World(*running("a"), a_pod("b").priority(5000).build())

    await world.ends(
        make_order("a", "b"), "refused", "victim-spared", victims={"a": "notAttempted", "b": "spared"}
    )

    assert not world.cluster.marks()


async def test_the_answer_of_the_mark_counts_as_a_read() -> None:
    world = World(*running("a"))
    world.cluster.before("mark", "a", lambda: world.cluster.put(a_pod("a").priority(5000).build()))

    await world.ends(make_order("a"), "refused", deletes=[], victims={"a": "spared"})

    assert not world.cluster.is_marked("a")


# ------------------------------------------------------------------------------------------------ mid flight


async def test_a_victim_recreated_under_its_name_is_never_deleted() -> None:
    world = World(*running("a", "b"))
    world.cluster.before("mark", "a", lambda: recreated(world, "a"))
    world.cluster.before("delete", "b", lambda: recreated(world, "b"))

    await world.ends(make_order("a", "b"), "succeeded", victims={"a": "gone", "b": "gone"})

    for name in ("a", "b"):
        assert world.cluster.pods[name].metadata.deletion_timestamp is None
        assert not world.cluster.is_marked(name)


@pytest.mark.parametrize(
    ("reason", "happening"),
    [
        ("preemptor-gone", lambda w: w.cluster.remove("urgent")),
        ("preemptor-bound", lambda w: w.cluster.put(preemptor_pod().on("node-b").build())),
        ("nomination-moved", lambda w: w.cluster.put(preemptor_pod().nominated("node-b").build())),
        ("node-gone", lambda w: w.cluster.nodes.clear()),
    ],
)
async def test_no_further_delete_when_the_room_is_not_needed_any_more(reason: str, happening: object) -> None:
    assert callable(happening)
    world = World(*running("a", "b"))
    world.cluster.before("delete", "a", lambda: happening(world))

    await world.ends(
        make_order("a", "b"),
        "cancelled",
        reason,
        deletes=["a"],
        victims={"a": "deleted", "b": "notAttempted"},
    )


async def test_a_new_leader_between_two_deletes_stops_the_order() -> None:
    world = World(*running("a", "b"))
    world.cluster.before("delete", "a", lambda: setattr(world.cluster, "epoch", EPOCH + 1))

    await world.ends(make_order("a", "b"), "refused", "stale-epoch", deletes=["a"])


# -------------------------------------------------------------------------------------------- awaited orders


async def test_nothing_is_deleted_before_the_awaited_order_has_succeeded() -> None:
    world = World(*running("a"))
    done = make_outcome("ord-0", "succeeded")
    looks = world.records.on_look["ord-0"]
    looks.extend([lambda: None, lambda: None])
    looks.append(lambda: world.records.outcomes.update({"ord-0": done}))

    await world.ends(make_order("a", awaited=awaiting("ord-0")), "succeeded", deletes=["a"])

    assert world.records.looked_for.count("ord-0") == 3


async def test_pods_that_are_terminating_anyway_are_not_waited_for() -> None:
    world = World(*running("a"))
    leaving = Awaited(uid="leaving-uid", namespace="default", name="leaving")

    outcome = await world.carry_out(make_order("a", awaited=(leaving,)))

    assert (outcome.result, world.records.looked_for) == ("succeeded", ["ord-1"])
    assert world.cluster.deletes() == ["a"]


async def test_an_order_goes_on_at_once_when_this_evictor_has_ended_the_one_it_counts_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(*running("a"))
    monkeypatch.setattr(world.clock, "sleep", lambda _: asyncio.Event().wait())

    def end() -> None:
        ended = world.records.publish(make_outcome("ord-0", "succeeded"))
        ending.append(asyncio.ensure_future(ended))

    ending: list[asyncio.Future[Outcome]] = []
    world.records.on_look["ord-0"].append(end)

    async with asyncio.timeout(5):
        outcome = await world.carry_out(make_order("a", awaited=awaiting("ord-0")))

    assert outcome.result == "succeeded"
    assert world.cluster.deletes() == ["a"]


@pytest.mark.parametrize("result", ["failed", "expired", "refused", "cancelled"])
async def test_an_order_fails_with_the_one_it_counts_on(result: str) -> None:
    world = World(*running("a"))
    world.records.outcomes["ord-0"] = make_outcome("ord-0", result)  # type: ignore[arg-type]

    await world.ends(make_order("a", awaited=awaiting("ord-0")), "failed", "awaited-order-failed")

    assert not world.cluster.marks()
    assert world.nominated_node() is None


async def test_an_awaited_order_that_does_not_end_makes_the_order_expire() -> None:
    world = World(*running("a"))

    await world.ends(
        make_order("a", awaited=awaiting("ord-0")), "expired", says="still waiting for ord-0", deletes=[]
    )


# -------------------------------------------------------------------------------------------------- delivery


async def test_a_void_is_acknowledged_and_nothing_is_done_for_it() -> None:
    world = World(*running("a"))
    delivery = FakeDelivery(voided(make_order("a"), Void(reason="late", message="not seen")), 1)

    await world.evictor.handle(delivery)

    assert delivery.said == ["ack"]
    assert (world.cluster.calls, world.records.outcomes) == ([], {})


async def test_an_order_with_an_outcome_is_only_acknowledged() -> None:
    world = World(*running("a"))
    world.records.outcomes["ord-1"] = make_outcome("ord-1", "succeeded")

    outcome = await world.carry_out(make_order("a"), deliveries=2)

    assert outcome.evictor == "another"
    assert world.cluster.calls == []
    assert world.metric("makeway_evictor_redelivered_orders_total", state="ended") == 1


async def test_another_evictors_outcome_that_came_first_stands() -> None:
    world = World(*running("a"))
    first = make_outcome("ord-1", "succeeded")
    world.cluster.before("delete", "a", lambda: world.records.outcomes.update({"ord-1": first}))

    outcome = await world.carry_out(make_order("a"))

    assert outcome is first
    assert world.metric("makeway_evictor_orders_total", result="succeeded", reason="") == 0


@pytest.mark.parametrize("deleted", [0, 1, 2, 3])
async def test_an_order_whose_evictor_died_after_some_deletes_is_finished(deleted: int) -> None:
    names = ("a", "b", "c")
    left = [a_pod(n).marked().terminating().build() for n in names[:deleted]]
    still = [a_pod(n).marked().build() for n in names[deleted:]]
    world = World(*left, *still)

    outcome = await world.ends(make_order(*names), "succeeded", deliveries=2)

    assert outcome.deliveries == 2
    assert sorted(world.cluster.deletes()) == list(names[deleted:])
    assert not world.cluster.marks()


async def test_an_order_whose_evictor_died_before_the_rollback_is_rolled_back() -> None:
    world = World(a_pod("a").marked().terminating().build(), a_pod("b").marked().build(), *running("c"))
    world.cluster.always_fail("delete", "b", FORBIDDEN)

    outcome = await world.ends(
        make_order("a", "b", "c"),
        "failed",
        victims={"a": "terminating", "b": "failed", "c": "notAttempted"},
        deliveries=2,
    )

    assert outcome.rollback is not None
    assert outcome.rollback.conditions_cleared == ("b-uid",)
    assert outcome.rollback.nomination_reverted


async def test_what_is_not_understood_is_put_aside() -> None:
    world = World()
    delivery = FakeDelivery(b"{not json")

    await world.evictor.handle(delivery)

    assert delivery.said == ["term not-json"]
    assert world.records.parked == [(b"{not json", "not-json")]
    assert world.metric("makeway_evictor_parked_messages_total", reason="not-json") == 1


async def test_what_the_quarantine_does_not_take_is_not_lost() -> None:
    world = World()
    world.records.park_failures.extend([UNAVAILABLE, PermanentError("refused", "no such stream")])
    first, second, third = (FakeDelivery(b"{not json", deliveries=n) for n in (1, 2, 3))

    for delivery in (first, second, third):
        await world.evictor.handle(delivery)

    assert [d.said for d in (first, second, third)] == [["nak"], ["nak"], ["term not-json"]]
    assert world.metric("makeway_evictor_not_parked_messages_total") == 2
    assert world.metric("makeway_evictor_parked_messages_total", reason="not-json") == 1


async def test_an_order_on_the_subject_of_another_preemptor_is_put_aside() -> None:
    world = World(*running("a"))
    delivery = FakeDelivery(make_order("a"), subject="makeway.v1.orders.pod.another")

    await world.evictor.handle(delivery)

    assert delivery.said == ["term wrong-subject"]
    assert world.cluster.calls == []
    assert world.records.outcomes == {}


async def test_an_order_that_names_a_victim_twice_ends_and_its_nomination_too() -> None:
    world = World(*running("a", "b"))

    await world.ends(make_order("a", "b", "a"), "refused", "named-twice", says="pod a-uid", deletes=[])

    assert world.nominated_node() is None


async def test_an_order_without_an_end_in_sight_is_refused_untouched() -> None:
    world = World(*running("a"))

    for days in (1, 2_900_000):
        order = make_order("a", order_id=f"ord-{days}", not_after=NOW + timedelta(days=days))
        await world.ends(order, "refused", "not-after-too-far")

    assert world.cluster.calls == []


async def test_a_defect_costs_one_order_and_then_it_is_put_aside() -> None:
    world = World(*running("a"))
    world.cluster.always_fail("get_pod", "a", ZeroDivisionError("a defect"))
    said = []

    for deliveries in range(1, QUARANTINE_AFTER_DEFECTS + 1):
        delivery = FakeDelivery(make_order("a"), deliveries)
        await world.evictor.handle(delivery)
        said.append(delivery.said)

    assert said == [["nak"]] * (QUARANTINE_AFTER_DEFECTS - 1) + [["term defect"]]
    assert world.metric("makeway_evictor_defects_total") == QUARANTINE_AFTER_DEFECTS
    assert world.cluster.deletes() == []


async def test_what_comes_too_often_is_put_aside_undecoded() -> None:
    world = World()
    delivery = FakeDelivery(b"{not json", deliveries=QUARANTINE_AFTER_DELIVERIES + 1)

    await world.evictor.handle(delivery)

    assert delivery.said == ["term too-many-deliveries"]


async def test_an_outcome_is_published_until_the_bus_takes_it() -> None:
    world = World(*running("a"))
    world.records.failures.extend([TemporaryError("bus", "no answer")] * 5)

    await world.ends(make_order("a"), "succeeded", deletes=["a"])


async def test_an_outcome_the_bus_never_takes_puts_the_order_aside() -> None:
    world = World(*running("a"))
    world.records.failures.append(PermanentError("refused", "too large"))
    delivery = FakeDelivery(make_order("a"))

    await world.evictor.handle(delivery)

    assert delivery.said == ["term outcome-refused"]


async def test_an_order_that_is_interrupted_is_given_back() -> None:
    world = World(*running("a"))
    delivery = FakeDelivery(make_order("a", awaited=awaiting("ord-0")))
    handling = asyncio.create_task(world.evictor.handle(delivery))
    await asyncio.sleep(0)

    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling

    assert delivery.said == ["nak"]
    assert world.records.outcomes == {}


class Queue:
    """Hands out deliveries, then waits."""

    def __init__(self, *deliveries: FakeDelivery) -> None:
        self._deliveries = list(deliveries)

    async def next(self, timeout_seconds: float) -> FakeDelivery | None:
        if self._deliveries:
            return self._deliveries.pop(0)
        await asyncio.sleep(timeout_seconds)
        return None


def no_slots() -> Slots:
    return Slots(1, EvictorMetrics(CollectorRegistry()))


# ---------------------------------------------------------------------------------------------------- taking


async def test_no_more_orders_are_taken_than_may_be_under_way() -> None:
    under_way = 0
    most = 0

    async def handle(_: object) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1

    orders = Queue(*(FakeDelivery(make_order(order_id=f"ord-{i}")) for i in range(6)))
    taking = asyncio.create_task(take_forever(orders, handle, no_slots(), most=2))
    await asyncio.sleep(0.1)
    taking.cancel()
    await asyncio.wait([taking])

    assert most == 2
    assert under_way == 0


async def test_orders_under_way_may_end_when_the_process_is_told_to_stop() -> None:
    ended: list[bool] = []

    async def handle(_: object) -> None:
        await asyncio.sleep(0.05)
        ended.append(True)

    taking = asyncio.create_task(take_forever(Queue(FakeDelivery(b"")), handle, no_slots(), most=2))
    await asyncio.sleep(0.01)
    taking.cancel()
    await asyncio.wait([taking])

    assert taking.cancelled()
    assert ended == [True]


async def test_a_defect_in_handling_ends_the_process() -> None:
    async def handle(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await take_forever(Queue(FakeDelivery(b"")), handle, no_slots(), most=2)


# --------------------------------------------------------------------------------------------------- metrics


async def test_the_slo_of_kep_4832_can_be_computed() -> None:
    world = World(*running("a", "b"))
    await world.carry_out(make_order("a"))
    world.cluster.always_fail("delete", "b", FORBIDDEN)
    await world.carry_out(make_order("b", order_id="ord-2"))

    name = "makeway_preemption_executions_total"
    assert world.metric(name, operation="evict", result="succeeded") == 1
    assert world.metric(name, operation="evict", result="failed") == 1
    assert world.metric(name, operation="rollback", result="succeeded") == 1
    assert world.metric("makeway_evictor_orders_in_flight") == 0
    assert world.metric("makeway_evictor_order_to_last_delete_seconds_count") == 1
    assert world.metric("makeway_evictor_orders_total", result="failed", reason="delete-refused") == 1
    assert world.metric("makeway_evictor_victims_total", result="deleted") == 1


def test_an_assumed_victim_is_deleted_though_it_is_not_bound() -> None:
    world = World(a_pod("a").on(None).phase("Pending").build())

    outcome = asyncio.run(world.carry_out(make_order(make_victim("a", assumed=True))))

    assert results(outcome) == {"a": "deleted"}
