"""When each pod that waits is planned for next, and how many nominations others removed lately. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.nominator.pending import PendingPod

FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(seconds=60)
"""Between two plans for a pod that none was found for: doubled each time. kube-scheduler's own back-off ends
at 10 s; a plan over all nodes costs more than a failed cycle."""

MOST_REMEMBERED: Final = 10_000
"""Pods whose attempts are remembered; beyond that the pods that come last begin anew each time."""


LATELY: Final = timedelta(minutes=10)
"""How long one is told of."""

_MOST: Final = 1000
"""So many are counted at the most."""


@dataclass
class Attempts:
    """When a pod is planned for next, since when it is known, and how often in a row nothing came of it."""

    next_at: datetime
    first_seen: datetime
    failures: int = 0

    def pause(self, now: datetime, *, longest: timedelta = LONGEST_PAUSE) -> None:
        """Wait longer than last time."""
        self.next_at = now + min(FIRST_PAUSE * 2 ** min(self.failures, 16), longest)
        self.failures += 1

    def again_at(self, moment: datetime) -> None:
        """Ask at a moment at the latest, such as when time alone changes the answer."""
        self.next_at = min(self.next_at, moment)


class AttemptsByPod:
    """By UID, while their pods are pending."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempts] = {}

    def __contains__(self, uid: str) -> bool:
        """Report whether something is remembered of a pod."""
        return uid in self._attempts

    def of(self, pod: PendingPod, now: datetime) -> Attempts:
        """Return what is remembered of a pod, from now on."""
        known = self._attempts.get(pod.uid)
        if known is None:
            room = len(self._attempts) < MOST_REMEMBERED
            known = Attempts((pod.created or now) if room else now, now)
            if room:
                self._attempts[pod.uid] = known
        return known

    def in_turn(self, pods: Iterable[PendingPod], now: datetime) -> list[tuple[PendingPod, Attempts]]:
        """Return pods in the order in which they are planned for, and take note that they wait.

        1. The more important first.
        2. Among equals the one whose turn was due first: the first turn when the pod was created, later ones
           when its pause is over. So one that is refused again and again keeps no other from its turn.
           kube-scheduler's queue goes by the time at which a pod was put into it, in the same way.
        3. By UID.
        """
        turns = [(pod, self.of(pod, now)) for pod in pods]
        return sorted(turns, key=lambda turn: (-turn[0].priority, turn[1].next_at, turn[0].uid))

    def retry(self, now: datetime) -> None:
        """Wait no longer for any pod."""
        for attempts in self._attempts.values():
            attempts.next_at, attempts.failures = now, 0

    def keep(self, pending: Container[str]) -> None:
        """Forget every pod but these."""
        for uid in [uid for uid in self._attempts if uid not in pending]:
            del self._attempts[uid]


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
