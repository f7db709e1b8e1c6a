"""Decisions, orders and outcomes as one row each preemption. Pure.

A decision becomes a row; its order, and that order's outcome, complete it. A pod that is refused again and
again for the same reason is one row, with the last time and how often.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from makeway.bus.comparison import Comparison
from makeway.bus.messages import DecisionRecord, EvictionOrder, Outcome, Preemptor, Victim
from makeway.cli.text import safe
from makeway.cli.units import names_of
from makeway.core.k8s.times import api_time

COLUMNS: Final = ("TIME", "FOR", "NODE", "VICTIMS", "RESULT", "TOOK", "ID")

_SHOWN_VICTIMS: Final = 2


class Row(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One preemption, or the refusal of one.

    Attributes:
        at: when it was decided; of a repeated refusal, the last time.
        kind: pod, or quota.
        result: live (its order has no outcome yet), the outcome's result, or, without an order: observed,
            planned, refused, preempted (by kube-scheduler's own preemption or another scheduler's; node and
            victims are what happened), or for a quota what became of it.
        namespace: of the pod that room was made for.
        name: of that pod.
        uid: of that pod.
        queue: of that pod; of a quota, the queue that had to shrink.
        node: where room was made.
        victims: who had to go, or would have.
        pdb_violations: victims beyond what their disruption budgets allowed.
        reason: why it was refused or failed.
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
    """What belongs together."""

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

    def add(self, message: DecisionRecord | EvictionOrder | Outcome | Comparison) -> None:
        """Take one in."""
        match message:
            case Comparison():
                if by_others(message):
                    self._cases.setdefault(message.decision_id, _Case()).comparison = message
            case DecisionRecord():
                self._decided(message)
            case EvictionOrder():
                case = self._cases.setdefault(message.decision_id or message.order_id, _Case())
                case.order = message
                known = self._by_order.setdefault(message.order_id, case)
                case.outcome = known.outcome
                self._by_order[message.order_id] = case
            case Outcome():
                self._by_order.setdefault(message.order_id, _Case()).outcome = message

    def rows(self, wanted: Wanted = Wanted()) -> list[Row]:
        """Return the rows, the eldest first. Outcomes whose orders are gone from the stream have none."""
        rows = [
            preempted_row(case.comparison)
            if case.comparison is not None and case.order is None
            else row_of(case.decision, case.order, case.outcome, case.times)
            for case in self._cases.values()
        ]
        return sorted((row for row in rows if wanted.takes(row)), key=lambda row: (row.at, row.decision_id))

    def live(self, now: datetime) -> list[Row]:
        """Return the rows whose order is carried out now."""
        return [
            row_of(case.decision, case.order, None, 1)
            for case in self._cases.values()
            if case.order is not None and case.outcome is None and case.order.not_after >= now
        ]

    def forget(self, most: int) -> None:
        """Keep no more than the last so many, but those that are live."""
        for key, case in list(self._cases.items())[: max(0, len(self._cases) - most)]:
            if case.order is None or case.outcome is not None:
                del self._cases[key]
                if case.order is not None:
                    self._by_order.pop(case.order.order_id, None)

    def _decided(self, record: DecisionRecord) -> None:
        case = self._cases.setdefault(record.decision_id, _Case())
        case.decision = record
        if record.preemptor is None or record.diagnosis is None:
            return
        uid, reason = record.preemptor.uid, record.diagnosis.reason
        before, said = self._refused.get(uid, ("", ""))
        if said == reason and before in self._cases and before != record.decision_id:
            case.times = self._cases.pop(before).times + 1
        self._refused[uid] = record.decision_id, reason


def row_of(
    decision: DecisionRecord | None, order: EvictionOrder | None, outcome: Outcome | None, times: int
) -> Row:
    """Put what belongs together into a row. At least one of decision and order is there."""
    preemptor = (order and order.preemptor) or (decision and decision.preemptor) or None
    victims = order.victims if order else decision.victims if decision else ()
    at = decision.at if decision else order.created_at if order else datetime.now(UTC)
    return Row(
        at=at,
        kind=order.kind if order else decision.kind if decision else "pod",
        result=_result(decision, order, outcome),
        namespace=preemptor.namespace if preemptor else "",
        name=preemptor.name if preemptor else "",
        uid=preemptor.uid if preemptor else "",
        queue=(decision.queue if decision else "") or (order.queue if order else ""),
        node=(order.node if order else "") or (decision.nominated_node if decision else ""),
        victims=victims,
        pdb_violations=order.pdb_violations if order else decision.pdb_violations if decision else 0,
        reason=_reason(decision, order, outcome),
        took_seconds=(
            round((outcome.finished_at - order.created_at).total_seconds(), 3) if outcome and order else None
        ),
        times=times,
        decision_id=decision.decision_id if decision else order.decision_id if order else "",
        order_id=order.order_id if order else "",
        until=order.not_after if order and outcome is None else None,
    )


def by_others(comparison: Comparison) -> bool:
    """Report whether a comparison tells of a preemption that happened, by another than makeway."""
    theirs = comparison.default_preemption
    return theirs is not None and bool(theirs.victims)


def preempted_row(comparison: Comparison) -> Row:
    """Put into a row what kube-scheduler's own preemption did, or another scheduler's."""
    preemptor, theirs = comparison.preemptor, comparison.default_preemption
    return Row(
        at=comparison.planned_at,
        kind="pod",
        result="preempted",
        namespace=preemptor.namespace,
        name=preemptor.name,
        uid=preemptor.uid,
        queue=comparison.queue,
        node=theirs.node if theirs else "",
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
        return "live"
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
    if decision is not None and decision.diagnosis is not None:
        return f"{decision.diagnosis.reason}: {decision.diagnosis.message}"
    if decision is not None and decision.ahead and order is None:
        return "asked ahead: nothing comes of it where the pod fits"
    return ""


def cells(row: Row) -> tuple[str, ...]:
    """A row as a line of the table, in the order of COLUMNS."""
    result = f"{row.result} ({row.times} times)" if row.times > 1 else row.result
    if row.preempted_by:
        result = f"{result} {row.reason}"
    elif row.reason and row.result not in ("succeeded", "observed"):
        result = f"{result}: {row.reason.partition(': ')[0]}"
    took = "" if row.took_seconds is None else f"{row.took_seconds:.2f}s"
    texts = (
        api_time(row.at),
        f"{row.namespace}/{row.name}" if row.name else f"queue {row.queue}",
        row.node or "-",
        named(row.victims),
        result,
        took,
        row.order_id or row.decision_id,
    )
    return tuple(safe(text) for text in texts)


def named(victims: Iterable[Victim]) -> str:
    """The first few victims by name, and how many more."""
    names = names_of(victims)
    more = f" and {len(names) - _SHOWN_VICTIMS} more" if len(names) > _SHOWN_VICTIMS else ""
    return (", ".join(names[:_SHOWN_VICTIMS]) + more) or "-"


def for_whom(preemptor: Preemptor) -> str:
    """A pod by name."""
    return safe(f"{preemptor.namespace}/{preemptor.name}")
