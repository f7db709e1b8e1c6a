"""Decisions, orders and outcomes as one row for each preemption or refusal. Pure.

A decision is told once, however often a pod was refused alike meanwhile; a quota's like any other. A
preemption by others than makeway is a row of its own, from its comparison. Messages may come in any order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome, Victim
from makeway.cli.ages import age
from makeway.cli.history.story import Message, Row, Story, row_of, word
from makeway.cli.tables import Column
from makeway.cli.units import names_of
from makeway.core.k8s.times import api_time
from makeway.core.text import counted

FOR: Final = Column("FOR", kind="text", least=24, tail=6)
_VICTIMS: Final = Column("VICTIMS", kind="text", least=26, tail=6, long=True)

COLUMNS: Final = (
    Column("AGE"),
    Column("TIME", wide=True),
    FOR,
    Column("QUEUE", wide=True),
    Column("NODE", rank=3),
    _VICTIMS,
    Column("PDB VIOLATIONS", wide=True),
    Column("RESULT"),
    Column("REASON"),
    Column("TOOK", rank=2),
    Column("DECISION", kind="id", wide=True),
    Column("ID", kind="id", rank=1),
    Column("MESSAGE", kind="text", wide=True, long=True),
)

LINE: Final = (Column("TIME"), FOR, _VICTIMS, Column("RESULT"), Column("REASON"))
"""Of a row that is shown as it comes."""

_SHOWN_VICTIMS: Final = 3


@dataclass
class _Case:
    """A story as it comes. `key`: its decision's id, or else its order's; empty where neither is known."""

    key: str = ""
    story: Story = field(default_factory=Story)


@dataclass(frozen=True)
class Wanted:
    """Which rows: of a namespace, as preemptor or victim; of a queue and those below it. Empty: all."""

    namespace: str = ""
    queue: str = ""

    def describe(self) -> str:
        """Return what was asked for, to be followed by a time; empty where it is all."""
        where = (("namespace", self.namespace), ("queue", self.queue))
        return "".join(f"in {what} {name} " for what, name in where if name)

    def takes(self, one: Row | Comparison) -> bool:
        """Report whether a row, or a comparison, is one of them."""
        if self.namespace and self.namespace not in namespaces_of(one):
            return False
        return not self.queue or one.queue == self.queue or one.queue.startswith(f"{self.queue}.")


def namespaces_of(content: Any) -> set[str]:
    """Return the namespaces of the pods that a row or a message names, as preemptor or victims."""
    choices = [getattr(content, name, None) for name in ("makeway", "default_preemption")]
    named = [
        *getattr(content, "victims", ()),
        *(one for choice in choices if choice for one in choice.victims),
    ]
    named += [getattr(content, "preemptor", None), content if isinstance(content, Row) else None]
    return {one.namespace for one in named if one is not None}


@dataclass
class History:
    """Takes messages in any order; O(1) each."""

    _cases: OrderedDict[str, _Case] = field(default_factory=OrderedDict)
    _by_order: dict[str, _Case] = field(default_factory=dict)
    _refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    _last: dict[str, datetime] = field(default_factory=dict)

    def add(self, message: Message) -> tuple[str, ...]:
        """Take one in; return the keys of the rows that are new, changed or gone, for `row`."""
        match message:
            case Comparison():
                if not message.evicted:
                    return ()
                case = self._case(message.decision_id)
                case.story = replace(case.story, comparison=message)
            case DecisionRecord():
                return self._decided(message)
            case EvictionOrder():
                case = self._case(message.decision_id or message.order_id)
                known = self._by_order.setdefault(message.order_id, case)
                case.story = replace(case.story, order=message, outcome=known.story.outcome)
                self._by_order[message.order_id] = case
            case Outcome():
                case = self._by_order.setdefault(message.order_id, _Case())
                case.story = replace(case.story, outcome=message)
        self._date(case.story)
        return (case.key,) if case.key else ()

    def rows(self, now: datetime, wanted: Wanted = Wanted()) -> list[Row]:
        """Return the rows, the eldest first. Outcomes whose orders are gone from the stream have none."""
        rows = [self._row(case.story, now) for case in self._cases.values()]
        return sorted((row for row in rows if wanted.takes(row)), key=lambda row: (row.at, row.decision_id))

    def row(self, key: str, now: datetime) -> Row | None:
        """Return the row of a key that `add` named; None where there is none (any more). O(1)."""
        case = self._cases.get(key)
        return self._row(case.story, now) if case is not None else None

    def forget(self, most: int) -> list[str]:
        """Keep no more than the last so many, but those that are live; return the keys of the others."""
        gone = []
        for key, case in list(self._cases.items())[: max(0, len(self._cases) - most)]:
            if not case.story.live:
                del self._cases[key]
                gone.append(key)
                if case.story.order is not None:
                    self._by_order.pop(case.story.order.order_id, None)
        if len(self._by_order) > most:
            # Outcomes whose orders never came.
            self._by_order = {key: case for key, case in self._by_order.items() if case.key}
        if len(self._refused) > 2 * most:
            self._refused = {uid: last for uid, last in self._refused.items() if last[0] in self._cases}
        if len(self._last) > 2 * most:
            uids = {case.story.uid for case in self._cases.values()}
            self._last = {uid: at for uid, at in self._last.items() if uid in uids}
        return gone

    def _case(self, key: str) -> _Case:
        return self._cases.setdefault(key, _Case(key))

    def _row(self, story: Story, now: datetime) -> Row:
        return row_of(story, self._last.get(story.uid), now)

    def _date(self, story: Story) -> None:
        """Note when the pod of a story was last decided about."""
        if story.uid and (at := story.at) is not None:
            self._last[story.uid] = max(at, self._last.get(story.uid, at))

    def _decided(self, record: DecisionRecord) -> tuple[str, ...]:
        case = self._case(record.decision_id)
        case.story = replace(case.story, decision=record)
        self._date(case.story)
        uid = record.preemptor_uid
        if not uid or record.diagnosis is None:
            return (case.key,)
        reason = record.diagnosis.reason
        before, said = self._refused.get(uid, ("", ""))
        self._refused[uid] = record.decision_id, reason
        if said == reason and before in self._cases and before != record.decision_id:
            case.story = replace(case.story, times=self._cases.pop(before).story.times + 1)
            return before, case.key
        return (case.key,)


def cells(row: Row, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    """A row as a line of the table, in the order of COLUMNS. `wide`: every victim."""
    took = "-" if row.took_seconds is None else f"{row.took_seconds:.2f}s"
    return (
        age(now - row.at),
        api_time(row.at),
        _for(row),
        row.queue or "-",
        row.node or _nodes(row),
        _counted(row.victims, most=None if wide else _SHOWN_VICTIMS),
        str(row.pdb_violations),
        _result(row),
        bare(row),
        took,
        row.decision_id or "-",
        row.order_id or row.decision_id,
        row.reason.partition(": ")[2] or "-",
    )


def line(row: Row, now: datetime) -> tuple[str, ...]:
    """A row as it comes, in the order of LINE; of one in flight, how long its order is valid."""
    left = "" if row.until is None else f"{age(row.until - now)} left"
    victims = _counted(row.victims, most=_SHOWN_VICTIMS)
    return (f"{row.at:%H:%M:%S}", _for(row), victims, _result(row), left or bare(row))


def bare(row: Row) -> str:
    """Return the reason without its sentence: one word wherever a part of makeway gave it."""
    if row.preempted_by:
        return row.preempted_by
    if row.result in ("succeeded", "observed"):
        return "-"
    return row.reason.partition(": ")[0] or "-"


def _for(row: Row) -> str:
    if not row.name:
        return f"queue {row.queue}"
    name = f"{row.namespace}/{row.name}"
    if row.kind != "group":
        return name
    # The name is last: where it is cut, its end stays.
    return f"group of {row.members}: {name}" if row.members else f"group {name}"


def _nodes(row: Row) -> str:
    nodes = {victim.node for victim in row.victims} if row.kind == "group" else set()
    return counted(len(nodes), "node") if nodes else "-"


def _result(row: Row) -> str:
    result = word(row.result)
    return f"{result} (x{row.times})" if row.times > 1 else result


def _counted(victims: tuple[Victim, ...], *, most: int | None) -> str:
    """Count the victims and name the first few, such as `5: batch/a, batch/b, …`."""
    return f"{len(victims)}: {listed(victims, most)}" if victims else "-"


def listed(victims: Iterable[Victim], most: int | None) -> str:
    """Name the first few victims; `most` None: all of them."""
    names = names_of(victims)
    shown = names if most is None else names[:most]
    return f"{', '.join(shown)}{', …' if len(shown) < len(names) else ''}"
