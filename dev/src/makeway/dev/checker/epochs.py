"""Which epoch each Lease was in, from the bodies of its renewals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from makeway.dev.audit_log import AuditEvent


@dataclass(frozen=True)
class LeaseEpoch:
    """An epoch of a Lease. `since`: when it began, by the holder's clock; `seen_at`: when it was stored."""

    number: int
    since: datetime
    seen_at: datetime


class Epochs:
    """The epochs of every Lease, oldest first. Empty where the log has no bodies of Leases."""

    def __init__(self, requests: Iterable[AuditEvent]) -> None:
        self._found: dict[tuple[str, str], list[LeaseEpoch]] = defaultdict(list)
        for event in requests:
            spec = (event.request or {}).get("spec") or {}
            if event.resource != "leases" or not event.accepted or "acquireTime" not in spec:
                continue
            epochs = self._found[event.namespace, event.name]
            number = int(spec.get("leaseTransitions") or 0)
            if not epochs or epochs[-1].number != number:
                since = datetime.fromisoformat(spec["acquireTime"])
                # A log that was begun in the middle of an epoch has none of its earlier renewals.
                seen_at = event.answered_at if epochs else min(since, event.answered_at)
                epochs.append(LeaseEpoch(number, since, seen_at))

    def __bool__(self) -> bool:
        """Report whether any epoch is known."""
        return bool(self._found)

    def of(self, namespace: str, name: str) -> list[LeaseEpoch]:
        """Return a Lease's epochs; none where it was never held."""
        return self._found.get((namespace, name), [])
