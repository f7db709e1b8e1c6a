"""When each pod that waits is planned for next, and how many nominations others removed lately. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Final

from makeway.nominator.pending import PendingPod

FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(seconds=60)
"""Between two plans for a pod that none was found for: doubled each time. kube-scheduler's own back-off ends
at 10 s; a plan over all nodes costs more than a failed cycle."""

MOST_TURNS: Final = 100
"""Pods of one namespace and priority that one round plans for: more than it has time for."""

LATELY: Final = timedelta(minutes=10)
"""How long one is told of."""

_MOST: Final = 1000
"""So many are counted at the most."""


@dataclass(slots=True)
class Attempts:
    """When a pod is planned for next, since when it is known, and how often in a row nothing came of it."""

    next_at: datetime
    first_seen: datetime
    failures: int = 0

    def pause(self, now: datetime, *, longest: timedelta = LONGEST_PAUSE) -> None:
        """Wait longer than last time. What may not grow further makes no later pause longer either."""
        lasts = FIRST_PAUSE * 2**self.failures
        self.next_at = now + min(lasts, longest)
        self.failures += lasts < longest

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
            known = self._attempts[pod.uid] = Attempts(pod.created or now, now)
        return known

    def in_turn(
        self, pods: Iterable[PendingPod], now: datetime, may_preempt_at: Callable[[PendingPod], datetime]
    ) -> list[tuple[PendingPod, Attempts]]:
        """Return the pods whose turn has come, in its order, and take note that all wait.

        1. Of those that have waited for their turn for more than `LONGEST_PAUSE` the one that has longest:
           more important pods that are refused again and again may be more than can be planned for.
        2. The more important first.
        3. Among equals one of each namespace, then the next of each: no number of pods of one namespace keeps
           another's from their turn. Of each namespace no more than `MOST_TURNS`.
        4. The one whose turn was due first: the first turn when the pod was created and may preempt, later
           ones when its pause is over. So one that is refused again and again keeps no other from its turn.
        5. By UID.

        O(pods + namespaces · log pods).
        """
        due = defaultdict[tuple[int, str], list[tuple[datetime, str, PendingPod, Attempts]]](list)
        longest: tuple[datetime, PendingPod, Attempts] | None = None
        for pod in pods:
            one = self.of(pod, now)
            if one.next_at > now or (moment := max(one.next_at, may_preempt_at(pod))) > now:
                continue
            due[-pod.priority, pod.namespace].append((moment, pod.uid, pod, one))
            waits_since = max(moment, one.first_seen)
            if longest is None or waits_since < longest[0]:
                longest = waits_since, pod, one
        turns = sorted(
            (below, place, *turn)
            for (below, _), own in due.items()
            for place, turn in enumerate(nsmallest(MOST_TURNS, own))
        )
        found = [(pod, one) for *_, pod, one in turns]
        if longest is None or now - longest[0] <= LONGEST_PAUSE:
            return found
        _, pod, one = longest
        return [(pod, one), *(turn for turn in found if turn[0] is not pod)]

    def retry(self, now: datetime) -> None:
        """Wait no longer for any pod. Who has waited for a turn since before that stays before the others."""
        for attempts in self._attempts.values():
            attempts.next_at, attempts.failures = min(attempts.next_at, now), 0

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
