"""Ids of orders, decisions and requests: ordered by time, unguessable, fit for a subject's token."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_DIGITS: Final = 10
_RANDOM_DIGITS: Final = 16


def order_id(now: datetime) -> str:
    """A new order's id: `ord-` and 26 characters."""
    return f"ord-{_sortable(now)}"


def decision_id(now: datetime) -> str:
    """A new decision record's id: `dec-` and 26 characters."""
    return f"dec-{_sortable(now)}"


def request_id(now: datetime) -> str:
    """A new plan request's id: `req-` and 26 characters."""
    return f"req-{_sortable(now)}"


def recording_id(now: datetime) -> str:
    """A new recording's name: `rec-` and 26 characters."""
    return f"rec-{_sortable(now)}"


def moment_in(identifier: str) -> datetime | None:
    """Read when an id was made, to the millisecond, also from its beginning; None where it does not say."""
    digits = identifier.rpartition("-")[2]
    return _moment(digits) if len(digits) >= _TIME_DIGITS else None


def _moment(digits: str) -> datetime | None:
    """Read the moment that digits begin with; None where there is none."""
    if any(digit not in _ALPHABET for digit in digits):
        return None
    milliseconds = 0
    for digit in digits[:_TIME_DIGITS]:
        milliseconds = milliseconds << 5 | _ALPHABET.index(digit)
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _sortable(now: datetime) -> str:
    """48 bits of milliseconds and 80 random bits in Crockford's base 32, as a ULID but in lower case."""
    milliseconds = int(now.timestamp() * 1000)
    return _digits(milliseconds, _TIME_DIGITS) + _digits(secrets.randbits(80), _RANDOM_DIGITS)


def _digits(number: int, count: int) -> str:
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(count)))
