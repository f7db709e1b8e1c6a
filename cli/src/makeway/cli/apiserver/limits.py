"""How much one user may ask, and all of them together. Pure: `now` is passed in."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

MOST_USERS: Final = 10_000
"""Users that are remembered; beyond, those who asked longest ago are forgotten."""


@dataclass(frozen=True)
class TurnLimits:
    """per_minute: questions of one user in the long run. burst: so many at once after a pause.

    running: questions that are answered at the same time, of all users. waiting: that may wait for it.
    """

    per_minute: float = 12.0
    burst: int = 6
    running: int = 2
    waiting: int = 8


@dataclass
class _Account:
    left: float
    at: float
    busy: bool = False


def account_of(user: str) -> str:
    """Return under which name a user's questions are counted.

    A tenant makes as many service accounts as it likes: those of a namespace count as one user.
    """
    parts = user.split(":")
    return ":".join(parts[:3]) if user.startswith("system:serviceaccount:") else user


class Turns:
    """Who may ask now. Each user has one question at a time."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._asked = 0

    def take(self, user: str, now: float) -> float:
        """Take a turn; returns 0, or else for how many seconds to wait. `now`: monotonic seconds. O(1)."""
        limits = self._limits
        account = self._accounts.pop(user, None) or _Account(limits.burst, now)
        self._accounts[user] = account
        rate = limits.per_minute / 60.0
        account.left = min(limits.burst, account.left + max(0.0, now - account.at) * rate)
        account.at = now
        if account.busy or self._asked >= limits.running + limits.waiting:
            return 1.0
        if account.left < 1.0:
            return (1.0 - account.left) / rate
        account.left -= 1.0
        account.busy = True
        self._asked += 1
        self._forget()
        return 0.0

    def end(self, user: str) -> None:
        """Give a turn back that was taken."""
        self._asked -= 1
        if (account := self._accounts.get(user)) is not None:
            account.busy = False

    def _forget(self) -> None:
        while len(self._accounts) > MOST_USERS:
            eldest = next(iter(self._accounts))
            if self._accounts[eldest].busy:
                self._accounts.move_to_end(eldest)
                continue
            del self._accounts[eldest]
