"""The planner's word on how many pods there are lifts the share of ten minutes by a factor of two at most."""

import pytest
from msgspec.structs import replace

from makeway.bus.control import ControlState
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.limits.pod_count import ALWAYS_BELIEVED, DOUBLES_SECONDS, believed

LIE = 10**9


def test_a_lie_is_believed_up_to_twice_what_was_true() -> None:
    count = believed(None, 10_000, 0.0)
    for second in range(int(DOUBLES_SECONDS)):
        count = believed(count, LIE, float(second))

    assert count.pods == 20_000


def test_it_doubles_once_in_ten_minutes() -> None:
    count = believed(None, 10_000, 0.0)
    for minute in range(1, 31):
        count = believed(count, LIE, 60.0 * minute)

    assert count.pods == 160_000


@pytest.mark.parametrize("told", [0, 5, ALWAYS_BELIEVED, 150_000])
def test_the_truth_is_believed_at_once_where_it_is_no_more_than_twice_as_much(told: int) -> None:
    count = believed(believed(None, 100_000, 0.0), told, 1.0)

    assert count.pods == told


def test_a_cluster_that_was_empty_fills_without_a_bound_below_what_may_always_go() -> None:
    assert believed(believed(None, 0, 0.0), LIE, 1.0).pods == ALWAYS_BELIEVED


def test_the_share_of_ten_minutes_is_of_what_is_believed() -> None:
    now = 0.0
    guard = ModeGuard("enforce", seconds=lambda: now)
    control = ControlState(revision=1, mode="enforce", cluster_uid="c", pods=10_000)
    guard.put_control(control)
    before = guard.rates().ten_minutes

    guard.put_control(replace(control, pods=LIE))

    assert (before, guard.rates().ten_minutes) == (500, 1_000)
    now = DOUBLES_SECONDS
    assert guard.rates().ten_minutes == 2_000
