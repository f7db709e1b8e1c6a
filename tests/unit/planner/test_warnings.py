"""Who is told that a PriorityClass cannot be read: the class itself, once a value, by the leader."""

import msgspec

from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.delay import PREEMPTION_DELAY
from makeway.planner.service.configuration.warnings import MOST_VALUES, Warnings
from makeway.planner.snapshot.changes import PutPriorityClass, RemovePriorityClass
from makeway.planner.snapshot.state import Snapshot
from recorded_events import RecordedEvents
from unit.planner.building import make_class


class Recorder:
    """Warnings of a planner, and its Events."""

    def __init__(self) -> None:
        self.events = RecordedEvents()
        self.snapshot = Snapshot()
        self.warnings = Warnings(self.snapshot, self.events)

    def put(self, priority_class: PriorityClass) -> None:
        """Let a class be so, and the planner that leads look at it."""
        self.snapshot.apply(PutPriorityClass(priority_class))
        self.warnings.tell()


def renamed(priority_class: PriorityClass, uid: str) -> PriorityClass:
    return msgspec.structs.replace(
        priority_class, metadata=msgspec.structs.replace(priority_class.metadata, uid=uid)
    )


def test_a_toleration_that_cannot_be_read_is_told_on_its_class() -> None:
    world = Recorder()

    world.put(make_class("steady", "a", 30))

    ((about, event_type, reason, _, note),) = world.events
    assert (about.name, event_type, reason) == ("steady", "Warning", "TolerationUnreadable")
    assert "minimum-preemptable-priority: 'a' is not a whole number of 32 bits" in note


def test_a_delay_that_cannot_be_read_is_told_on_its_class_beside_its_toleration() -> None:
    world = Recorder()
    both = make_class("hasty", "a", annotations={PREEMPTION_DELAY: "soon"})

    world.put(both)
    world.put(both)

    first, (about, event_type, second, _, note) = world.events
    assert (first.reason, second) == ("TolerationUnreadable", "DelayUnreadable")
    assert (about.kind, about.name, event_type) == ("PriorityClass", "hasty", "Warning")
    assert "'soon' is no duration; expected a duration such as 30s or 5m, at most 1h; until it is" in note


def test_a_value_is_told_once_and_another_one_anew() -> None:
    world = Recorder()

    for minimum in ("a", "a", "b", "a"):
        world.put(make_class("steady", minimum, 30))

    assert len(world.events) == 2


def test_classes_that_can_be_read_are_not_spoken_of() -> None:
    world = Recorder()

    world.put(make_class("steady", 5, 30))
    world.put(make_class("plain"))

    assert world.events == []


def test_a_planner_that_begins_to_lead_tells_what_cannot_be_read_then() -> None:
    world = Recorder()
    for one in (make_class("steady", "a"), make_class("mended", "a"), make_class("mended", 5)):
        world.snapshot.apply(PutPriorityClass(one))
    assert world.events == []

    world.warnings.tell()

    assert [event.about.name for event in world.events] == ["steady"]


def test_a_class_made_anew_is_told_anew() -> None:
    world = Recorder()
    world.put(make_class("steady", "a"))

    world.put(renamed(make_class("steady", "a"), "second"))
    world.snapshot.apply(RemovePriorityClass("steady"))
    world.warnings.tell()
    world.put(renamed(make_class("steady", "a"), "second"))

    assert len(world.events) == 3


def test_whoever_writes_ever_other_values_has_been_told_some_day() -> None:
    world = Recorder()

    for number in range(2 * MOST_VALUES):
        world.put(make_class("steady", f"a{number}"))

    assert len(world.events) == MOST_VALUES
