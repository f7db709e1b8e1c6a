"""What happened in the order of its causes, where times come of several clocks, or of being seen. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Happened(Generic[T]):
    """One thing that happened.

    at: when, in seconds since 1970. key: what its effects name it by; several may share one. causes: keys of
    what precedes it; those of nothing that is known say nothing. seen: `at` is when it was seen, so that it
    may have happened before; of others it is when they happened, by their writer's clock.
    """

    item: T
    at: float
    key: str = ""
    causes: tuple[str, ...] = ()
    seen: bool = False


def in_order(events: Sequence[Happened[T]]) -> list[Happened[T]]:
    """Return the events by time, each no earlier than its causes, with the times that they have then.

    What was seen after its effect had happened gets its effect's time. Any other effect that is before its
    cause gets its cause's. Of equal times a cause precedes its effects, and others keep their order. The
    causes of an event must not lead back to it.

    O(events log events + causes).
    """
    makers: dict[str, list[int]] = defaultdict(list)
    effects: dict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(events):
        if one.key:
            makers[one.key].append(number)
        for cause in one.causes:
            effects[cause].append(number)
    happened: dict[int, float] = {}
    placed: dict[int, tuple[float, int]] = {}

    def latest(number: int) -> float:
        """When it must have happened: what was seen, before all its effects."""
        one = events[number]
        if number not in happened:
            later = [latest(effect) for effect in effects[one.key]] if one.seen and one.key else []
            happened[number] = min([one.at, *later])
        return happened[number]

    def place(number: int) -> tuple[float, int]:
        """Its time, and how many causes of the same time lead to it."""
        if number not in placed:
            causes = events[number].causes
            before = [place(maker) for cause in causes for maker in makers[cause]]
            at = max([latest(number), *(time for time, _ in before)])
            placed[number] = at, max((depth + 1 for time, depth in before if time == at), default=0)
        return placed[number]

    order = sorted(range(len(events)), key=lambda number: (*place(number), number))
    return [replace(events[number], at=placed[number][0]) for number in order]
