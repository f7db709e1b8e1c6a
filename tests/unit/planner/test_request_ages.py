"""How long a request waited, whatever the two clocks say."""

from datetime import timedelta

import pytest

from makeway.bus.ids import request_id
from makeway.planner.service.freshness import RequestAges
from unit.planner.building import NOW


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_waiting_is_what_goes_beyond_the_quickest_request(skew: float) -> None:
    lateness = RequestAges()
    made = NOW.timestamp()

    assert lateness.waited_seconds("a", request_id(NOW), made + skew) is None
    assert lateness.waited_seconds("a", request_id(NOW), made + skew) == 0
    late = lateness.waited_seconds("a", request_id(NOW), made + skew + 0.25)

    assert late == pytest.approx(0.25, abs=0.002)


def test_a_clock_that_was_set_is_believed_after_a_minute() -> None:
    lateness = RequestAges()
    made = NOW.timestamp()
    lateness.waited_seconds("a", request_id(NOW), made)

    for second in range(1, 63):
        now = NOW + timedelta(seconds=second)
        waited = lateness.waited_seconds("a", request_id(now), now.timestamp() + 5)

    assert waited == pytest.approx(0, abs=0.002)


def test_a_clock_that_is_set_far_back_makes_no_request_late() -> None:
    lateness = RequestAges()
    lateness.waited_seconds("a", request_id(NOW), NOW.timestamp())
    back, later = NOW - timedelta(hours=1), NOW.timestamp() + 1

    assert lateness.waited_seconds("a", request_id(back), later) is None
    assert lateness.waited_seconds("a", request_id(back), later + 2) == pytest.approx(2)


def test_of_a_sender_that_was_silent_for_a_minute_nothing_is_known() -> None:
    lateness = RequestAges()
    later = NOW + timedelta(seconds=61)
    lateness.waited_seconds("a", request_id(NOW), NOW.timestamp())

    assert lateness.waited_seconds("a", request_id(later), later.timestamp()) is None


@pytest.mark.parametrize("strange", ["", "req-", "req-1", "req-UPPERCASE0000", "no dash at all"])
def test_of_an_id_without_a_time_it_is_not_known(strange: str) -> None:
    lateness = RequestAges()
    lateness.waited_seconds("a", request_id(NOW), NOW.timestamp())

    assert lateness.waited_seconds("a", strange, NOW.timestamp()) is None


def test_one_senders_clock_says_nothing_of_anothers() -> None:
    lateness = RequestAges()
    made = NOW.timestamp()

    lateness.waited_seconds("ahead", request_id(NOW), made)
    behind = lateness.waited_seconds("behind", request_id(NOW - timedelta(seconds=0.15)), made)

    assert behind is None


def test_a_sender_that_is_heard_no_more_is_forgotten() -> None:
    lateness = RequestAges()
    for second in range(100):
        now = NOW + timedelta(seconds=second)
        lateness.waited_seconds(f"connection-{second}", request_id(now), now.timestamp())

    assert len(lateness) == 61
