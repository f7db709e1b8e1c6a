"""A lowered quota comes down though caps, a breaker, the brake or a missing evictor keep it waiting."""

from datetime import timedelta
from itertools import count

import pytest
from msgspec import json

from builders_bus import make_victim
from makeway.bus import codec
from makeway.bus.control import ControlState
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import KeyNotPublished
from makeway.bus.messages import EvictionOrder, Outcome, Void
from makeway.bus.nats.publishing import PublishRefused
from makeway.bus.orders import voided
from makeway.core.k8s.quantity import MAX_INT64
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.text import counted
from makeway.evictor.judge.verdicts import Refused
from makeway.planner.snapshot.changes import Enforce, PutBudget, RemovePod
from narrowing import there
from unit.evictor.building import CLUSTER, a_pod
from unit.planner.building import make_budget, make_order, make_outcome, make_pod
from unit.planner.quota_world import DELAY, PATH, Enforcing, fence, pod_in_a

MINUTE = timedelta(minutes=1)
GPU = "example.com/gpu"
HARD_BUDGETS = Policy(disruption_budgets="hard", hard_budget_namespaces=("*",))


def pods(number: int) -> list:  # type: ignore[type-arg]
    return [pod_in_a(f"p{place:05}") for place in range(number)]


@pytest.mark.parametrize(
    ("cluster", "used", "most"), [(400, 300, 100), (2000, 700, 400), (10_000, 3000, 1500)]
)
async def test_a_quota_comes_down_wholly_whatever_the_caps_allow(cluster: int, used: int, most: int) -> None:
    world = Enforcing(pods(used), most, others=cluster - used)

    ended = await world.until_ended()

    assert (ended.result, ended.evicted) == ("success", used - most)
    assert world.staying() == most
    assert {reason for reason, _ in world.told[:-1]} == {"QuotaWaits"}
    assert world.told[-1][0] == "QuotaEnforced"
    assert any("waits (victims-share)" in note for _, note in world.told)
    allowed = world.evictor.mode_guard.rates().ten_minutes
    seconds = sorted(
        victim.deleted_at.timestamp()
        for last in world.evictor.records.outcomes.values()
        for victim in last.victims
        if victim.deleted_at is not None
    )
    assert all(later - first > 600 for first, later in zip(seconds, seconds[allowed:], strict=False))


async def test_pods_without_a_node_are_no_part_of_what_caps_are_a_share_of() -> None:
    world = Enforcing(pods(300), 100, others=100)
    world.make(*(make_pod(f"w{number}") for number in range(3000)), make_pod("nowhere", "no-node"))
    assert world.snapshot.bound_pods == 400

    await world.run(DELAY + timedelta(seconds=1))

    assert {len(order.victims) for order in world.orders} == {80}


async def test_what_a_quota_waits_for_and_until_when_is_told() -> None:
    world = Enforcing(pods(300), 100, others=100)

    await world.run(DELAY + MINUTE)

    (wait,) = world.control.waits().values()
    assert wait.reason == "victims-share"
    assert "80 of the last ten minutes: the policy allows 100" in wait.message
    assert timedelta(minutes=9) <= wait.until - world.orders[0].created_at <= timedelta(minutes=11)
    assert world.registry.get_sample_value(
        "makeway_planner_quota_waiting_processes", {"reason": "victims-share"}
    )
    assert [len(order.victims) for order in world.orders] == [80, 80]


async def test_a_breaker_keeps_a_quota_waiting_until_it_is_reset() -> None:
    world = Enforcing(pods(10), 4)
    world.evictor.breaker = lambda order: Refused("breaker-open", "everywhere: signatures")

    await world.run(timedelta(hours=2))

    assert world.ended is None
    assert world.control.waits()[PATH].reason == "breaker-open"
    assert len(world.orders) < 130
    world.evictor.breaker = lambda order: None
    ended = await world.until_ended(2 * MINUTE)
    assert (ended.result, ended.evicted, world.staying()) == ("success", 6, 4)


async def test_no_evictor_keeps_a_quota_waiting_until_one_is_there() -> None:
    world = Enforcing(pods(10), 4)
    world.answers = False

    await world.run(timedelta(hours=1))

    assert world.ended is None
    assert world.control.processes[PATH].waiting is not None
    assert ("QuotaWaits" in {reason for reason, _ in world.told}) is True
    world.answers = True
    assert (await world.until_ended(5 * MINUTE)).result == "success"


