"""Two choices for the same pod, judged by the same numbers: makeway's, and DefaultPreemption's.

The order is kube-scheduler's (preemption.pickOneNodeForPreemption), which both of them rank by: the first
five rules of docs/ranking.md, tested with the cases of bus/testdata/ranking. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from makeway.core.k8s.importance import NOT_STARTED, importance
from makeway.core.policy.lost_work import UnsavedWork

RULES: Final = (
    "fewest-pdb-violations",
    "lowest-highest-priority",
    "lowest-priority-sum",
    "fewest-victims",
    "latest-start",
)
"""What is looked at, in this order; the first on which two choices differ decides."""

LEAST_LOST_WORK: Final = "least-lost-work"
RULES_WITH_LOST_WORK: Final = (*RULES[:2], LEAST_LOST_WORK, *RULES[2:])
"""The same where the policy ranks by lost work."""

PRIORITY_SHIFT: Final = 2**31
"""Added to each priority, so that a sum of them grows with every victim."""

BudgetKey = tuple[str, str]
"""Namespace and name of a disruption budget."""

RelativeRank = Literal["better", "worse", "equal"]


@dataclass(frozen=True, slots=True)
class Share:
    """What is left of a removed pod's group: bound pods, and how many may go without breaking it."""

    group: str
    size: int
    spare: int = 0


@dataclass(frozen=True, slots=True)
class RemovedPod:
    """A pod that a choice removes. `start_micros`: since when it runs, or NOT_STARTED.

    `share`: of a group that can be broken, as it was when the pod was chosen; None for others.
    `work`: what it may lose.
    """

    uid: str
    priority: int
    start_micros: int
    budgets: tuple[BudgetKey, ...] = ()
    share: Share | None = None
    work: UnsavedWork | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The numbers of one choice. `violating`: UIDs of the pods beyond what their budgets allow.

    Without victims it is better than every choice with one, by `highest_priority` at the latest.
    `groups_broken`: groups of which more pods go than they can spare, and others stay. `highest_victims`: how
    many have the highest priority. `lost_work`: thousandths of seconds of a pod of the preemptor's size. None
    of these is a rule of kube-scheduler.
    """

    violating: frozenset[str]
    highest_priority: int
    priority_sum: int
    victims: int
    start_micros: int
    groups_broken: int = 0
    highest_victims: int = 0
    lost_work: int = 0

    def keys(self) -> tuple[int, ...]:
        """Return the numbers in the order of RULES, the less the better."""
        return tuple(_NUMBERS[rule](self) for rule in RULES)


_NUMBERS: Final[Mapping[str, Callable[[Judgement], int]]] = {
    "fewest-pdb-violations": lambda one: len(one.violating),
    "lowest-highest-priority": lambda one: one.highest_priority,
    LEAST_LOST_WORK: lambda one: one.lost_work,
    "fewest-groups-broken": lambda one: one.groups_broken,
    "fewest-highest-priority-victims": lambda one: one.highest_victims,
    "lowest-priority-sum": lambda one: one.priority_sum,
    "fewest-victims": lambda one: one.victims,
    "latest-start": lambda one: -one.start_micros,
}
"""What each rule looks at, also those of groups; the less the better."""

_BELOW_ALL: Final = -(2**40)


def judge(
    pods: Iterable[RemovedPod],
    allowed: Mapping[BudgetKey, int],
    lost: Callable[[UnsavedWork], int] | None = None,
) -> Judgement:
    """Judge the removal of some pods. O(pods · log pods).

    `allowed`: what each budget allowed when the choice was made. The more important pods use it up first,
    and only pods that go are counted, so that neither side is charged with pods that stay. `lost`: what a pod
    loses of its work, None where that does not count.
    """
    ordered = sorted(pods, key=lambda pod: importance(pod.priority, pod.start_micros, pod.uid))
    left = dict(allowed)
    violating = set()
    for pod in ordered:
        for key in pod.budgets:
            left[key] = left.get(key, 0) - 1
            if left[key] < 0:
                violating.add(pod.uid)
    highest = ordered[0].priority if ordered else _BELOW_ALL
    return Judgement(
        violating=frozenset(violating),
        highest_priority=highest,
        priority_sum=sum(pod.priority + PRIORITY_SHIFT for pod in ordered),
        victims=len(ordered),
        start_micros=min(
            (pod.start_micros for pod in ordered if pod.priority == highest), default=NOT_STARTED
        ),
        groups_broken=_broken(pod.share for pod in ordered if pod.share is not None),
        highest_victims=sum(pod.priority == highest for pod in ordered),
        lost_work=sum(lost(pod.work) for pod in ordered if pod.work is not None) if lost is not None else 0,
    )


def _broken(shares: Iterable[Share]) -> int:
    """Count the groups that the removal of these pods breaks.

    What is chosen one by one finds less and less left of its group: what the first found counts.
    """
    gone: dict[str, int] = {}
    whole: dict[str, Share] = {}
    for share in shares:
        gone[share.group] = gone.get(share.group, 0) + 1
        before = whole.get(share.group)
        if before is None or before.size < share.size:
            whole[share.group] = share
    return sum(share.spare < gone[name] < share.size for name, share in whole.items())


def compare(one: Judgement, other: Judgement, rules: Iterable[str] = RULES) -> tuple[RelativeRank, str]:
    """Return how one choice compares with another, and the rule that decides; equal by none."""
    for rule in rules:
        own, others = _NUMBERS[rule](one), _NUMBERS[rule](other)
        if own != others:
            return ("better" if own < others else "worse"), rule
    return "equal", ""
