"""A moment in the past as a person writes it: `90s`, `10m`, `2h`, `1d`, or RFC 3339. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

_AGO: Final = re.compile(r"(\d{1,9})([smhd])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


SinceOption = Annotated[
    str,
    typer.Option("--since", metavar="AGO|TIME", help="Begin so far back: 90s, 10m, 2h, 1d, or RFC 3339."),
]


def since_given(text: str, now: datetime) -> datetime:
    """Read the option; what is neither form is wrong usage."""
    try:
        return parse_since(text, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from error


def parse_since(text: str, now: datetime) -> datetime:
    """Read it; a time without an offset is taken as UTC.

    Raises:
        ValueError: it is neither form, lies in the future, or before 1970.
    """
    if ago := _AGO.fullmatch(text.strip()):
        try:
            moment = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError as error:
            raise ValueError(f"{text!r} is too long ago") from error
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise ValueError(
                f"{text!r}: use 90s, 10m, 2h, 1d or a time such as 2026-01-31T12:00:00Z"
            ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment > now:
        raise ValueError(f"{text!r} lies in the future")
    if moment < _EPOCH:
        raise ValueError(f"{text!r} is too long ago")
    return moment
