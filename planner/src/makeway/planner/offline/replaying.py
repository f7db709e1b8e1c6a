"""A recorded decision made again: the snapshot from its recording, the plan as the planner makes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import Placement
from makeway.bus.plan import PlanRequest
from makeway.core.queues.victims import run_to_end
from makeway.planner.plan.decision import Decision, QuotaInputs, decision_of, record_of
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangQuestion, gang_question_of
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import Question, question_of
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.plan.unfiltered import answer
from makeway.planner.quota import decide as quota_plan
from makeway.planner.recording import entries
from makeway.planner.recording.entries import ChangingSet, InFlight, RecordingError
from makeway.planner.snapshot.state import Snapshot

NOT_COMPARED: Final = ("planner", "planDurationMicroseconds", "recording")
"""Who decided, how long that took and where it is kept: not part of what was decided."""


class Difference(msgspec.Struct, frozen=True):
    """A field of the record that comes out otherwise, as in `victims.0.uid`."""

    field: str
    recorded: Any
    replayed: Any


AnyDecided: TypeAlias = entries.Decided | QuotaInputs

REPLAY: Final = "replay"
"""Stands for the planner that decides again."""

_decode_request = msgspec.json.Decoder(PlanRequest).decode


class Replay:
    """A snapshot that is made again entry by entry, up to a decision."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._cache = PlanCache()
        self._complete = False
        self._cluster_uid = ""
        self._next = 0
        self._nominations = ChangingSet[Placement]()
        self._in_flight = ChangingSet[InFlight]()

    def read(self, data: bytes) -> Iterable[AnyDecided]:
        """Take the next chunk of the recording; return each decision with the snapshot as it was then.

        Raises RecordingError where the chunk is damaged, or not the next one.
        """
        number, found = entries.unpack(data)
        if number != self._next:
            missing = (
                "its beginning is no longer kept" if self._next == 0 else f"part {self._next} is missing"
            )
            raise RecordingError(f"the recording is incomplete: {missing}")
        self._next += 1
        for entry in found:
            match entry:
                case entries.Decided() | QuotaInputs():
                    if not self._complete:
                        raise RecordingError("the recording has a decision before its snapshot is complete")
                    if isinstance(entry, entries.Decided):
                        self._nominations.change(entry.nominations)
                        self._in_flight.change(entry.in_flight)
                    yield entry
                case entries.Began(cluster_uid):
                    self._cluster_uid = cluster_uid
                case entries.SnapshotComplete(revision, departures, budgets):
                    self.snapshot.restore(revision, departures, budgets)
                    self._complete = True
                case _:
                    self.snapshot.apply(entry)

    def again(self, decided: AnyDecided) -> DecisionRecord:
        """Decide again, on the snapshot as it is now. Raises as `question_of`, or RecordingError."""
        if isinstance(decided, QuotaInputs):
            return self._quota_again(decided)
        return record_of(self.decision(decided))

    def decision(self, decided: entries.Decided) -> Decision:
        """Return the decision about a pod or a group, made again. Raises as `question_of`."""
        snapshot, removed = self.snapshot, self._removed()
        nominations = tuple(self._nominations.items)
        request = msgspec.structs.replace(_decode_request(decided.request), nominations=nominations)
        question: Question | GangQuestion
        result: Plan | GangPlan | PlanRefusal
        if request.group is not None:
            question = gang_question_of(request, removed, decided.leaving).leaving_out(decided.left_out)
            result = plan_gang(snapshot, question, decided.at, self._cache)
        else:
            asked = question_of(request, removed, decided.leaving)
            question = replace(asked, unfit_since=decided.unfit_since).leaving_out(decided.left_out)
            result = answer(snapshot, question, decided.at, self._cache)
        if isinstance(result, PlanRefusal) and decided.again_at is not None:
            result = replace(result, retry_at=decided.again_at)
        return decision_of(
            snapshot,
            request,
            question,
            result,
            decision_id=decided.decision_id,
            planner=REPLAY,
            at=decided.at,
        )

    def _removed(self) -> dict[str, str]:
        return {uid: order for order, uids in self._in_flight.items for uid in uids}

    def _quota_again(self, decided: QuotaInputs) -> DecisionRecord:
        tree = self.snapshot.queues.tree
        if tree is None or tree.find(decided.queue) is None:
            raise RecordingError(f"the recording has no queue {decided.queue}")
        found = run_to_end(quota_plan.answering(self.snapshot, tree, decided))
        return quota_plan.record_of(
            decided, found, self.snapshot, cluster_uid=self._cluster_uid, planner=REPLAY
        )


def differences(recorded: DecisionRecord, replayed: DecisionRecord) -> list[Difference]:
    """Compare two records field by field; empty where the same was decided."""
    mine, theirs = _plain(recorded), _plain(replayed)
    for name in NOT_COMPARED:
        mine.pop(name, None)
        theirs.pop(name, None)
    return list(_differing("", mine, theirs))


def _plain(record: DecisionRecord) -> dict[str, Any]:
    """Return a record as its readers have it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    return found


def _differing(path: str, one: Any, other: Any) -> Iterable[Difference]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from _differing(f"{path}.{name}".strip("."), one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _differing(f"{path}.{number}", mine, theirs)
    else:
        yield Difference(path, one, other)
