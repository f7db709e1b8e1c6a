"""Defects of the protocol that the simulation has to find: `python -m protocol.mutants` looks for each.

Those of the evictor and the bus are made in the product's own code; those of the plugin in its table and
model.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec
from kubernetes_asyncio.client import V1DeleteOptions

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.commit import CommitRequest, Offer
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import EvictionOrder, Outcome, Victim, Void
from makeway.bus.nats.publishing import AlreadyExists, Publication, Published, publish
from makeway.bus.orders import OrderWriter, voided
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.act import looks, work
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.act.rollback import RollbackReport, RollbackRun
from makeway.evictor.intake.service import Evictor
from makeway.evictor.judge import decide
from makeway.evictor.judge.verdicts import Cancelled, Proceed
from makeway.planner.commit.committer import Committer
from makeway.planner.commit.judge import Accepted
from protocol.run import simulate
from protocol.scheduler import Scheduler
from protocol.streams import Nats

MOST_SEEDS = 8000


@dataclass(frozen=True)
class Mutant:
    """A defect; `break_` makes it while it is entered.

    `seed`: one that found it when it was written, which a test tries first.
    """

    name: str
    text: str
    break_: Callable[[], contextlib.AbstractContextManager[Any]]
    seed: int


def _no_compare_and_set() -> Any:
    return patch.object(Nats, "compares", False)


def _no_not_after() -> Any:
    return patch.object(decide, "expired", lambda order, now: None)


def _no_preconditions() -> Any:
    return patch.object(Cluster, "_as_read", lambda *_: V1DeleteOptions())


def _no_fence() -> Any:
    def fenced(order: EvictionOrder, *, now: datetime, **_: Any) -> Any:
        return decide.expired(order, now)

    return patch.object(decide, "fenced", fenced)


def _outcome_before_rollback() -> Any:
    real = RollbackRun.run
    later: set[asyncio.Future[Any]] = set()

    async def run(self: RollbackRun, undecided: Iterable[Victim]) -> RollbackReport:
        task = asyncio.ensure_future(real(self, undecided))
        later.add(task)
        task.add_done_callback(later.discard)
        return RollbackReport()

    return patch.object(RollbackRun, "run", run)


def _marks_stay() -> Any:
    async def nothing(self: RollbackRun, victim: Victim) -> None:
        return

    return patch.object(RollbackRun, "_clear_mark", nothing)


def _acknowledge_first() -> Any:
    real = Evictor.handle

    async def handle(self: Evictor, delivery: Any) -> None:
        with contextlib.suppress(Exception):
            await delivery.ack_sync()
        await real(self, delivery)

    return patch.object(Evictor, "handle", handle)


def _outcomes_overwrite() -> Any:
    async def publish_outcome(self: Bus, outcome: Outcome) -> Published | AlreadyExists:
        stream, subject = self.subjects.outcomes_stream, self.subjects.outcome(outcome.order_id)
        id_, data = f"{codec.envelope_id(outcome)}-{outcome.evictor}", codec.wrap(outcome, self.source)
        return await publish(self.jetstream, Publication("outcome", stream, subject, id_, data))

    return patch.object(Bus, "publish_outcome", publish_outcome)


def _cancelled_goes_on() -> Any:
    real = decide.still_wanted

    def still_wanted(order: EvictionOrder, **facts: Any) -> Any:
        found = real(order, **facts)
        if isinstance(found, Cancelled) and order.preemptor is not None:
            return Proceed(PreemptorFacts(order.preemptor.priority, order.preemptor.namespace))
        return found

    return patch.object(decide, "still_wanted", still_wanted)


@contextmanager
def _old_looks_count() -> Iterator[None]:
    hour = timedelta(hours=1)
    with patch.object(work, "CHECK_LASTS", hour), patch.object(looks, "CHECK_LASTS", hour):
        yield


def _foreign_outcome() -> Any:
    real = Scheduler._apply_outcome

    def apply_outcome(self: Scheduler, outcome: Outcome) -> None:
        entry = self.inflight.by_pod.get(outcome.preemptor_uid)
        if entry is not None:
            outcome = msgspec.structs.replace(outcome, order_id=entry.order_id)
        real(self, outcome)

    return patch.object(Scheduler, "_apply_outcome", apply_outcome)


def _void_unstored() -> Any:
    real = Bus.publish_order

    async def store(self: OrderWriter, order: EvictionOrder, after: int) -> EvictionOrder:
        try:
            await real(self._bus, order, after)
        except BusUnavailable as error:
            return voided(order, Void(reason="not-acknowledged", message=str(error)))
        return order

    return patch.object(OrderWriter, "store", store)


def _judged_once() -> Any:
    real = Committer._judged

    def judged(self: Committer, commit: CommitRequest, offer: Offer, before: Any) -> Accepted | Void:
        found = real(self, commit, offer, before)
        return Accepted(found.order) if isinstance(found, Accepted) else found

    return patch.object(Committer, "_judged", judged)


MUTANTS = (
    Mutant(
        "no-compare-and-set", "the streams take an order whatever the last one is", _no_compare_and_set, 62
    ),
    Mutant(
        "outcome-before-rollback",
        "the outcome is written before the rollback is done",
        _outcome_before_rollback,
        2,
    ),
    Mutant("no-not-after", "evictors do not look at notAfter", _no_not_after, 91),
    Mutant("no-preconditions", "a delete names neither UID nor version", _no_preconditions, 1),
    Mutant("no-fence", "evictors do not compare the epoch", _no_fence, 62),
    Mutant("ack-before-act", "an order is acknowledged before it is carried out", _acknowledge_first, 5),
    Mutant("outcomes-overwrite", "an outcome is stored whether or not there is one", _outcomes_overwrite, 8),
    Mutant("revive-after-cancel", "evictors go on where the preemptor needs no room", _cancelled_goes_on, 37),
    Mutant(
        "old-looks-count", "an evictor that was stopped deletes by what it read before", _old_looks_count, 70
    ),
    Mutant(
        "foreign-outcome", "the plugin takes any outcome of the pod for its order's", _foreign_outcome, 460
    ),
    Mutant("void-unstored", "a planner answers an unanswered publish without a void", _void_unstored, 1),
    Mutant("judged-once", "a planner stores an order before it sees the nomination", _judged_once, 5),
    Mutant("marks-stay", "a rollback leaves the marks", _marks_stay, 2),
)


def seeds_needed(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, str]:
    """The first of some seeds that finds a defect, and what it breaks; 0 where none does."""
    with mutant.break_():
        for result in simulate(seeds):
            if result.problem:
                return result.seed, result.problem.partition(":")[0]
    return 0, ""


def main() -> None:
    """Look for all of them; print a table of the seeds that it took."""
    print("| Defect | Seeds until it is found | The invariant that it breaks |\n|---|---:|---|")
    for mutant in MUTANTS:
        seeds, broken = seeds_needed(mutant, range(1, MOST_SEEDS + 1))
        print(f"| {mutant.text} (`{mutant.name}`) | {seeds or 'not found'} | {broken} |", flush=True)


if __name__ == "__main__":
    main()
