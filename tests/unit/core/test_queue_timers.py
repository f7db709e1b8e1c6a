"""When a lowered quota is enforced."""

from datetime import UTC, datetime, timedelta

import pytest

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.timers import Timers
from makeway.core.queues.tree import QueueTree
from unit.core.queue_building import queue, tree

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def one(maximum: int | Amounts | None = 100, *, delay: int = 60, **tree_options: bool) -> QueueTree:
    return tree(queue("a", maximum=maximum, delay_seconds=delay), **tree_options)


def lowered(maximum: int | Amounts = 50, before: int | Amounts = 100) -> Timers:
    """A queue whose maximum was lowered at noon; nothing else is due."""
    timers = Timers()
    timers.saved(one(before, delay=0), at(-100))
    timers.saved(one(before), at(-90))
    timers.fired(one(before), at(-1))
    timers.saved(one(maximum), at(0))
    return timers


def due(timers: Timers, built: QueueTree, *moments: float) -> list[float]:
    """At which of these moments the queue fired."""
    return [moment for moment in moments if timers.fired(built, at(moment))]


def fires_at(timers: Timers) -> datetime | None:
    """When the queue's timer fires, where it has one."""
    timer = timers.timer("root.a")
    return timer.fires_at if timer is not None else None


def test_a_decrease_fires_once_after_the_delay() -> None:
    assert due(lowered(), one(50), 0, 59.999, 60, 60.001, 1000) == [60]


def restarted(timers: Timers, built: QueueTree, seconds: float = 300) -> Timers:
    """What another planner begins with."""
    after = Timers(timers.settled())
    after.saved(built, at(seconds))
    return after


def test_a_restart_starts_a_running_timer_from_zero() -> None:
    assert fires_at(restarted(lowered(), one(50), 30)) == at(90)


def test_a_restart_does_not_start_what_an_increase_has_cancelled() -> None:
    timers = lowered(50)
    timers.saved(one(70), at(10))

    assert fires_at(restarted(timers, one(70))) is None


@pytest.mark.parametrize("ended", [True, False])
def test_a_restart_starts_a_process_again_only_where_it_had_not_ended(ended: bool) -> None:
    timers = lowered()
    assert timers.fired(one(50), at(60)) == ["root.a"]
    timers.begin("root.a")
    if ended:
        timers.end("root.a", at(70))

    assert fires_at(restarted(timers, one(50))) == (None if ended else at(360))


def test_what_was_changed_while_no_planner_ran_counts_from_the_restart() -> None:
    timers = lowered(50)
    timers.saved(one(70), at(10))

    assert fires_at(restarted(timers, one(60))) == at(360)
    assert fires_at(restarted(timers, one(80))) is None
    assert fires_at(restarted(timers, one(70, delay=30))) == at(330)


def test_a_queue_that_the_tree_no_longer_has_does_not_fire() -> None:
    assert lowered().fired(tree(queue("b")), at(60)) == []


@pytest.mark.parametrize(
    ("changed", "at_seconds", "moments", "fires"),
    [
        (one(40), 50, (60, 109, 110), [110]),
        (one(75), 50, (60, 110, 1000), []),
        (one(None), 50, (60, 1000), []),
        (one(50, delay=10), 30, (39, 40, 60), [40]),
    ],
    ids=["a second decrease", "an increase, below what is used", "no limit any more", "another delay"],
)
def test_a_change_before_it_fires_stops_it_or_begins_anew(
    changed: QueueTree, at_seconds: float, moments: tuple[float, ...], fires: list[float]
) -> None:
    timers = lowered()
    timers.saved(changed, at(at_seconds))

    assert (timers.timer("root.a") is None) is (not fires)
    assert due(timers, changed, *moments) == fires


