"""What goes on now: orders in flight, who was refused lately and why, and what has come of the rest. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from makeway.bus.component_status import ComponentStatus
from makeway.cli.text import safe
from makeway.ui.model.entries import OVERDUE, Entry

MOST_IN_FLIGHT: Final = 100
MOST_EXAMPLES: Final = 5
MOST_REASONS: Final = 50
_MOST_COMPONENTS: Final = 100
_MOST_STOPS: Final = 3

_STANDING: Final = ("live", OVERDUE)


class RefusedPods(msgspec.Struct, frozen=True, rename="camel"):
    """A reason for which pods and pod groups were refused, how many of them, and the last few."""

    reason: str
    pods: int
    last: datetime
    examples: tuple[Entry, ...]


class AnsweringPart(msgspec.Struct, frozen=True, rename="camel"):
    """A component that answers. `remark`: what stands in the way of its work, in sentences."""

    component: str
    identity: str
    version: str
    mode: str
    leading: bool
    remark: str


class Acting(msgspec.Struct, frozen=True, rename="camel"):
    """Whether pods are evicted now, for the head of every view.

    mode: of the parts that act, with a slash between where they differ; empty where none has answered. stops:
    the brake and the breakers that are set. by_part: the same by part and namespace, for who wants to know.
    """

    mode: str
    stops: tuple[str, ...]
    by_part: tuple[str, ...]


def acting_of(parts: Sequence[ComponentStatus] | None) -> Acting:
    """Sum up what the parts answered. A shadow acts on nothing, and neither does a part that stands by."""
    acting = [one for one in parts or () if one.leading or one.component == "scheduler"][:_MOST_COMPONENTS]
    brakes = [
        f"braked {'' if one.brake == 'everywhere' else 'for '}{one.brake}" for one in acting if one.brake
    ]
    breakers = ["breaker open" for one in acting if one.breaker]
    own = (f"namespace {space}: {mode}" for one in acting for space, mode in one.namespace_modes.items())
    return Acting(
        mode="/".join(dict.fromkeys(one.mode for one in acting)),
        stops=tuple(safe(one) for one in dict.fromkeys((*brakes, *breakers)))[:_MOST_STOPS],
        by_part=tuple(
            safe(one) for one in dict.fromkeys((*(f"{one.component}: {one.mode}" for one in acting), *own))
        )[:_MOST_COMPONENTS],
    )


class Now(msgspec.Struct, frozen=True, rename="camel"):
    """The first view.

    loaded: as in `makeway.ui.model.timeline.Changes`; before it, the sums are of what has been read so far.
    in_flight: orders without an outcome, the oldest first; in_flight_total counts them all. refused: by
    reason, that of most pods first; of each pod or group the last answer within the window counts. results:
    how many entries of the window have each result. evicted: pods that went by orders that succeeded.
    parts: who answers; None before any was asked.
    """

    at: datetime
    loaded: bool
    window_seconds: int
    in_flight: tuple[Entry, ...]
    in_flight_total: int
    refused: tuple[RefusedPods, ...]
    refused_pods: int
    results: dict[str, int]
    evicted: int
    parts: tuple[AnsweringPart, ...] | None


def now_of(
    entries: Iterable[Entry],
    now: datetime,
    window: timedelta,
    parts: Sequence[ComponentStatus] | None,
    namespace: str = "",
    *,
    loaded: bool = True,
) -> Now:
    """Sum up entries. `namespace`: only what concerns it, as preemptor or victim. O(entries)."""
    since = now - window
    standing: list[Entry] = []
    results: Counter[str] = Counter()
    evicted = 0
    last: dict[str, Entry] = {}
    for entry in entries:
        if namespace and not concerns(entry, namespace):
            continue
        if entry.result in _STANDING:
            standing.append(entry)
        if entry.at < since:
            continue
        results[entry.result] += 1
        if entry.result == "succeeded":
            evicted += entry.victims_total
        if entry.uid and (entry.uid not in last or last[entry.uid].at < entry.at):
            last[entry.uid] = entry
    standing.sort(key=lambda entry: (entry.at, entry.key))
    refused = _refused(entry for entry in last.values() if entry.result == "refused")
    return Now(
        at=now,
        loaded=loaded,
        window_seconds=int(window.total_seconds()),
        in_flight=tuple(standing[:MOST_IN_FLIGHT]),
        in_flight_total=len(standing),
        refused=refused[:MOST_REASONS],
        refused_pods=sum(one.pods for one in refused),
        results=dict(sorted(results.items())),
        evicted=evicted,
        parts=None if parts is None else tuple(map(part_of, parts[:_MOST_COMPONENTS])),
    )


def concerns(entry: Entry, namespace: str) -> bool:
    """Report whether an entry names a pod of a namespace, as preemptor or among the listed victims."""
    return entry.namespace == namespace or any(victim.namespace == namespace for victim in entry.victims)


def _refused(entries: Iterable[Entry]) -> tuple[RefusedPods, ...]:
    by_reason: dict[str, list[Entry]] = {}
    for entry in entries:
        by_reason.setdefault(entry.reason, []).append(entry)
    found = []
    for reason, those in by_reason.items():
        those.sort(key=lambda entry: (entry.at, entry.key), reverse=True)
        found.append(RefusedPods(reason, len(those), those[0].at, tuple(those[:MOST_EXAMPLES])))
    return tuple(sorted(found, key=lambda one: (-one.pods, one.reason)))


def part_of(status: ComponentStatus) -> AnsweringPart:
    """Return what the page says of a component."""
    braked = f"braked: {status.brake}" if status.brake else ""
    stopped = f"breaker open: {status.breaker}" if status.breaker else ""
    remarks = (status.trouble, braked, stopped, status.loops)
    return AnsweringPart(
        component=status.component,
        identity=safe(status.identity),
        version=safe(status.version),
        mode=status.mode,
        leading=status.leading,
        remark=safe("; ".join(one for one in remarks if one)),
    )
