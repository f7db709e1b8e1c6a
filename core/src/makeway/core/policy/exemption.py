"""What a pod's own side says about which preemptors may not remove it, as two numbers.

Every rule that looks at the victim alone (PreemptionToleration, protection) comes down to an exemption:
preemptors of a lower priority than `below` may not remove the pod, up to and including the moment
`until`. The rules answer from it and the planner's columns hold it, so that one pod looked at and all
pods looked at cannot differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ANY_PREEMPTOR: Final = 2**40
"""`below` of a pod that no preemptor may remove: above every priority. Each reason has a number of its own
from here on, so that a column of `below` says why, too."""

NO_PREEMPTOR: Final = -(2**40)
"""`below` of a pod that no rule exempts: under every priority."""

FOREVER: Final = 2**62
"""`until` where time alone changes nothing, in microseconds since 1970."""

LATEST: Final = 250_000_000_000 * 1_000_000
"""A moment in the year 9892: what lasts longer lasts for ever, since no datetime holds it."""

PREEMPTION_TOLERATION: Final = "preemption-toleration"
MIRROR_POD: Final = "mirror-pod"
PROTECTED_NAMESPACE: Final = "protected-namespace"
PROTECTED_PRIORITY: Final = "protected-priority"
NEVER_EVICT: Final = "never-evict"
DELETE_REFUSED: Final = "delete-refused"
"""The API server refused the pod's deletion for good a moment ago; of one preemptor, for a while."""

TERMINATING: Final = "terminating"
"""It is being deleted already, so that evicting it frees nothing sooner."""

PREEMPTION_RULE: Final = "preemption-rule"
"""A rule of the policy's `preemption` keeps it from this preemptor."""

RULES: Final = (
    PREEMPTION_TOLERATION,
    MIRROR_POD,
    PROTECTED_NAMESPACE,
    PROTECTED_PRIORITY,
    NEVER_EVICT,
    DELETE_REFUSED,
    TERMINATING,
    PREEMPTION_RULE,
)
"""The rules that exempt pods, by number."""


class Exemption(NamedTuple):
    """Which preemptors may not remove a pod, and up to which microsecond."""

    below: int
    until: int

    def applies(self, preemptor_priority: int, now_micros: int) -> bool:
        """Report whether the pod stays for such a preemptor now."""
        return preemptor_priority < self.below and now_micros <= self.until

    @property
    def rule(self) -> str:
        """The rule that exempts the pod."""
        return RULES[max(0, self.below - ANY_PREEMPTOR)]


NOT_EXEMPT: Final = Exemption(NO_PREEMPTOR, FOREVER)
"""No rule exempts the pod."""


def exempt_from_all(rule: str) -> Exemption:
    """Return the exemption of a pod that no preemptor may remove, for ever."""
    return Exemption(ANY_PREEMPTOR + RULES.index(rule), FOREVER)