def test_saving_something_else_leaves_it_alone() -> None:
    timers = lowered()
    timers.saved(tree(queue("a", maximum=50, delay_seconds=60, miss=5), queue("b")), at(30))

    assert timers.timer("root.a") is not None
    assert due(timers, one(50), 59, 60) == [60]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"memory": 100, "cpu": 10}, {"memory": 200, "cpu": 5}), ({"memory": 100}, {"memory": 100, "cpu": 5})],
    ids=["more of another resource", "no limit before"],
)
def test_less_of_one_resource_is_a_decrease(before: Amounts, after: Amounts) -> None:
    assert due(lowered(after, before=before), one(after), 60) == [60]


def test_changes_wait_while_a_process_runs_and_count_when_it_ends() -> None:
    timers = lowered()
    timers.fired(one(50), at(60))
    timers.begin("root.a")
    timers.saved(one(40), at(61))
    assert due(timers, one(40), 61, 200) == []

    timers.end("root.a", at(200))

    assert due(timers, one(40), 259, 260) == [260]


@pytest.mark.parametrize("saved", [(60, 50), (70,)], ids=["as it was", "an increase"])
def test_a_process_that_no_decrease_came_beside_is_followed_by_no_other(saved: tuple[int, ...]) -> None:
    timers = lowered()
    timers.fired(one(50), at(60))
    timers.begin("root.a")
    for number, maximum in enumerate(saved):
        timers.saved(one(maximum), at(61 + number))

    timers.end("root.a", at(63))

    assert fires_at(timers) is None


def test_leaves_fire_before_their_parents() -> None:
    built = tree(
        queue("b", queue("c", queue("d", maximum=1), maximum=2), maximum=3), queue("a", maximum=3), maximum=9
    )
    timers = Timers()
    timers.saved(built, at(0))

    assert timers.fired(built, at(1)) == ["root.b.c.d", "root.b.c", "root.a", "root.b", "root"]


@pytest.mark.parametrize("built", [one(50, delay=0), one(50, quota_preemption=False), one(None)])
def test_without_a_delay_a_maximum_or_the_feature_there_is_no_timer(built: QueueTree) -> None:
    timers = Timers()
    timers.saved(built, at(0))

    assert fires_at(timers) is None


@pytest.mark.parametrize("after", [one(50, delay=0), one(50, quota_preemption=False), None])
def test_turning_it_off_stops_timers(after: QueueTree | None) -> None:
    timers = lowered()
    timers.saved(after, at(10))

    assert fires_at(timers) is None


def test_turning_it_on_starts_the_timers() -> None:
    timers = Timers()
    timers.saved(one(50, quota_preemption=False), at(0))
    timers.saved(one(50), at(10))

    assert fires_at(timers) == at(70)


def test_a_restart_starts_every_timer_again() -> None:
    timers = lowered()
    timers.saved(one(50), at(30))
    restarted = Timers()

    restarted.saved(one(50), at(40))

    assert fires_at(restarted) == at(100)


def test_the_timer_starts_again_after_a_process_that_another_planner_began() -> None:
    timers = Timers()
    timers.saved(one(50), at(0))
    timers.resume("root.a", None)
    assert fires_at(timers) is None

    timers.end("root.a", at(5))

    assert fires_at(timers) == at(65)


def test_a_queue_that_is_gone_has_no_timer_even_after_its_process() -> None:
    timers = lowered()
    timers.begin("root.a")
    timers.saved(tree(queue("b")), at(1))

    timers.end("root.a", at(2))

    assert fires_at(timers) is None


def test_what_was_only_observed_is_carried_out_after_the_full_delay() -> None:
    timers = Timers()
    timers.saved(one(50), at(0), "observe")
    assert due(timers, one(50), 60) == [60]

    timers.saved(one(50), at(100), "enforce")

    assert fires_at(timers) == at(160)


def test_while_the_mode_is_off_there_is_no_timer() -> None:
    timers = lowered()
    timers.saved(one(50), at(10), "off")

    assert fires_at(timers) is None
