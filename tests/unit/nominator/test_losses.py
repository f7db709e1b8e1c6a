"""Nominations that others took away: how many are told of, and for how long."""

from datetime import UTC, datetime, timedelta

from makeway.nominator.attempts import LATELY, LostNominations

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_nothing_is_told_where_no_nomination_was_lost() -> None:
    assert LostNominations().describe(NOW) == ""


def test_those_of_the_last_minutes_are_counted_and_what_they_may_mean_is_said() -> None:
    losses = LostNominations()
    for seconds in (0, 60, 700):
        losses.add(NOW + timedelta(seconds=seconds))

    told = losses.describe(NOW + LATELY + timedelta(seconds=30))

    assert told.startswith("2 nominations of orders under way removed or changed by others")
    assert "does not work on this Kubernetes" in told


def test_one_is_forgotten_after_a_while() -> None:
    losses = LostNominations()
    losses.add(NOW)

    assert losses.describe(NOW + LATELY) == ""
