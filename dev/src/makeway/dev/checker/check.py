"""All rules over one history."""

from __future__ import annotations

from datetime import datetime

from makeway.dev.checker import activity, deletes, lives, patches, traces
from makeway.dev.checker.case import Case
from makeway.dev.checker.findings import Pending, Report, Violation
from makeway.dev.checker.history import History

_RULES = (deletes.rules, patches.rules, lives.rules, traces.rules, activity.rules)


def check(history: History, now: datetime) -> Report:
    """Judge everything that happened until `now`. Pure; O(requests + messages), nearly."""
    case = Case(history, now)
    findings = [finding for rules in _RULES for finding in rules(case)]
    return Report(
        violations=tuple(sorted((f for f in findings if isinstance(f, Violation)), key=lambda v: v.at)),
        pending=tuple(sorted((f for f in findings if isinstance(f, Pending)), key=lambda p: p.due)),
    )
