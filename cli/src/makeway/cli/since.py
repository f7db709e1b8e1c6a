"""A moment in the past as a person writes it: `90s`, `10m`, `2h`, `1d`, or RFC 3339. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_AGO: Final = re.compile(r"(\d{1,9})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_since(text: str, now: datetime) -> datetime:
    """Read it; a time without an offset is taken as UTC.

    Raises:
        ValueError: it is neither form, or lies before the year 1.
    """
    if ago := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError as error:
            raise ValueError(f"{text!r} is too long ago") from error
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r}: use 90s, 10m, 2h, 1d or a time such as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
