"""What comparing has found, summed up: for `makeway history --compare` and `makeway check`.

Sums and words are pure; reading the stream is at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.comparison import Choice, Comparison
from makeway.bus.following import past_messages
from makeway.cli.ages import age
from makeway.cli.history.rows import FOR, listed
from makeway.cli.tables import Column
from makeway.cli.text import safe
from makeway.cli.units import compared_text, place_text
from makeway.core.config.duration import as_text
from makeway.core.k8s.times import api_time
from makeway.core.text import counted

COLUMNS: Final = (
    Column("AGE"),
    Column("TIME", wide=True),
    FOR,
    Column("DEFAULTPREEMPTION", kind="text", tail=6, long=True),
    Column("MAKEWAY", kind="text", tail=6, long=True),
    Column("RESULT"),
    Column("BY", kind="text", tail=6),
    Column("DECISION", kind="id", wide=True),
)

COMPARED: Final[Mapping[str, str]] = {
    "same": "makeway would have done the same",
    "equal": "makeway would have done as well elsewhere",
    "better": "makeway would have done better",
    "worse": "makeway would have done worse",
    "makewayOnly": "DefaultPreemption evicted no pod, makeway would have",
    "defaultOnly": "makeway would have evicted no pod",
    "undetermined": "the two cannot be compared",
}
"""What a comparison came to, for a person."""

_NAMED: Final = 2
"""Victims of a choice."""

_BOTH: Final = ("same", "equal", "better", "worse")


class Sides(msgspec.Struct, frozen=True, rename="camel"):
    """A number of both choices, over the pairs that have both."""

    default_preemption: int = 0
    makeway: int = 0


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """What comparisons come to.

    Attributes:
        compared: comparisons in all.
        pairs: those where both made a choice.
        results: how many of each result.
        victims: of both choices, over the pairs.
        pdb_violations: of both choices, over the pairs.
        saved_victims: how many fewer victims makeway would have had; negative where it would have had more.
        saved_pdb_violations: how many fewer violations.
        groups_broken: of both choices, over the pairs.
        saved_groups: how many fewer groups would have been broken.
        lost_work_seconds: of both choices, over the pairs, in seconds of a pod of the preemptor's size.
        saved_work_seconds: how many fewer would have been lost.
        worse_by: where makeway would have done worse, by the rule that decides.
    """

    compared: int = 0
    pairs: int = 0
    results: dict[str, int] = msgspec.field(default_factory=dict)
    victims: Sides = msgspec.field(default_factory=Sides)
    pdb_violations: Sides = msgspec.field(default_factory=Sides)
    saved_victims: int = 0
    saved_pdb_violations: int = 0
    worse_by: dict[str, int] = msgspec.field(default_factory=dict)
    groups_broken: Sides = msgspec.field(default_factory=Sides)
    saved_groups: int = 0
    lost_work_seconds: Sides = msgspec.field(default_factory=Sides)
    saved_work_seconds: int = 0


_NUMBERS: Final[Mapping[str, tuple[str, Callable[[Choice], int]]]] = {
    "victims": ("saved_victims", lambda choice: len(choice.victims)),
    "pdb_violations": ("saved_pdb_violations", lambda choice: choice.pdb_violations),
    "groups_broken": ("saved_groups", lambda choice: choice.groups_broken),
    "lost_work_seconds": ("saved_work_seconds", lambda choice: choice.lost_work_seconds),
}
"""Fields of a summary that have both sides, with what says how much makeway saves, and the number."""


def summed(comparisons: Iterable[Comparison]) -> Summary:
    """Sum comparisons up. Pure; O(comparisons)."""
    return together(map(_summary_of, comparisons))


def _summary_of(one: Comparison) -> Summary:
    theirs, ours = one.default_preemption, one.makeway
    sides: dict[str, Any] = {}
    if one.result in _BOTH and theirs is not None and ours is not None:
        sides = {name: Sides(number(theirs), number(ours)) for name, (_, number) in _NUMBERS.items()}
    worse = {one.decided_by: 1} if one.result == "worse" else {}
    return Summary(compared=1, pairs=int(bool(sides)), results={one.result: 1}, worse_by=worse, **sides)


def together(summaries: Iterable[Summary]) -> Summary:
    """Add summaries up. Pure; O(summaries)."""
    found = list(summaries)
    results, worse = Counter[str](), Counter[str]()
    for one in found:
        results.update(one.results)
        worse.update(one.worse_by)
    sums: dict[str, Any] = {}
    for name, (saved, _) in _NUMBERS.items():
        of_all = [getattr(one, name) for one in found]
        both = Sides(sum(one.default_preemption for one in of_all), sum(one.makeway for one in of_all))
        sums |= {name: both, saved: both.default_preemption - both.makeway}
    return Summary(
        compared=sum(one.compared for one in found),
        pairs=sum(one.pairs for one in found),
        results={result: results[result] for result in COMPARED if result in results},
        worse_by=dict(sorted(worse.items())),
        **sums,
    )


def sentences(summary: Summary) -> list[str]:
    """The summary for a person. Pure."""
    if not summary.compared:
        return ["nothing was compared: no pod has been preempted by others, or planned for in mode observe"]
    counts = ", ".join(f"{result} {count}" for result, count in summary.results.items())
    lines = [f"{summary.compared} compared, {summary.pairs} with a choice on both sides: {counts}"]
    if summary.pairs:
        lines += [
            _sides("victims", summary.victims, _saved(summary.saved_victims, "victim")),
            _sides(
                "PDB violations", summary.pdb_violations, _saved(summary.saved_pdb_violations, "violation")
            ),
        ]
    if any(msgspec.structs.astuple(summary.groups_broken)):
        saved = _saved(summary.saved_groups, "group")
        lines.append(_sides("groups broken", summary.groups_broken, saved))
    if any(msgspec.structs.astuple(summary.lost_work_seconds)):
        lines.append(_lost_work(summary))
    if summary.worse_by:
        by = ", ".join(f"{count} by {safe(rule)}" for rule, count in summary.worse_by.items())
        lines.append(f"makeway would have done worse: {by}")
    elif summary.pairs:
        lines.append("makeway would have done worse nowhere")
    return lines


def _sides(what: str, sides: Sides, saved: str) -> str:
    return (
        f"{what}: {sides.default_preemption} by DefaultPreemption, {sides.makeway} by makeway, "
        f"which would have {saved}"
    )


def _lost_work(summary: Summary) -> str:
    """Return what victims lose; a sum over pods of other sizes, each by the measure of its preemptor."""
    theirs, ours, saved = (
        as_text(timedelta(seconds=abs(seconds)))
        for seconds in (*msgspec.structs.astuple(summary.lost_work_seconds), summary.saved_work_seconds)
    )
    verb = "saved" if summary.saved_work_seconds >= 0 else "cost"
    return (
        f"lost work: {theirs} by DefaultPreemption, {ours} by makeway, which would have {verb} {saved} "
        "of pods of the preemptors' size"
    )


def _saved(number: int, noun: str) -> str:
    if not number:
        return f"saved no {noun}"
    count = counted(abs(number), noun)
    return f"saved {count}" if number > 0 else f"cost {count} more"


def cells(comparison: Comparison, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    """A comparison as a line of the table, in the order of COLUMNS. `wide`: every victim. Pure."""
    return (
        age(now - comparison.planned_at),
        api_time(comparison.planned_at),
        safe(compared_text(comparison)),
        _choice(comparison.default_preemption, wide=wide),
        _choice(comparison.makeway, wide=wide),
        comparison.result,
        behind(comparison),
        comparison.decision_id,
    )


def behind(comparison: Comparison) -> str:
    """Return the rule, note or refusal behind a result. Pure."""
    refusal = comparison.refusal
    return comparison.decided_by or comparison.note or (refusal.reason if refusal is not None else "")


def _choice(choice: Choice | None, *, wide: bool) -> str:
    """Return first what it costs, then where, and whose names, whose end stays where it is cut."""
    if choice is None:
        return "-"
    victims, broken = len(choice.victims), choice.groups_broken
    parts = [
        f"{choice.pdb_violations} PDB" if choice.pdb_violations else "",
        f"{counted(broken, 'group')} broken" if broken else "",
        counted(victims, "pod") if victims > 1 else "",
        place_text(choice),
    ]
    return f"{', '.join(filter(None, parts))}: {listed(choice.victims, None if wide else _NAMED) or '-'}"


async def comparisons(bus: Bus, since: datetime | None = None) -> list[Comparison]:
    """Read them from the stream, the eldest first; none where there is no such stream.

    What is not understood is left out. Raises BusError.
    """
    subjects = bus.subjects
    found = past_messages(
        bus, subjects.decisions_stream, codec.unwrap, since=since, subjects=(subjects.comparisons,)
    )
    return [content async for _, content in found if isinstance(content, Comparison)]
