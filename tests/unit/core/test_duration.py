import contextlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.config.duration import LONGEST, DurationError, as_text, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("10", 10),
        ("+10", 10),
        ("10s", 10),
        ("1m30s", 90),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("2h45m0.25s", 9900.25),
        ("100ms", 0.1),
        ("5µs", 0.000005),
        ("1ns", 0.000001),
    ],
)
def test_whole_seconds_and_go_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        ".s",
        "1 s",
        "1,5s",
        "1d",
        "1s ",
        "s1",
        "1e3",
        "1_0",
        "٣s",
        "PT10S",
        "1.5",
        "1h 30m",
        "h1",
    ],
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(DurationError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["-1", "-1s", "-0.5h"])
def test_a_negative_one_is_refused(text: str) -> None:
    with pytest.raises(DurationError, match="is negative"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["366d", "596524h", "2147483648", "9" * 18 + "h"])
def test_one_beyond_what_yunikorn_takes_is_refused(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_what_is_written_is_read_again_as_it_was(duration: timedelta) -> None:
    assert parse_duration(as_text(duration)) == duration


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    with contextlib.suppress(DurationError):
        assert timedelta(0) <= parse_duration(text) <= LONGEST
