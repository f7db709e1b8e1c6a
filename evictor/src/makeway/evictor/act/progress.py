"""What is known of one victim of an order under way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from makeway.bus.messages import Victim
from makeway.evictor.judge.contest import Contest
from makeway.evictor.judge.verdicts import Delete, Deleted, Exempt, Gone, Terminating
from makeway.evictor.retry import PermanentError, TemporaryError


@dataclass
class VictimProgress:
    """What is known of one victim so far."""

    victim: Victim
    verdict: Deleted | Gone | Terminating | Exempt | None = None
    error: TemporaryError | PermanentError | None = None
    attempts: int = 0
    delete_sent: bool = False
    deleted_at: datetime | None = None
    answer_lost: bool = False
    """A deletion was sent, and the API server did not say what became of it."""
    unanswered: bool = False
    """A write to it was not answered in time, so the next may take longer."""
    marked_as_read: bool = False
    """Its mark was the first look at it."""
    contest: Contest = field(default_factory=Contest)

    @property
    def went(self) -> bool:
        """Whether the order has deleted the pod: it was accepted, or has gone where the answer was lost."""
        lost = self.answer_lost and isinstance(self.verdict, Gone | Terminating)
        return self.deleted_at is not None or lost

    @property
    def may_stay(self) -> bool:
        """Whether the victim has not been seen deleted, leaving or gone: a rollback has to look at it."""
        return self.verdict is None or isinstance(self.verdict, Exempt)

    def meet(self, judged: Delete) -> Delete:
        """Take note of a verdict; return it without the version where the UID is enough."""
        self.contest = self.contest.judged_by(judged.basis)
        return replace(judged, resource_version="") if self.contest.by_uid else judged
