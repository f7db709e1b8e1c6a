"""Decisions, orders and outcomes as one row each preemption. Pure.

A decision becomes a row; its order, and that order's outcome, complete it. A pod that is refused again and
again for the same reason is one row, with the last time and how often.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder, Outcome, Victim
from makeway.cli.ages import age
from makeway.cli.tables import Column
from makeway.cli.units import names_of
from makeway.core.k8s.times import api_time
from makeway.core.text import counted

COLUMNS: Final = (
    Column("AGE"),
    Column("TIME", wide=True),
    Column("FOR"),
    Column("QUEUE", wide=True),
    Column("NODE", rank=2),
    Column("VICTIMS", kind="text"),
    Column("PDB VIOLATIONS", wide=True),
    Column("RESULT", kind="text"),
    Column("TOOK", rank=1),
    Column("ID", kind="id"),
    Column("DECISION", kind="id", wide=True),
)

_SHOWN_VICTIMS: Final = 2

_ORDERED_WITHIN: Final = timedelta(seconds=30)
"""How long after a plan its order may come: the scheduler verifies it, nominates, and waits at most 2 s."""

NOT_CARRIED_OUT: Final = "notCarriedOut"


class Row(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One preemption, or the refusal of one.

    Attributes:
        at: when it was decided; of a repeated refusal, the last time.
        kind: pod, group, or quota.
        result: live (its order has no outcome yet), the outcome's result, or, without an order: observed,
            planned (its order may still come), notCarriedOut (none came, or a void in its place), refused,
            preempted (by kube-scheduler's own preemption or another scheduler's; node and victims are what
            happened), or for a quota what became of it.
        namespace: of the pod or PodGroup that room was made for.
        name: of that pod or PodGroup.
        uid: of that pod or PodGroup.
        members: of that PodGroup, how many room was made for.
        queue: of that pod; of a quota, the queue that had to shrink.
        node: where room was made; empty for a PodGroup, whose victims name their nodes.
        victims: who had to go, or would have.
        pdb_violations: victims beyond what their disruption budgets allowed.
        reason: why it was refused, failed or was not carried out.
        took_seconds: from the order to its outcome.
        times: how often it was refused alike.
        decision_id: of the decision record.
        order_id: of the order.
        until: when the order is void.
        preempted_by: the scheduler that preempted by itself, where it was not makeway.
    """

    at: datetime
    kind: str
    result: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    members: int = 0
    queue: str = ""
    node: str = ""
    victims: tuple[Victim, ...] = ()
    pdb_violations: int = 0
    reason: str = ""
    took_seconds: float | None = None
    times: int = 1
    decision_id: str = ""
    order_id: str = ""
    until: datetime | None = None
    preempted_by: str = ""


@dataclass
class _Case:
    """What belongs together. `key`: its decision's id, or else its order's; empty where neither is known."""

    key: str = ""
    decision: DecisionRecord | None = None
    order: EvictionOrder | None = None
    outcome: Outcome | None = None
    times: int = 1
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Wanted:
    """Which rows: of a namespace, as preemptor or victim; of a queue and those below it. Empty: all."""

    namespace: str = ""
    queue: str = ""

    def takes(self, row: Row) -> bool:
        """Report whether a row is one of them."""
        named = {row.namespace, *(victim.namespace for victim in row.victims)}
        if self.namespace and self.namespace not in named:
            return False
        return not self.queue or row.queue == self.queue or row.queue.startswith(f"{self.queue}.")


