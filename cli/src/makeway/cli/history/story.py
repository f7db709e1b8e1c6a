"""One preemption, or the refusal of one: what was decided, ordered, and what came of it. Pure.

`why`, `history` and the page are renderings of it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome, Preemptor, Victim

ORDERED_WITHIN: Final = timedelta(seconds=30)
"""How long after a plan its order may come: the scheduler verifies it, nominates, and waits at most 2 s."""

NOT_CARRIED_OUT: Final = "notCarriedOut"

OVERDUE: Final = "overdue"
"""The result of an order that has no outcome, and whose deadline is past."""

_WORDS: Final = {
    "live": "in flight",
    OVERDUE: "no outcome",
    NOT_CARRIED_OUT: "not carried out",
    "notNeeded": "not needed",
    "bestEffort": "best effort",
    "spared": "exempt",
    "notAttempted": "not attempted",
}
"""Results that are not shown by their names; the page has the same words."""

_GRACE: Final = timedelta(seconds=2)

_PLANNED_AGAIN: Final = "planned again: its scheduler asked once more"
_NOT_ORDERED: Final = "no order: its scheduler found other room, or its filters said no"

Message = DecisionRecord | EvictionOrder | Outcome | Comparison
"""What stories are made of."""


def word(result: str) -> str:
    """Return a result as it is shown."""
    return _WORDS.get(result, result)


class Story(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What belongs together; each None where it is not known (yet), and where there is none.

    order: what carries the decision out. outcome: how that ended. comparison: what another scheduler did
    instead, and makeway would have done. times: how often the pod was refused for the same reason. overdue:
    the order had no outcome when it was read, though its deadline was past.
    """

    order: EvictionOrder | None = None
    outcome: Outcome | None = None
    decision: DecisionRecord | None = None
    comparison: Comparison | None = None
    times: int = 1
    overdue: bool = False

    @property
    def by_others(self) -> Comparison | None:
        """The comparison, where the preemption that happened was another scheduler's."""
        return self.comparison if self.order is None else None

    @property
    def live(self) -> bool:
        """Whether its order has no outcome yet."""
        return self.order is not None and self.order.void is None and self.outcome is None

    @property
    def at(self) -> datetime | None:
        """When it was decided; None where only the outcome is known."""
        if self.by_others is not None:
            return self.by_others.planned_at
        return self.decision.at if self.decision else self.order.created_at if self.order else None

    @property
    def uid(self) -> str:
        """UID of the pod or PodGroup that it is about; empty for a queue."""
        if self.by_others is not None:
            return self.by_others.preemptor.uid
        return self.room_for.uid if self.room_for is not None else ""

    @property
    def room_for(self) -> Preemptor | None:
        """The pod or PodGroup of its order or decision; None for a queue."""
        return (self.order and self.order.room_for) or (self.decision and self.decision.room_for) or None

    @property
    def victims(self) -> tuple[Victim, ...]:
        """Who was evicted, or would have been."""
        if self.by_others is not None:
            return self.by_others.evicted
        if self.order is not None and self.order.void is None:
            return self.order.victims
        return self.decision.victims if self.decision else ()

    def became(self, victim: Victim) -> tuple[str, datetime | None]:
        """Say what became of a victim, with the reason; and when it was deleted, where it was."""
        if self.outcome is None:
            return "no outcome yet", None
        for one in self.outcome.victims:
            if one.uid == victim.uid:
                end = word(one.result)
                return f"{end} ({one.reason})" if one.reason else end, one.deleted_at
        return f"the order {self.outcome.result}", None


class Row(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A story as a list shows it.

    Attributes:
        at: when it was decided; of a repeated refusal, the last time.
        kind: pod, group, or quota.
        result: live (its order has no outcome yet), overdue (nor when its deadline is past), the outcome's
            result, or, without an order: observed, planned (its order may still come), notCarriedOut (none
            came, or a void in its place), refused, preempted (by kube-scheduler's own preemption or another
            scheduler's; node and victims are what happened), or for a quota what became of it.
        namespace: of the pod or PodGroup that room was made for.
        name: of that pod or PodGroup.
        uid: of that pod or PodGroup.
        members: of that PodGroup, how many an order makes room for.
        queue: of that pod; of a quota, the queue that had to shrink.
        node: where room was made; empty for a PodGroup, whose victims name their nodes.
        victims: who was evicted, or would have been.
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


def is_overdue(order: EvictionOrder, now: datetime) -> bool:
    """Report whether an order's outcome should be there."""
    return order.not_after + _GRACE < now


def row_of(story: Story, last: datetime | None, now: datetime) -> Row:
    """Return the row of a story; a plan that no order has come of in time is marked.

    `last`: when its pod was last decided about; None where that is not known.
    """
    if story.by_others is not None:
        return preempted_row(story.by_others)
    decision, order, outcome = story.decision, story.order, story.outcome
    preemptor = story.room_for
    ordered = order if order is not None and order.void is None else None
    result, reason = _result(story), _reason(story)
    if result == "live" and ordered is not None and is_overdue(ordered, now):
        result = OVERDUE
    if result == "planned" and now - (story.at or now) >= ORDERED_WITHIN:
        again = last is not None and story.at is not None and story.at < last
        result, reason = NOT_CARRIED_OUT, reason or (_PLANNED_AGAIN if again else _NOT_ORDERED)
    return Row(
        at=story.at or now,
        kind=order.kind if order else decision.kind if decision else "pod",
        result=result,
        namespace=preemptor.namespace if preemptor else "",
        name=preemptor.name if preemptor else "",
        uid=story.uid,
        members=len(order.members) if order else 0,
        queue=(decision.queue if decision else "") or (order.queue if order else ""),
        node=(order.node if order else "") or (decision.nominated_node if decision else ""),
        victims=story.victims,
        pdb_violations=ordered.pdb_violations if ordered else decision.pdb_violations if decision else 0,
        reason=reason,
        took_seconds=(
            round((outcome.finished_at - order.created_at).total_seconds(), 3) if outcome and order else None
        ),
        times=story.times,
        decision_id=decision.decision_id if decision else order.decision_id if order else "",
        order_id=order.order_id if order else "",
        until=ordered.not_after if ordered and outcome is None else None,
    )


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
        victims=comparison.evicted,
        pdb_violations=theirs.pdb_violations if theirs else 0,
        reason=f"by {preemptor.scheduler_name}, not by makeway",
        decision_id=comparison.decision_id,
        preempted_by=preemptor.scheduler_name,
    )


def _result(story: Story) -> str:
    if story.outcome is not None:
        return story.outcome.result
    if story.order is not None:
        return "live" if story.order.void is None else NOT_CARRIED_OUT
    decision = story.decision
    if decision is None:
        return ""
    if decision.quota is not None:
        return decision.quota.result
    if decision.status == "refused":
        return "refused"
    return "observed" if decision.mode == "observe" else "planned"


def _reason(story: Story) -> str:
    if story.outcome is not None:
        return story.outcome.reason or story.outcome.message
    if story.order is not None and story.order.void is not None:
        return f"{story.order.void.reason}: {story.order.void.message}"
    decision = story.decision
    if decision is not None and decision.diagnosis is not None:
        return f"{decision.diagnosis.reason}: {decision.diagnosis.message}"
    if decision is not None and decision.ahead and story.order is None:
        return "asked ahead: nothing comes of it where the pod fits"
    return ""
