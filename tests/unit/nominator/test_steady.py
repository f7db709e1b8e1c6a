"""A clock that is set by a little is not followed; one that is set far is."""

from datetime import UTC, datetime, timedelta

import pytest

from makeway.nominator.steady import SteadyTime

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("step", "followed"), [(-10.0, 0.0), (10.0, 0.0), (-3600.0, -3600.0), (3600.0, 3600.0)]
)
def test_time_goes_on_where_the_clock_is_set_by_less_than_a_minute(step: float, followed: float) -> None:
    wall, passed = BEGAN, 100.0
    steady = SteadyTime(lambda: wall, lambda: passed)

    wall, passed = wall + timedelta(seconds=5 + step), passed + 5

    assert steady.now() == BEGAN + timedelta(seconds=5 + followed)