@dataclass
class History:
    """Takes messages in any order; O(1) each."""

    _cases: OrderedDict[str, _Case] = field(default_factory=OrderedDict)
    _by_order: dict[str, _Case] = field(default_factory=dict)
    _refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    _last: dict[str, datetime] = field(default_factory=dict)

    def add(self, message: DecisionRecord | EvictionOrder | Outcome | Comparison) -> tuple[str, ...]:
        """Take one in; return the keys of the rows that are new, changed or gone, for `row`."""
        match message:
            case Comparison():
                if not by_others(message):
                    return ()
                case = self._case(message.decision_id)
                case.comparison = message
            case DecisionRecord():
                return self._decided(message)
            case EvictionOrder():
                case = self._case(message.decision_id or message.order_id)
                case.order = message
                known = self._by_order.setdefault(message.order_id, case)
                case.outcome = known.outcome
                self._by_order[message.order_id] = case
            case Outcome():
                case = self._by_order.setdefault(message.order_id, _Case())
                case.outcome = message
        self._date(case)
        return (case.key,) if case.key else ()

    def rows(self, now: datetime, wanted: Wanted = Wanted()) -> list[Row]:
        """Return the rows, the eldest first. Outcomes whose orders are gone from the stream have none."""
        rows = [self._row(case, now) for case in self._cases.values()]
        return sorted((row for row in rows if wanted.takes(row)), key=lambda row: (row.at, row.decision_id))

    def row(self, key: str, now: datetime) -> Row | None:
        """Return the row of a key that `add` named; None where there is none (any more). O(1)."""
        case = self._cases.get(key)
        return self._row(case, now) if case is not None else None

    def live(self, now: datetime) -> list[Row]:
        """Return the rows whose order is carried out now."""
        return [
            row_of(case.decision, case.order, None, 1)
            for case in self._cases.values()
            if _is_live(case) and case.order is not None and case.order.not_after >= now
        ]

    def forget(self, most: int) -> list[str]:
        """Keep no more than the last so many, but those that are live; return the keys of the others."""
        gone = []
        for key, case in list(self._cases.items())[: max(0, len(self._cases) - most)]:
            if not _is_live(case):
                del self._cases[key]
                gone.append(key)
                if case.order is not None:
                    self._by_order.pop(case.order.order_id, None)
        if len(self._by_order) > most:
            # Outcomes whose orders never came.
            self._by_order = {key: case for key, case in self._by_order.items() if case.key}
        if len(self._refused) > 2 * most:
            self._refused = {uid: last for uid, last in self._refused.items() if last[0] in self._cases}
        if len(self._last) > 2 * most:
            uids = {_moment(case)[0] for case in self._cases.values()}
            self._last = {uid: at for uid, at in self._last.items() if uid in uids}
        return gone

    def _case(self, key: str) -> _Case:
        return self._cases.setdefault(key, _Case(key))

    def _row(self, case: _Case, now: datetime) -> Row:
        if case.comparison is not None and case.order is None:
            return preempted_row(case.comparison)
        row = row_of(case.decision, case.order, case.outcome, case.times)
        return _unless_dropped(row, self._last.get(row.uid, row.at), now)

    def _date(self, case: _Case) -> None:
        """Note when the pod of a case was last decided about."""
        uid, at = _moment(case)
        if at is not None:
            self._last[uid] = max(at, self._last.get(uid, at))

    def _decided(self, record: DecisionRecord) -> tuple[str, ...]:
        case = self._case(record.decision_id)
        case.decision = record
        self._date(case)
        if record.preemptor is None or record.diagnosis is None:
            return (case.key,)
        uid, reason = record.preemptor.uid, record.diagnosis.reason
        before, said = self._refused.get(uid, ("", ""))
        self._refused[uid] = record.decision_id, reason
        if said == reason and before in self._cases and before != record.decision_id:
            case.times = self._cases.pop(before).times + 1
            return before, case.key
        return (case.key,)


def _is_live(case: _Case) -> bool:
    return case.order is not None and case.order.void is None and case.outcome is None


def _moment(case: _Case) -> tuple[str, datetime | None]:
    """Return the UID of the pod that a case is about, and when it was decided."""
    if case.comparison is not None and case.order is None:
        return case.comparison.preemptor.uid, case.comparison.planned_at
    preemptor = (case.order and case.order.preemptor) or (case.decision and case.decision.preemptor) or None
    at = case.decision.at if case.decision else case.order.created_at if case.order else None
    return preemptor.uid if preemptor else "", at


def row_of(
    decision: DecisionRecord | None, order: EvictionOrder | None, outcome: Outcome | None, times: int
) -> Row:
    """Put what belongs together into a row. At least one of decision and order is there."""
    preemptor = (order and order.room_for) or (decision and decision.preemptor) or None
    ordered = order if order is not None and order.void is None else None
    victims = ordered.victims if ordered else decision.victims if decision else ()
    at = decision.at if decision else order.created_at if order else datetime.now(UTC)
    return Row(
        at=at,
        kind=order.kind if order else decision.kind if decision else "pod",
        result=_result(decision, order, outcome),
        namespace=preemptor.namespace if preemptor else "",
        name=preemptor.name if preemptor else "",
        uid=preemptor.uid if preemptor else "",
        members=len(order.members) if order else 0,
        queue=(decision.queue if decision else "") or (order.queue if order else ""),
        node=(order.node if order else "") or (decision.nominated_node if decision else ""),
        victims=victims,
        pdb_violations=ordered.pdb_violations if ordered else decision.pdb_violations if decision else 0,
        reason=_reason(decision, order, outcome),
        took_seconds=(
            round((outcome.finished_at - order.created_at).total_seconds(), 3) if outcome and order else None
        ),
        times=times,
        decision_id=decision.decision_id if decision else order.decision_id if order else "",
        order_id=order.order_id if order else "",
        until=ordered.not_after if ordered and outcome is None else None,
    )


