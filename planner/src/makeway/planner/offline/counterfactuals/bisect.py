"""Looking for the least that helps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from makeway.planner.offline.counterfactuals.changes import Case
from makeway.planner.offline.results import Change
from makeway.planner.plan.unfiltered import PodVerdict, judge_pod

T = TypeVar("T")

Found = Iterator[tuple[Change, Case]]
"""Changes that were found to help, each with the case as it would be."""

Finder = Callable[[Case, PodVerdict], Found]


def helps(case: Case) -> bool:
    """Report whether the pod would not stay pending."""
    return judge_pod(case.snapshot, case.question, case.now, case.cache).refusal is None


def first(values: Sequence[T], works: Callable[[T], bool]) -> T | None:
    """Return the first value that works, where all after one that works do too; None where the last does not.

    O(log values).
    """
    if not values or not works(values[-1]):
        return None
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if works(values[middle]):
            high = middle
        else:
            low = middle + 1
    return values[low]
