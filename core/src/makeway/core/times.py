"""Moments as the Kubernetes API writes them. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Literal


def api_time(moment: datetime, precision: Literal["seconds", "microseconds"]) -> str:
    """Write a moment in UTC: a metav1.Time in whole seconds, cut off, a metav1.MicroTime in microseconds."""
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
