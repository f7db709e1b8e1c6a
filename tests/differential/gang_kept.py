"""Plans for gangs on 60 to 400 nodes, which no exact solver reaches, against the prices of kept plans.

`python -m differential.gang_kept` writes the prices of today's plans into the table where these are cheaper,
and fails where one is dearer. A question more is a line more with its theme, size and seed, and any price.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from differential.gang_draws import draw
from differential.gangs import planned, wrong_with
from makeway.planner.plan.price import SHIFT, Price
from makeway.planner.plan.result import PlanRefusal

TABLE: Final = Path(__file__).with_name("gang_prices.txt")
RENEW: Final = "PYTHONPATH=tests .venv/bin/python -m differential.gang_kept"

HEADER: Final = """\
# Questions about gangs, and the prices of their plans: theme, nodes, seed; budgets violated, highest
# priority, groups broken, victims of that priority, sum of priorities, victims, start of the first of those.
"""


@dataclass(frozen=True)
class Kept:
    """A question, and the price of the plan that was kept."""

    theme: str
    band: str
    seed: int
    price: Price

    @classmethod
    def of(cls, line: str) -> Self:
        """Read a line of the table."""
        theme, band, seed, *terms = line.split()
        violations, highest, broken, highest_victims, total, victims, start = map(int, terms)
        price = Price(violations, highest, broken, highest_victims, total + SHIFT * victims, victims, start)
        return cls(theme, band, int(seed), price)

    def __str__(self) -> str:
        return f"{self.theme} {self.band} {self.seed}"

    def line(self) -> str:
        """Return the line of the table."""
        return f"{self} {told(self.price)}\n"

    def today(self) -> tuple[Kept, str]:
        """Return the question with a cheaper price where today's plan has one, and what is wrong with it."""
        case = draw(self.seed, self.theme, self.band)
        found, _ = planned(case, ())
        if isinstance(found, PlanRefusal):
            return self, f"{self} had a plan, and has none now: {found.reason}: {found.message}"
        if wrong := wrong_with(case, found):
            return self, f"the plan of {self} is wrong: {wrong}"
        before, after = self.price.key(case.objective), found.price.key(case.objective)
        if after > before:
            return self, f"the plan of {self} is dearer: {told(found.price)}, kept {told(self.price)}"
        return (self if after == before else replace(self, price=found.price)), ""


def told(price: Price) -> str:
    """Return the terms of a price as the table has them."""
    total = price.priority_sum - SHIFT * price.victims
    terms = price.violations, price.highest, price.broken, price.highest_victims, total, price.victims
    return " ".join(map(str, (*terms, price.start)))


def kept() -> list[Kept]:
    """Return the table."""
    return [Kept.of(line) for line in TABLE.read_text().splitlines() if not line.startswith("#")]


def main() -> int:
    """Renew the table, and return 1 where a plan is dearer or wrong."""
    found = [one.today() for one in kept()]
    TABLE.write_text(HEADER + "".join(one.line() for one, _ in found))
    for wrong in filter(None, (wrong for _, wrong in found)):
        print(wrong)
    return int(any(wrong for _, wrong in found))


if __name__ == "__main__":
    sys.exit(main())
