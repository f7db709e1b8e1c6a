"""What a queue's quota process does next, from timer to result."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import repeat

from msgspec.structs import replace as replace_struct

from builders_bus import make_outcome, make_victim
from makeway.bus.control import EnforcedQuota
from makeway.bus.messages import EvictionOrder, Outcome, OutcomeResult, VictimResult
from makeway.core.queues.quota import QuotaPlan
from makeway.planner.quota.processes import MOST_IDLE, PASSING_TRIES, PATIENCE, QuotaMemory, QuotaProcesses
from makeway.planner.quota.waiting import MOST_PAUSE
from unit.core.queue_building import World, queue, tree
from unit.planner.building import NOW, make_order

TREE = tree(queue("a", maximum=50, delay_seconds=10), queue("b"))
PATH = "root.a"


def order(*uids: str, number: int = 1) -> EvictionOrder:
    victims = tuple(make_victim(uid, namespace="shop", uid=uid, rule="quota") for uid in uids)
    return make_order(f"ord-{number}", kind="quota", queue=PATH, victims=victims)


def outcome(
    of: EvictionOrder,
    result: OutcomeResult = "succeeded",
    victims: Iterable[VictimResult] = repeat("deleted"),
    *,
    reason: str = "",
) -> Outcome:
    found = make_outcome(of, result=result)
    ends = tuple(
        replace_struct(one, result=what, reason=reason)
        for one, what in zip(found.victims, victims, strict=False)
    )
    of_all = {"succeeded": "", "failed": "incomplete"}.get(result, "victim-spared")
    return replace_struct(found, reason=of_all, victims=ends)


def refused(of: EvictionOrder, reason: str, *, retry_at: datetime | None = None, room: int = 0) -> Outcome:
    """The outcome of an order that is refused as a whole."""
    found = outcome(of, "refused", ["notAttempted"] * len(of.victims))
    return replace_struct(found, reason=reason, retry_at=retry_at, room=room)


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
    assert PATH in control.timers.settled()


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


def test_an_order_that_is_refused_as_a_whole_is_waited_for_and_ends_no_process() -> None:
    control, now = under_way("x"), NOW
    for number in range(1000):
        control.outcome(PATH, refused(order("x"), "breaker-open"), now)
        now = control.waits()[PATH].until
        control.ordered(PATH, order("x", number=number + 2), whole=True)

    control.outcome(PATH, refused(order("x"), "breaker-open"), now)
    wait = control.waits()[PATH]
    assert (wait.reason, wait.since, wait.until) == ("breaker-open", NOW, now + MOST_PAUSE)


def test_a_cap_is_waited_for_until_it_lets_the_next_pod_go() -> None:
    control, later = under_way("x"), NOW + timedelta(minutes=9)

    control.outcome(PATH, refused(order("x"), "victims-share", retry_at=later, room=7), NOW)

    assert control.due(TREE, later - timedelta(seconds=1)) == []
    assert control.due(TREE, later) == [PATH]
    assert control.processes[PATH].room == 7


def test_an_outcome_that_names_a_time_far_off_is_not_waited_for_that_long() -> None:
    control = under_way("x")

    control.outcome(PATH, refused(order("x"), "victims-share", retry_at=NOW + timedelta(days=9)), NOW)

    assert control.due(TREE, NOW + timedelta(minutes=15)) == [PATH]


def test_times_that_are_over_already_are_not_tried_at_without_a_longer_pause_each_time() -> None:
    control, now = under_way("x"), NOW

    for number in range(8):
        over = refused(order("x"), "victims-share", retry_at=now - timedelta(minutes=10))
        control.outcome(PATH, over, now)
        wait = control.waits()[PATH].until - now
        now = control.waits()[PATH].until
        control.ordered(PATH, order("x", number=number + 2), whole=True)

    assert wait == MOST_PAUSE


def test_a_reason_that_is_not_known_is_waited_for_under_another_name() -> None:
    control = under_way("x")

    control.outcome(PATH, refused(order("x"), "invented"), NOW)

    assert control.waits()[PATH].reason == "other"


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
    control.resume([order("x", "y")])
    control.saved(TREE, "enforce", NOW)

    assert control.timers.timer(PATH) is None
    assert control.leaving() == {"x", "y"}
    control.outcome(PATH, outcome(order("x", "y")), NOW + timedelta(seconds=5))

    timer = control.timers.timer(PATH)
    assert timer is not None
    assert timer.fires_at == NOW + timedelta(seconds=15)
    assert control.ended[PATH].evicted == 2


def remembering(most: int, need: int) -> QuotaProcesses:
    """What the next planner begins with, where the process of the one before had not ended."""
    enforcing = (EnforcedQuota(path=PATH, max={"memory": most}, need={"memory": need}),)
    return QuotaProcesses.remembering(QuotaMemory(enforcing=enforcing))


def test_a_maximum_raised_while_an_order_of_the_planner_before_ran_starts_no_timer() -> None:
    control = remembering(40, 100)  # the file says 50 by now
    control.resume([order("x")])
    control.saved(TREE, "enforce", NOW)

    control.outcome(PATH, outcome(order("x")), NOW + timedelta(seconds=5))

    assert control.timers.timer(PATH) is None


def test_a_process_that_had_not_ended_begins_again_after_its_delay_with_the_need_of_then() -> None:
    control = remembering(50, 100)
    control.saved(TREE, "enforce", NOW)
    assert control.memory().enforcing[0].need == {"memory": 100}

    assert control.due(TREE, NOW + timedelta(seconds=9)) == []
    assert control.due(TREE, NOW + timedelta(seconds=10)) == [PATH]

    control.planned(PATH, plan(40, 40), NOW)
    assert control.processes[PATH].need == {"memory": 100}


def test_a_maximum_raised_while_no_planner_led_starts_no_timer() -> None:
    control = remembering(40, 100)

    control.saved(TREE, "enforce", NOW)

    assert control.timers.timer(PATH) is None
    assert [one.path for one in control.memory().settled] == [PATH]
    assert control.memory().enforcing == ()


def test_a_raised_maximum_or_a_quota_switched_off_calls_a_process_off_that_has_no_order() -> None:
    raised = tree(queue("a", maximum=60, delay_seconds=10))
    off = tree(queue("a", maximum=50, delay_seconds=10), quota_preemption=False)
    control = fired()

    assert control.called_off(TREE) == {}
    assert control.called_off(tree(queue("a", maximum=40, delay_seconds=10))) == {}
    assert "raised to memory 60" in control.called_off(raised)[PATH]
    assert "quotapreemptionenabled" in control.called_off(off)[PATH]
    assert control.called_off(None).keys() == {PATH}
    assert under_way("x").called_off(off) == {}


def test_a_queue_waits_for_those_below_it_as_long_as_these_wait_for_a_cap() -> None:
    control = QuotaProcesses()
    control.saved(NESTED, "enforce", NOW)
    later = NOW + timedelta(seconds=10)
    control.due(NESTED, later)
    control.ordered("root.p.c", order("x"), whole=True)
    control.outcome("root.p.c", refused(order("x"), "victims-share"), later)

    assert control.due(NESTED, later + 4 * PATIENCE) == ["root.p.c"]


NESTED = tree(queue("p", queue("c", maximum=1, delay_seconds=10), maximum=2, delay_seconds=10))


def test_a_queue_is_planned_for_only_when_the_processes_below_it_have_ended() -> None:
    control = QuotaProcesses()
    control.saved(NESTED, "enforce", NOW)
    later = NOW + timedelta(seconds=10)

    assert control.due(NESTED, later) == ["root.p.c"]
    assert control.waits_for("root.p") == ("root.p.c",)
    control.finish("root.p.c", "success", "done", later)

    assert control.due(NESTED, later) == ["root.p"]


def test_a_queue_does_not_wait_for_ever_for_a_process_below_that_cannot_go_on() -> None:
    control = QuotaProcesses()
    control.saved(NESTED, "enforce", NOW)
    later = NOW + timedelta(seconds=10)
    control.due(NESTED, later)

    assert "root.p" in control.due(NESTED, later + PATIENCE)


def test_a_pod_that_was_refused_is_left_out_and_the_process_goes_on() -> None:
    control = under_way("x")
    uids = [f"p{number}" for number in range(5)]
    for uid in uids:
        control.ordered(PATH, order(uid), whole=True)
        control.outcome(PATH, outcome(order(uid), "failed", ["failed"]), NOW)

    assert PATH in control.processes
    process = control.processes[PATH]
    assert process.refused.keys() == set(uids)
    assert process.refused["p0"].startswith("shop/p0: ")
    assert not process.stuck


def test_a_pod_whose_eviction_failed_for_a_reason_that_may_pass_is_not_taken_for_refused() -> None:
    control = under_way("x", "y")

    control.outcome(
        PATH, outcome(order("x", "y"), "failed", ["failed", "deleted"], reason="unavailable"), NOW
    )

    process = control.processes[PATH]
    assert (list(process.refused), list(process.stuck)) == ([], ["x"])
    assert control.waits() == {}


def test_where_all_pods_of_an_order_fail_for_a_reason_that_may_pass_no_others_are_taken_at_once() -> None:
    control = under_way("x")
    for _ in range(PASSING_TRIES):
        control.ordered(PATH, order("x"), whole=True)
        control.outcome(PATH, outcome(order("x"), "failed", ["failed"], reason="unavailable"), NOW)
        assert control.waits()[PATH].reason == "unavailable"
        assert control.processes[PATH].stuck == {}

    control.ordered(PATH, order("x"), whole=True)
    control.outcome(PATH, outcome(order("x"), "failed", ["failed"], reason="unavailable"), NOW)

    assert list(control.processes[PATH].stuck) == ["x"]
    assert control.waits() == {}


def test_pods_that_fail_again_for_a_reason_that_may_pass_are_waited_for() -> None:
    control = under_way("x")
    for _ in range(2):
        control.ordered(PATH, order("x"), whole=True)
        control.outcome(PATH, outcome(order("x"), "failed", ["failed"], reason="unavailable"), NOW)

    assert control.waits()[PATH].reason == "unavailable"


def test_orders_that_evict_no_pod_end_the_process_whatever_is_learned_from_them() -> None:
    control = under_way("x")
    for number in range(MOST_IDLE):
        assert PATH in control.processes
        control.ordered(PATH, order(f"p{number}"), whole=True)
        control.outcome(PATH, outcome(order(f"p{number}"), "failed", ["failed"]), NOW)

    assert control.ended[PATH].result == "unsuccessful"
