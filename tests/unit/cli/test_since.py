from datetime import UTC, datetime, timedelta, timezone

import pytest

from makeway.cli.shared_options import parse_since

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        (" 5m ", timedelta(minutes=5)),
    ],
)
def test_a_span_is_counted_back_from_now(text: str, ago: timedelta) -> None:
    assert parse_since(text, NOW) == NOW - ago


def test_a_time_is_taken_with_its_offset_and_as_utc_without() -> None:
    assert parse_since("2026-01-31T11:00:00Z", NOW) == NOW - timedelta(hours=1)
    assert parse_since("2026-01-31T12:00:00+01:00", NOW) == datetime(
        2026, 1, 31, 12, 0, tzinfo=timezone(timedelta(hours=1))
    )
    assert parse_since("2026-01-31T11:00:00", NOW) == NOW - timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "10", "m", "10w", "-5m", "yesterday", "1.5h", "999999999d"])
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"use 90s|too long ago"):
        parse_since(text, NOW)


@pytest.mark.parametrize("text", ["2999-01-01T00:00:00Z", "2026-01-31T12:00:01Z"])
def test_the_future_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lies in the future"):
        parse_since(text, NOW)


@pytest.mark.parametrize("text", ["0001-01-01", "100000d"])
def test_times_before_any_server_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too long ago"):
        parse_since(text, NOW)
