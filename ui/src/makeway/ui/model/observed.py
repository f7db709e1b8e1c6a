"""What comparing has found: the last comparisons, and their sum. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from makeway.bus.comparison import Choice, Comparison
from makeway.bus.messages import Victim
from makeway.cli.history.comparisons import COMPARED, Summary, behind, summed, together
from makeway.cli.units import place_text
from makeway.core.recent import Recent
from makeway.ui.model.entries import MOST_TEXT, first

MOST_COMPARISONS: Final = 2_000


class ComparedChoice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A choice as the page lists it: the first few victims, and how many there are."""

    node: str
    victims: tuple[Victim, ...]
    victims_total: int
    pdb_violations: int = 0
    groups_broken: int = 0


class ComparedPod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One comparison. `by`: the rule, note or refusal behind its result."""

    at: datetime
    namespace: str
    name: str
    result: str
    decision_id: str
    by: str = ""
    default_preemption: ComparedChoice | None = None
    makeway: ComparedChoice | None = None


class ObservedView(msgspec.Struct, frozen=True, rename="camel"):
    """What the view shows: the sum over what is kept, and the comparisons, the newest first.

    loaded: as in `makeway.ui.model.timeline.Changes`.
    """

    loaded: bool
    summary: Summary
    words: dict[str, str]
    comparisons: tuple[ComparedPod, ...]


class Comparisons:
    """The last comparisons, each once, with few of its victims. O(victims) to take one in."""

    def __init__(self, most: int = MOST_COMPARISONS) -> None:
        self._kept = Recent[str, tuple[ComparedPod, Summary]](most)

    def add(self, comparison: Comparison) -> None:
        """Take one in; the oldest makes room for it."""
        if comparison.decision_id not in self._kept:
            self._kept[comparison.decision_id] = _compared(comparison), summed([comparison])

    def view(self, most: int, *, loaded: bool) -> ObservedView:
        """Return the sum of all, and the last few. O(comparisons)."""
        newest = [compared for compared, _ in reversed(self._kept.values())]
        total = together(one for _, one in self._kept.values())
        return ObservedView(loaded, total, dict(COMPARED), tuple(newest[:most]))


def _compared(comparison: Comparison) -> ComparedPod:
    preemptor = comparison.preemptor
    return ComparedPod(
        at=comparison.planned_at,
        namespace=preemptor.namespace,
        name=preemptor.name,
        result=comparison.result,
        decision_id=comparison.decision_id,
        by=behind(comparison)[:MOST_TEXT],
        default_preemption=_side(comparison.default_preemption),
        makeway=_side(comparison.makeway),
    )


def _side(choice: Choice | None) -> ComparedChoice | None:
    if choice is None:
        return None
    return ComparedChoice(
        node=place_text(choice),
        victims=first(choice.victims),
        victims_total=len(choice.victims),
        pdb_violations=choice.pdb_violations,
        groups_broken=choice.groups_broken,
    )
