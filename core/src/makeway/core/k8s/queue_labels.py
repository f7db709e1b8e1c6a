"""The labels by which a pod names its queue. Source: YuniKorn's labels and annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QUEUE_LABELS: Final = ("yunikorn.apache.org/queue", "queue")
"""Where a pod names its queue; the first that is not empty counts."""


def asked_for(labels: Mapping[str, str]) -> str:
    """Return the queue that a pod names; empty where it names none. O(1)."""
    return next((labels[label] for label in QUEUE_LABELS if labels.get(label)), "")
