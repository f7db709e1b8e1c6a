"""What a pod's own side says about who may not remove it, as two numbers.

Every rule that looks at the victim alone (PreemptionToleration, protection) comes down to a barrier:
preemptors of a lower priority than `below` may not remove the pod, up to and including the moment
`until`. The rules answer from it and the planner's columns hold it, so that one pod looked at and all
pods looked at cannot differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AGAINST_ALL: Final = 2**40
"""`below` of a pod that no preemptor may remove: above every priority. Each reason has a number of its own
from here on, so that a column of `below` says why, too."""

AGAINST_NONE: Final = -(2**40)
"""`below` of a pod that no rule shields: under every priority."""

FOR_EVER: Final = 2**62
"""`until` where time alone changes nothing, in microseconds since 1970."""

PREEMPTION_TOLERATION: Final = "preemption-toleration"
MIRROR_POD: Final = "mirror-pod"
PROTECTED_NAMESPACE: Final = "protected-namespace"
PROTECTED_PRIORITY: Final = "protected-priority"
NEVER_EVICT: Final = "never-evict"
DELETE_REFUSED: Final = "delete-refused"
"""The API server refused the pod's deletion for good a moment ago; of one preemptor, for a while."""

RULES: Final = (
    PREEMPTION_TOLERATION,
    MIRROR_POD,
    PROTECTED_NAMESPACE,
    PROTECTED_PRIORITY,
    NEVER_EVICT,
    DELETE_REFUSED,
)
"""The rules that raise barriers, by number."""


class Barrier(NamedTuple):
    """Who may not remove a pod, and up to which microsecond."""

    below: int
    until: int

    def holds(self, preemptor_priority: int, now_micros: int) -> bool:
        """Say whether the pod stays for such a preemptor now."""
        return preemptor_priority < self.below and now_micros <= self.until

    @property
    def rule(self) -> str:
        """The rule that raised it."""
        return RULES[max(0, self.below - AGAINST_ALL)]


OPEN: Final = Barrier(AGAINST_NONE, FOR_EVER)
"""No rule shields the pod."""


def against_all(rule: str) -> Barrier:
    """Give the barrier of a rule that keeps a pod whatever the preemptor, for ever."""
    return Barrier(AGAINST_ALL + RULES.index(rule), FOR_EVER)
