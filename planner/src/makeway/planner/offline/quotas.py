"""What a lowered quota would take, before it is lowered: which pods go, in which queue, in which order. Pure.

It asks the planner's own timers which queues a change concerns, and plans for them as the quota loop does:
in the order in which the timers would fire, leaves before the queues above them, each with the pods gone
that the ones before have taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import convert
from msgspec.structs import replace

from makeway.core.policy.mode import Mode
from makeway.core.policy.rates import rates_of, time_needed
from makeway.core.queues.timers import Timers, is_lowered, timer_settings_of
from makeway.core.queues.tree import NEVER, QueueTree
from makeway.core.queues.victims import run_to_end
from makeway.planner.offline.asking import OFFLINE
from makeway.planner.offline.results import QuotaVictim, SimulatedQuota
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.quota.decide import QuotaAnswer, answering, mode_of
from makeway.planner.snapshot.state import Snapshot


def lowered(snapshot: Snapshot, before: QueueTree | None, now: datetime) -> Iterator[SimulatedQuota]:
    """Return what the tree in force would do that was not in force before. O(queues + pods) a queue.

    `before`: the tree in force until now; None where there was none, so that every maximum is new. Whatever
    the mode, it is told what would happen.
    """
    tree = snapshot.queues.tree
    if tree is None:
        return
    timers = Timers(timer_settings_of(before, "enforce"))
    timers.saved(tree, now, "enforce")
    due = {timer.fires_at for queue in tree if (timer := timers.timer(queue.path)) is not None}
    mode = mode_of(snapshot.exemptions.policy, "enforce")
    leaving: set[str] = set()
    for moment in sorted(due):
        for path in timers.fired(tree, moment):
            inputs = QuotaInputs(
                decision_id=OFFLINE,
                at=moment,
                queue=path,
                maximum=dict(tree.at(path).maximum),
                mode=mode,
                leaving=frozenset(leaving),
            )
            found = run_to_end(answering(snapshot, tree, inputs))
            leaving |= {victim.uid for victim in found.victims}
            yield _described(snapshot, found, moment - now, mode)


def not_enforced(before: QueueTree | None, after: QueueTree) -> Iterator[str]:
    """Return a note for each queue whose maximum is lowered without a delay, or without the switch."""
    for queue in after:
        old = before.find(queue.path) if before is not None else None
        if not is_lowered(old.maximum if old is not None else {}, queue.maximum):
            continue
        if not after.quota_preemption:
            why = "quotapreemptionenabled is not true"
        elif queue.delay == NEVER:
            why = "it has no quota.preemption.delay"
        else:
            continue
        yield f"the max of {queue.path} is lowered, and no pod is evicted for it: {why}"


def _described(snapshot: Snapshot, found: QuotaAnswer, after: timedelta, mode: Mode) -> SimulatedQuota:
    book = snapshot.queues
    return SimulatedQuota(
        queue=found.plan.queue,
        after_seconds=int(after.total_seconds()),
        mode=mode,
        message=found.plan.message,
        quota=found.described(),
        victims=tuple(
            replace(convert(one, QuotaVictim, from_attributes=True), queue=book.path_of(book.record(one.uid)))
            for one in found.victims
        ),
        notes=tuple(_notes(snapshot, found)),
    )


def _notes(snapshot: Snapshot, found: QuotaAnswer) -> Iterator[str]:
    if not found.victims:
        return
    rates = rates_of(snapshot.exemptions.policy.limits, snapshot.bound_pods)
    if slow := time_needed(rates, len(found.victims)):
        yield slow
    schedulers = {snapshot.queues.record(one.uid).scheduler_name or "none" for one in found.victims}
    yield (
        "only pods of scheduler profiles with the queue gate go, which is not known here; schedulers of "
        f"these pods: {', '.join(sorted(schedulers))}"
    )
