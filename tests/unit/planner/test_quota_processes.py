"""What a queue's quota process does next, from timer to result."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from makeway.bus.messages import (
    EvictionOrder,
    Fence,
    Outcome,
    OutcomeResult,
    Victim,
    VictimOutcome,
    VictimResult,
)
from makeway.core.queues.quota import QuotaPlan
from makeway.planner.quota.processes import MOST_FRUITLESS, MOST_IDLE, PATIENCE, EndedQuota, QuotaProcesses
from unit.core.queue_building import World, queue, tree
from unit.planner.building import NOW

TREE = tree(queue("a", maximum=50, delay_seconds=10), queue("b"))
PATH = "root.a"


def victim(uid: str) -> Victim:
    return Victim(
        namespace="shop", name=uid, uid=uid, node="n", priority=0, grace_period_seconds=30, rule="quota"
    )


def order(*uids: str, number: int = 1) -> EvictionOrder:
    return EvictionOrder(
        order_id=f"ord-{number}",
        kind="quota",
        cluster_uid="cluster",
        fence=Fence(kind="kv", name="makeway-planner", epoch=1),
        writer="planner",
        created_at=NOW,
        not_after=NOW + timedelta(seconds=120),
        queue=PATH,
        victims=tuple(victim(uid) for uid in uids),
    )


def outcome(
    of: EvictionOrder,
    result: OutcomeResult = "succeeded",
    victims: Iterable[VictimResult] | None = None,
    *,
    reason: str = "",
) -> Outcome:
    everybody: list[VictimResult] = ["deleted"] * len(of.victims)
    results = everybody if victims is None else victims
    return Outcome(
        order_id=of.order_id,
        kind="quota",
        cluster_uid="cluster",
        epoch=1,
        result=result,
        evictor="evictor",
        started_at=NOW,
        finished_at=NOW,
        reason="" if result == "succeeded" else "victim-spared",
        victims=tuple(
            VictimOutcome(namespace="shop", name=one.name, uid=one.uid, result=what, reason=reason)
            for one, what in zip(of.victims, results, strict=True)
        ),
    )


def fired() -> QuotaProcesses:
    """A control whose queue is due."""
    control = QuotaProcesses()
    control.saved(TREE, "enforce", NOW)
    assert control.due(TREE, NOW + timedelta(seconds=10)) == [PATH]
    return control


def plan(*sizes: int, guaranteed: int = 0) -> QuotaPlan:
    built = tree(queue("a", maximum=50, guaranteed=guaranteed), queue("b"))
    return World(built).run(PATH, *sizes).enforce(PATH)


def under_way(*uids: str, whole: bool = True) -> QuotaProcesses:
    """A control whose queue has an order in flight."""
    control = fired()
    control.planned(PATH, plan(40, 40), NOW)
    control.ordered(PATH, order(*uids), whole=whole)
    return control


def test_a_plan_that_is_carried_out_whole_is_a_success() -> None:
    control = under_way("x")
    assert control.due(TREE, NOW + timedelta(days=1)) == []
    assert control.leaving() == {"x"}

    control.outcome(PATH, outcome(order("x")), NOW)

    ended = control.ended[PATH]
    assert (ended.result, ended.evicted) == ("success", 1)
    assert not control.processes
    assert not control.timers.running


def test_a_plan_that_leaves_something_over_is_best_effort_and_names_what_kept_it() -> None:
    control = fired()
    found = plan(40, 40, 20, guaranteed=45)
    assert found.result == "bestEffort"
    control.planned(PATH, found, NOW)
    control.ordered(PATH, order("x"), whole=True)

    control.outcome(PATH, outcome(order("x")), NOW)

    assert control.ended[PATH].result == "bestEffort"
    assert [obstacle.reason for obstacle in control.ended[PATH].blocked] == ["queue-guaranteed"]


def test_the_rest_of_a_plan_too_large_for_one_order_is_planned_anew_at_once() -> None:
    control = under_way("x", whole=False)
    control.outcome(PATH, outcome(order("x")), NOW)
    assert control.due(TREE, NOW) == [PATH]

    ended = control.concluded(PATH, plan(50), NOW)

    assert (ended.result, ended.evicted) == ("success", 1)


def test_victims_that_stayed_are_planned_for_again_after_a_pause() -> None:
    control = under_way("x", "y")
    control.outcome(PATH, outcome(order("x", "y"), "failed", ["deleted", "spared"]), NOW)

    assert control.due(TREE, NOW) == []
    assert control.due(TREE, NOW + timedelta(minutes=1)) == [PATH]
    assert control.ended == {}


def test_orders_that_evict_no_pod_end_the_process_after_a_while() -> None:
    control = under_way("x")
    for number in range(MOST_FRUITLESS):
        assert PATH in control.processes
        control.outcome(PATH, outcome(order("x"), "refused", ["notAttempted"]), NOW)
        if PATH in control.processes:
            control.ordered(PATH, order("x", number=number + 2), whole=True)

    ended = control.ended[PATH]
    assert ended.result == "unsuccessful"
    assert "victim-spared" in ended.message


def test_an_order_that_no_evictor_carried_out_is_planned_for_again() -> None:
    control = under_way("x")

    control.outcome(PATH, None, NOW)

    assert control.due(TREE, NOW + timedelta(minutes=1)) == [PATH]


def test_a_quota_raised_meanwhile_evicts_no_more_pods_than_it_asks_for() -> None:
    control = fired()
    raised = tree(queue("a", maximum={"memory": 70, "cpu": 1}))
    lifted = tree(queue("a"))

    assert control.maximum_for(PATH, raised.at(PATH)) == {"memory": 70}
    assert control.maximum_for(PATH, tree(queue("a", maximum=20)).at(PATH)) == {"memory": 50}
    assert control.maximum_for(PATH, lifted.at(PATH)) == {}


def test_what_is_only_observed_is_said_to_be() -> None:
    control = fired()

    assert control.concluded(PATH, plan(40, 40), NOW, observed=True).result == "observed"


def test_an_order_of_the_planner_before_is_awaited_and_the_timer_starts_again_then() -> None:
    control = QuotaProcesses()
    control.saved(TREE, "enforce", NOW)
    control.resume([order("x", "y")], NOW)

    assert control.timer(PATH) is None
    assert control.leaving() == {"x", "y"}
    control.outcome(PATH, outcome(order("x", "y")), NOW + timedelta(seconds=5))

    timer = control.timer(PATH)
    assert timer is not None
    assert timer.fires_at == NOW + timedelta(seconds=15)
    assert control.ended[PATH].evicted == 2


def test_the_processes_of_other_queues_are_told_to_a_plan() -> None:
    control = under_way("x")

    assert control.running("root") == {PATH}
    assert control.running(PATH) == frozenset()


NESTED = tree(queue("p", queue("c", maximum=1, delay_seconds=10), maximum=2, delay_seconds=10))


def test_a_queue_is_planned_for_only_when_the_processes_below_it_have_ended() -> None:
    control = QuotaProcesses()
    control.saved(NESTED, "enforce", NOW)
    later = NOW + timedelta(seconds=10)

    assert control.due(NESTED, later) == ["root.p.c"]
    assert control.waits_for("root.p") == ("root.p.c",)
    control.finish("root.p.c", EndedQuota("success", later, "done"), later)

    assert control.due(NESTED, later) == ["root.p"]


def test_a_queue_does_not_wait_for_ever_for_a_process_below_that_cannot_go_on() -> None:
    control = QuotaProcesses()
    control.saved(NESTED, "enforce", NOW)
    later = NOW + timedelta(seconds=10)
    control.due(NESTED, later)

    assert "root.p" in control.due(NESTED, later + PATIENCE)


def test_a_pod_that_was_refused_is_left_out_and_the_process_goes_on() -> None:
    control = under_way("x")
    uids = [f"p{number}" for number in range(MOST_FRUITLESS + 2)]
    for uid in uids:
        control.ordered(PATH, order(uid), whole=True)
        control.outcome(PATH, outcome(order(uid), "failed", ["failed"]), NOW)

    assert PATH in control.processes
    refused, stuck = control.left_out(PATH)
    assert refused.keys() == set(uids)
    assert refused["p0"].startswith("shop/p0: ")
    assert not stuck


def test_a_pod_whose_eviction_failed_for_a_reason_that_may_pass_is_not_taken_for_refused() -> None:
    control = under_way("x")

    control.outcome(PATH, outcome(order("x"), "failed", ["failed"], reason="unavailable"), NOW)

    assert [*map(list, control.left_out(PATH))] == [[], ["x"]]


def test_orders_that_evict_no_pod_end_the_process_whatever_is_learned_from_them() -> None:
    control = under_way("x")
    for number in range(MOST_IDLE):
        assert PATH in control.processes
        control.ordered(PATH, order(f"p{number}"), whole=True)
        control.outcome(PATH, outcome(order(f"p{number}"), "failed", ["failed"]), NOW)

    assert control.ended[PATH].result == "unsuccessful"
