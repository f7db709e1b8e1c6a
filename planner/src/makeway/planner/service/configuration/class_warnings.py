"""Warnings on PriorityClasses whose toleration cannot be read, so that their pods are exempt for ever."""

from __future__ import annotations

from makeway.core.k8s.event import Regarding
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.toleration import UnreadableAnnotation, toleration_of
from makeway.runtime.config_events import EventSink

MOST_VALUES = 20
"""So many different values of one class are reported; more of them are not."""


class ClassWarnings:
    """A handler of the PriorityClasses' list-watch: an Event for each value, once, while it is its turn.

    Every replica follows the classes; the leader speaks.
    """

    def __init__(self, recorder: EventSink) -> None:
        self._recorder = recorder
        self._speaking = False
        self._unreadable: dict[str, tuple[PriorityClass, UnreadableAnnotation]] = {}
        self._told: dict[str, set[UnreadableAnnotation]] = {}

    def begin(self) -> None:
        """Speak from now on, of what cannot be read at this moment first."""
        self._speaking = True
        for uid in self._unreadable:
            self._tell(uid)

    def end(self) -> None:
        """Be silent."""
        self._speaking = False

    def put(self, item: PriorityClass) -> None:
        """Look at a class that is new or has changed."""
        uid = item.metadata.uid
        found = toleration_of(item)
        if isinstance(found, UnreadableAnnotation):
            self._unreadable[uid] = item, found
            self._tell(uid)
        else:
            self._unreadable.pop(uid, None)

    def drop(self, item: PriorityClass) -> None:
        """Forget a class that is gone."""
        self._forget(item.metadata.uid)

    def retain(self, uids: set[str]) -> None:
        """Forget classes that a complete list does not have."""
        for uid in (self._unreadable.keys() | self._told.keys()) - uids:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._unreadable.pop(uid, None)
        self._told.pop(uid, None)

    def _tell(self, uid: str) -> None:
        if not self._speaking:
            return
        item, found = self._unreadable[uid]
        told = self._told.setdefault(uid, set())
        if found in told or len(told) >= MOST_VALUES:
            return
        told.add(found)
        about = Regarding("scheduling.k8s.io/v1", "PriorityClass", "", item.metadata.name, uid)
        note = f"{found}; until it is mended or removed no pod of this class is preempted"
        self._recorder.record(about, "Warning", "TolerationUnreadable", "Preemption", note)
