"""Durations as people write them in configuration: whole seconds, or Go's form (`90s`, `1m30s`, `1.5h`).

Exact: no float is involved. Negative ones are refused, since nothing here is due before it began.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

LONGEST: Final = timedelta(seconds=2**31 - 1)
"""As many seconds as YuniKorn and Kubernetes have room for."""

EXPECTED: Final = "whole seconds or a duration such as 90s, 1m30s or 2h"

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"(?P<whole>[0-9]{0,18})(?:\.(?P<part>[0-9]{0,18}))?(?P<unit>ns|us|µs|μs|ms|s|m|h)")


class DurationError(ValueError):
    """The text is no duration, is negative, or longer than `LONGEST`. Says which."""


def parse_duration(text: str) -> timedelta:
    """Read whole seconds or a Go duration (time.ParseDuration), rounded up to whole microseconds.

    Raises DurationError.
    """
    if text.startswith("-"):
        raise DurationError("is negative")
    digits = text.removeprefix("+")
    nanoseconds = int(digits) * _NANOSECONDS["s"] if _is_whole(digits) else _sum_of_parts(digits)
    if nanoseconds > LONGEST // timedelta(microseconds=1) * 1_000:
        raise DurationError(f"is longer than {LONGEST // timedelta(seconds=1)} s")
    return timedelta(microseconds=-(-nanoseconds // 1_000))


def _is_whole(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= 18


def _sum_of_parts(text: str) -> int:
    total, end = 0, 0
    for found in _PART.finditer(text):
        whole, part = found["whole"], found["part"] or ""
        if found.start() != end or not (whole or part):
            raise DurationError("is no duration")
        unit = _NANOSECONDS[found["unit"]]
        total += int(whole or "0") * unit + -(-int(part or "0") * unit // 10 ** len(part))
        end = found.end()
    if end != len(text) or end == 0:
        raise DurationError("is no duration")
    return total


def as_text(duration: timedelta) -> str:
    """Write a duration in Go's form, in its largest whole units: `1m30s`; `0s` for none."""
    left = duration // timedelta(microseconds=1)
    text = ""
    for unit in ("h", "m", "s", "ms", "us"):
        count, left = divmod(left, _NANOSECONDS[unit] // 1_000)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
