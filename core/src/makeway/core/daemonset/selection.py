"""The victims for one daemonset pod on its node: the configured strategies, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from makeway.core.daemonset import strategies
from makeway.core.daemonset.occupant import Occupant
from makeway.core.daemonset.strategies import (
    Allowance,
    Multiple,
    Need,
    NoneCovers,
    Single,
    TooLarge,
    TooLittle,
    TooMany,
)
from makeway.core.policy.document import DaemonSets

Miss = NoneCovers | TooLarge | TooMany | TooLittle
"""Why a strategy chose no pod."""


@dataclass(frozen=True, slots=True)
class NoSelection:
    """No strategy chose a pod; `misses`: why, by strategy, in the order in which they were tried."""

    misses: tuple[tuple[str, Miss], ...]


def strategy_names(settings: DaemonSets) -> tuple[str, ...]:
    """Return the strategies in the order in which they are tried."""
    return tuple(settings.preemption_victim_pods_selection_strategy.split(","))


def select(
    pods: Sequence[Occupant],
    need: Need,
    request: Need,
    settings: DaemonSets,
    *,
    most_victims: int,
    allowance: Allowance,
) -> Single | Multiple | NoSelection:
    """Choose the victims among the pods that may go. O(n log n).

    `need`: what the node lacks for the pod, of the types that it lacks, above 0 each; `request`: what the
    pod asks for, of those types at least. `most_victims`: how many `multiple` may take, by these settings
    and by what else there is. `allowance`: what hard budgets let go; empty where none is hard.
    """
    misses: list[tuple[str, Miss]] = []
    for name in strategy_names(settings):
        found: Single | Multiple | Miss
        if name == "single":
            found = strategies.single(
                pods,
                need,
                request,
                max_deviation_percent=settings.single_max_deviation_percent,
                allowance=allowance,
            )
        else:
            found = strategies.multiple(pods, need, max_victims=most_victims, allowance=allowance)
        if isinstance(found, (Single, Multiple)):
            return found
        misses.append((name, found))
    return NoSelection(tuple(misses))
