"""Decisions, orders and outcomes as lines for a person or for a program. Pure.

Nothing here fails on what a message says: one that is not understood becomes a line that says so,
and whatever is not printable in a name or a text is shown escaped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from rich.text import Text

from makeway.bus import codec
from makeway.bus.comparison import Choice, Comparison
from makeway.bus.errors import Malformed
from makeway.bus.follow import StreamMessage
from makeway.bus.messages import (
    ControlState,
    DecisionRecord,
    EvictionOrder,
    Outcome,
    Preemptor,
    QuotaDecision,
    Refusal,
    Victim,
    VictimOutcome,
)
from makeway.cli.text import safe
from makeway.cli.units import compared_text, group_text, in_units, names_of, place_text, unit_text
from makeway.core.k8s.times import api_time
from makeway.core.queues.amounts import texts_of
from makeway.core.text import counted

_REMEMBERED_ORDERS: Final = 10_000
_SHOWN_NODE_REASONS: Final = 5

_QUOTA_RESULTS: Final[Mapping[str, str]] = {
    "notNeeded": "is within its quota",
    "success": "comes down to its quota",
    "bestEffort": "comes nearer to its quota",
    "unsuccessful": "keeps all its pods",
}

COMPARED: Final[Mapping[str, str]] = {
    "same": "makeway would have done the same",
    "equal": "makeway would have done as well elsewhere",
    "better": "makeway would have done better",
    "worse": "makeway would have done worse",
    "makewayOnly": "DefaultPreemption evicted nobody, makeway would have",
    "defaultOnly": "makeway would have evicted nobody",
    "undetermined": "the two cannot be compared",
}
"""What a comparison came to, for a person."""

_COMPARED_STYLES: Final[Mapping[str, str]] = {"better": "green", "worse": "bold red"}

_RESULT_STYLES: Final[Mapping[str, str]] = {
    "succeeded": "green",
    "failed": "bold red",
    "expired": "red",
    "refused": "yellow",
    "cancelled": "yellow",
}


@dataclass(frozen=True)
class AuditEntry:
    """One message of a stream, decoded where that was possible."""

    stored: StreamMessage
    kind: str
    at: datetime
    content: codec.StreamMessage | Malformed


class Auditor:
    """Turns messages into lines, remembering orders so that their outcomes can be told by name."""

    def __init__(self, *, namespace: str = "", order: str = "") -> None:
        self._namespace = namespace
        self._order = order
        self._orders: OrderedDict[str, EvictionOrder] = OrderedDict()

    def read(self, stored: StreamMessage, kind: str) -> AuditEntry:
        """Decode a message. `kind`: what its stream holds, for one that is not understood."""
        try:
            envelope, content = codec.unwrap(stored.data)
        except Malformed as malformed:
            return AuditEntry(stored, kind, stored.time, malformed)
        if isinstance(content, EvictionOrder):
            self._orders[content.order_id] = content
            while len(self._orders) > _REMEMBERED_ORDERS:
                self._orders.popitem(last=False)
        return AuditEntry(stored, kind, envelope.time, content)

    def wanted(self, entry: AuditEntry) -> bool:
        """Whether it concerns the namespace and the order asked for. What is malformed concerns everyone."""
        content = entry.content
        if isinstance(content, Malformed):
            return True
        if self._order and not getattr(content, "order_id", "").startswith(self._order):
            return False
        return not self._namespace or self._namespace in self._namespaces(content)

    def line(self, entry: AuditEntry) -> Text:
        """The entry for a person."""
        line = Text()
        line.append(f"{_clock(entry.at)}  ", style="dim")
        match entry.content:
            case Malformed() as malformed:
                line.append(f"malformed {entry.kind}", style="bold red")
                where = f"{entry.stored.subject} (sequence {entry.stored.sequence})"
                line.append(safe(f"  {where}: {malformed.reason}: {malformed.detail}"))
            case DecisionRecord() as record:
                _decision(line, record)
            case Comparison() as comparison:
                _comparison(line, comparison)
            case EvictionOrder() as order:
                _order(line, order)
            case Outcome() as outcome:
                _outcome(line, outcome, self._orders.get(outcome.order_id))
            case ControlState() as control:
                line.append("control   ", style="bold")
                line.append(safe(f"mode {control.mode}, revision {control.revision}"))
        return line

    @staticmethod
    def json_line(entry: AuditEntry) -> str:
        """The entry for a program: where it stood, and the event as it was, or what is wrong with it."""
        stored = entry.stored
        line: dict[str, Any] = {
            "kind": entry.kind,
            "subject": stored.subject,
            "sequence": stored.sequence,
            "storedAt": stored.time,
        }
        if isinstance(entry.content, Malformed):
            line["malformed"] = {"reason": entry.content.reason, "detail": entry.content.detail}
            line["data"] = stored.data.decode("utf-8", "replace")
        else:
            # Again through the decoder: a line break in the original would break the line here.
            line["event"] = msgspec.json.decode(stored.data)
        return msgspec.json.encode(line).decode()

    def _namespaces(self, content: codec.StreamMessage) -> set[str]:
        match content:
            case EvictionOrder() | DecisionRecord():
                named = {victim.namespace for victim in content.victims}
                return named | {content.preemptor.namespace} if content.preemptor else named
            case Comparison():
                choices = (content.makeway, content.default_preemption)
                named = {victim.namespace for choice in choices if choice for victim in choice.victims}
                return named | {content.preemptor.namespace}
            case Outcome():
                named = {victim.namespace for victim in content.victims}
                order = self._orders.get(content.order_id)
                return named | self._namespaces(order) if order else named
            case _:
                return set()


def _decision(line: Text, record: DecisionRecord) -> None:
    line.append("decision  ", style="bold blue")
    line.append(_preemptor(record.preemptor, record.queue), style="bold")
    if record.quota is not None:
        _quota(line, record.quota, record.victims)
    elif record.status == "candidates" and record.nominated_node:
        line.append(f" may have {safe(record.nominated_node)}")
        best = next((c for c in record.candidates if c.node == record.nominated_node), None)
        line.append(f": {_victims(record.victims)}")
        if best and best.awaited:
            line.append(f", {counted(len(best.awaited), 'pod')} already leaving")
        if best and best.decided_by:
            line.append(f"; best by {safe(best.decided_by)}")
        line.append(
            f"; {counted(record.candidates_total, 'candidate')} on {record.nodes_potential} of "
            f"{counted(record.nodes_total, 'node')}",
            style="default",
        )
        _violations(line, record.pdb_violations)
    elif record.status == "refused" and record.diagnosis:
        line.append(" refused", style="yellow")
        line.append(f": {_refusal(record.diagnosis)}")
    elif record.status == "candidates":
        line.append(
            f": {counted(record.unmodelled_total, 'node')} left to the scheduler's filters", style="default"
        )
    else:
        line.append(": the planner's snapshot was not complete yet", style="yellow")
    took = timedelta(microseconds=record.plan_duration_microseconds)
    mode = "" if record.mode == "enforce" else f", mode {record.mode}"
    ahead = ", asked ahead" if record.ahead else ""
    line.append(f"  [{_duration(took)}{mode}{ahead}] {safe(record.decision_id)}", style="dim")


def _quota(line: Text, quota: QuotaDecision, victims: Iterable[Victim]) -> None:
    style = "default" if quota.result in ("success", "notNeeded") else "yellow"
    line.append(f" {_QUOTA_RESULTS[quota.result]}", style=style)
    if quota.need:
        line.append(f": {safe(texts_of(quota.need))} above max {safe(texts_of(quota.max))}")
    if victims := tuple(victims):
        line.append(f"; {_victims(victims)}")
    if quota.short:
        line.append(f"; {safe(texts_of(quota.short))} short", style="yellow")
    for obstacle in quota.blocked:
        line.append(f"; {safe(obstacle.message)}", style="yellow")


def _comparison(line: Text, comparison: Comparison) -> None:
    line.append("compared  ", style="bold blue")
    preemptor = comparison.preemptor
    who = safe(f"{compared_text(comparison)} ({preemptor.priority})")
    line.append(who if comparison.group else _preemptor(preemptor, ""), style="bold")
    line.append(f": {COMPARED[comparison.result]}", style=_COMPARED_STYLES.get(comparison.result, "default"))
    if comparison.decided_by:
        line.append(f" by {safe(comparison.decided_by)}")
    if comparison.note:
        line.append(f" ({safe(comparison.note)})")
    for name, choice in (
        ("DefaultPreemption", comparison.default_preemption),
        ("makeway", comparison.makeway),
    ):
        if choice is not None and not (name == "makeway" and comparison.result == "same"):
            line.append(f"; {name} on {_choice(choice)}")
    if comparison.refusal is not None:
        line.append(f"; makeway refused: {_refusal(comparison.refusal)}")
    how = "mode observe" if comparison.asked else f"by {comparison.preemptor.scheduler_name}, not asked about"
    line.append(f"  [{safe(how)}] {safe(comparison.decision_id)}", style="dim")


def _choice(choice: Choice) -> str:
    violations = f", {counted(choice.pdb_violations, 'PDB violation')}" if choice.pdb_violations else ""
    broken = f", {counted(choice.groups_broken, 'group')} broken" if choice.groups_broken else ""
    return f"{safe(place_text(choice))}: {_victims(choice.victims)}{violations}{broken}"


def _order(line: Text, order: EvictionOrder) -> None:
    line.append("order     ", style="bold magenta")
    line.append(_for(order), style="bold")
    if order.void is not None:
        line.append(" is not stored", style="yellow")
        line.append(f": {safe(order.void.reason)}: {safe(order.void.message)}")
        line.append(f"  {safe(order.order_id)}", style="dim")
        return
    line.append(f" takes {_taken(order)}" if order.kind != "quota" else " must shrink")
    line.append(f": {_victims(order.victims)}")
    if order.awaited:
        line.append(f", {counted(len(order.awaited), 'pod')} awaited")
    if order.nominations_to_clear:
        cleared = counted(len(order.nominations_to_clear), "lower nomination")
        line.append(f", {cleared} cleared")
    _violations(line, order.pdb_violations)
    line.append(f"  [until {_clock(order.not_after)}] {safe(order.order_id)}", style="dim")


def _outcome(line: Text, outcome: Outcome, order: EvictionOrder | None) -> None:
    line.append("outcome   ", style="bold cyan")
    kind = "group" if outcome.kind == "group" else "pod"
    who = _for(order) if order else f"{kind} {safe(outcome.preemptor_uid or '?')}"
    line.append(who, style="bold")
    if outcome.node:
        line.append(f" on {safe(outcome.node)}")
    line.append(f" {outcome.result}", style=_RESULT_STYLES.get(outcome.result, "default"))
    if outcome.reason or outcome.message:
        why = ": ".join(part for part in (outcome.reason, outcome.message) if part)
        line.append(f" ({safe(why)})")
    if outcome.victims:
        line.append(": " + ", ".join(_ended(victim) for victim in outcome.victims))
    if outcome.rollback:
        line.append(f"; {_rolled_back(outcome)}", style="yellow")
    took = _duration(outcome.finished_at - outcome.started_at)
    since = f", {_duration(outcome.finished_at - order.created_at)} after the order" if order else ""
    again = f", delivery {outcome.deliveries}" if outcome.deliveries > 1 else ""
    line.append(f"  [{took}{since}{again}] {safe(outcome.order_id)}", style="dim")


def _rolled_back(outcome: Outcome) -> str:
    rollback = outcome.rollback
    if rollback is None:
        return ""
    conditions = counted(len(rollback.conditions_cleared), "condition")
    if outcome.kind == "group":
        nominations = counted(len(rollback.nominations_reverted), "nomination")
        return f"rolled back: {nominations} reverted, {conditions} cleared"
    nomination = "reverted" if rollback.nomination_reverted else "left as it was"
    return f"rolled back: nomination {nomination}, {conditions} cleared"


def _ended(victim: VictimOutcome) -> str:
    result = "not attempted" if victim.result == "notAttempted" else victim.result
    why = f" ({safe(victim.reason)})" if victim.reason else ""
    tries = f" after {victim.attempts} attempts" if victim.attempts > 1 else ""
    return f"{safe(f'{victim.namespace}/{victim.name}')} {result}{why}{tries}"


def _for(order: EvictionOrder) -> str:
    if order.kind == "group" and order.group is not None:
        return f"{safe(group_text(order))} ({order.group.priority})"
    return _preemptor(order.preemptor, order.queue)


def _taken(order: EvictionOrder) -> str:
    """Where an order makes room: its node, or the members' nodes."""
    if order.kind == "group":
        return counted(len({member.node for member in order.members}), "node")
    return safe(order.node or "?")


