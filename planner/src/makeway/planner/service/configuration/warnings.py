"""Warnings on objects that do not mean what their authors may think, from the planner that leads.

They are PriorityClasses of which an annotation cannot be read, and pods that no queue takes as they ask for
it; these are held, or count in root.default.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from makeway.core.k8s.event import Regarding
from makeway.core.policy.delay import UnreadableDelay, delay_of
from makeway.core.policy.toleration import UnreadableAnnotation, toleration_of
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.events import EventSink

ROUND_SECONDS: Final = 1.0
"""Between two looks."""

AT_ONCE: Final = 20
"""So many Events on pods a round: a mistake in one template makes thousands of such pods."""

MOST_VALUES: Final = 20
"""So many different values of one class are reported; more of them are not."""

_MEANINGS: Final = {
    UnreadableDelay: ("DelayUnreadable", "until it is mended nothing is delayed for pods of this class"),
    UnreadableAnnotation: (
        "TolerationUnreadable",
        "until it is mended or removed no pod of this class is preempted",
    ),
}
"""The Event's reason, and what a value means until it is mended."""


class Warnings:
    """An Event on each such object, once for each reason."""

    def __init__(self, snapshot: Snapshot, recorder: EventSink) -> None:
        self._snapshot = snapshot
        self._recorder = recorder
        self._values: dict[str, set[UnreadableDelay | UnreadableAnnotation]] = {}  # by UID of a class
        self._misplaced: dict[str, str] = {}

    async def tell_forever(self) -> NoReturn:
        """Run while leading."""
        while True:
            self.tell()
            await asyncio.sleep(ROUND_SECONDS)

    def tell(self) -> None:
        """Report what has not been reported yet. O(classes + misplaced pods)."""
        classes = {one.metadata.uid: one for one in self._snapshot.priority_classes.values()}
        self._values = {uid: told for uid, told in self._values.items() if uid in classes}
        for uid, item in classes.items():
            for found in (toleration_of(item), delay_of(item)):
                if isinstance(found, (UnreadableDelay, UnreadableAnnotation)):
                    told = self._values.setdefault(uid, set())
                    if found not in told and len(told) < MOST_VALUES:
                        told.add(found)
                        reason, meaning = _MEANINGS[type(found)]
                        about = Regarding(
                            "scheduling.k8s.io/v1", "PriorityClass", "", item.metadata.name, uid
                        )
                        self._warn(about, reason, "Preemption", f"{found}; {meaning}")
        if not self._snapshot.pending_updates.pending:
            # Else a pod that is not placed yet is not well placed either.
            self._tell_of_pods()

    def _tell_of_pods(self) -> None:
        misplaced = self._snapshot.queues.misplaced
        self._misplaced = {uid: said for uid, said in self._misplaced.items() if uid in misplaced}
        new = [uid for uid, warning in misplaced.items() if self._misplaced.get(uid) != warning]
        for uid in new[:AT_ONCE]:  # the rest have their turn later
            pod, self._misplaced[uid] = self._snapshot.pods[uid], misplaced[uid]
            about = Regarding("v1", "Pod", pod.namespace, pod.name, uid)
            self._warn(about, "QueueNotUsed", "Place", misplaced[uid])

    def _warn(self, about: Regarding, reason: str, action: str, note: str) -> None:
        self._recorder.record(about, "Warning", reason, action, note)
