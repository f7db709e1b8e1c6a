"""Preemption delay: a PriorityClass may ask that its pods wait for a while before they preempt.

The scheduler's plugin has the same rule in plugin/rules; the cases of bus/testdata/rules hold both to one
another. The delay counts from when the scheduler first found no node for the pod, which its condition
`PodScheduled` says, also after the scheduler was restarted. A value that cannot be read delays nothing, as if
there were none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from makeway.core.config.duration import DurationError, parse_duration
from makeway.core.k8s.objects import PriorityClass

PREEMPTION_DELAY: Final = "makeway.dev/preemption-delay"
"""Annotation of a PriorityClass: so long its pods are pending before they preempt; a Go duration."""

LONGEST_DELAY: Final = timedelta(hours=1)
"""More is refused, since it would not be clear any more why a pod does not preempt."""

_LONGEST_TEXT: Final = 16
"""Bytes of an annotation's value; with so few no number is too large for either language."""


@dataclass(frozen=True, slots=True)
class UnreadableDelay:
    """An annotation that is no duration between nothing and `LONGEST_DELAY`."""

    value: str
    problem: str

    def __str__(self) -> str:
        """What is wrong and what was expected, for people."""
        hours = LONGEST_DELAY // timedelta(hours=1)
        return (
            f"annotation {PREEMPTION_DELAY}: {self.value[:80]!r} {self.problem}; "
            f"expected a duration such as 30s or 5m, at most {hours}h"
        )


def delay_of(priority_class: PriorityClass | None) -> timedelta | UnreadableDelay:
    """Read the annotation; no delay where there is none, or no class. O(1)."""
    annotations = priority_class.metadata.annotations if priority_class is not None else None
    text = (annotations or {}).get(PREEMPTION_DELAY)
    if text is None:
        return timedelta()
    digits = text.removeprefix("+")
    if len(text.encode(errors="replace")) > _LONGEST_TEXT or (digits.isdecimal() and digits != "0"):
        return UnreadableDelay(text, "is no duration")
    try:
        delay = parse_duration(text)
    except DurationError as error:
        return UnreadableDelay(text, str(error))
    return delay if delay <= LONGEST_DELAY else UnreadableDelay(text, "is too long")