async def test_the_brake_keeps_a_quota_waiting_and_no_order_is_written_under_it() -> None:
    world = Enforcing(pods(300), 100, others=100)
    await world.run(DELAY + MINUTE)
    written = len(world.orders)
    world.mode = "off"
    world.evictor.cluster.brake = Brake(everywhere=True)

    await world.run(timedelta(hours=1))

    assert (world.ended, len(world.orders)) == (None, written)
    assert world.control.waits()[PATH].reason == "mode-off"
    world.mode = "enforce"
    world.evictor.cluster.brake = Brake()
    ended = await world.until_ended()
    assert (ended.result, ended.evicted) == ("success", 200)


async def test_the_brake_on_a_namespace_keeps_a_quota_waiting_for_the_pods_there() -> None:
    braked = [pod_in_a(f"b{place}", namespace="shop") for place in range(3)]
    world = Enforcing([*braked, *pods(3)], 1)
    world.braked = "shop"
    world.snapshot.apply(Enforce(Policy(namespace_modes={"shop": "off"}), "braked"))

    await world.run(timedelta(hours=1))

    assert (world.ended, world.staying()) == (None, 3)
    assert world.control.waits()[PATH].reason == "mode-off"
    assert "the brake holds shop" in world.control.waits()[PATH].message
    world.snapshot.apply(Enforce(Policy(), "released"))
    world.braked = ""
    assert (await world.until_ended(2 * MINUTE)).result == "success"


async def test_a_maximum_raised_while_a_quota_waits_ends_its_process_with_what_was_done() -> None:
    world = Enforcing(pods(300), 100, others=100)
    await world.run(DELAY + MINUTE)
    written = len(world.orders)

    world.save(150)
    ended = await world.until_ended(MINUTE)
    await world.run(timedelta(hours=1))

    assert (ended.result, ended.evicted, len(world.orders)) == ("cancelled", 80, written)
    assert "its max was raised to pods 150" in ended.message
    assert world.told[-1][0] == "QuotaCancelled"
    assert world.control.timers.timer(PATH) is None


async def test_no_further_order_is_written_once_the_quota_is_switched_off() -> None:
    world = Enforcing(pods(300), 100, policy=Policy(limits=PolicyLimits(victims_per_order=10)))
    world.evictor.cluster.before("delete", "p00003", lambda: world.save(100, enabled=False))

    ended = await world.until_ended(10 * MINUTE)

    assert len(world.orders) == 1
    assert ended.result == "cancelled"
    assert "quotapreemptionenabled is not true" in ended.message


async def test_what_may_be_left_over_is_a_share_of_what_had_to_go_at_first() -> None:
    kept = [pod_in_a(f"k{place}", kept=True) for place in range(10)]
    limits = PolicyLimits(victims_per_order=40, victims_percent_per_ten_minutes=100)
    world = Enforcing([*kept, *pods(100)], 0, miss=10, policy=Policy(limits=limits))

    ended = await world.until_ended()

    assert (ended.result, ended.evicted, world.staying()) == ("bestEffort", 100, 10)


async def test_what_had_to_go_at_first_is_known_to_the_next_planner() -> None:
    kept = [pod_in_a(f"k{place}", kept=True) for place in range(10)]
    world = Enforcing([*kept, *pods(100)], 0, miss=10)
    await world.run(DELAY + MINUTE)
    memory = there(world.loop.memory())
    assert world.staying() == 30

    world.stored = ControlState(
        revision=1,
        mode="enforce",
        cluster_uid="cluster-1",
        settled=memory.settled,
        enforcing=memory.enforcing,
    )
    world.restart()
    ended = await world.until_ended()

    assert (ended.result, ended.evicted, world.staying()) == ("bestEffort", 20, 10)


async def test_pods_that_request_more_than_64_bits_hold_together_leave_every_message_readable() -> None:
    huge = [pod_in_a(f"p{place}", requests={"memory": MAX_INT64}) for place in range(4)]
    world = Enforcing(huge, 9, also=", memory: 1Gi")
    world.answers = False
    await world.run(DELAY + MINUTE)
    memory = there(world.loop.memory())

    told = ControlState(revision=1, mode="enforce", cluster_uid=CLUSTER, enforcing=memory.enforcing)

    assert json.decode(codec.encode(told), type=ControlState).enforcing[0].need == {"memory": MAX_INT64}
    (planned,) = world.decisions
    assert json.decode(codec.encode(planned), type=DecisionRecord) == planned


