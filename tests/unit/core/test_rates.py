"""What caps on evictions come to: for one queue at once, and how long many pods take."""

import pytest

from makeway.core.policy.document import PolicyLimits
from makeway.core.policy.rates import Rates, pace_of_quotas, rates_of, time_needed


def test_one_party_may_use_four_fifths_of_the_lower_cap_at_once() -> None:
    assert rates_of(PolicyLimits(), 400).at_once == 80
    assert rates_of(PolicyLimits(), 10_000).at_once == 400
    assert rates_of(PolicyLimits(victims_per_minute=5), 10_000).at_once == 4
    assert Rates(minute=0, ten_minutes=0).at_once == 1


@pytest.mark.parametrize(
    ("cluster", "pods", "minutes"),
    [
        (2_000, 80, 0),
        (2_000, 81, 10),
        (2_000, 200, 20),
        (2_000, 1_500, 180),
        (10_000, 200, 0),
        (10_000, 1_500, 30),
        (50_000, 1_500, 3),
        (400, 0, 0),
    ],
)
def test_many_pods_take_as_many_windows_as_they_fill(cluster: int, pods: int, minutes: int) -> None:
    assert rates_of(PolicyLimits(), cluster).seconds_for(pods) == 60 * minutes


def test_how_long_a_quota_takes_is_told_only_where_it_takes_long() -> None:
    rates = rates_of(PolicyLimits(), 400)

    assert time_needed(rates, 80) == ""
    assert "at most 80 go for one queue at once, so that 200 pods take at least 20 minutes" in time_needed(
        rates, 200
    )


def test_the_pace_of_limits_is_told_whatever_the_cluster() -> None:
    assert "400 pods of one queue go in a minute, and 80 in ten, or 4 % of all pods" in pace_of_quotas(
        PolicyLimits()
    )
    lifted = pace_of_quotas(PolicyLimits(victims_percent_per_ten_minutes=100, victims_per_minute=50))
    assert "40 pods of one queue go in a minute, and 400 in ten; the rest" in lifted
