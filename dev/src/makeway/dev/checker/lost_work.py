"""Rules about decisions by lost work: only where the policy asks for it, and after what comes first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from makeway.bus.decisions import RankedCandidate
from makeway.core.comparison import LEAST_LOST_WORK
from makeway.dev.checker.case import Finding, OrderCase
from makeway.dev.checker.findings import Invariant, Violation


def rules(case: OrderCase) -> Iterator[Finding]:
    """No candidate is better by lost work that is worse by what comes first; none is where it is off."""
    ranks = case.history.in_force.ranks_by_lost_work
    for stored in case.history.streams.decisions:
        decision = stored.message
        objects = (f"decision {decision.decision_id}",)
        for one in decision.candidates:
            if not ranks and (one.decided_by == LEAST_LOST_WORK or one.lost_work_seconds):
                evidence = (
                    f"{one.node} loses {one.lost_work_seconds} s, decided by {one.decided_by or 'nothing'}"
                )
                yield Violation(Invariant.LOST_WORK_UNASKED, objects, stored.at, evidence)
        for one, other in pairwise(decision.candidates):
            if one.decided_by == LEAST_LOST_WORK and other.victims and _key(one) > _key(other):
                evidence = f"{one.node} before {other.node}: {_key(one)} is more than {_key(other)}"
                yield Violation(Invariant.LOST_WORK_FIRST, objects, stored.at, evidence)


def _key(one: RankedCandidate) -> tuple[int, int, int]:
    return one.pdb_violations, one.highest_priority, one.lost_work_seconds
