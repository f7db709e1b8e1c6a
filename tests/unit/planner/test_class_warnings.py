"""Who is told that a PriorityClass cannot be read: the class itself, once a value, by the leader."""

from __future__ import annotations

import msgspec

from makeway.core.k8s.event import EventType, Regarding
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.delay import PREEMPTION_DELAY
from makeway.planner.service.configuration.class_warnings import MOST_VALUES, ClassWarnings
from unit.planner.building import make_class


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, EventType, str, str]] = []

    def record(self, about: Regarding, event_type: EventType, reason: str, action: str, note: str) -> None:
        self.events.append((f"{about.kind} {about.name}", event_type, reason, note))


def renamed(priority_class: PriorityClass, uid: str) -> PriorityClass:
    return msgspec.structs.replace(
        priority_class, metadata=msgspec.structs.replace(priority_class.metadata, uid=uid)
    )


def leading() -> tuple[ClassWarnings, Recorder]:
    recorder = Recorder()
    warnings = ClassWarnings(recorder)
    warnings.begin()
    return warnings, recorder


def test_a_toleration_that_cannot_be_read_is_told_on_its_class() -> None:
    warnings, recorder = leading()

    warnings.put(make_class("steady", "a", 30))

    ((about, event_type, reason, note),) = recorder.events
    assert (about, event_type, reason) == ("PriorityClass steady", "Warning", "TolerationUnreadable")
    assert "minimum-preemptable-priority: 'a' is not a whole number of 32 bits" in note


def test_a_delay_that_cannot_be_read_is_told_on_its_class_beside_its_toleration() -> None:
    warnings, recorder = leading()
    both = make_class("hasty", "a", annotations={PREEMPTION_DELAY: "soon"})

    warnings.put(both)
    warnings.put(both)

    (_, _, first, _), (about, event_type, second, note) = recorder.events
    assert (first, second) == ("TolerationUnreadable", "DelayUnreadable")
    assert (about, event_type) == ("PriorityClass hasty", "Warning")
    assert "'soon' is no duration; expected a duration such as 30s or 5m, at most 1h; until it is" in note


def test_a_value_is_told_once_and_another_one_anew() -> None:
    warnings, recorder = leading()

    for minimum in ("a", "a", "b", "a"):
        warnings.put(make_class("steady", minimum, 30))

    assert len(recorder.events) == 2


def test_classes_that_can_be_read_are_not_spoken_of() -> None:
    warnings, recorder = leading()

    warnings.put(make_class("steady", 5, 30))
    warnings.put(make_class("plain"))

    assert recorder.events == []


def test_a_follower_is_silent_and_tells_it_when_it_leads() -> None:
    recorder = Recorder()
    warnings = ClassWarnings(recorder)
    warnings.put(make_class("steady", "a"))
    warnings.put(make_class("mended", "a"))
    warnings.put(make_class("mended", 5))
    assert recorder.events == []

    warnings.begin()
    warnings.end()
    warnings.put(make_class("late", "a"))

    assert [about for about, *_ in recorder.events] == ["PriorityClass steady"]


def test_a_class_made_anew_is_told_anew() -> None:
    warnings, recorder = leading()
    warnings.put(make_class("steady", "a"))

    warnings.drop(make_class("steady", "a"))
    warnings.put(renamed(make_class("steady", "a"), "second"))
    warnings.retain(set())
    warnings.put(renamed(make_class("steady", "a"), "second"))

    assert len(recorder.events) == 3


def test_whoever_writes_ever_other_values_has_been_told_some_day() -> None:
    warnings, recorder = leading()

    for number in range(2 * MOST_VALUES):
        warnings.put(make_class("steady", f"a{number}"))

    assert len(recorder.events) == MOST_VALUES
