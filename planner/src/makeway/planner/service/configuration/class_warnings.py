"""Warnings on PriorityClasses of which an annotation cannot be read, with what that means."""

from __future__ import annotations

from makeway.core.k8s.event import Regarding
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.delay import UnreadableDelay, delay_of
from makeway.core.policy.toleration import UnreadableAnnotation, toleration_of
from makeway.runtime.config_events import EventSink

MOST_VALUES = 20
"""So many different values of one class are reported; more of them are not."""

_Unread = UnreadableAnnotation | UnreadableDelay


class ClassWarnings:
    """A handler of the PriorityClasses' list-watch: an Event for each value, once, while it is its turn.

    Every replica follows the classes; the leader speaks.
    """

    def __init__(self, recorder: EventSink) -> None:
        self._recorder = recorder
        self._speaking = False
        self._unreadable: dict[str, tuple[PriorityClass, tuple[_Unread, ...]]] = {}
        self._told: dict[str, set[_Unread]] = {}

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
        read = toleration_of(item), delay_of(item)
        found = tuple(one for one in read if isinstance(one, (UnreadableAnnotation, UnreadableDelay)))
        if found:
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
        item, unread = self._unreadable[uid]
        told = self._told.setdefault(uid, set())
        for found in unread:
            if found in told or len(told) >= MOST_VALUES:
                continue
            told.add(found)
            about = Regarding("scheduling.k8s.io/v1", "PriorityClass", "", item.metadata.name, uid)
            reason, meaning = _meaning(found)
            self._recorder.record(about, "Warning", reason, "Preemption", f"{found}; {meaning}")


def _meaning(found: _Unread) -> tuple[str, str]:
    """Return the Event's reason, and what the value means until it is mended."""
    if isinstance(found, UnreadableDelay):
        return "DelayUnreadable", "until it is mended nothing is delayed for pods of this class"
    return "TolerationUnreadable", "until it is mended or removed no pod of this class is preempted"
