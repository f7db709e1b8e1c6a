"""Nominations of orders in flight that others removed or changed: how many there were lately. Pure."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final

LATELY: Final = timedelta(minutes=10)
"""How long one is told of."""

_MOST: Final = 1000
"""So many are counted at the most."""


class LostNominations:
    """When each of the last was lost. A nomination that makeway took back itself is none of them."""

    def __init__(self) -> None:
        self._at: deque[datetime] = deque(maxlen=_MOST)

    def add(self, now: datetime) -> None:
        """Take note of one."""
        self._at.append(now)

    def describe(self, now: datetime) -> str:
        """Say how many were lost lately, and what that may mean; empty where none was."""
        lately = sum(now - moment < LATELY for moment in self._at)
        if not lately:
            return ""
        which = "1 nomination" if lately == 1 else f"{lately} nominations"
        return (
            f"{which} of orders under way removed or changed by others in the last "
            f"{LATELY // timedelta(minutes=1)} minutes; where the scheduler does that, preemption from "
            "outside does not work on this Kubernetes"
        )
