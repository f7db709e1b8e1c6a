"""What is remembered of the pods that wait: when each is planned for next, and since when it waits. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from typing import Final

from makeway.nominator.decide import Attempts
from makeway.nominator.pending import PendingPod

MOST_REMEMBERED: Final = 10_000
"""Pods whose attempts are remembered; beyond that the pods that come last begin anew each time."""


class AttemptsByPod:
    """By UID, while their pods are pending."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempts] = {}
        self._first_seen: dict[str, datetime] = {}

    def __contains__(self, uid: str) -> bool:
        """Report whether something is remembered of a pod."""
        return uid in self._attempts

    def of(self, uid: str, now: datetime) -> Attempts:
        """Return what is remembered of a pod, from now on."""
        known = self._attempts.get(uid)
        if known is None:
            known = Attempts(now)
            if len(self._attempts) < MOST_REMEMBERED:
                self._attempts[uid] = known
        return known

    def in_turn(self, pods: Iterable[PendingPod], now: datetime) -> list[PendingPod]:
        """Return pods in the order in which they are planned for, and take note that they wait.

        1. The more important first.
        2. Among equals the one whose turn was due first: the first turn when the pod was created, later ones
           when its pause is over. So one that is refused again and again keeps no other from its turn.
           kube-scheduler's queue goes by the time at which a pod was put into it, in the same way.
        3. By UID.
        """
        turns = []
        full = len(self._attempts) >= MOST_REMEMBERED
        for pod in pods:
            if len(self._first_seen) < MOST_REMEMBERED:
                self._first_seen.setdefault(pod.uid, now)
            known = self._attempts.get(pod.uid)
            first = now if full else pod.created or now
            turns.append((-pod.priority, first if known is None else known.next_at, pod.uid, pod))
        turns.sort(key=lambda turn: turn[:3])
        return [pod for *_, pod in turns]

    def retry(self, now: datetime) -> None:
        """Wait no longer for any pod."""
        for attempts in self._attempts.values():
            attempts.next_at, attempts.failures = now, 0

    def keep(self, pending: Container[str]) -> None:
        """Forget every pod but these."""
        for remembered in (self._attempts, self._first_seen):
            for uid in [uid for uid in remembered if uid not in pending]:
                del remembered[uid]

    def waited(self, uid: str, now: datetime) -> timedelta | None:
        """Return how long a pod that is bound has waited, and forget that; None where it is not known."""
        first = self._first_seen.pop(uid, None)
        return None if first is None else now - first
