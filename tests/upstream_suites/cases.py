"""What `go test -v` says of its cases."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """How a case ended. UNFINISHED: the process ended before it did."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    SKIP = "SKIP"
    UNFINISHED = "UNFINISHED"


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `name`: as `-test.run` takes it, such as TestPreemption/basic_pod_preemption."""

    name: str
    outcome: Outcome
    seconds: float = 0.0


_BEGUN: Final = re.compile(r"^=== RUN +(\S+)$")
_ENDED: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)$")


def cases(lines: Iterable[str]) -> list[Case]:
    """Return the cases in the order in which they began.

    A test that has cases below it is one of them only where it failed, and none of those did.
    """
    found: dict[str, Case] = {}
    for line in lines:
        if begun := _BEGUN.match(line):
            found[begun[1]] = Case(begun[1], Outcome.UNFINISHED)
        elif ended := _ENDED.match(line):
            found[ended[2]] = Case(ended[2], Outcome(ended[1]), float(ended[3]))
    return [case for case in found.values() if _stands_alone(case, found)]


def _stands_alone(case: Case, all_cases: dict[str, Case]) -> bool:
    """Report whether the case is more than the sum of those below it."""
    below = [other for name, other in all_cases.items() if name.startswith(f"{case.name}/")]
    if case.outcome in {Outcome.PASS, Outcome.SKIP}:
        return not below
    return all(other.outcome is not case.outcome for other in below)
