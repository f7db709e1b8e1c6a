"""All rules over one history."""

from __future__ import annotations

from datetime import datetime

from makeway.dev.checker import (
    activity,
    authority,
    deletes,
    forms,
    gangs,
    lives,
    lost_work,
    patches,
    spared,
    traces,
    truth,
    units,
)
from makeway.dev.checker.case import OrderCase
from makeway.dev.checker.findings import Findings, PendingPod, Violation
from makeway.dev.checker.history import RecordedHistory

_RULES = (
    deletes.rules,
    forms.rules,
    spared.rules,
    units.rules,
    gangs.rules,
    authority.rules,
    patches.rules,
    lives.rules,
    truth.rules,
    traces.rules,
    activity.rules,
    lost_work.rules,
)


def check(history: RecordedHistory, now: datetime) -> Findings:
    """Judge everything that happened until `now`. Pure; O(requests + messages), nearly."""
    case = OrderCase(history, now)
    findings = [finding for rules in _RULES for finding in rules(case)]
    return Findings(
        violations=tuple(sorted((f for f in findings if isinstance(f, Violation)), key=lambda v: v.at)),
        pending=tuple(sorted((f for f in findings if isinstance(f, PendingPod)), key=lambda p: p.due)),
    )
