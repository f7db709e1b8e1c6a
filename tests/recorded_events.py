"""Where Events go in tests, in place of `makeway.runtime.events.EventRecorder`."""

from typing import NamedTuple

from makeway.core.k8s.event import EventType, Regarding


class RecordedEvent(NamedTuple):
    """An Event that was queued."""

    about: Regarding
    type: EventType
    reason: str
    action: str
    note: str


class RecordedEvents(list[RecordedEvent]):
    """Every Event that was queued, in order."""

    def record(self, about: Regarding, event_type: EventType, reason: str, action: str, note: str) -> None:
        self.append(RecordedEvent(about, event_type, reason, action, note))