async def test_an_order_of_the_planner_before_that_was_not_all_of_its_quota_is_told_as_no_success() -> None:
    world = Enforcing(pods(300), 100, others=100)
    world.answers = False
    await world.run(DELAY + MINUTE)
    (order,) = world.orders
    world.restart()
    await world.loop.one_round(fence)

    await world.evictor.carry_out(order)
    for victim in order.victims:
        world.snapshot.apply(RemovePod(victim.uid))
    await world.loop.one_round(fence)

    ended = there(world.ended)
    assert (ended.result, ended.evicted, world.staying()) == ("bestEffort", 80, 220)
    assert "80 of 80 pods, and more is left over" in ended.message
    assert world.told[-1][0] == "QuotaPartlyEnforced"
    assert world.control.timers.timer(PATH) is not None


async def test_where_no_scheduler_holds_successors_it_is_told_who_would_go_and_no_pod_goes() -> None:
    world = Enforcing(pods(6), 2)
    world.gates = frozenset()

    await world.run(timedelta(hours=1))

    assert world.orders == []
    assert world.control.waits()[PATH].reason == "no-queue-gate"
    assert "4 pods with pods 4" in world.told[0][1]
    assert [len(record.victims) for record in world.decisions] == [4]
    world.gates = frozenset({"default-scheduler"})
    assert (await world.until_ended(2 * MINUTE)).result == "success"


async def test_pods_whose_scheduler_has_no_gate_stay_and_are_named() -> None:
    world = Enforcing([pod_in_a("v0", scheduler="volcano"), pod_in_a("v1", scheduler="volcano"), *pods(4)], 1)

    ended = await world.until_ended()

    assert (ended.result, ended.evicted) == ("bestEffort", 4)
    assert "2 pods of scheduler volcano" in ended.message
    assert {victim.name for order in world.orders for victim in order.victims} == {
        f"p{place:05}" for place in range(4)
    }


async def test_names_that_pods_write_of_any_length_are_cut_where_they_are_told() -> None:
    """An answer with such names was larger than NATS carries, for whoever asked about queues."""
    owner = "ReplicaSet default/" + "w" * 500_000
    world = Enforcing(pods(6), 2)
    assert (await world.until_ended()).result == "success"
    began = int(world.clock.now().timestamp() * 1_000_000)
    world.make(*(pod_in_a(f"n{place}", created=began, controller=owner) for place in range(4)))
    await world.run(2 * MINUTE)
    undone = there(world.ended)

    stranger = [pod_in_a(f"s{place}", scheduler="x" * 500_000) for place in range(3)]
    stays = await Enforcing(stranger, 1).until_ended()

    assert (undone.result, undone.blocked[0].reason) == ("undone", "made-anew")
    assert (stays.result, stays.blocked[0].reason) == ("unsuccessful", "no-queue-gate")
    assert max(len(codec.encode(one)) for one in (undone, stays)) < 2000


async def test_a_scheduler_that_answers_half_a_minute_late_ends_no_quota() -> None:
    world = Enforcing([*pods(2), pod_in_a("v0", scheduler="second"), pod_in_a("v1", scheduler="second")], 1)

    await world.run(DELAY + timedelta(seconds=30))

    assert (world.ended, world.staying()) == (None, 2)
    assert world.control.waits()[PATH].reason == "no-queue-gate"
    assert "2 pods of scheduler second" in world.control.waits()[PATH].message
    world.gates = frozenset({"default-scheduler", "second"})
    ended = await world.until_ended(MINUTE)
    assert (ended.result, ended.evicted, world.staying()) == ("success", 3, 1)


async def test_a_hard_budget_that_allows_none_for_a_while_ends_no_quota() -> None:
    """As while its pods are replaced: whatever it allows later goes then."""
    world = Enforcing(pods(6), 2, policy=HARD_BUDGETS)
    world.snapshot.apply(PutBudget(make_budget("web", {"queue": PATH}, 0)))

    await world.run(DELAY + 5 * MINUTE)

    assert (world.ended, world.orders) == (None, [])
    assert world.control.waits()[PATH].reason == "budget"
    world.snapshot.apply(PutBudget(make_budget("web", {"queue": PATH}, 1)))
    ended = await world.until_ended(5 * MINUTE)
    assert (ended.result, ended.evicted, world.staying()) == ("success", 4, 2)


async def test_a_hard_budget_that_allows_none_for_a_quarter_of_an_hour_ends_a_quota() -> None:
    """Else the author of a budget would hold the quotas of all queues above for ever."""
    world = Enforcing(pods(6), 2, policy=HARD_BUDGETS)
    world.snapshot.apply(PutBudget(make_budget("web", {"queue": PATH}, 0)))

    ended = await world.until_ended(DELAY + 16 * MINUTE)

    assert (ended.result, ended.blocked[0].reason) == ("unsuccessful", "hard-budget")


