"""Ages as kubectl writes them. Pure.

Source: k8s.io/apimachinery, pkg/util/duration, HumanDuration.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Up to how many seconds, in which unit, and with which smaller one beside it (0: none)."""


def age(span: timedelta) -> str:
    """Write an age with two or three digits: 90s, 5m30s, 47h, 3d4h. One in the future, by a clock, is 0s."""
    seconds = max(0, int(span.total_seconds()))
    for below, unit, name, smaller, smaller_name in _STEPS:
        if seconds < below:
            rest = seconds % unit // smaller if smaller else 0
            return f"{seconds // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")
    return f"{seconds // _YEAR}y"