def _preemptor(preemptor: Preemptor | None, queue: str) -> str:
    if preemptor is None:
        return f"queue {safe(queue or '?')}"
    return f"{safe(f'{preemptor.namespace}/{preemptor.name}')} ({preemptor.priority})"


def _victims(victims: Iterable[Victim]) -> str:
    named = [
        f"{safe(unit_text(unit, pods) if unit else names_of(pods)[0])}"
        f" ({pods[0].priority}, {safe(pods[0].rule)}"
        f"{', violates a PDB' if any(v.pdb_violating for v in pods) else ''}"
        f"{', not bound yet' if any(v.assumed for v in pods) else ''})"
        for unit, pods in in_units(victims)
    ]
    return f"evict {', '.join(named)}" if named else "nobody to evict"


def _violations(line: Text, count: int) -> None:
    if count:
        line.append(f"; {counted(count, 'PDB violation')}", style="bold yellow")


def _refusal(refusal: Refusal) -> str:
    parts = [f"{safe(refusal.reason)}: {safe(refusal.message)}"]
    if refusal.node_reasons:
        most = sorted(refusal.node_reasons.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{count} {safe(reason)}" for reason, count in most[:_SHOWN_NODE_REASONS])
        parts.append(f"nodes: {shown}{', ...' if len(most) > _SHOWN_NODE_REASONS else ''}")
    if refusal.retry_at:
        parts.append(f"again at {_clock(refusal.retry_at)}")
    if refusal.depends_on:
        names = ("/".join(p for p in (d.kind, d.namespace, d.name) if p) for d in refusal.depends_on)
        parts.append(f"depends on {', '.join(safe(name) for name in names)}")
    return "; ".join(parts)


def _clock(moment: datetime) -> str:
    return api_time(moment, "milliseconds")


def _duration(span: timedelta) -> str:
    seconds = span.total_seconds()
    if abs(seconds) < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s"