def _unless_dropped(row: Row, last: datetime, now: datetime) -> Row:
    """Return a row, marked where it is a plan that no order has come of. `last`: the pod's last decision."""
    if row.result != "planned" or now - row.at < _ORDERED_WITHIN:
        return row
    reason = row.reason
    if not reason and row.at < last:
        reason = "planned again: its scheduler asked once more"
    elif not reason:
        reason = "no order: its scheduler found other room, or its filters said no"
    return msgspec.structs.replace(row, result=NOT_CARRIED_OUT, reason=reason)


def by_others(comparison: Comparison) -> bool:
    """Report whether a comparison tells of a preemption that happened, by another than makeway."""
    theirs = comparison.default_preemption
    return theirs is not None and bool(theirs.victims)


def preempted_row(comparison: Comparison) -> Row:
    """Put into a row what kube-scheduler's own preemption did, or another scheduler's."""
    preemptor, theirs, group = comparison.preemptor, comparison.default_preemption, comparison.group
    return Row(
        at=comparison.planned_at,
        kind="group" if group else "pod",
        result="preempted",
        namespace=preemptor.namespace,
        name=preemptor.name,
        uid=preemptor.uid,
        members=group.members if group else 0,
        queue=comparison.queue,
        node=theirs.node if theirs and not group else "",
        victims=theirs.victims if theirs else (),
        pdb_violations=theirs.pdb_violations if theirs else 0,
        reason=f"by {preemptor.scheduler_name}, not by makeway",
        decision_id=comparison.decision_id,
        preempted_by=preemptor.scheduler_name,
    )


def _result(decision: DecisionRecord | None, order: EvictionOrder | None, outcome: Outcome | None) -> str:
    if outcome is not None:
        return outcome.result
    if order is not None:
        return "live" if order.void is None else NOT_CARRIED_OUT
    if decision is None:
        return ""
    if decision.quota is not None:
        return decision.quota.result
    if decision.status == "refused":
        return "refused"
    return "observed" if decision.mode == "observe" else "planned"


def _reason(decision: DecisionRecord | None, order: EvictionOrder | None, outcome: Outcome | None) -> str:
    if outcome is not None:
        return outcome.reason or outcome.message
    if order is not None and order.void is not None:
        return f"{order.void.reason}: {order.void.message}"
    if decision is not None and decision.diagnosis is not None:
        return f"{decision.diagnosis.reason}: {decision.diagnosis.message}"
    if decision is not None and decision.ahead and order is None:
        return "asked ahead: nothing comes of it where the pod fits"
    return ""


def cells(row: Row, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    """A row as a line of the table, in the order of COLUMNS. `wide`: every victim, and reasons whole."""
    took = "" if row.took_seconds is None else f"{row.took_seconds:.2f}s"
    return (
        age(now - row.at),
        api_time(row.at),
        _for(row),
        row.queue or "-",
        row.node or _nodes(row),
        named(row.victims, most=None if wide else _SHOWN_VICTIMS),
        str(row.pdb_violations),
        _told(row, wide=wide),
        took,
        row.order_id or row.decision_id,
        row.decision_id or "-",
    )


def _for(row: Row) -> str:
    if not row.name:
        return f"queue {row.queue}"
    name = f"{row.namespace}/{row.name}"
    return f"group {name} ({counted(row.members, 'member')})" if row.kind == "group" else name


def _nodes(row: Row) -> str:
    nodes = {victim.node for victim in row.victims} if row.kind == "group" else set()
    return counted(len(nodes), "node") if nodes else "-"


def _told(row: Row, *, wide: bool) -> str:
    """Say what became of it, and why."""
    result = "not carried out" if row.result == NOT_CARRIED_OUT else row.result
    times = f" ({row.times} times)" if row.times > 1 else ""
    if row.preempted_by:
        return f"{result}{times} {row.reason}"
    if not row.reason or row.result in ("succeeded", "observed"):
        return f"{result}{times}"
    return f"{result}: {row.reason if wide else row.reason.partition(': ')[0]}{times}"


def named(victims: Iterable[Victim], *, most: int | None = _SHOWN_VICTIMS) -> str:
    """Name the first few victims, and say how many more there are. `most` None: all of them."""
    names = names_of(victims)
    shown = names if most is None else names[:most]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (", ".join(shown) + more) or "-"
