"""Moments as the Kubernetes API writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal


def api_time(
    moment: datetime, precision: Literal["seconds", "milliseconds", "microseconds"] = "seconds"
) -> str:
    """Write a moment in UTC, cut off: a metav1.Time in whole seconds, a metav1.MicroTime in microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
