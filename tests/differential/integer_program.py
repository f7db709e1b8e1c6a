"""A small integer program, minimized one goal after the other by HiGHS."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

Sum = Mapping[int, float]
"""A linear sum: what each variable, by number, counts."""

OPTIMAL: Final = 0
INFEASIBLE: Final = 2


class UnprovenError(Exception):
    """The time did not suffice."""


@dataclass
class Program:
    """Integer variables from 0 to a most, and sums of them that are at most a number."""

    mosts: list[int] = field(default_factory=list)
    rows: list[tuple[Sum, float]] = field(default_factory=list)

    def variable(self, most: int = 1) -> int:
        """Add a variable and return its number."""
        self.mosts.append(most)
        return len(self.mosts) - 1

    def at_most(self, total: Sum, most: float) -> None:
        """Ask for a sum that is at most a number."""
        self.rows.append((total, most))

    def equal(self, total: Sum, value: float) -> None:
        """Ask for a sum of a value."""
        self.at_most(total, value)
        self.at_most({name: -count for name, count in total.items()}, -value)

    def least(self, goal: Sum, until: float) -> list[int] | None:
        """Return the variables at which a sum is least; None where there are none. `until`: monotonic.

        Raises:
            UnprovenError: that took too long.
        """
        if until <= time.monotonic():
            raise UnprovenError
        cost = np.zeros(len(self.mosts))
        for name, count in goal.items():
            cost[name] = count
        numbers = [number for number, (total, _) in enumerate(self.rows) for _ in total]
        names = [name for total, _ in self.rows for name in total]
        values = [count for total, _ in self.rows for count in total.values()]
        matrix = csr_matrix((values, (numbers, names)), shape=(len(self.rows), len(self.mosts)))
        # HiGHS takes a program for infeasible in rare cases, by its presolve: it must say so without, too.
        for presolve in (True, False):
            found = milp(
                cost,
                integrality=np.ones(len(self.mosts)),
                bounds=Bounds(0, np.array(self.mosts, np.float64)),
                constraints=LinearConstraint(matrix, ub=np.array([most for _, most in self.rows])),
                options={
                    "time_limit": max(until - time.monotonic(), 0),
                    "mip_rel_gap": 0,
                    "presolve": presolve,
                },
            )
            if found.status != INFEASIBLE:
                break
        if found.status == INFEASIBLE:
            return None
        if found.status != OPTIMAL:
            raise UnprovenError
        return [round(value) for value in found.x]