async def test_a_success_that_did_not_last_a_minute_is_undone_and_names_what_made_the_pods() -> None:
    world = Enforcing(pods(6), 2)
    assert (await world.until_ended()).result == "success"

    began = int(world.clock.now().timestamp() * 1_000_000)
    for place in range(4):
        world.make(pod_in_a(f"n{place}", created=began, controller="ReplicaSet default/web"))
    await world.run(2 * MINUTE)

    ended = there(world.ended)
    assert ended.result == "undone"
    assert [one.message for one in ended.blocked] == ["4 pods made anew by ReplicaSet default/web"]
    assert [reason for reason, _ in world.told] == ["QuotaEnforced", "QuotaUndone"]
    assert len(world.orders) == 1
    assert world.control.timers.timer(PATH) is None


class Refusing:
    """A stream that takes no order, or a void in its place."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        if self._error is not None:
            raise self._error
        return voided(order, Void(reason="not-acknowledged", message="no answer"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "no answer"),
        (KeyNotPublished("key a is not in makeway-keys"), "makeway-keys"),
        (PublishRefused("maximum bytes exceeded"), "maximum bytes"),
    ],
)
async def test_a_quota_whose_order_is_not_stored_says_so_and_is_tried_less_often(
    error: Exception | None, said: str
) -> None:
    world = Enforcing(pods(6), 4)
    world.loop.writer = Refusing(error)

    await world.run(DELAY + MINUTE)

    (wait,) = world.control.waits().values()
    assert (wait.reason, said in wait.message) == ("bus", True)
    assert len(world.decisions) < 8
    assert [reason for reason, _ in world.told] == ["QuotaWaits"]


@pytest.mark.parametrize("taken", [1, 2])
async def test_a_quota_does_not_end_on_what_an_order_for_a_pod_takes_until_that_has_ended(taken: int) -> None:
    world = Enforcing(pods(6), 4)
    victims = tuple(make_victim(one, namespace="default", uid=f"{one}-uid") for one in ("p00004", "p00005"))
    now = world.clock.now()
    other = make_order("ord-0", now, not_after=now + 3 * MINUTE, victims=victims[:taken])
    world.ledger.ordered(other)

    await world.run(DELAY + MINUTE)

    assert (world.ended, world.staying()) == (None, 4 + taken)
    (wait,) = world.control.waits().values()
    assert wait.reason == "other"
    assert f"{counted(taken, 'pod')} that other orders are yet to remove" in wait.message

    world.ledger.ended(make_outcome("ord-0", result="cancelled", reason="preemptor-gone", victims=()))
    ended = await world.until_ended()

    assert (ended.result, ended.evicted, world.staying()) == ("success", 2, 4)


async def test_a_resource_whose_pods_go_last_is_not_taken_for_made_anew_while_others_go() -> None:
    gpus = [pod_in_a(f"g{place}", priority=10, requests={GPU: 1}) for place in range(20)]
    limits = PolicyLimits(victims_per_order=40, victims_percent_per_ten_minutes=100)
    world = Enforcing([*pods(100), *gpus], 40, policy=Policy(limits=limits), also=f", {GPU}: 10")

    ended = await world.until_ended()

    assert (ended.result, ended.evicted, world.staying()) == ("success", 80, 40)


async def test_a_quota_whose_pods_are_made_anew_past_the_gate_ends_once_as_much_came_as_had_to_go() -> None:
    world = Enforcing(pods(300), 100, others=100)
    carry_out, numbers = world.evictor.carry_out, count()

    async def carried_out(order: EvictionOrder, deliveries: int = 1) -> Outcome:
        outcome = await carry_out(order, deliveries)
        now = int(world.clock.now().timestamp() * 1_000_000)
        for victim in outcome.victims:
            if victim.result == "deleted":
                name = f"again{next(numbers)}"
                world.make(pod_in_a(name, created=now, controller="Thing shop/agent"))
                world.evictor.cluster.put(a_pod(name).in_queue(PATH).build())
        return outcome

    world.evictor.carry_out = carried_out  # type: ignore[method-assign]
    ended = await world.until_ended(timedelta(hours=5))

    assert (ended.result, ended.evicted) == ("undone", 240)
    assert "pods 200 too much" in ended.message
    assert [one.message for one in ended.blocked] == ["80 pods made anew by Thing shop/agent"]
    assert [reason for reason, _ in world.told][-1] == "QuotaUndone"
    written = len(world.orders)
    await world.run(timedelta(hours=1))
    assert len(world.orders) == written
